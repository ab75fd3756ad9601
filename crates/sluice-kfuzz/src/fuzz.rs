// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop: a program of the corpus is changed and executed, and kept if a thread of it went from one place in the module to
//! another one that no program before has gone to from there.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sluice_testkit::kernel_log::{KernelLog, complaint};

use crate::execute::Report;
use crate::guest::Guest;
use crate::kcov::Coverage;
use crate::netlink;
use crate::program::Program;
use crate::seeds;
use crate::values::Values;
use crate::worker::{End, Worker};

/// Of the file that has the programs that were executed last.
const RECENT: u64 = 16;
const RECENT_SIZE: u64 = 1 << 16;
/// Programs between two looks at what is counted in cgroups.
const BATCH: u64 = 500;

pub struct Fuzzer {
    values: Values,
    guest: Guest,
    coverage: Coverage,
    workers: [Worker; 2],
    log: KernelLog,
    recent: File,
    folder: PathBuf,
    /// Places, and pairs of successive places.
    places: HashSet<u64>,
    pairs: HashSet<u64>,
    corpus: Vec<Program>,
    executed: u64,
    killed: u64,
}

impl Fuzzer {
    /// Reads and writes files in the folder.
    pub fn new(folder: &Path, seed: u64, limit: Duration) -> Result<Self> {
        let guest = Guest::set_up()?;
        let coverage = Coverage::new()?;
        let family = netlink::family()?;
        fs::create_dir_all(folder)?;
        let worker = |unprivileged| Worker::start(unprivileged, &coverage, family, limit);
        Ok(Fuzzer {
            values: Values::new(seed),
            workers: [worker(false)?, worker(true)?],
            guest,
            coverage,
            log: KernelLog::from_now()?,
            recent: File::create(folder.join("recent"))?,
            folder: folder.to_owned(),
            places: HashSet::new(),
            pairs: HashSet::new(),
            corpus: Vec::new(),
            executed: 0,
            killed: 0,
        })
    }

    /// Executes the programs of a file, one a line, as often as this, and tells what each call returned.
    pub fn replay(&mut self, file: &Path, times: u32) -> Result<()> {
        for program in read_programs(file)? {
            for _ in 0..times {
                self.execute(&program, Report::Calls)?;
            }
        }
        self.finish()
    }

    /// Executes a corpus whole, and then new programs until the time is over.
    pub fn fuzz(&mut self, corpus: &[PathBuf], duration: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut programs = seeds::all();
        for file in corpus {
            programs.extend(read_programs(file)?);
        }
        for program in programs {
            if self.is_new(&program)? {
                self.keep(program)?;
            }
        }
        println!("{}", self.progress(begun));
        let mut told = Instant::now();
        while begun.elapsed() < duration {
            let program = self.next();
            if self.is_new(&program)? {
                let program = self.minimize(program)?;
                self.keep(program)?;
            }
            if told.elapsed() > Duration::from_secs(30) {
                told = Instant::now();
                println!("{}", self.progress(begun));
            }
        }
        println!("{}", self.progress(begun));
        self.finish()
    }

    fn next(&mut self) -> Program {
        if self.corpus.is_empty() || self.values.once_in(10) {
            return self.values.program();
        }
        // New programs are chosen more often.
        let count = self.corpus.len();
        let first = if self.values.random.bool() {
            count - count.div_ceil(8)
        } else {
            0
        };
        let mut program = self.corpus[self.values.random.usize(first..count)].clone();
        let other = &self.corpus[self.values.random.usize(..count)];
        self.values.mutate(&mut program, other);
        program
    }

    /// Executes a program; whether a thread has gone somewhere new. It counts only if the program ends by itself.
    fn is_new(&mut self, program: &Program) -> Result<bool> {
        let found = self.new_pairs(program)?;
        let mut again = found.clone();
        if !found.is_empty() {
            // What another program, or chance, has caused does not happen again.
            let second = self.pairs_of(program)?;
            again.retain(|pair| second.contains(pair));
        }
        self.pairs.extend(&found);
        Ok(!again.is_empty())
    }

    fn new_pairs(&mut self, program: &Program) -> Result<HashSet<u64>> {
        let mut found = self.pairs_of(program)?;
        found.retain(|pair| !self.pairs.contains(pair));
        Ok(found)
    }

    fn pairs_of(&mut self, program: &Program) -> Result<HashSet<u64>> {
        let mut found = HashSet::new();
        if self.execute(program, Report::Nothing)? == End::Exited {
            let places = &mut self.places;
            self.coverage.traces(|trace| {
                let mut before = 0_u64;
                for place in trace {
                    places.insert(place);
                    found.insert(before.rotate_left(21) ^ place);
                    before = place;
                }
            });
        }
        Ok(found)
    }

    /// Removes the calls without which the program still goes through the same pairs, but for a few that chance decides.
    fn minimize(&mut self, mut program: Program) -> Result<Program> {
        let goal = self.pairs_of(&program)?;
        let mut at = program.calls.len();
        while at > 0 {
            at -= 1;
            let mut shorter = program.clone();
            shorter.calls.remove(at);
            let reached = self.pairs_of(&shorter)?;
            if goal.difference(&reached).count() * 50 <= goal.len() {
                program = shorter;
            }
        }
        Ok(program)
    }

    fn keep(&mut self, program: Program) -> Result<()> {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(self.folder.join("new"))?;
        file.write_all(format!("{}\n", program.to_text()).as_bytes())?;
        self.corpus.push(program);
        Ok(())
    }

    /// Executes a program, cleans up, and checks the kernel. The program is stored first: the kernel may not survive it.
    fn execute(&mut self, program: &Program, report: Report) -> Result<End> {
        let text = program.to_text();
        let mut stored = format!("{} {text}\n", self.executed).into_bytes();
        stored.truncate(RECENT_SIZE as usize);
        stored.push(0);
        let at = self.executed % RECENT * RECENT_SIZE;
        self.recent.write_all_at(&stored, at)?;
        self.executed += 1;
        self.coverage.clear();
        let end = self.workers[usize::from(program.unprivileged & 1)].run(&text, report)?;
        match end {
            End::Exited => {}
            End::Killed => self.killed += 1,
            End::Late => self.store_finding("late", &text)?,
            End::Stuck => {
                self.store_finding("stuck", &text)?;
                bail!(
                    "a program cannot be killed; it is in {}",
                    self.folder.display()
                );
            }
        }
        self.guest.clean_up()?;
        self.check_log(&text)?;
        if self.executed % BATCH == 0 {
            self.guest.check_usage()?;
        }
        Ok(end)
    }

    fn check_log(&mut self, text: &str) -> Result<()> {
        let messages = self.log.messages()?;
        if messages.is_empty() {
            return Ok(());
        }
        let complaint = complaint();
        if !messages.iter().any(|message| complaint.is_match(message)) {
            return Ok(());
        }
        // The report goes on.
        std::thread::sleep(Duration::from_secs(1));
        let mut all = messages;
        all.extend(self.log.messages()?);
        self.store_finding("complaint", text)?;
        bail!("the kernel complained:\n{}", all.join("\n"))
    }

    fn store_finding(&self, kind: &str, text: &str) -> Result<()> {
        let name = self.folder.join(format!("{kind}-{}", self.executed));
        println!("finding: {}", name.display());
        fs::write(&name, format!("{text}\n"))
            .with_context(|| format!("cannot write {}", name.display()))
    }

    fn finish(&mut self) -> Result<()> {
        self.guest.check_usage()?;
        self.write_places()
    }

    /// The places, relative to the sections of the module that they are in.
    fn write_places(&self) -> Result<()> {
        let mut sections = Vec::new();
        for entry in
            fs::read_dir("/sys/module/sluice/sections").context("the module is not loaded")?
        {
            let entry = entry?;
            let address = fs::read_to_string(entry.path())?;
            let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16)?;
            sections.push((address, entry.file_name().to_string_lossy().into_owned()));
        }
        sections.sort();
        let mut text = String::new();
        for place in &self.places {
            let section = sections.iter().rfind(|section| section.0 <= *place);
            if let Some((address, name)) = section {
                text += &format!("{name} {:x}\n", place - address);
            }
        }
        fs::write(self.folder.join("places"), text).context("cannot write the places")
    }

    fn progress(&self, begun: Instant) -> String {
        format!(
            "{} s: {} programs executed, {} killed themselves; {} places and {} pairs of places; {} inputs",
            begun.elapsed().as_secs(),
            self.executed,
            self.killed,
            self.places.len(),
            self.pairs.len(),
            self.corpus.len()
        )
    }
}

fn read_programs(file: &Path) -> Result<Vec<Program>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let parse =
        |line| serde_json::from_str(line).with_context(|| format!("{}: {line}", file.display()));
    text.lines()
        .filter(|line| !line.is_empty())
        .map(parse)
        .collect()
}
