// SPDX-License-Identifier: MIT OR Apache-2.0
//! The root of the containers: this program and the libraries that it needs, and nothing else of the host.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::worker::{CGROUPS, INPUT, PROGRAM, SHARED, SOCKET};

pub fn build(root: &Path) -> Result<()> {
    let program = env::current_exe().context("cannot tell where this program is")?;
    for folder in ["/proc", "/dev", CGROUPS, SHARED] {
        fs::create_dir_all(inside(root, Path::new(folder)))?;
    }
    for file in [INPUT, SOCKET] {
        fs::write(inside(root, Path::new(file)), "")?;
    }
    copy(&program, &inside(root, Path::new(PROGRAM)))?;
    for library in libraries(&program)? {
        copy(&library, &inside(root, &library))?;
    }
    Ok(())
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("every file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o555))?;
    Ok(())
}

fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("cannot start ldd; install libc-bin")?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The paths in what ldd writes; a program without libraries has none.
fn parse(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let target = line.split_once("=>").map_or(line, |(_, target)| target);
        target
            .split_whitespace()
            .next()
            .filter(|word| word.starts_with('/'))
            .map(PathBuf::from)
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_the_vdso_is_not_a_file() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
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
}
