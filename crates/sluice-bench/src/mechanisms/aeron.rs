// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aeron over its IPC channel, between two Java programs that spin, with a media driver in a process of its own. Its client for
//! Java is the one that is packaged for everyone, so what is measured runs in Java: see peers/AeronPeer.java. Only the thread that
//! is measured has a processor of its own; the driver and what Java does beside keep away from it where there is another.

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};

use super::places::Places;
use super::programs::{Errand, Programs};
use super::{
    Batching, Link, Mechanism, Shape, Task, Waiting, memory_folder, no_file, spinning_alone,
};
use crate::harness::process::Side;

/// Where its jar and our program are, as Java wants to be told.
const CLASS_PATH: &str = "SLUICE_AERON";
const PROGRAM: &str = "AeronPeer";
/// What its own measurements are started with, and what it needs on a Java of today.
const OPTIONS: [&str; 10] = [
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:GuaranteedSafepointInterval=300000",
    "-XX:+UseParallelGC",
    // Standard output is for the figures.
    "-XX:+DisplayVMOutputToStderr",
    "-Xmx256m",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dagrona.disable.bounds.checks=true",
    "-Daeron.pre.touch.mapped.memory=true",
    "-Daeron.term.buffer.sparse.file=false",
];

pub struct Aeron {
    class_path: String,
    /// Of the files that it shares.
    places: Places,
}

impl Aeron {
    /// Or why it cannot be had, and what to do about it.
    pub fn find() -> Result<Self, String> {
        let Ok(class_path) = env::var(CLASS_PATH) else {
            return Err(format!(
                "{CLASS_PATH} does not say where it is; 'make bench-peers' fetches it, or says what is missing for that"
            ));
        };
        let version = Command::new("java")
            .arg("-version")
            .stderr(Stdio::null())
            .status();
        if !version.is_ok_and(|status| status.success()) {
            return Err("there is no Java that starts; install default-jdk-headless".into());
        }
        Ok(Self {
            class_path,
            places: Places::below(memory_folder()),
        })
    }
}

impl Mechanism for Aeron {
    fn name(&self) -> &'static str {
        "aeron"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn label(&self) -> String {
        format!("{} in Java (spins)", self.name())
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        match task.shape {
            Shape::Question | Shape::Stream => spinning_alone(task),
            Shape::Stalled | Shape::Strangers => Some("its program only knows pairs".into()),
            Shape::File => no_file(task),
        }
    }

    fn batching(&self) -> Option<Batching> {
        Some(Batching::OneByOne)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        bail!("aeron is only reached by programs of its own")
    }

    fn programs(&self, size: usize, errand: Errand) -> Result<Option<Box<dyn Programs>>> {
        let directory = self.places.directory()?.join("driver");
        // The last driver was killed with its client, and could not remove what it shared.
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        Ok(Some(Box::new(Peers {
            class_path: self.class_path.clone(),
            directory,
            size,
            errand,
        })))
    }
}

struct Peers {
    class_path: String,
    directory: PathBuf,
    size: usize,
    errand: Errand,
}

impl Peers {
    fn java(&self, role: &str) -> Command {
        let mut java = Command::new("java");
        java.args(OPTIONS)
            .args(["-cp", &self.class_path, PROGRAM, role]);
        java.arg(&self.directory);
        java
    }
}

impl Programs for Peers {
    fn program(&self, side: Side, cpu: usize) -> Command {
        let (first, second, numbers) = match self.errand {
            Errand::RoundTrips { most, duration } => {
                ("ask", "answer", vec![most as u128, duration.as_nanos()])
            }
            Errand::Stream { duration } => ("send", "receive", vec![duration.as_nanos()]),
            Errand::Pattern { messages } => {
                ("send-pattern", "receive-pattern", vec![messages as u128])
            }
            Errand::Load {
                messages,
                warm_up,
                stride,
                rate,
            } => (
                "send-load",
                "receive-load",
                [messages, warm_up, stride, rate].map(u128::from).to_vec(),
            ),
        };
        let mut java = self.java(match side {
            Side::First => first,
            Side::Second => second,
        });
        java.arg(cpu.to_string());
        java.arg(self.size.to_string());
        java.args(numbers.iter().map(u128::to_string));
        java
    }

    fn beside(&self, side: Side) -> Option<Command> {
        // A driver that spins needs a processor that neither of the two spins on.
        let spare = available_parallelism().map_or(1, NonZeroUsize::get) > 2;
        let mut java = self.java("driver");
        java.arg(if spare { "spin" } else { "rest" });
        (side == Side::First).then_some(java)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn programs(errand: Errand) -> Box<dyn Programs> {
        let aeron = Aeron {
            class_path: "a.jar".into(),
            places: Places::below(env::temp_dir()),
        };
        aeron.programs(64, errand).unwrap().unwrap()
    }

    /// From our program's name on, but for the directory.
    fn role(command: &Command) -> Vec<String> {
        let arguments = command.get_args().map(|one| one.to_string_lossy());
        let role = arguments.skip_while(|one| one != PROGRAM).skip(1);
        let mut role: Vec<String> = role.map(String::from).collect();
        role.remove(1);
        role
    }

    #[test]
    fn both_programs_are_told_of_the_same_errand() {
        let duration = Duration::from_nanos(7);
        let errand = Errand::RoundTrips { most: 5, duration };
        let programs = programs(errand);
        let [ask, answer] =
            [(Side::First, 0), (Side::Second, 1)].map(|(side, cpu)| programs.program(side, cpu));
        assert_eq!(role(&ask), ["ask", "0", "64", "5", "7"]);
        assert_eq!(role(&answer), ["answer", "1", "64", "5", "7"]);
    }

    #[test]
    fn there_is_one_driver_for_the_two() {
        let programs = programs(Errand::Pattern { messages: 3 });
        let driver = programs.beside(Side::First).unwrap();
        assert_eq!(role(&driver)[0], "driver");
        assert!(programs.beside(Side::Second).is_none());
    }
}
