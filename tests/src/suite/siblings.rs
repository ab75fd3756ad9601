// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container beside another one and the host, with channels of all kinds there: whether a name exists there can be told
//! neither by an answer, its bytes and its time, nor by what the limits count.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use io_uring::squeue;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use sluice_abi::{LIST_MAX, SCOPE_ROOT};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{Channel, read_some, write_all};
use crate::support::check::{expect, note};
use crate::support::child::{Child, spawn_keeping};
use crate::support::container::{User, spawn_in_container};
use crate::support::ctl::{
    ALL_FLAGS, BOTH, CREATABLE, CREATE, ChannelInfo, Ctl, DESTROY, INFO, Info, KIND_FEED, KIND_MAP,
    LIST, List, NAME_SIZE, NONBLOCK, OPEN, OWN, Open, PERSIST, READ, UNLINK, Unlink, WRITE,
    access_of, usage_of,
};
use crate::support::event::Event;
use crate::support::ioctl::{raw, raw_with_result};
use crate::support::map;
use crate::support::netlink::{Attrs, Request, Socket, attr, command};
use crate::support::process::open_pidfd;
use crate::support::requests::bytes_of;
use crate::support::uring;

topic!(
    "siblings",
    fifo: [],
    pipe_only: [
        an_answer_about_a_name_elsewhere_is_that_about_no_name,
        an_open_takes_as_long_where_the_name_exists_elsewhere,
        the_counts_of_a_container_do_not_change_with_a_sibling,
        io_uring_opens_the_own_pipe_only,
        processes_of_a_sibling_are_out_of_reach,
    ],
);

/// Exist at the sibling and on the host, and nowhere.
const THEIRS: &str = "theirs";
const HOSTS: &str = "hostss";
const NOWHERE: &str = "nobody";
/// The feed of the simulator, and a name of the same length.
const FEED: &str = "simulator";
const NO_FEED: &str = "simulatox";

const CREATE_ONE: u32 = CREATE | PERSIST | NONBLOCK;

fn request(kind: u32, scope_fd: RawFd, name: &str, flags: u32) -> Open {
    Open {
        kind,
        scope_fd,
        mode: 0o666,
        ..Open::new(name, flags)
    }
}

/// Persistent channels of all kinds in the cgroup of this process, which everyone may use.
fn persist_all(name: &str) -> Result<()> {
    let ctl = Ctl::new()?;
    for kind in CREATABLE {
        let end = ctl.open(request(kind, OWN, name, access_of(kind) | CREATE_ONE));
        let end = end.with_context(|| format!("creating one of kind {kind}"))?;
        if kind == KIND_MAP {
            map::put(&end, b"key", b"secret")?;
        }
    }
    Ok(())
}

/// The sibling: a container with channels of its own, in which a process waits.
struct Sibling {
    cgroup: Cgroup,
    process: Child<()>,
    end: Event,
}

impl Sibling {
    fn new(home: &Cgroup, user: User) -> Result<Self> {
        let cgroup = home.create_child(&format!("{user:?}-sibling"))?;
        let (ready, end) = (Event::new()?, Event::new()?);
        let keep = [ready.fds(), end.fds()].concat();
        let process = spawn_in_container(&cgroup, user, "the sibling", &keep, || {
            persist_all(THEIRS)?;
            let pipe = Channel::new("/dev/sluice/pipe").open_read_write()?;
            write_all(&pipe, b"secret")?;
            ready.notify()?;
            end.wait("the test of a container")
        })?;
        ready.wait("the sibling has its channels")?;
        Ok(Sibling {
            cgroup,
            process,
            end,
        })
    }

    fn finish(self) -> Result<()> {
        self.end.notify()?;
        self.process.finish()?;
        let directory = self.cgroup.directory()?;
        let names = Ctl::new()?.page(directory.as_raw_fd(), None, LIST_MAX)?;
        let kinds: Vec<u32> = names.iter().map(|channel| channel.kind).collect();
        expect("the sibling's channels", kinds, CREATABLE.to_vec())
    }
}

/// Runs `body` as each user in a container beside a sibling, in a cgroup of the host with channels.
fn beside(context: &Context, body: fn(&Sibling, BorrowedFd) -> Result<()>) -> Result<()> {
    let home = context.cgroup()?;
    persist_all(HOSTS)?;
    for user in User::ALL {
        let sibling = Sibling::new(home, user)?;
        let leaked = sibling.cgroup.directory()?;
        let cgroup = home.create_child(&format!("{user:?}"))?;
        let container =
            spawn_in_container(&cgroup, user, "a container", &[leaked.as_fd()], || {
                body(&sibling, leaked.as_fd())
            })?;
        container.finish()?;
        sibling.finish()?;
    }
    Ok(())
}

// ---- answers ----

/// What was asked, and the result with all bytes that the kernel may have written.
type Answers = Vec<(String, Result<i32, Errno>, Vec<u8>)>;

/// Of all calls about this name; none creates anything.
fn answers(ctl: &Ctl, socket: &Socket, scope: RawFd, name: &str) -> Result<Answers> {
    let mut answers = Vec::new();
    let mut add = |what: String, result, bytes| answers.push((what, result, bytes));
    for kind in CREATABLE.into_iter().chain([KIND_FEED, 0, 99]) {
        for flags in [READ, WRITE, BOTH, ALL_FLAGS & !CREATE] {
            let mut open = request(kind, scope, name, flags | NONBLOCK);
            let result = raw_with_result(ctl, OPEN, &mut open);
            add(format!("open {kind} {flags:#x}"), result, vec![]);
        }
        let (mut info, mut state) = (ChannelInfo::EMPTY, [0_u8; 256]);
        // Every state begins with its size.
        state[0] = 64;
        let mut asked = Info {
            kind,
            state: state.as_mut_ptr() as u64,
            ..Info::new(scope, name, &mut info)
        };
        let result = raw_with_result(ctl, INFO, &mut asked);
        add(
            format!("info {kind}"),
            result,
            [&bytes_of(&info)[..], &state].concat(),
        );
        let mut entries = [ChannelInfo::EMPTY; 4];
        let mut list = List::new(scope, entries.as_mut_ptr(), entries.len());
        list.kind = kind;
        list.name = sluice_abi::padded(name);
        let result = raw_with_result(ctl, LIST, &mut list);
        let bytes = [&bytes_of(&entries)[..], &list.count.to_ne_bytes()].concat();
        add(format!("list {kind}"), result, bytes);
        for (what, command) in [("unlink", UNLINK), ("destroy", DESTROY)] {
            let mut unlink = Unlink {
                kind,
                ..Unlink::new(scope, name)
            };
            let result = raw_with_result(ctl, command, &mut unlink);
            add(format!("{what} {kind}"), result, vec![]);
        }
    }
    for (number, attrs) in netlink_requests(scope, name) {
        let answer = socket.request(&Request::new(number, attrs))?;
        let result = match &answer {
            Ok(_) => Ok(0),
            Err(refusal) => Err(refusal.errno),
        };
        add(
            format!("netlink {number}"),
            result,
            format!("{answer:?}").into_bytes(),
        );
    }
    Ok(answers)
}

fn netlink_requests(scope: RawFd, name: &str) -> Vec<(u8, Attrs)> {
    let map = match scope {
        OWN => Attrs::new().name(name),
        _ => Attrs::new().name(name).scope(scope),
    };
    let key = map.clone().key(b"key");
    let step = Attrs::new().u32(attr::COMMAND, 0).key(b"key");
    vec![
        (command::OPEN, map.clone().flags(READ)),
        (command::OPEN, map.clone().flags(BOTH)),
        (command::INFO, map.clone()),
        (command::DUMP, map.clone()),
        (command::GET, key.clone()),
        (command::SET, key.clone().value(b"value")),
        (command::DELETE, key),
        (command::BATCH, map.clone().step(&step)),
        (command::WATCH, map.u64(attr::AFTER, map::NOW)),
    ]
}

fn expect_same(scope: RawFd, name: &str, nowhere: &str) -> Result<usize> {
    let (ctl, socket) = (Ctl::new()?, Socket::new()?);
    let seen = answers(&ctl, &socket, scope, name)?;
    let expected = answers(&ctl, &socket, scope, nowhere)?;
    let count = seen.len();
    for (seen, expected) in seen.into_iter().zip(expected) {
        ensure!(
            seen.1.is_err() || seen.0.starts_with("list"),
            "{seen:?} succeeded"
        );
        expect(&format!("'{name}' in scope {scope}"), seen, expected)?;
    }
    Ok(count)
}

/// Creates channels of all kinds under the name, and removes them; what the first info says of each.
fn create_own(name: &str) -> Result<Vec<ChannelInfo>> {
    let ctl = Ctl::new()?;
    CREATABLE
        .into_iter()
        .map(|kind| {
            let _end = ctl.open(request(kind, OWN, name, access_of(kind) | CREATE_ONE))?;
            let info = ctl.info_of(kind, OWN, name)?;
            ctl.remove(UNLINK, kind, OWN, name)?;
            Ok(ChannelInfo {
                name: [0; NAME_SIZE],
                ..info
            })
        })
        .collect()
}

fn an_answer_about_a_name_elsewhere_is_that_about_no_name(context: &Context) -> Result<()> {
    beside(context, |_, leaked| {
        let mut compared = 0;
        for scope in [OWN, SCOPE_ROOT, leaked.as_raw_fd(), 9999] {
            for name in [THEIRS, HOSTS] {
                compared += expect_same(scope, name, NOWHERE)?;
            }
            compared += expect_same(scope, FEED, NO_FEED)?;
        }
        let nowhere = create_own(NOWHERE)?;
        for name in [THEIRS, HOSTS] {
            let own = format!("{:?}", create_own(name)?);
            expect("own channels of that name", own, format!("{nowhere:?}"))?;
        }
        note(format!("{compared} answers compared"));
        Ok(())
    })
}

// ---- time ----

/// Names that exist at the sibling, and nowhere. Several, because the place of each in a hash table is random.
const NAMES: usize = 16;
const PAIRS: usize = 4000;

fn timed_open(ctl: &Ctl, kind: u32, name: &str) -> Result<Duration> {
    let mut open = request(kind, OWN, name, WRITE | NONBLOCK);
    let since = Instant::now();
    let result = raw(ctl, OPEN, &mut open);
    let time = since.elapsed();
    expect("an open", result, Err(Errno::ENOENT))?;
    Ok(time)
}

fn quartiles(times: &mut [Duration]) -> [Duration; 3] {
    times.sort_unstable();
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}

/// Of pairs in random order, each name is the slower one about as often: what disturbs the machine strikes both alike.
fn an_open_takes_as_long_where_the_name_exists_elsewhere(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let sibling = home.create_child("sibling")?;
    let creation = sibling.spawn("the sibling", || {
        (0..NAMES).try_for_each(|number| persist_all(&format!("theirs{number:02}")))
    })?;
    creation.finish()?;
    let cgroup = home.create_child("container")?;
    let seed = context.random.seed;
    let user = User::NamespaceRoot;
    let container = spawn_in_container(&cgroup, user, "a container", &[], || {
        let (ctl, mut random) = (Ctl::new()?, Rng::with_seed(seed));
        let (mut theirs, mut nowhere) = (Vec::new(), Vec::new());
        let mut slower = 0;
        for pair in 0..PAIRS {
            let kind = CREATABLE[pair % CREATABLE.len()];
            let number = random.usize(..NAMES);
            let names = [format!("theirs{number:02}"), format!("nobody{number:02}")];
            let first = random.usize(..2);
            let mut times = [Duration::ZERO; 2];
            for index in [first, 1 - first] {
                times[index] = timed_open(&ctl, kind, &names[index])?;
            }
            slower += usize::from(times[0] > times[1]) * 2 + usize::from(times[0] == times[1]);
            theirs.push(times[0]);
            nowhere.push(times[1]);
        }
        let [low, there, high] = quartiles(&mut theirs);
        let [_, none, _] = quartiles(&mut nowhere);
        let share = slower as f64 / (2 * PAIRS) as f64;
        note(format!(
            "--seed {seed}: median {there:?} where the name exists elsewhere (quartiles {low:?}, {high:?}), {none:?} where it does not; slower in {:.1} % of pairs",
            share * 100.0
        ));
        ensure!(there.abs_diff(none) <= high - low, "the medians differ");
        // Ten standard deviations of what chance does.
        ensure!(
            (0.42..0.58).contains(&share),
            "one is slower in {share} of the pairs"
        );
        Ok(())
    })?;
    container.finish()
}

// ---- counts ----

fn usage(ctl: &Ctl) -> Result<Vec<u8>> {
    Ok(bytes_of(&usage_of(ctl, OWN).context("usage")?))
}

fn the_counts_of_a_container_do_not_change_with_a_sibling(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    for user in User::ALL {
        let cgroup = home.create_child(&format!("{user:?}"))?;
        let (ready, created) = (Event::new()?, Event::new()?);
        let keep = [ready.fds(), created.fds()].concat();
        let container = spawn_in_container(&cgroup, user, "a container", &keep, || {
            let ctl = Ctl::new()?;
            let _own = ctl.create("mine").context("creating a pipe")?;
            let before = usage(&ctl)?;
            ready.notify()?;
            created.wait("the sibling has its channels")?;
            expect("usage", usage(&ctl)?, before)
        })?;
        ready.wait("the container has counted")?;
        let sibling = Sibling::new(home, user)?;
        created.notify()?;
        container.finish()?;
        sibling.finish()?;
    }
    Ok(())
}

// ---- other ways ----

/// The kernel opens the file in a worker, or in the thread of the ring.
fn open_by_uring(ring: &mut uring::Ring, flags: squeue::Flags) -> Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    let entry = uring::open_at(c"/dev/sluice/pipe", libc::O_RDWR | libc::O_NONBLOCK);
    ring.submit(entry.flags(flags), uring::REQUEST)?;
    let opened = ring.wait_result(uring::REQUEST)?.context("opening")?;
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

fn io_uring_opens_the_own_pipe_only(context: &Context) -> Result<()> {
    beside(context, |_, _| {
        let own = Channel::new("/dev/sluice/pipe").open_read_write()?;
        write_all(&own, b"mine")?;
        let mut rings = [uring::Ring::new()?, uring::Ring::with_kernel_thread()?];
        for ring in &mut rings {
            for flags in [squeue::Flags::empty(), squeue::Flags::ASYNC] {
                let end = open_by_uring(ring, flags)?;
                expect("what is in it", read_some(&end, 64)?, b"mine".to_vec())?;
                write_all(&end, b"mine")?;
            }
        }
        Ok(())
    })
}

fn trace(pid: Pid) -> nix::Result<()> {
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid.as_raw(), 0, 0) }).map(drop)
}

/// In a pid namespace, the numbers of other processes are those of none; and an endpoint of an own process is an own one.
fn processes_of_a_sibling_are_out_of_reach(context: &Context) -> Result<()> {
    beside(context, |sibling, _| {
        let theirs = sibling.process.pid();
        let nobody = Pid::from_raw(4_000_000);
        let reach = |pid: Pid| {
            [
                format!(
                    "{:?}",
                    open_pidfd(pid)
                        .map(drop)
                        .map_err(|error| error.root_cause().to_string())
                ),
                format!("{:?}", kill(pid, None)),
                format!("{:?}", trace(pid)),
                format!(
                    "{:?}",
                    fs::read_dir(format!("/proc/{pid}/fd"))
                        .map(drop)
                        .map_err(|e| e.kind())
                ),
                format!(
                    "{:?}",
                    fs::read_link(format!("/proc/{pid}/ns/cgroup")).map_err(|e| e.kind())
                ),
            ]
        };
        ensure!(
            kill(theirs, None) == Err(Errno::ESRCH),
            "the number is taken here"
        );
        expect("the sibling's process", reach(theirs), reach(nobody))?;
        for entry in fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name();
            ensure!(pid.to_string_lossy() != theirs.to_string(), "it is listed");
        }
        steal_from_own()
    })
}

/// A tracer gets the endpoints of its tracee, which are of the container.
fn steal_from_own() -> Result<()> {
    use std::os::fd::FromRawFd as _;
    let end = Ctl::new()?.create("mine").context("creating a pipe")?;
    write_all(&end, b"mine")?;
    // A process that has changed its user is not by itself.
    prctl::set_dumpable(true).context("becoming dumpable")?;
    let tracee: Child<()> = spawn_keeping("a tracee", &[end.as_fd()], || {
        loop {
            std::thread::park();
        }
    })?;
    trace(tracee.pid()).context("attaching to an own process")?;
    let pidfd = open_pidfd(tracee.pid())?;
    // SAFETY: takes three numbers.
    let stolen =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), end.as_raw_fd(), 0) };
    let stolen = Errno::result(stolen).context("pidfd_getfd")?;
    // SAFETY: a new descriptor, which nothing else owns.
    let stolen = unsafe { OwnedFd::from_raw_fd(stolen as RawFd) };
    expect("what is in it", read_some(&stolen, 64)?, b"mine".to_vec())?;
    // A path to it is no way to another role, or to the name of another scope.
    let path = format!("/proc/self/fd/{}", stolen.as_raw_fd());
    let opened = fs::File::open(path)
        .map(drop)
        .map_err(|error| error.raw_os_error());
    expect("opening it again", opened, Err(Some(libc::ENXIO)))?;
    tracee.kill()
}
