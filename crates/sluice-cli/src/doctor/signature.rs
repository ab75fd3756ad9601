// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel loads only modules that are signed by a key that it knows: with Secure Boot, by lockdown, or by a parameter.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;

use super::system::System;

const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const ENFORCED: &str = "/sys/module/module/parameters/sig_enforce";
const EFI_VARIABLES: &str = "/sys/firmware/efi/efivars";
/// The end of an uncompressed module that is signed.
const MAGIC: &[u8; 28] = b"~Module signature appended~\n";
/// The keys of dkms on Debian and on Ubuntu: public and private.
const KEYS: [(&str, &str); 2] = [
    ("/var/lib/dkms/mok.pub", "/var/lib/dkms/mok.key"),
    (
        "/var/lib/shim-signed/mok/MOK.der",
        "/var/lib/shim-signed/mok/MOK.priv",
    ),
];

/// Why the kernel may refuse the module in this file, and what to do; none if it loads modules without a signature.
pub fn refusal(system: &System, module: &str, release: &str) -> Option<(String, String)> {
    let reason = requirement(system)?;
    let present = KEYS.iter().find(|(public, _)| system.exists(public));
    let (public, private) = present.unwrap_or(&KEYS[0]);
    let enrol = format!(
        "'sudo mokutil --import {public}', reboot, select 'Enroll MOK' in the menu, and 'sudo modprobe sluice'"
    );
    Some(match is_signed(&system.path(module)) {
        Some(false) => (
            format!("{module} has no signature, which {reason} requires"),
            format!(
                "run 'sudo /lib/modules/{release}/build/scripts/sign-file sha256 {private} {public} {module}', {enrol}"
            ),
        ),
        _ => (
            format!("{reason} requires that the key of {module} is enrolled"),
            format!("run 'sudo modprobe sluice'; if it fails, {enrol}"),
        ),
    })
}

/// What makes the kernel require signatures.
fn requirement(system: &System) -> Option<String> {
    let secure_boot = match is_secure_boot(system) {
        true => " (Secure Boot is on)",
        false => "",
    };
    let lockdown = system.text(LOCKDOWN).ok();
    // As in: none [integrity] confidentiality
    let mode = lockdown
        .as_deref()
        .and_then(|text| text.split_once('[')?.1.split_once(']'))
        .map(|(mode, _)| mode);
    match mode {
        Some(mode @ ("integrity" | "confidentiality")) => {
            Some(format!("lockdown={mode}{secure_boot}"))
        }
        _ if system.text(ENFORCED).is_ok_and(|value| value == "Y") => {
            Some(format!("module.sig_enforce=1{secure_boot}"))
        }
        // securityfs is not visible.
        None if !secure_boot.is_empty() => Some("Secure Boot".to_owned()),
        _ => None,
    }
}

/// The value of the variable follows four bytes of attributes.
fn is_secure_boot(system: &System) -> bool {
    let names = system.names(EFI_VARIABLES).into_iter();
    let mut variables = names.filter(|name| name.starts_with("SecureBoot-"));
    variables.any(|name| {
        let bytes = fs::read(system.path(&format!("{EFI_VARIABLES}/{name}")));
        bytes.is_ok_and(|bytes| bytes.get(4) == Some(&1))
    })
}

/// None if it is compressed and there is no modinfo(8).
fn is_signed(module: &Path) -> Option<bool> {
    if module.extension()? == "ko" {
        return has_magic(module).ok();
    }
    let modinfo = Command::new("modinfo")
        .args(["-F", "sig_id"])
        .arg(module)
        .output();
    let output = modinfo.ok().filter(|output| output.status.success())?;
    Some(!output.stdout.trim_ascii().is_empty())
}

fn has_magic(module: &Path) -> io::Result<bool> {
    let mut file = File::open(module)?;
    let length = file.metadata()?.len();
    let mut end = [0; MAGIC.len()];
    if length < MAGIC.len() as u64 {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(length - MAGIC.len() as u64))?;
    file.read_exact(&mut end)?;
    Ok(end == *MAGIC)
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    const FILE: &str = "/lib/modules/6.12.3/extra/sluice.ko";
    const SECURE_BOOT: (&str, &str) = (
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "\x06\0\0\0\x01",
    );
    const UNSIGNED: (&str, &str) = (
        FILE,
        "a module of more bytes than a signature has at its end",
    );
    const SIGNED: (&str, &str) = (FILE, "a module~Module signature appended~\n");
    const INTEGRITY: (&str, &str) = (LOCKDOWN, "none [integrity] confidentiality\n");

    fn of(files: &[(&str, &str)]) -> Option<(String, String)> {
        refusal(&tree(files).system, FILE, "6.12.3")
    }

    #[test]
    fn without_enforcement_a_signature_does_not_matter() {
        let unlocked = (LOCKDOWN, "[none] integrity confidentiality\n");
        assert_eq!(of(&[UNSIGNED, unlocked, (ENFORCED, "N\n")]), None);
        // This kernel is not locked down by it.
        assert_eq!(of(&[UNSIGNED, unlocked, SECURE_BOOT]), None);
    }

    #[test]
    fn an_unsigned_module_is_to_be_signed_and_its_key_enrolled() {
        for (file, reason) in [
            (SECURE_BOOT, "Secure Boot"),
            ((ENFORCED, "Y\n"), "module.sig_enforce=1"),
            (INTEGRITY, "lockdown=integrity"),
            (
                (LOCKDOWN, "none integrity [confidentiality]\n"),
                "lockdown=confidentiality",
            ),
        ] {
            let (why, fix) = of(&[UNSIGNED, file]).unwrap();
            assert_eq!(
                why,
                format!("{FILE} has no signature, which {reason} requires")
            );
            for word in [
                "sign-file sha256",
                "mokutil --import /var/lib/dkms/mok.pub",
                "reboot",
            ] {
                assert!(fix.contains(word), "{fix}");
            }
        }
    }

    #[test]
    fn the_key_of_a_signed_module_may_have_to_be_enrolled() {
        let (why, fix) = of(&[SIGNED, INTEGRITY, SECURE_BOOT]).unwrap();
        assert!(
            why.starts_with("lockdown=integrity (Secure Boot is on)"),
            "{why}"
        );
        assert!(!fix.contains("sign-file"), "{fix}");
        let ubuntu = ("/var/lib/shim-signed/mok/MOK.der", "");
        let (_, fix) = of(&[SIGNED, INTEGRITY, ubuntu]).unwrap();
        assert!(
            fix.contains("--import /var/lib/shim-signed/mok/MOK.der"),
            "{fix}"
        );
    }
}
