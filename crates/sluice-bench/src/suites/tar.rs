// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real job: `tar -cf - | tar -xf -` of a tree of C headers, with the mechanism in the middle. Both trees are in a tmpfs.
//! Most of the time is the two tars' own: `no-pipe` says how much.

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

use super::{PATIENCE, Plan, Room};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::harness::units::megabytes;
use crate::mechanisms::{Apart, Link, Mechanism, Shape, Task};

/// There wherever programs are compiled.
const TREES: [&str; 2] = ["/usr/include/linux", "/usr/include"];
/// What tar writes at a time.
const TAR_RECORD: usize = 10_240;
/// In emulation making files is slow.
const LIMIT: Duration = Duration::from_secs(120);

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let placement = plan.one_placement();
    Ok(vec![cell(plan, placement, Rc::new(Staged::new()?))?])
}

fn cell(plan: &Plan, placement: Placement, staged: Rc<Staged>) -> Result<Cell> {
    let (mut mechanisms, skips) = plan.rivals(&Task {
        size: TAR_RECORD,
        placement,
        shape: Shape::File,
    });
    mechanisms.push(Rc::new(Apart::new(
        staged.archive(),
        staged.other_archive(),
    )));
    let room = plan.room(placement)?;
    let title = format!(
        "{} in {} files {}",
        megabytes(staged.bytes),
        staged.files,
        placement.name()
    );
    let contender = |mechanism: Rc<dyn Mechanism>| {
        Contender::pair(
            &*mechanism,
            Box::new(Tar {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                staged: Rc::clone(&staged),
            }),
        )
    };
    Ok(Cell {
        suite: "tar",
        title,
        size: None,
        placement,
        headline: Headline::Latency,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

/// A copy in memory of the tree, so that the disk is not what is measured.
struct Staged {
    folder: PathBuf,
    files: u64,
    bytes: u64,
}

impl Staged {
    fn new() -> Result<Self> {
        let source = TREES.iter().map(Path::new).find(|path| path.is_dir());
        let source = source.context("there is no /usr/include to move with tar; install libc6-dev, or leave out --suite tar")?;
        let folder = PathBuf::from(format!("/dev/shm/sluice-bench-{}", std::process::id()));
        let mut staged = Self {
            folder,
            files: 0,
            bytes: 0,
        };
        fs::create_dir(&staged.folder)
            .with_context(|| format!("cannot make {}", staged.folder.display()))?;
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
        self.folder.join("tree")
    }

    fn copy(&self) -> PathBuf {
        self.folder.join("copy")
    }

    /// Of the tree, made before anything is measured.
    fn archive(&self) -> PathBuf {
        self.folder.join("archive.tar")
    }

    /// For those who pack while another unpacks.
    fn other_archive(&self) -> PathBuf {
        self.folder.join("other.tar")
    }

    fn clear(&self) -> Result<()> {
        let copy = self.copy();
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy).with_context(|| format!("cannot make {}", copy.display()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!(
                "cannot remove {} ({error}); remove it by hand",
                self.folder.display()
            );
        }
    }
}

fn count(folder: &Path) -> Result<(u64, u64)> {
    let mut total = (0, 0);
    for entry in fs::read_dir(folder)? {
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
    room: Room,
    staged: Rc<Staged>,
}

impl Job for Tar {
    fn check(&self) -> Result<()> {
        self.measure()?;
        run(Command::new("diff")
            .arg("-r")
            .arg(self.staged.tree())
            .arg(self.staged.copy()))
        .context("what tar unpacked differs from what it packed")
    }

    fn measure(&self) -> Result<Measurement> {
        self.staged.clear()?;
        let link = self.mechanism.link(TAR_RECORD)?;
        let mut pair = Pair::start(link, PATIENCE, |side, link, start| match side {
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
    /// Returns when it began and when it was done.
    fn pack(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let sender = link.sender()?;
        self.room.enter(Side::First)?;
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

    /// Returns when it was done.
    fn unpack(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
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
    let file = file.context("tar needs a mechanism that is a file")?;
    Ok(file.try_clone_to_owned()?.into())
}

fn run(command: &mut Command) -> Result<()> {
    // SAFETY: prctl is all that runs between fork and exec. Without it a tar would outlive a killed measurement.
    unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    ensure!(
        status.success(),
        "{program} failed ({status}); its message is above"
    );
    Ok(())
}
