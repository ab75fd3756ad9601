// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the module is loaded, and if not, why.

use std::path::Path;

use super::Finding;
use super::kernel::RELEASE;
use super::signature;
use super::system::System;

pub const MODULE: &str = "/sys/module/sluice";
/// The version of this command.
pub const COMMAND: &str = env!("CARGO_PKG_VERSION");
const CHECK: &str = "module";
const DKMS: &str = "/var/lib/dkms/sluice";

pub fn module(system: &System) -> Finding {
    if system.exists(MODULE) {
        return match version(system) {
            Some(version) => Finding::ok(CHECK, format!("loaded, version {version}")),
            None => Finding::ok(CHECK, "loaded"),
        };
    }
    // An empty release is that of no directory.
    let release = system.text(RELEASE).unwrap_or_default();
    match installed(system, &release) {
        Some(Installed {
            file,
            indexed: false,
        }) => not_loaded(
            &format!("{file} is not in modules.dep"),
            "run 'sudo depmod && sudo modprobe sluice'",
        ),
        Some(Installed { file, .. }) => match signature::refusal(system, &file, &release) {
            Some((why, fix)) => not_loaded(&why, fix),
            None => not_loaded("it is installed", "run 'sudo modprobe sluice'"),
        },
        None => not_installed(system, &release),
    }
}

pub fn version(system: &System) -> Option<String> {
    system.text(&format!("{MODULE}/version")).ok()
}

fn not_loaded(why: &str, fix: impl Into<String>) -> Finding {
    let found = format!("not loaded, some checks are skipped: {why}");
    Finding::problem(CHECK, found, fix)
}

/// The file of the module for a kernel, and whether modprobe(8) finds it.
struct Installed {
    file: String,
    indexed: bool,
}

fn installed(system: &System, release: &str) -> Option<Installed> {
    let directory = format!("/lib/modules/{release}");
    let index = system.text(&format!("{directory}/modules.dep"));
    let index = index.unwrap_or_default();
    let mut files = index.lines().filter_map(|line| line.split(':').next());
    if let Some(file) = files.find(|file| is_module(file)) {
        let file = format!("{directory}/{file}");
        return Some(Installed {
            file,
            indexed: true,
        });
    }
    let places = ["updates/dkms", "updates", "extra"];
    places.into_iter().find_map(|place| {
        let place = format!("{directory}/{place}");
        let name = system
            .names(&place)
            .into_iter()
            .find(|name| is_module(name))?;
        let file = format!("{place}/{name}");
        Some(Installed {
            file,
            indexed: false,
        })
    })
}

/// It may be compressed.
fn is_module(path: &str) -> bool {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    matches!(
        name,
        Some("sluice.ko" | "sluice.ko.xz" | "sluice.ko.zst" | "sluice.ko.gz")
    )
}

fn not_installed(system: &System, release: &str) -> Finding {
    if let Some(finding) = of_dkms(system, release) {
        return finding;
    }
    let build = format!("make -C /lib/modules/{release}/build M=$PWD/kernel");
    let build = format!(
        "{}in the sources '{build} modules && sudo {build} modules_install && sudo depmod && sudo modprobe sluice'",
        headers(system, release)
    );
    let kernels = system.names("/lib/modules");
    let others: Vec<_> = kernels
        .into_iter()
        .filter(|other| installed(system, other).is_some())
        .collect();
    if !others.is_empty() {
        let others = others.join(", ");
        return not_loaded(
            &format!("it was built for Linux {others}, and not for {release}"),
            build,
        );
    }
    if !system.exists(&format!("/lib/modules/{release}")) {
        return not_loaded(
            &format!("no modules of Linux {release} are visible, as in a container"),
            "run 'sudo modprobe sluice' on the host",
        );
    }
    not_loaded("it is installed for no kernel", build)
}

/// The command before a build, if the headers of the kernel are missing.
fn headers(system: &System, release: &str) -> String {
    match system.exists(&format!("/lib/modules/{release}/build")) {
        true => "run ".to_owned(),
        false => format!("run 'sudo apt install linux-headers-{release}', then "),
    }
}

/// If dkms has the sources of the module: why it has not built it.
fn of_dkms(system: &System, release: &str) -> Option<Finding> {
    let names = system.names(DKMS).into_iter();
    let is_version = |name: &String| name.starts_with(|first: char| first.is_ascii_digit());
    let version = names.filter(is_version).max_by_key(|name| numbers(name))?;
    let log = format!("{DKMS}/{version}/build/make.log");
    let install =
        format!("'sudo dkms install sluice/{version} -k {release} && sudo modprobe sluice'");
    let failed = system
        .text(&log)
        .is_ok_and(|text| text.contains(&format!("kernel {release} (")));
    Some(match failed {
        true => not_loaded(
            &format!("dkms has not built it for Linux {release}, or is still building it"),
            format!(
                "see the errors in {log}, then {}{install}",
                headers(system, release)
            ),
        ),
        false => not_loaded(
            &format!("dkms has not built version {version} for Linux {release}"),
            format!("{}{install}", headers(system, release)),
        ),
    })
}

/// By which versions are compared, such as 0.9.1 and 0.10.0.
fn numbers(version: &str) -> Vec<u64> {
    let numbers = version.split(|character: char| !character.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    const RUNNING: (&str, &str) = (RELEASE, "6.12.3\n");
    const INDEX: (&str, &str) = (
        "/lib/modules/6.12.3/modules.dep",
        "kernel/a.ko:\nupdates/dkms/sluice.ko.xz: kernel/a.ko\n",
    );
    const EMPTY_INDEX: (&str, &str) = ("/lib/modules/6.12.3/modules.dep", "kernel/a.ko:\n");
    const HEADERS: (&str, &str) = ("/lib/modules/6.12.3/build/Makefile", "");

    fn problem(files: &[(&str, &str)]) -> (String, String) {
        let finding = module(&tree(files).system);
        assert!(!finding.ok);
        let why = finding
            .found
            .strip_prefix("not loaded, some checks are skipped: ");
        (why.unwrap().to_owned(), finding.fix.unwrap())
    }

    #[test]
    fn a_loaded_module_is_ok_with_its_version() {
        let finding = module(&tree(&[("/sys/module/sluice/version", "0.1.0\n")]).system);
        assert!(finding.ok);
        assert_eq!(finding.found, "loaded, version 0.1.0");
    }

    #[test]
    fn an_installed_module_is_to_be_loaded() {
        let (why, fix) = problem(&[RUNNING, INDEX]);
        assert_eq!(why, "it is installed");
        assert_eq!(fix, "run 'sudo modprobe sluice'");
    }

    #[test]
    fn a_module_without_index_needs_depmod() {
        let file = ("/lib/modules/6.12.3/extra/sluice.ko", "");
        let (why, fix) = problem(&[RUNNING, EMPTY_INDEX, file]);
        assert_eq!(
            why,
            "/lib/modules/6.12.3/extra/sluice.ko is not in modules.dep"
        );
        assert!(fix.contains("sudo depmod"), "{fix}");
    }

    #[test]
    fn a_module_of_another_kernel_only_is_named() {
        let other = ("/lib/modules/6.1.0/modules.dep", "extra/sluice.ko:\n");
        let (why, fix) = problem(&[RUNNING, EMPTY_INDEX, other]);
        assert_eq!(why, "it was built for Linux 6.1.0, and not for 6.12.3");
        for word in ["apt install linux-headers-6.12.3", "modules_install"] {
            assert!(fix.contains(word), "{fix}");
        }
    }

    #[test]
    fn a_module_that_is_installed_nowhere_is_to_be_built() {
        let (why, fix) = problem(&[RUNNING, EMPTY_INDEX, HEADERS]);
        assert_eq!(why, "it is installed for no kernel");
        assert!(fix.starts_with("run in the sources 'make"), "{fix}");
    }

    #[test]
    fn a_container_without_modules_refers_to_the_host() {
        let (why, fix) = problem(&[RUNNING]);
        assert!(why.contains("no modules of Linux 6.12.3"), "{why}");
        assert_eq!(fix, "run 'sudo modprobe sluice' on the host");
    }

    #[test]
    fn a_build_of_dkms_that_failed_names_its_log() {
        const LOG: &str = "/var/lib/dkms/sluice/0.1.0/build/make.log";
        let text = "DKMS make.log for sluice-0.1.0 for kernel 6.12.3 (x86_64)\n";
        let (why, fix) = problem(&[RUNNING, EMPTY_INDEX, HEADERS, (LOG, text)]);
        assert_eq!(
            why,
            "dkms has not built it for Linux 6.12.3, or is still building it"
        );
        assert!(fix.contains(LOG), "{fix}");
        assert!(
            fix.contains("run 'sudo dkms install sluice/0.1.0 -k 6.12.3"),
            "{fix}"
        );
    }

    #[test]
    fn a_build_of_dkms_is_that_of_the_newest_version_and_of_the_whole_release() {
        const LOG: &str = "/var/lib/dkms/sluice/0.10.0/build/make.log";
        let old = ("/var/lib/dkms/sluice/0.9.1/source", "");
        let text = "DKMS make.log for sluice-0.10.0 for kernel 6.12.3-18 (x86_64)\n";
        let (why, _) = problem(&[RUNNING, EMPTY_INDEX, HEADERS, old, (LOG, text)]);
        assert_eq!(why, "dkms has not built version 0.10.0 for Linux 6.12.3");
    }

    #[test]
    fn what_dkms_has_built_for_other_kernels_only_is_to_be_built() {
        let other = (
            "/var/lib/dkms/sluice/0.1.0/6.1.0/x86_64/module/sluice.ko",
            "",
        );
        let (why, fix) = problem(&[RUNNING, EMPTY_INDEX, other]);
        assert_eq!(why, "dkms has not built version 0.1.0 for Linux 6.12.3");
        let expected = "run 'sudo apt install linux-headers-6.12.3', then 'sudo dkms install";
        assert!(fix.starts_with(expected), "{fix}");
    }
}
