// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aeron over its IPC channel, between two Java programs that spin, with the media driver in a third process. The Java
//! client is the one that is packaged, so peers/AeronPeer.java performs the measurement. Only the measured thread has
//! its own processor; the driver and the other threads of Java use another one if there is one.

use std::env;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use sluice_testkit::workers::Side;

use super::programs::{ExternalWorkload, Programs};
use super::temp_paths::TempPaths;
use super::{
    Batching, Link, Mechanism, Task, Waiting, Workload, memory_directory, no_file,
    spinning_on_one_cpu,
};

/// The class path of its jar and of AeronPeer.
const CLASS_PATH: &str = "SLUICE_AERON";
const PROGRAM: &str = "AeronPeer";
/// The options of its own benchmarks, and those that current Java versions require.
const OPTIONS: [&str; 10] = [
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:GuaranteedSafepointInterval=300000",
    "-XX:+UseParallelGC",
    // Standard output carries the numbers.
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
    /// The directory of its shared files.
    paths: TempPaths,
}

impl Aeron {
    /// Returns the reason and the remedy if it is not available.
    pub fn find() -> Result<Self, String> {
        let Ok(class_path) = env::var(CLASS_PATH) else {
            return Err(format!(
                "{CLASS_PATH} is not set; run 'make bench-peers', which fetches Aeron"
            ));
        };
        let version = Command::new("java")
            .arg("-version")
            .stderr(Stdio::null())
            .status();
        if !version.is_ok_and(|status| status.success()) {
            return Err("cannot start java; install default-jdk-headless".into());
        }
        Ok(Self {
            class_path,
            paths: TempPaths::in_directory(memory_directory()),
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

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        match task.workload {
            Workload::RequestReply | Workload::Stream => spinning_on_one_cpu(task),
            Workload::Stalled | Workload::SharedName => {
                Some("its program supports only one pair".into())
            }
            Workload::File => no_file(task),
        }
    }

    fn batching(&self) -> Option<Batching> {
        Some(Batching::OneByOne)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        bail!("aeron is measured by external programs only")
    }

    fn programs(
        &self,
        size: usize,
        workload: ExternalWorkload,
    ) -> Result<Option<Box<dyn Programs>>> {
        let directory = self.paths.directory()?.join("driver");
        // The previous driver was killed and could not remove its files.
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        Ok(Some(Box::new(JavaPrograms {
            class_path: self.class_path.clone(),
            directory,
            size,
            workload,
        })))
    }
}

struct JavaPrograms {
    class_path: String,
    directory: PathBuf,
    size: usize,
    workload: ExternalWorkload,
}

impl JavaPrograms {
    fn java(&self, role: &str) -> Command {
        let mut java = Command::new("java");
        java.args(OPTIONS)
            .args(["-cp", &self.class_path, PROGRAM, role]);
        java.arg(&self.directory);
        java
    }
}

impl Programs for JavaPrograms {
    fn program(&self, side: Side, cpu: usize) -> Command {
        let (first, second, numbers) = match self.workload {
            ExternalWorkload::RoundTrips { max, duration } => {
                ("request", "reply", vec![max as u128, duration.as_nanos()])
            }
            ExternalWorkload::Stream { duration } => ("send", "receive", vec![duration.as_nanos()]),
            ExternalWorkload::Pattern { messages } => {
                ("send-pattern", "receive-pattern", vec![messages as u128])
            }
            ExternalWorkload::Load {
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

    fn helper(&self, side: Side) -> Option<Command> {
        // A spinning driver needs a third processor.
        let has_spare_cpu = available_parallelism().map_or(1, NonZeroUsize::get) > 2;
        let mut java = self.java("driver");
        java.arg(if has_spare_cpu { "spin" } else { "backoff" });
        (side == Side::First).then_some(java)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn programs(workload: ExternalWorkload) -> Box<dyn Programs> {
        let aeron = Aeron {
            class_path: "a.jar".into(),
            paths: TempPaths::in_directory(env::temp_dir()),
        };
        aeron.programs(64, workload).unwrap().unwrap()
    }

    /// The arguments of AeronPeer, without the directory.
    fn role(command: &Command) -> Vec<String> {
        let arguments = command.get_args().map(|one| one.to_string_lossy());
        let role = arguments.skip_while(|one| one != PROGRAM).skip(1);
        let mut role: Vec<String> = role.map(String::from).collect();
        role.remove(1);
        role
    }

    #[test]
    fn both_programs_receive_the_same_workload() {
        let duration = Duration::from_nanos(7);
        let workload = ExternalWorkload::RoundTrips { max: 5, duration };
        let programs = programs(workload);
        let [request, reply] =
            [(Side::First, 0), (Side::Second, 1)].map(|(side, cpu)| programs.program(side, cpu));
        assert_eq!(role(&request), ["request", "0", "64", "5", "7"]);
        assert_eq!(role(&reply), ["reply", "1", "64", "5", "7"]);
    }

    #[test]
    fn there_is_one_driver_for_the_two() {
        let programs = programs(ExternalWorkload::Pattern { messages: 3 });
        let driver = programs.helper(Side::First).unwrap();
        assert_eq!(role(&driver)[0], "driver");
        assert!(programs.helper(Side::Second).is_none());
    }
}
