// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real workload: `tar -cf - | tar -xf -` of a tree of C headers over the mechanism. Both trees are in a tmpfs. Most
//! of the time is that of the two tars, which `no-pipe` measures.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use sluice_testkit::clock;
use sluice_testkit::units::megabytes;
use sluice_testkit::workers::Start;

use super::plan::subject;
use super::setup::{self, Setup};
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Receiver, Sender, Task, Workload, no_ipc};

/// The size of the writes of tar.
const TAR_RECORD: usize = 10_240;
/// Creating files is slow in emulation.
const LIMIT: Duration = Duration::from_secs(120);

/// Headers of C, which are present wherever programs are compiled: hundreds of files, or, where creating files is slow, a hundred.
fn tree(plan: &Plan) -> &'static Path {
    Path::new(match plan.emulated && plan.scale != Scale::Full {
        true => "/usr/include/linux/netfilter",
        false => "/usr/include/linux",
    })
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let tree = tree(plan);
    Ok(vec![match tree.is_dir() {
        true => case(plan, placement, Rc::new(Staged::new(tree)?))?,
        false => not_here(plan, placement, tree),
    }])
}

fn not_here(plan: &Plan, placement: Placement, tree: &Path) -> Case {
    let reason = format!("there is no {}; install linux-libc-dev", tree.display());
    let title = format!("a tree of files {}", placement.name());
    Case {
        size: None,
        ..plan.skipped_case(
            "tar",
            title,
            Metric::Latency,
            (TAR_RECORD, placement),
            &reason,
        )
    }
}

fn case(plan: &Plan, placement: Placement, staged: Rc<Staged>) -> Result<Case> {
    let (size, files) = (megabytes(staged.bytes), staged.files);
    let title = format!("{size} in {files} files {}", placement.name());
    let task = Task {
        size: TAR_RECORD,
        placement,
        workload: Workload::File,
    };
    let job = |setup| Tar {
        setup,
        staged: Rc::clone(&staged),
    };
    let mut case = plan.case("tar", title, Metric::Latency, task, job)?;
    case.size = None;
    let no_ipc = Rc::new(no_ipc::mechanism(staged.archive(), staged.other_archive()));
    let setup = Setup {
        mechanism: Rc::clone(&no_ipc),
        confinement: plan.confinement(placement)?,
        size: TAR_RECORD,
    };
    case.subjects.push(subject(&no_ipc, job(setup)));
    Ok(case)
}

/// A copy of the tree in memory, so that the disk is not measured.
struct Staged {
    directory: PathBuf,
    files: u64,
    bytes: u64,
}

impl Staged {
    fn new(source: &Path) -> Result<Self> {
        let directory = PathBuf::from(format!("/dev/shm/sluice-bench-{}", std::process::id()));
        let mut staged = Self {
            directory,
            files: 0,
            bytes: 0,
        };
        fs::create_dir(&staged.directory)
            .with_context(|| format!("cannot create {}", staged.directory.display()))?;
        run(Command::new("cp").arg("-rL").arg(source).arg(staged.tree()))?;
        run(Command::new("tar")
            .arg("-cf")
            .arg(staged.archive())
            .arg("-C")
            .arg(staged.tree())
            .arg("."))?;
        (staged.files, staged.bytes) = count(&staged.tree())?;
        Ok(staged)
    }

    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    fn copy(&self) -> PathBuf {
        self.directory.join("copy")
    }

    /// An archive of the tree, created before the measurement.
    fn archive(&self) -> PathBuf {
        self.directory.join("archive.tar")
    }

    /// The output of a tar that runs next to an independent one.
    fn other_archive(&self) -> PathBuf {
        self.directory.join("other.tar")
    }

    fn reset(&self) -> Result<()> {
        let copy = self.copy();
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy).with_context(|| format!("cannot create {}", copy.display()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!(
                "cannot remove {}: {error}; remove it manually",
                self.directory.display()
            );
        }
    }
}

fn count(directory: &Path) -> Result<(u64, u64)> {
    let mut total = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (files, bytes) = match entry.file_type()?.is_dir() {
            true => count(&entry.path())?,
            false => (1, entry.metadata()?.len()),
        };
        total = (total.0 + files, total.1 + bytes);
    }
    Ok(total)
}

struct Tar {
    setup: Setup,
    staged: Rc<Staged>,
}

impl Job for Tar {
    fn check(&self) -> Result<()> {
        self.measure()?;
        run(Command::new("diff")
            .arg("-r")
            .arg(self.staged.tree())
            .arg(self.staged.copy()))
        .context("the unpacked tree differs from the packed one")
    }

    fn measure(&self) -> Result<Measurement> {
        self.staged.reset()?;
        let pair = self.setup.pair(
            |sender, start| self.pack(sender, start),
            |receiver, start| self.unpack(receiver, start),
        )?;
        let times = setup::run(pair, LIMIT)?.concat();
        let (begin, end) = (times.iter().min(), times.iter().max());
        let elapsed_ns = end.zip(begin).map_or(0, |(end, begin)| end - begin);
        Ok(Measurement {
            samples: vec![elapsed_ns],
            messages: 1,
            bytes: self.staged.bytes,
            elapsed_ns,
            ..Measurement::default()
        })
    }
}

impl Tar {
    /// Returns the times of begin and end.
    fn pack(&self, sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
        let mut tar = Command::new("tar");
        tar.args(["-cf", "-", "."])
            .current_dir(self.staged.tree())
            .stdout(stdio(sender.file())?);
        drop(sender);
        start.wait()?;
        let begin = clock::now_ns();
        run(&mut tar)?;
        Ok(vec![begin, clock::now_ns()])
    }

    /// Returns the time of the end.
    fn unpack(&self, receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
        let mut tar = Command::new("tar");
        tar.args(["-xf", "-"])
            .current_dir(self.staged.copy())
            .stdin(stdio(receiver.file())?);
        drop(receiver);
        start.wait()?;
        run(&mut tar)?;
        Ok(vec![clock::now_ns()])
    }
}

fn stdio(file: Option<BorrowedFd<'_>>) -> Result<Stdio> {
    let file = file.context("tar needs a mechanism with a file")?;
    Ok(file.try_clone_to_owned()?.into())
}

fn run(command: &mut Command) -> Result<()> {
    // SAFETY: the closure makes a single system call between fork and exec. A killed measurement must not leave a tar
    // behind.
    unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}; check that it is installed"))?;
    ensure!(
        status.success(),
        "{program} failed ({status}); its message is above"
    );
    Ok(())
}
