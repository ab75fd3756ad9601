// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that the checks read: those of this system, or of a directory that a test has made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub struct System {
    root: PathBuf,
}

impl System {
    pub fn this() -> Self {
        Self::at(Path::new("/"))
    }

    pub fn at(root: &Path) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// Where the file of this absolute path is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a file, without the newline at its end.
    pub fn text(&self, path: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.path(path))?.trim_end().to_owned())
    }

    /// The names in a directory, sorted; none if it cannot be read.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{env, process};

    use super::*;

    /// A directory with files, which is removed with them.
    pub struct Tree {
        pub system: System,
        root: PathBuf,
    }

    /// A directory with these files and their contents.
    pub fn tree(files: &[(&str, &str)]) -> Tree {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = env::temp_dir().join(format!("sluice-doctor-{}-{number}", process::id()));
        let system = System::at(&root);
        for (path, content) in files {
            let path = system.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Tree { system, root }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn files_are_below_the_root() {
        let tree = tree(&[("/a/one", "1\n"), ("/a/two", "")]);
        assert_eq!(tree.system.text("/a/one").unwrap(), "1");
        assert_eq!(tree.system.names("/a"), ["one", "two"]);
        assert!(tree.system.names("/b").is_empty());
        assert!(!tree.system.exists("/proc"));
    }
}
