// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root directory of the containers: a few programs and their libraries, and nothing else of the host.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

/// The file to send.
pub const INPUT: &str = "/input";
/// A part of the file of the first container.
pub const INPUT_PART: &str = "/input-part";
pub const OUTPUT: &str = "/output";
/// The file that was received.
pub const RECEIVED: &str = "/output/received";
/// A directory that both containers have.
pub const SHARED: &str = "/shared";
/// The directory of a cgroup that several containers are below.
pub const SCOPE: &str = "/scope";
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Copied from the host, beside the command `sluice`.
const PROGRAMS: [&str; 7] = ["base64", "cat", "dd", "find", "ls", "sh", "sha256sum"];

pub fn build(root: &Path) -> Result<()> {
    for directory in ["/proc", "/dev", "/bin", CGROUPS, OUTPUT, SHARED, SCOPE] {
        fs::create_dir_all(inside(root, Path::new(directory)))?;
    }
    for file in [INPUT, INPUT_PART] {
        fs::write(inside(root, Path::new(file)), "")?;
    }
    let mut programs = vec![sluice_command()?];
    for name in PROGRAMS {
        programs.push(find_program(name)?);
    }
    for program in &programs {
        let name = program.file_name().context("a program has a name")?;
        copy(program, &root.join("bin").join(name))?;
    }
    for library in libraries(&programs)? {
        copy(&library, &inside(root, &library))?;
    }
    Ok(())
}

/// Built into the directory of the demo.
pub fn sluice_command() -> Result<PathBuf> {
    let demo = env::current_exe().context("cannot read /proc/self/exe; mount /proc")?;
    let command = demo.with_file_name("sluice");
    fs::metadata(&command).with_context(|| {
        format!(
            "cannot read {}; build it with 'cargo build -p sluice-cli'",
            command.display()
        )
    })?;
    Ok(command)
}

fn find_program(name: &str) -> Result<PathBuf> {
    let directories = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not in PATH; install coreutils, findutils and dash"))
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let describe = || {
        format!(
            "cannot copy {} to {}; check the free memory",
            from.display(),
            to.display()
        )
    };
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(describe)?;
    fs::copy(from, to).with_context(describe)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o555)).with_context(describe)
}

fn libraries(programs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").args(programs).output();
    let output = output.context("cannot start ldd; install libc-bin")?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The paths in the output of ldd, each once, without the headings.
fn parse(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let target = line.split_once("=>").map_or(line, |(_, target)| target);
        let word = target.split_whitespace().next()?;
        (word.starts_with('/') && !word.ends_with(':')).then(|| PathBuf::from(word))
    };
    let mut paths: Vec<_> = text.lines().filter_map(path).collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_once_and_the_vdso_is_not_a_file() {
        let text = "/bin/cat:\n\
                    \tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\
                    /bin/dd:\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ]
        .map(PathBuf::from);
        assert_eq!(parse(text), expected);
        assert_eq!(parse("\tstatically linked\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn absolute_paths_stay_inside_the_root() {
        assert_eq!(
            inside(Path::new("/r"), Path::new("/lib/a")),
            Path::new("/r/lib/a")
        );
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert!(find_program("sh").is_ok());
        let error = find_program("no-such-program").unwrap_err().to_string();
        assert!(
            error.contains("no-such-program") && error.contains("install"),
            "{error}"
        );
    }
}
