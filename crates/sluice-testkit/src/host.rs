// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that the results were measured on.

use std::{env, fs};

use serde::{Deserialize, Serialize};

use crate::clock;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub accelerator: String,
    pub clocksource: String,
    /// The time of reading the clock, which every latency sample contains once.
    pub clock_ns: u64,
    /// The wake-up latency of a process that sleeps on another processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waking_ns: Option<u64>,
}

impl Host {
    pub fn probe() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            name: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: field(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_string(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            accelerator: accelerator(
                env::var("SLUICE_ACCEL").ok(),
                &cpuinfo,
                &read("/sys/class/dmi/id/sys_vendor"),
            ),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_ns: clock::reading_cost_ns(),
            waking_ns: None,
        }
    }

    /// Whether software executes the instructions: their times say little.
    pub fn is_emulated(&self) -> bool {
        self.accelerator == "tcg"
    }

    /// One line for the header of a table.
    pub fn line(&self) -> String {
        format!(
            "Linux {}, {} × {}, {}",
            self.kernel,
            self.cpus,
            self.cpu,
            match self.accelerator.as_str() {
                "tcg" =>
                    "emulated (TCG): context switches and system calls cost tens of times as much as natively",
                "kvm" => "virtual machine with KVM",
                "virtual" => "virtual machine",
                _ => "native",
            }
        )
    }
}

/// SLUICE_ACCEL, set by the VM script, has precedence; otherwise the processor and the firmware tell.
fn accelerator(configured: Option<String>, cpuinfo: &str, vendor: &str) -> String {
    if let Some(configured) = configured.filter(|name| !name.is_empty()) {
        return configured;
    }
    let model = field(cpuinfo, "model name").unwrap_or_default();
    let virtual_machine = field(cpuinfo, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    match () {
        () if model.contains("TCG") => "tcg",
        () if virtual_machine && vendor.contains("QEMU") => "kvm",
        () if virtual_machine => "virtual",
        () => "none",
    }
    .to_string()
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_string(), |text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMULATED: &str =
        "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu hypervisor\n";
    const VIRTUAL: &str = "model name\t: AMD EPYC\nflags\t\t: fpu hypervisor lm\n";
    const BARE: &str = "model name\t: AMD EPYC\nflags\t\t: fpu lm\n";

    #[test]
    fn the_accelerator_is_derived_from_processor_and_firmware() {
        assert_eq!(accelerator(None, EMULATED, "QEMU"), "tcg");
        assert_eq!(accelerator(None, VIRTUAL, "QEMU"), "kvm");
        assert_eq!(accelerator(None, VIRTUAL, "Amazon EC2"), "virtual");
        assert_eq!(accelerator(None, BARE, "Dell Inc."), "none");
    }

    #[test]
    fn the_environment_has_precedence() {
        assert_eq!(accelerator(Some("kvm".into()), EMULATED, "QEMU"), "kvm");
        assert_eq!(accelerator(Some(String::new()), EMULATED, "QEMU"), "tcg");
    }
}
