// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts a file system that is in a file. mount(8) does the same, but starting it takes most of the time in an emulated VM.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A mounted file system, until it is dropped.
pub struct LoopMount {
    point: PathBuf,
}

impl LoopMount {
    /// The file system is ext4.
    pub fn new(image: &Path, point: &Path) -> Result<LoopMount> {
        let device = attach(image).context("cannot set up a loop device; run as root")?;
        let name = format!("/proc/self/fd/{}", device.as_raw_fd());
        let device_path = std::fs::read_link(name)?;
        mount(
            Some(&device_path),
            point,
            Some("ext4"),
            MsFlags::empty(),
            None::<&str>,
        )
        .context("the file system cannot be mounted")?;
        Ok(LoopMount {
            point: point.into(),
        })
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let _ = umount2(&self.point, MntFlags::empty());
    }
}

/// struct loop_config of the kernel's linux/loop.h, with the fields that are used.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    numbers: [u64; 5],
    rest: [u32; 3],
    flags: u32,
    names: [u8; 160],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// The device is given up with its last user.
const AUTOCLEAR: u32 = 4;

mod request {
    nix::ioctl_none_bad!(get_free, 0x4c82);
    nix::ioctl_write_ptr_bad!(configure, 0x4c0a, super::Config);
}

fn attach(image: &Path) -> Result<File> {
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
    let file = open(image)?;
    let control = open(Path::new("/dev/loop-control"))?;
    let config = Config {
        file: file.as_raw_fd() as u32,
        block_size: 0,
        numbers: [0; 5],
        rest: [0; 3],
        flags: AUTOCLEAR,
        names: [0; 160],
        init: [0; 2],
        reserved: [0; 8],
    };
    loop {
        // SAFETY: the request has no argument.
        let number = unsafe { request::get_free(control.as_raw_fd()) }?;
        let device = open(Path::new(&format!("/dev/loop{number}")))?;
        // SAFETY: the kernel reads a struct loop_config, whose layout this is.
        match unsafe { request::configure(device.as_raw_fd(), &config) } {
            Ok(_) => return Ok(device),
            // Another thread took it.
            Err(Errno::EBUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_laid_out_as_in_the_kernel() {
        assert_eq!(std::mem::offset_of!(Config, flags), 8 + 52);
        assert_eq!(size_of::<Config>(), 8 + 232 + 64);
    }
}
