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
use sluice_testkit::workers::{Pair, Side, Start};

use super::{Confinement, PROCESS_TIMEOUT, Plan};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::{Link, Mechanism, NoIpc, Task, Workload};

/// Present wherever programs are compiled.
const TREES: [&str; 2] = ["/usr/include/linux", "/usr/include"];
/// The size of the writes of tar.
const TAR_RECORD: usize = 10_240;
/// Creating files is slow in emulation.
const LIMIT: Duration = Duration::from_secs(120);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    Ok(vec![case(plan, placement, Rc::new(Staged::new()?))?])
}

fn case(plan: &Plan, placement: Placement, staged: Rc<Staged>) -> Result<Case> {
    let (mut mechanisms, skipped) = plan.mechanisms_for(&Task {
        size: TAR_RECORD,
        placement,
        workload: Workload::File,
    });
    mechanisms.push(Rc::new(NoIpc::new(
        staged.archive(),
        staged.other_archive(),
    )));
    let confinement = plan.confinement(placement)?;
    let title = format!(
        "{} in {} files {}",
        megabytes(staged.bytes),
        staged.files,
        placement.name()
    );
    let subject = |mechanism: Rc<dyn Mechanism>| {
        Subject::pair(
            &*mechanism,
            Box::new(Tar {
                mechanism: Rc::clone(&mechanism),
                confinement: confinement.clone(),
                staged: Rc::clone(&staged),
            }),
        )
    };
    Ok(Case {
        suite: "tar",
        title,
        size: None,
        placement,
        metric: Metric::Latency,
        subjects: mechanisms.into_iter().map(subject).collect(),
        skipped,
    })
}

/// A copy of the tree in memory, so that the disk is not measured.
struct Staged {
    directory: PathBuf,
    files: u64,
    bytes: u64,
}

impl Staged {
    fn new() -> Result<Self> {
        let source = TREES.iter().map(Path::new).find(|path| path.is_dir());
        let source = source.context(
            "there is no /usr/include for tar; install libc6-dev, or omit the suite tar",
        )?;
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
    mechanism: Rc<dyn Mechanism>,
    confinement: Confinement,
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
        let link = self.mechanism.link(TAR_RECORD)?;
        let mut pair = Pair::start(link, PROCESS_TIMEOUT, |side, link, start| match side {
            Side::First => self.pack(link, start),
            Side::Second => self.unpack(link, start),
        })?;
        pair.go()?;
        let times = pair.finish(LIMIT)?.concat();
        let (begin, end) = (times.iter().min(), times.iter().max());
        let elapsed_ns = end.zip(begin).map_or(0, |(end, begin)| end - begin);
        Ok(Measurement {
            samples: vec![elapsed_ns],
            messages: 1,
            bytes: self.staged.bytes,
            elapsed_ns,
            cpu_ns: 0,
            ..Measurement::default()
        })
    }
}

impl Tar {
    /// Returns the times of begin and end.
    fn pack(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let sender = link.sender()?;
        self.confinement.enter(Side::First)?;
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
    fn unpack(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let receiver = link.receiver()?;
        self.confinement.enter(Side::Second)?;
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
