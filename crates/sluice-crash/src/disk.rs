// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a disk, in memory, from which files with a state of it are made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const BLOCK: usize = 4096;

/// A write that is in the cache of the disk, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub offset: u64,
    pub data: Vec<u8>,
}

pub struct Disk {
    bytes: Vec<u8>,
    /// The blocks that may have other bytes than zeros: the rest is left out of the files.
    used: Vec<bool>,
}

impl Disk {
    pub fn read(path: &Path) -> Result<Disk> {
        let bytes = std::fs::read(path)
            .with_context(|| format!("cannot read the disk {}", path.display()))?;
        let used = bytes
            .chunks(BLOCK)
            .map(|block| block.iter().any(|byte| *byte != 0))
            .collect();
        Ok(Disk { bytes, used })
    }

    pub fn apply(&mut self, write: &Write) -> Result<()> {
        let start = usize::try_from(write.offset)?;
        let end = start + write.data.len();
        let size = self.bytes.len();
        ensure!(
            end <= size,
            "a write up to byte {end} of a disk of {size} bytes"
        );
        self.bytes[start..end].copy_from_slice(&write.data);
        if start < end {
            self.used[start / BLOCK..=(end - 1) / BLOCK].fill(true);
        }
        Ok(())
    }

    /// Makes a file with this state, and these writes after it.
    pub fn save(&self, path: &Path, writes: &[Write]) -> Result<()> {
        let save = || {
            let file = File::create(path)?;
            file.set_len(self.bytes.len() as u64)?;
            let mut start = 0;
            for run in self.used.chunk_by(|a, b| a == b) {
                let end = start + run.len();
                if run[0] {
                    let bytes = start * BLOCK..self.bytes.len().min(end * BLOCK);
                    file.write_all_at(&self.bytes[bytes], (start * BLOCK) as u64)?;
                }
                start = end;
            }
            for write in writes {
                file.write_all_at(&write.data, write.offset)?;
            }
            Ok::<_, std::io::Error>(())
        };
        save().with_context(|| format!("cannot write the disk {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_saved_state_has_the_writes() -> Result<()> {
        let scratch = Scratch::new("disk")?;
        let path = scratch.path().join("base");
        let mut expected = vec![0; 5 * BLOCK];
        expected[BLOCK] = 1;
        std::fs::write(&path, &expected)?;
        let mut disk = Disk::read(&path)?;
        disk.apply(&Write {
            offset: 3 * BLOCK as u64 - 1,
            data: vec![2, 3],
        })?;
        let unflushed = Write {
            offset: 10,
            data: vec![4],
        };
        let state = scratch.path().join("state");
        disk.save(&state, &[unflushed])?;
        expected[3 * BLOCK - 1..=3 * BLOCK].copy_from_slice(&[2, 3]);
        expected[10] = 4;
        assert!(std::fs::read(&state)? == expected);
        // The state did not change the disk.
        disk.save(&state, &[])?;
        expected[10] = 0;
        assert!(std::fs::read(&state)? == expected);
        Ok(())
    }

    #[test]
    fn a_write_beyond_the_end_is_refused() -> Result<()> {
        let scratch = Scratch::new("disk")?;
        let path = scratch.path().join("base");
        std::fs::write(&path, vec![0; BLOCK])?;
        let mut disk = Disk::read(&path)?;
        assert!(
            disk.apply(&Write {
                offset: BLOCK as u64 - 1,
                data: vec![1, 1]
            })
            .is_err()
        );
        Ok(())
    }
}
