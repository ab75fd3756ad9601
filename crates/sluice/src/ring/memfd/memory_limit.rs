// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory limits of the cgroup. When a page of a memfd exceeds one, the kernel fails no system call, whichever way the page is
//! allocated: it kills a process of the cgroup. So a ring that does not fit is refused before.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup whose limit is too low.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub cgroup: PathBuf,
    /// The bytes that are left.
    pub room: u64,
}

/// The first limit of this process's cgroup, or of one above it, that leaves less than these bytes. Limits that cannot be read are
/// none.
pub(super) fn find_below(bytes: u64) -> Option<Limit> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    find_in(mount_point(&mounts)?, own_path(&own)?, free_swap(), bytes)
}

fn find_in(root: &Path, own: &Path, free_swap: u64, bytes: u64) -> Option<Limit> {
    let cgroups = own.ancestors().map(|path| root.join(path));
    cgroups
        .filter_map(|cgroup| {
            let room = room(&cgroup, free_swap)?;
            Some(Limit { cgroup, room })
        })
        .find(|limit| limit.room < bytes)
}

/// The first mount of the hierarchy that shows the root of the namespace.
fn mount_point(mountinfo: &str) -> Option<&Path> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (root == "/" && system.starts_with("cgroup2 ")).then_some(Path::new(point))
    })
}

/// Relative to the root; none if it is outside of the namespace.
fn own_path(cgroup: &str) -> Option<&Path> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.starts_with("..")).then_some(Path::new(path))
}

/// What the cgroup can still use, with what the kernel would reclaim for it. None: it has no limit.
fn room(cgroup: &Path, free_swap: u64) -> Option<u64> {
    let number = |file: &str| read_number(&cgroup.join(file));
    let left = number("memory.max")?.saturating_sub(number("memory.current")?);
    let stat = fs::read_to_string(cgroup.join("memory.stat")).unwrap_or_default();
    let cache = field(&stat, "inactive_file") + field(&stat, "active_file");
    let swap = match number("memory.swap.max") {
        Some(max) => max.saturating_sub(number("memory.swap.current").unwrap_or(0)),
        None => free_swap,
    };
    Some(left + cache + swap.min(free_swap))
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}

fn free_swap() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    1024 * field(&memory, "SwapFree:")
}

/// The number after a name at the beginning of a line; 0: there is none.
fn field(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let found = lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()));
    let number = found.flatten().and_then(|word| word.parse().ok());
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A hierarchy with limits in `a` and `a/b`, removed when it is dropped.
    struct Hierarchy(PathBuf);

    impl Hierarchy {
        fn new() -> Self {
            let name = format!("sluice-memory-limit-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(root.join("a/b/c")).unwrap();
            for (file, text) in [
                ("a/memory.max", "16777216\n"),
                ("a/memory.current", "4194304\n"),
                (
                    "a/memory.stat",
                    "anon 7\ninactive_file 1048576\nactive_file 1048576\n",
                ),
                ("a/memory.swap.max", "0\n"),
                ("a/b/memory.max", "8388608\n"),
                ("a/b/memory.current", "7340032\n"),
                ("a/b/c/memory.max", "max\n"),
                ("a/b/c/memory.current", "7340032\n"),
            ] {
                fs::write(root.join(file), text).unwrap();
            }
            Self(root)
        }

        fn limit(&self, own: &str, free_swap: u64, bytes: u64) -> Option<(String, u64)> {
            let limit = find_in(&self.0, Path::new(own), free_swap, bytes)?;
            let cgroup = limit.cgroup.strip_prefix(&self.0).unwrap();
            Some((cgroup.display().to_string(), limit.room))
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_limit_that_leaves_too_little_is_found() {
        let hierarchy = Hierarchy::new();
        let limit = |own, swap, bytes| hierarchy.limit(own, swap, bytes);
        let b = Some(("a/b".to_owned(), MIB));
        assert_eq!(limit("a/b/c", 0, MIB), None);
        assert_eq!(limit("a/b/c", 0, MIB + 1), b);
        assert_eq!(limit("a/b", 0, 64 * MIB), b);
        // What is reclaimed is left, too.
        assert_eq!(limit("a", 0, 14 * MIB), None);
        assert_eq!(limit("a", 0, 15 * MIB), Some(("a".to_owned(), 14 * MIB)));
        // Only b may swap.
        assert_eq!(limit("a/b/c", 9 * MIB, 10 * MIB), None);
        assert_eq!(
            limit("a/b/c", 64 * MIB, 15 * MIB),
            Some(("a".to_owned(), 14 * MIB))
        );
        assert_eq!(limit("", 0, u64::MAX), None);
    }

    #[test]
    fn the_own_cgroup_is_found_below_the_mount() {
        let mounts = "\
24 30 0:22 / /proc rw,nosuid - proc proc rw
31 30 0:27 /../.. /outer rw - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
        assert_eq!(mount_point(mounts), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(own_path("1:memory:/x\n0::/a/b\n"), Some(Path::new("a/b")));
        assert_eq!(own_path("0::/\n"), Some(Path::new("")));
        assert_eq!(own_path("0::/../a\n"), None);
    }
}
