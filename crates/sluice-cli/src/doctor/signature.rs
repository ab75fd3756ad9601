// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel loads only modules that are signed by a key that it knows: with Secure Boot, by lockdown, or by a parameter.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;

use memchr::memmem;

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

/// Why the kernel may refuse the module in this file, and what to do; none if it loads modules without a signature, or knows the key.
pub fn refusal(system: &System, module: &str, release: &str) -> Option<(String, String)> {
    let reason = requirement(system)?;
    let present = KEYS.iter().find(|(public, _)| system.exists(public));
    let (public, private) = present.unwrap_or(&KEYS[0]);
    let enrol = format!(
        "'sudo mokutil --import {public}', reboot, select 'Enroll MOK' in the menu, and 'sudo modprobe sluice'"
    );
    let not_enrolled = format!(
        "{reason} requires that the key of {module}, {public}, is enrolled, which it is not"
    );
    if is_signed(&system.path(module)) == Some(false) {
        return Some((
            format!("{module} has no signature, which {reason} requires"),
            format!(
                "run 'sudo /lib/modules/{release}/build/scripts/sign-file sha256 {private} {public} {module}', {enrol}"
            ),
        ));
    }
    match enrolment(system, public) {
        Enrolment::Done => None,
        Enrolment::AtBoot => Some((
            format!("{not_enrolled} before the next boot"),
            "reboot, select 'Enroll MOK' in the menu, and give the password that you chose for mokutil; if no menu appeared, 'sudo mokutil --import' again".to_owned(),
        )),
        Enrolment::Missing => Some((not_enrolled, format!("run {enrol}"))),
        Enrolment::Unknown => Some((
            format!("{reason} requires that the key of {module} is enrolled"),
            format!("run 'sudo modprobe sluice'; if it fails, {enrol}"),
        )),
    }
}

/// Whether the firmware's list of the machine's owner has a key.
enum Enrolment {
    Done,
    /// Its owner is asked at the next boot.
    AtBoot,
    Missing,
    /// The key cannot be read, or there is no such list.
    Unknown,
}

fn enrolment(system: &System, public: &str) -> Enrolment {
    let Ok(key) = fs::read(system.path(public)) else {
        return Enrolment::Unknown;
    };
    if variables(system, "MokNew-").any(|list| memmem::find(&list, &key).is_some()) {
        return Enrolment::AtBoot;
    }
    // A list that is too long for one variable continues in MokListRT1.
    let mut lists = variables(system, "MokListRT").peekable();
    if lists.peek().is_none() {
        return Enrolment::Unknown;
    }
    match lists.any(|list| memmem::find(&list, &key).is_some()) {
        true => Enrolment::Done,
        false => Enrolment::Missing,
    }
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
    variables(system, "SecureBoot-").any(|bytes| bytes.get(4) == Some(&1))
}

/// The contents of the firmware's variables whose names begin so.
fn variables<'a>(system: &'a System, prefix: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    let names = system.names(EFI_VARIABLES).into_iter();
    names
        .filter(move |name| name.starts_with(prefix))
        .filter_map(|name| fs::read(system.path(&format!("{EFI_VARIABLES}/{name}"))).ok())
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

    #[test]
    fn a_key_in_the_list_of_the_machine_is_known() {
        const KEY: (&str, &str) = ("/var/lib/dkms/mok.pub", "the key");
        const LIST: &str =
            "/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23";
        const NEW: &str = "/sys/firmware/efi/efivars/MokNew-605dab50-e046-4300-abb6-3dd810dd8b23";
        let signed = [SIGNED, INTEGRITY, SECURE_BOOT, KEY];
        let with = |more: &[(&str, &str)]| of(&[&signed[..], more].concat());
        assert_eq!(with(&[(LIST, "\x06\0\0\0a list with the key")]), None);
        let (why, fix) = with(&[(LIST, "\x06\0\0\0another")]).unwrap();
        assert!(
            why.ends_with("mok.pub, is enrolled, which it is not"),
            "{why}"
        );
        assert!(fix.starts_with("run 'sudo mokutil --import"), "{fix}");
        let (why, fix) = with(&[(LIST, "another"), (NEW, "the key")]).unwrap();
        assert!(why.ends_with("before the next boot"), "{why}");
        assert!(fix.starts_with("reboot"), "{fix}");
        // Without such a list, or the key.
        let (_, fix) = with(&[]).unwrap();
        assert!(fix.starts_with("run 'sudo modprobe sluice'; if"), "{fix}");
    }
}
