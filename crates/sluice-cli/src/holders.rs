// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that hold the module, over all scopes: by open files and by mappings, from /proc.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::output;

/// The kind of the file by which sluiced stores durable maps.
pub const KEEPER: &str = "keeper";
const CHANNELS: [&str; 5] = ["bus", "feed", "map", "pipe", "ring"];
const NODES: [&str; 3] = ["ctl", "feed", "pipe"];

/// A process and what it holds. Several files of one channel that are open for the same count as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub pid: u32,
    /// The name of the process, printable.
    pub command: String,
    /// The kind of the channel, such as "pipe"; otherwise "ctl" or "keeper".
    pub kind: &'static str,
    /// Empty for a default channel; none of a mapping and of what is no channel.
    pub name: Option<Vec<u8>>,
    /// The inode of the directory of the channel's scope; none where `name` is none.
    pub cgroup_id: Option<u64>,
    /// Its access: "r", "w", "rw", or "" if unknown.
    pub access: String,
    /// Whether the process has closed all files of this kind, and holds a mapping only.
    pub is_mapping: bool,
}

/// The holders that the caller may see, sorted by process; root may see all. Other processes are left out without an error.
pub fn all() -> io::Result<Vec<Holder>> {
    in_directory(Path::new("/proc"))
}

fn in_directory(proc: &Path) -> io::Result<Vec<Holder>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(proc)? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            of_process(&proc.join(&name), pid, &mut found);
        }
    }
    Ok(found.into_iter().collect())
}

/// A process that ends meanwhile has no more files.
fn of_process(process: &Path, pid: u32, found: &mut BTreeSet<Holder>) {
    let files = open_files(process);
    let mappings = fs::read(process.join("maps")).unwrap_or_default();
    let kinds: BTreeSet<_> = mappings
        .split(|byte| *byte == b'\n')
        .filter_map(kind_of_line)
        .filter(|kind| files.iter().all(|file| file.kind != *kind))
        .collect();
    if files.is_empty() && kinds.is_empty() {
        return;
    }
    let command = fs::read(process.join("comm")).unwrap_or_default();
    let command = output::shown(command.trim_ascii_end());
    let holder = |file: File, is_mapping| Holder {
        pid,
        command: command.clone(),
        kind: file.kind,
        name: file.name,
        cgroup_id: file.cgroup_id,
        access: file.access,
        is_mapping,
    };
    found.extend(files.into_iter().map(|file| holder(file, false)));
    let files = kinds.into_iter().map(File::of_kind);
    found.extend(files.map(|file| holder(file, true)));
}

struct File {
    kind: &'static str,
    name: Option<Vec<u8>>,
    cgroup_id: Option<u64>,
    access: String,
}

impl File {
    fn of_kind(kind: &'static str) -> Self {
        Self {
            kind,
            name: None,
            cgroup_id: None,
            access: String::new(),
        }
    }

    /// From the lines of /proc/PID/fdinfo/FD, which only an endpoint has.
    fn from_fdinfo(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
        };
        Some(Self {
            kind: known(&CHANNELS, value("sluice-kind")?)?,
            name: Some(unescape(value("sluice-name")?)),
            cgroup_id: value("sluice-cgroup")?.parse().ok(),
            access: value("sluice-access").unwrap_or_default().to_owned(),
        })
    }
}

fn open_files(process: &Path) -> Vec<File> {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten();
    let file = |entry: io::Result<fs::DirEntry>| {
        let fd = entry.ok()?.file_name();
        // The target is not opened, and so cannot block.
        let target = fs::read_link(process.join("fd").join(&fd)).ok()?;
        let target = target.as_os_str().as_bytes();
        let kind = kind_of_path(target);
        // The node of an endpoint may be elsewhere.
        if kind.is_none() && !target.starts_with(b"/") {
            return None;
        }
        let text = fs::read_to_string(process.join("fdinfo").join(&fd));
        let endpoint = text.ok().and_then(|text| File::from_fdinfo(&text));
        endpoint.or_else(|| kind.map(File::of_kind))
    };
    entries.filter_map(file).collect()
}

/// The kind in the path of an open or mapped file of the module. In another mount namespace, a file with the path of a node can be any
/// file; a path that begins with "anon_inode:" is always from the kernel.
fn kind_of_path(path: &[u8]) -> Option<&'static str> {
    let path = std::str::from_utf8(path).ok()?;
    if let Some(node) = path.strip_prefix("/dev/sluice/") {
        return known(&NODES, node.strip_suffix(" (deleted)").unwrap_or(node));
    }
    let name = path.strip_prefix("anon_inode:[sluice-")?;
    match name.strip_suffix(']')? {
        KEEPER => Some(KEEPER),
        kind => known(&CHANNELS, kind),
    }
}

/// A kind that is not known could be the text of a file that is not the module's.
fn known(kinds: &[&'static str], kind: &str) -> Option<&'static str> {
    kinds.iter().copied().find(|known| *known == kind)
}

/// The path follows five fields and spaces.
fn kind_of_line(line: &[u8]) -> Option<&'static str> {
    let line = std::str::from_utf8(line).ok()?;
    kind_of_path(line.split_ascii_whitespace().nth(5)?.as_bytes())
}

/// Undoes the octal escapes of the kernel.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        let (byte, length) = match (first, code) {
            (b'\\', Some(byte)) => (byte, 4),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process;

    use super::*;

    /// A directory like /proc, which is removed at the end.
    struct Proc(PathBuf);

    impl Proc {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-{test}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn process(&self, pid: u32, comm: &str, maps: &str) {
            let directory = self.0.join(pid.to_string());
            for name in ["fd", "fdinfo"] {
                fs::create_dir_all(directory.join(name)).unwrap();
            }
            fs::write(directory.join("comm"), comm).unwrap();
            fs::write(directory.join("maps"), maps).unwrap();
        }

        fn file(&self, pid: u32, fd: u32, target: &str, fdinfo: &str) {
            let directory = self.0.join(pid.to_string());
            symlink(target, directory.join(format!("fd/{fd}"))).unwrap();
            fs::write(directory.join(format!("fdinfo/{fd}")), fdinfo).unwrap();
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn fdinfo(kind: &str, name: &str) -> String {
        format!(
            "pos:\t0\nflags:\t02\nsluice-kind:\t{kind}\nsluice-name:\t{name}\nsluice-access:\trw\nsluice-cgroup:\t77\nsluice-uid:\t0\n"
        )
    }

    const MAPS: &str = "\
55d0c000-55d0d000 r--p 00000000 08:01 1234                       /usr/bin/reader
7f0000000000-7f0000001000 rw-s 00000000 00:0e 1057               anon_inode:[sluice-ring]
7f0000001000-7f0000002000 r--s 00000000 00:0e 1057               anon_inode:[sluice-ring]
7f0000002000-7f0000003000 rw-s 00000000 00:05 9                  /dev/sluice/feed
7f0000003000-7f0000004000 rw-p 00000000 00:00 0
";

    #[test]
    fn files_and_mappings_are_found() {
        let proc = Proc::new("holders");
        proc.process(10, "writer\n", "");
        proc.file(10, 0, "/dev/null", "pos:\t0\n");
        proc.file(10, 3, "anon_inode:[sluice-bus]", &fdinfo("bus", r"a\012b"));
        proc.file(10, 4, "anon_inode:[sluice-bus]", &fdinfo("bus", r"a\012b"));
        proc.file(10, 5, "/tmp/my-node", &fdinfo("pipe", ""));
        proc.file(10, 6, "/dev/sluice/ctl", "pos:\t0\n");
        proc.process(9, "rea\u{1b}der\n", MAPS);
        proc.file(9, 3, "/dev/sluice/feed", &fdinfo("feed", ""));
        proc.process(8, "other\n", "");
        proc.file(8, 1, "anon_inode:[eventpoll]", "tfd: 1\n");
        fs::create_dir(proc.0.join("self")).unwrap();

        let found = in_directory(&proc.0).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|holder| {
                let kind = holder.kind;
                let (name, scope) = (holder.name.as_deref(), holder.cgroup_id);
                (holder.pid, kind, name, scope, holder.is_mapping)
            })
            .collect();
        assert_eq!(
            found,
            [
                (9, "feed", Some(&b""[..]), Some(77), false),
                (9, "ring", None, None, true),
                (10, "bus", Some(b"a\nb"), Some(77), false),
                (10, "ctl", None, None, false),
                (10, "pipe", Some(b""), Some(77), false),
            ]
        );
        let first = &in_directory(&proc.0).unwrap()[0];
        assert_eq!(first.command, r"rea\x1bder");
        assert_eq!(first.access, "rw");
    }

    #[test]
    fn only_files_of_the_module_have_a_kind() {
        let kind = |path: &str| kind_of_path(path.as_bytes());
        assert_eq!(kind("/dev/sluice/ctl (deleted)"), Some("ctl"));
        assert_eq!(kind("anon_inode:[sluice-keeper]"), Some(KEEPER));
        assert_eq!(kind("anon_inode:[sluice-map]"), Some("map"));
        for path in [
            "/dev/sluice/keeper",
            "/dev/sluice/\u{1b}]0;title\u{7}",
            "/dev/sluice/pipe/a",
            "/tmp/anon_inode:[sluice-keeper]",
            "anon_inode:[sluice-ctl]",
            "anon_inode:[sluice-other]",
        ] {
            assert_eq!(kind(path), None, "{path}");
        }
        assert!(File::from_fdinfo(&fdinfo("pipe", "")).is_some());
        assert!(File::from_fdinfo(&fdinfo(KEEPER, "")).is_none());
    }

    #[test]
    fn a_process_that_ends_meanwhile_is_left_out() {
        let proc = Proc::new("ended");
        fs::create_dir(proc.0.join("7")).unwrap();
        assert_eq!(in_directory(&proc.0).unwrap(), []);
    }

    #[test]
    fn names_have_octal_escapes() {
        assert_eq!(unescape(r"two\015\012lines"), b"two\r\nlines");
        assert_eq!(unescape(r"\303\274\134x"), b"\xc3\xbc\\x");
        assert_eq!(unescape(r"\9\12"), br"\9\12");
    }
}
