// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop: a program of the corpus is changed and executed, and kept if one of its threads executed an edge between basic
//! blocks of the module that no earlier program has executed.

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

/// The number of programs in the file of those that were executed last.
const RECENT: u64 = 16;
const RECENT_SIZE: u64 = 1 << 16;
/// The number of programs between two checks of what is counted in cgroups.
const BATCH: u64 = 500;

pub struct Fuzzer {
    values: Values,
    guest: Guest,
    coverage: Coverage,
    workers: [Worker; 2],
    log: KernelLog,
    recent: File,
    /// The length of what is in each place of `recent`.
    recent_lengths: [usize; RECENT as usize],
    folder: PathBuf,
    /// The addresses of the basic blocks that were executed.
    blocks: HashSet<u64>,
    /// Hashes of the addresses of two blocks, one executed after the other.
    edges: HashSet<u64>,
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
            recent_lengths: [0; RECENT as usize],
            folder: folder.to_owned(),
            blocks: HashSet::new(),
            edges: HashSet::new(),
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

    /// Executes a corpus whole, and then new programs for this time.
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
        let end = Instant::now() + duration;
        let mut told = Instant::now();
        while Instant::now() < end {
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

    /// Executes a program; whether a thread has executed a new edge. It counts only if the program ends by itself.
    fn is_new(&mut self, program: &Program) -> Result<bool> {
        let found = self.new_edges(program)?;
        let mut again = found.clone();
        if !found.is_empty() {
            // What another program, or chance, has caused does not happen again.
            let second = self.edges_of(program)?;
            again.retain(|edge| second.contains(edge));
        }
        self.edges.extend(&found);
        Ok(!again.is_empty())
    }

    fn new_edges(&mut self, program: &Program) -> Result<HashSet<u64>> {
        let mut found = self.edges_of(program)?;
        found.retain(|edge| !self.edges.contains(edge));
        Ok(found)
    }

    fn edges_of(&mut self, program: &Program) -> Result<HashSet<u64>> {
        let mut found = HashSet::new();
        if self.execute(program, Report::Nothing)? == End::Exited {
            let blocks = &mut self.blocks;
            self.coverage.traces(|trace| {
                let mut before = 0_u64;
                for block in trace {
                    blocks.insert(block);
                    found.insert(before.rotate_left(21) ^ block);
                    before = block;
                }
            });
        }
        Ok(found)
    }

    /// Removes the calls without which the program still executes the same edges, but for a few that depend on chance.
    fn minimize(&mut self, mut program: Program) -> Result<Program> {
        let goal = self.edges_of(&program)?;
        let mut at = program.calls.len();
        while at > 0 {
            at -= 1;
            let mut shorter = program.clone();
            shorter.calls.remove(at);
            let reached = self.edges_of(&shorter)?;
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
        let slot = self.executed % RECENT;
        // What was there before must not follow a shorter program.
        let before = std::mem::replace(&mut self.recent_lengths[slot as usize], stored.len());
        stored.resize(stored.len().max(before).min(RECENT_SIZE as usize), 0);
        self.recent.write_all_at(&stored, slot * RECENT_SIZE)?;
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
        self.write_blocks()
    }

    /// The blocks, as sections of the module and offsets in them.
    fn write_blocks(&self) -> Result<()> {
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
        for block in &self.blocks {
            let section = sections.iter().rfind(|section| section.0 <= *block);
            if let Some((address, name)) = section {
                text += &format!("{name} {:x}\n", block - address);
            }
        }
        fs::write(self.folder.join("blocks"), text).context("cannot write the blocks")
    }

    fn progress(&self, begun: Instant) -> String {
        format!(
            "{} s: {} programs executed, {} killed themselves; {} basic blocks and {} edges; {} inputs",
            begun.elapsed().as_secs(),
            self.executed,
            self.killed,
            self.blocks.len(),
            self.edges.len(),
            self.corpus.len()
        )
    }
}

fn read_programs(file: &Path) -> Result<Vec<Program>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_programs(&text).with_context(|| file.display().to_string())
}

/// One a line; the numbers and zeros of the file of the programs that were executed last are ignored.
fn parse_programs(text: &str) -> Result<Vec<Program>> {
    text.lines()
        .map(|line| line.trim_start_matches(|character: char| "0123456789 \0".contains(character)))
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_with_and_without_numbers_and_zeros() {
        let program = &seeds::all()[0];
        let text = program.to_text();
        let read = parse_programs(&format!("{text}\n\0\017 {text}\n\0")).expect("two programs");
        assert_eq!(read, [program.clone(), program.clone()]);
        assert!(parse_programs("17 {}").is_err());
    }
}
