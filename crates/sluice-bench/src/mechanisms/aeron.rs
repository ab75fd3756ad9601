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

use super::mechanism::{memory_directory, no_file, spinning_on_one_cpu};
use super::programs::{ExternalWorkload, Programs};
use super::temp_paths::TempPaths;
use super::{Batching, Mechanism, Workload};
use crate::harness::rounds::Skipped;
use crate::harness::waiting::Waiting;

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

/// Or the reason why it is not available, with the remedy.
pub fn mechanism() -> Result<Mechanism, Skipped> {
    let class_path = class_path().map_err(|reason| Skipped::unavailable("aeron", reason))?;
    // The directory of its shared files.
    let paths = TempPaths::in_directory(memory_directory());
    let link = |_| bail!("aeron is measured by external programs only");
    Ok(Mechanism {
        label: "aeron in Java (spins)".into(),
        batching: Some(Batching::OneByOne),
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::RequestReply | Workload::Stream => spinning_on_one_cpu(task),
            Workload::Stalled | Workload::SharedName => {
                Some("its program supports only one pair".into())
            }
            Workload::File => no_file(task),
        }),
        programs: Some(Box::new(move |size, workload| {
            let directory = paths.directory()?.join("driver");
            // The previous driver was killed and could not remove its files.
            if directory.exists() {
                fs::remove_dir_all(&directory)
                    .with_context(|| format!("cannot remove {}", directory.display()))?;
            }
            Ok(Box::new(JavaPrograms {
                class_path: class_path.clone(),
                directory,
                size,
                workload,
            }))
        })),
        ..Mechanism::new("aeron", Waiting::Spin, link)
    })
}

fn class_path() -> Result<String, String> {
    let class_path = env::var(CLASS_PATH).map_err(|_| {
        format!("{CLASS_PATH} is not set; run 'make bench-peers', which fetches Aeron")
    })?;
    let mut java = Command::new("java");
    match java.arg("-version").stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(class_path),
        _ => Err("cannot start java; install default-jdk-headless".into()),
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

    fn programs(workload: ExternalWorkload) -> JavaPrograms {
        JavaPrograms {
            class_path: "a.jar".into(),
            directory: "driver".into(),
            size: 64,
            workload,
        }
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
