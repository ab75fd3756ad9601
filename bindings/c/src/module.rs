// SPDX-License-Identifier: MIT OR Apache-2.0
//! The versions of the library and of the module.

use std::ffi::{CStr, c_char, c_int};

use sluice::{Features, Kind};

use crate::error::Failure;
use crate::result::call;

pub const SLUICE_KIND_PIPE: u32 = 1;
pub const SLUICE_KIND_RING: u32 = 2;
pub const SLUICE_KIND_FEED: u32 = 3;
pub const SLUICE_KIND_BUS: u32 = 4;
pub const SLUICE_KIND_MAP: u32 = 5;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero"),
    };

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn sluice_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The version of the interface of the loaded module. Fails with -ENOENT if it is not loaded.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_module_version() -> c_int {
    call(|| {
        let version = c_int::try_from(sluice::features()?.abi);
        version.map_err(|_| Failure::new(libc::EPROTO, c"the module has an unknown version", c""))
    })
}

/// Whether the loaded module has channels of a kind, SLUICE_KIND_PIPE and others: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_module_has_kind(kind: u32) -> c_int {
    call(|| {
        let has = |features: Features| features.has_kind(Kind::from(kind));
        Ok(sluice::features().map(has)?)
    })
}
