// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real workload: `tar -cf - | tar -xf -` of a tree of C headers over the mechanism. Both trees are in a tmpfs. Most
//! of the time is that of the two tars, which `no-pipe` measures.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use sluice_testkit::clock;
use sluice_testkit::units::megabytes;
use sluice_testkit::workers::Start;

use super::plan::{Plan, Scale, subject};
use super::setup::{Setup, existing};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::temp_paths::Directory;
use crate::mechanisms::{Task, Workload, no_ipc};

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
    let task = plan.task(TAR_RECORD, Workload::File);
    let tree = tree(plan);
    let mut case = match tree.is_dir() {
        true => case(plan, task, Rc::new(Staged::new(tree)?))?,
        false => {
            let title = format!("a tree of files {}", task.placement.name());
            let reason = format!("there is no {}; install linux-libc-dev", tree.display());
            plan.skipped_case("tar", title, Metric::Latency, task, &reason)
        }
    };
    case.size = None;
    Ok(vec![case])
}

fn case(plan: &Plan, task: Task, staged: Rc<Staged>) -> Result<Case> {
    let (size, files) = (megabytes(staged.bytes), staged.files);
    let title = format!("{size} in {files} files {}", task.placement.name());
    let job = |setup| Tar {
        setup,
        staged: Rc::clone(&staged),
    };
    let mut case = plan.case("tar", title, Metric::Latency, task, job)?;
    let [archive, other] = [ARCHIVE, OTHER].map(|name| staged.path(name));
    let no_ipc = Rc::new(no_ipc::mechanism(archive, other));
    let setup = plan.setup(Rc::clone(&no_ipc), &task)?;
    case.subjects.push(subject(&no_ipc, job(setup)));
    Ok(case)
}

const TREE: &str = "tree";
const COPY: &str = "copy";
/// An archive of the tree, created before the measurement.
const ARCHIVE: &str = "archive.tar";
/// The output of a tar that runs next to an independent one.
const OTHER: &str = "other.tar";

/// A copy of the tree in memory, so that the disk is not measured.
struct Staged {
    directory: Directory,
    files: u64,
    bytes: u64,
}

impl Staged {
    fn new(source: &Path) -> Result<Self> {
        let mut staged = Self {
            directory: Directory::new(Path::new("/dev/shm"))?,
            files: 0,
            bytes: 0,
        };
        let [tree, archive] = [TREE, ARCHIVE].map(|name| staged.path(name));
        run(Command::new("cp").arg("-rL").arg(source).arg(&tree))?;
        let mut tar = Command::new("tar");
        run(tar.current_dir(&tree).arg("-cf").arg(archive).arg("."))?;
        (staged.files, staged.bytes) = count(&tree)?;
        Ok(staged)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    fn reset(&self) -> Result<()> {
        let copy = self.path(COPY);
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy).with_context(|| format!("cannot create {}", copy.display()))
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
        let mut diff = Command::new("diff");
        diff.arg("-r")
            .args([TREE, COPY].map(|name| self.staged.path(name)));
        run(&mut diff).context("the unpacked tree differs from the packed one")
    }

    fn measure(&self) -> Result<Measurement> {
        self.staged.reset()?;
        let [packed, unpacked] = self.setup.run(
            LIMIT,
            |sender, start| {
                let mut tar = self.tar("-cf", TREE);
                tar.arg(".")
                    .stdout(existing(sender.file())?.try_clone_to_owned()?);
                drop(sender);
                timed(&mut tar, start)
            },
            |receiver, start| {
                let mut tar = self.tar("-xf", COPY);
                tar.stdin(existing(receiver.file())?.try_clone_to_owned()?);
                drop(receiver);
                timed(&mut tar, start)
            },
        )?;
        let elapsed_ns = packed[1].max(unpacked[1]) - packed[0];
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
    fn tar(&self, mode: &str, directory: &str) -> Command {
        let mut tar = Command::new("tar");
        tar.current_dir(self.staged.path(directory))
            .args([mode, "-"]);
        tar
    }
}

/// Returns the times of begin and end.
fn timed(tar: &mut Command, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    let begin = clock::now_ns();
    run(tar)?;
    Ok(vec![begin, clock::now_ns()])
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
