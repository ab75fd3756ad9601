// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a program, in a process of its own, which it ends.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use sluice_abi::keeper::{CREATE, Create};

use crate::calls::{Special, Way};
use crate::description::Description;
use crate::generate::{form, way};
use crate::kcov::{Coverage, THREADS};
use crate::keeper::{self, Manner};
use crate::memory::{Memory, descriptor};
use crate::program::{Call, Program, SLOTS};
use crate::uring::Ring;
use crate::values::FileKind;

/// A call that waits is interrupted after so long.
const PATIENCE: Duration = Duration::from_millis(20);
/// A file through which programs access their mappings.
const SCRATCH: RawFd = 890;
const SCRATCH_LENGTH: i64 = 1 << 17;
/// Beyond the descriptors of programs.
const LAST_DESCRIPTOR: u64 = 800;

/// A system call; a negative number is an errno.
pub fn system(number: i64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: a program passes addresses of the memory of its own arguments and of mappings that are its own.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        // SAFETY: the location of errno is always valid.
        return -i64::from(unsafe { *libc::__errno_location() });
    }
    result
}

pub fn ioctl(file: RawFd, code: u64, argument: u64) -> i64 {
    system(libc::SYS_ioctl, [file as u64, code, argument, 0, 0, 0])
}

/// A call with its arguments placed.
struct Job {
    way: Way,
    arguments: Vec<u64>,
    opens: FileKind,
    to: u8,
    fail: u8,
}

/// Whether to print the calls and their results.
#[derive(Clone, Copy, PartialEq)]
pub enum Report {
    Nothing,
    Calls,
}

pub fn execute(program: &Program, coverage: &Coverage, family: u16, report: Report) -> ! {
    let mut memory = Memory::new(family);
    let mut threads = Threads::new(coverage, program);
    let mut ring = None;
    interrupt_this_thread();
    let fail = FailNth::of_this_thread(program.calls.iter().any(|call| call.fail > 0));
    coverage.enable(0);
    for call in &program.calls {
        let Some(job) = prepare_job(call, &mut memory) else {
            continue;
        };
        let thread = usize::from(call.thread) % THREADS;
        if thread > 0 && !needs_main(job.way) {
            threads.post(thread, job);
            continue;
        }
        let result = fail.during(job.fail, || run_on_main(&job, &mut memory, &mut ring));
        if report == Report::Calls {
            eprintln!("{} {:x?} = {result}", call.name, job.arguments);
        }
    }
    threads.finish();
    // The end of a process is not traced, the end of its files and mappings is.
    system(libc::SYS_close_range, [3, LAST_DESCRIPTOR, 0, 0, 0, 0]);
    for slot in 0..SLOTS {
        let space = memory.place(&crate::program::Value::Mapping(slot, 0));
        system(libc::SYS_munmap, [space, 1 << 36, 0, 0, 0, 0]);
    }
    coverage.disable(0);
    // SAFETY: nothing of this process has to be flushed.
    unsafe { libc::_exit(0) }
}

/// Once before programs, whose processes inherit it.
pub fn prepare() {
    // SAFETY: the name ends with a NUL.
    unsafe {
        let scratch = libc::memfd_create(c"scratch".as_ptr(), 0);
        libc::ftruncate(scratch, SCRATCH_LENGTH);
        libc::dup2(scratch, SCRATCH);
        libc::close(scratch);
    }
}

fn prepare_job(call: &Call, memory: &mut Memory) -> Option<Job> {
    let way = way(&call.name)?;
    let mut arguments: Vec<u64> = call
        .arguments
        .iter()
        .map(|value| memory.place(value))
        .collect();
    let found = form(&call.name);
    if found.is_none() {
        let ioctl = Description::get().ioctls.get(&call.name)?;
        arguments.insert(1.min(arguments.len()), ioctl.code);
    }
    arguments.resize(8, 0);
    let ioctl_opens = matches!(call.name.as_str(), "SLUICE_CTL_OPEN" | "SLUICE_CTL_KEEP");
    Some(Job {
        way,
        arguments,
        opens: match found {
            Some(form) => form.opens,
            None if ioctl_opens => FileKind::Any,
            None => FileKind::None,
        },
        to: call.to,
        fail: call.fail,
    })
}

fn needs_main(way: Way) -> bool {
    matches!(
        way,
        Way::Special(Special::Submit | Special::Complete | Special::Answer)
    )
}

fn run_on_main(job: &Job, memory: &mut Memory, ring: &mut Option<Ring>) -> i64 {
    match job.way {
        Way::Special(Special::Submit | Special::Complete) => {
            if ring.is_none() {
                *ring = Ring::new();
            }
            match (job.way, &ring) {
                (Way::Special(Special::Submit), Some(ring)) => ring.submit(&job.arguments),
                (_, Some(ring)) => ring.complete(job.arguments[0]),
                _ => -i64::from(libc::ENOSYS),
            }
        }
        Way::Special(Special::Answer) => {
            let manner = match job.arguments[1] {
                0 => Manner::Ignore,
                _ => Manner::Answer,
            };
            let stream = keeper::handle(job.arguments[0] as RawFd, manner);
            memory.stream = stream.unwrap_or(memory.stream);
            memory.stream as i64
        }
        _ => {
            let result = run(job);
            if result == 0 && job.arguments[1] == CREATE {
                // SAFETY: the call has just written the structure there.
                let create = unsafe { (job.arguments[2] as *const Create).read_unaligned() };
                memory.stream = create.stream;
            }
            result
        }
    }
}

/// What every thread can execute.
fn run(job: &Job) -> i64 {
    let arguments = &job.arguments;
    match job.way {
        Way::System(number) => {
            let six = [0, 1, 2, 3, 4, 5].map(|at| arguments[at]);
            let result = system(number, six);
            if job.opens != FileKind::None && result >= 0 {
                keep_files(job, result);
            }
            result
        }
        Way::Special(Special::Fork) => fork(Duration::from_millis(arguments[0] % 100)),
        Way::Special(Special::Store) => {
            let number = arguments[1].to_ne_bytes();
            let scratch = SCRATCH as u64;
            system(
                libc::SYS_pwrite64,
                [scratch, number.as_ptr() as u64, 8, 0, 0, 0],
            );
            system(
                libc::SYS_pread64,
                [scratch, arguments[0], arguments[2] % 9, 0, 0, 0],
            )
        }
        Way::Special(Special::Load) => {
            let length = arguments[1].min(SCRATCH_LENGTH as u64);
            system(
                libc::SYS_pwrite64,
                [SCRATCH as u64, arguments[0], length, 0, 0, 0],
            )
        }
        Way::Special(Special::Enter) => enter(arguments[0]),
        Way::Special(_) => 0,
    }
}

/// Moves new descriptors to their slots.
fn keep_files(job: &Job, result: i64) {
    let mut pair = [result as i32, -1];
    let address = match job.way {
        Way::System(libc::SYS_pipe2) => Some(job.arguments[0]),
        Way::System(libc::SYS_socketpair) => Some(job.arguments[3]),
        _ => None,
    };
    if let Some(address) = address {
        // SAFETY: the call has just written them there.
        pair = unsafe { (address as *const [i32; 2]).read_unaligned() };
    }
    for (file, slot) in pair.into_iter().zip([job.to, job.to.wrapping_add(1)]) {
        if file >= 0 {
            // SAFETY: descriptors of slots are only those of programs.
            unsafe {
                libc::dup2(file, descriptor(slot));
                libc::close(file);
            }
        }
    }
}

fn fork(sleep: Duration) -> i64 {
    // SAFETY: the child only sleeps and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::usleep(sleep.as_micros() as u32);
            libc::_exit(0);
        }
        child.into()
    }
}

fn enter(path: u64) -> i64 {
    // SAFETY: of this form the argument is mostly a path with a NUL in the memory of the arguments; otherwise the process dies.
    unsafe {
        let path = CStr::from_ptr(path as *const libc::c_char);
        let folder = libc::open(path.as_ptr(), libc::O_PATH);
        let file = libc::openat(folder, c"cgroup.procs".as_ptr(), libc::O_WRONLY);
        let written = libc::write(file, c"0".as_ptr().cast(), 1);
        libc::close(file);
        libc::close(folder);
        written as i64
    }
}

// ---- interruption ----

extern "C" fn ignore(_: libc::c_int) {}

/// From now on a signal interrupts what this thread waits for, again and again.
fn interrupt_this_thread() {
    let span = libc::timespec {
        tv_sec: 0,
        tv_nsec: PATIENCE.as_nanos() as i64,
    };
    // SAFETY: all structures are valid when zero, apart from what is set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
        let times = libc::itimerspec {
            it_interval: span,
            it_value: span,
        };
        libc::timer_settime(timer, 0, &times, std::ptr::null_mut());
    }
}

// ---- failures ----

/// Failures that the kernel injects into calls of a thread.
struct FailNth(Option<File>);

impl FailNth {
    fn of_this_thread(is_needed: bool) -> Self {
        if !is_needed {
            return FailNth(None);
        }
        let file = OpenOptions::new()
            .write(true)
            .open("/proc/thread-self/fail-nth");
        FailNth(file.ok().map(away))
    }

    fn during<T>(&self, nth: u8, call: impl FnOnce() -> T) -> T {
        if nth > 0 {
            self.arm(nth);
        }
        let result = call();
        if nth > 0 {
            self.arm(0);
        }
        result
    }

    fn arm(&self, nth: u8) {
        if let Some(mut file) = self.0.as_ref() {
            // Without it the call succeeds.
            let _ = file.write_all(nth.to_string().as_bytes());
        }
    }
}

/// To a descriptor that programs do not close.
fn away(file: File) -> File {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the new descriptor is owned by nothing else.
    unsafe { File::from_raw_fd(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, SCRATCH + 1)) }
}

// ---- threads ----

struct Threads(Vec<Option<(SyncSender<Job>, Arc<AtomicBool>)>>);

impl Threads {
    /// As many as the program uses.
    fn new(coverage: &Coverage, program: &Program) -> Self {
        let mut threads: Vec<_> = (0..THREADS).map(|_| None).collect();
        for call in &program.calls {
            let number = usize::from(call.thread) % THREADS;
            if number > 0 && threads[number].is_none() {
                let (sender, receiver) = sync_channel(1);
                let busy = Arc::new(AtomicBool::new(false));
                let (coverage, its) = (coverage.clone(), busy.clone());
                let spawned = std::thread::Builder::new()
                    .stack_size(1 << 17)
                    .spawn(move || run_jobs(number, &coverage, &receiver, &its));
                threads[number] = spawned.ok().map(|_| (sender, busy));
            }
        }
        Threads(threads)
    }

    /// Gives a thread its next call; drops it if the thread is still waiting in an earlier one.
    fn post(&mut self, thread: usize, mut job: Job) {
        let Some((sender, _)) = &self.0[thread] else {
            return;
        };
        let begun = Instant::now();
        while let Err(TrySendError::Full(back)) = sender.try_send(job) {
            if begun.elapsed() > PATIENCE {
                return;
            }
            job = back;
            std::thread::yield_now();
        }
    }

    /// Waits until all threads have ended, or until a call must have been interrupted.
    fn finish(&mut self) {
        let begun = Instant::now();
        let busy: Vec<_> = self.0.drain(..).flatten().map(|thread| thread.1).collect();
        while busy.iter().any(|busy| !busy.load(Ordering::Acquire))
            && begun.elapsed() < 3 * PATIENCE
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// `ended` is set when there are no more jobs.
fn run_jobs(number: usize, coverage: &Coverage, jobs: &Receiver<Job>, ended: &AtomicBool) {
    interrupt_this_thread();
    let fail = FailNth::of_this_thread(true);
    coverage.enable(number);
    while let Ok(job) = jobs.recv() {
        fail.during(job.fail, || run(&job));
    }
    coverage.disable(number);
    ended.store(true, Ordering::Release);
}
