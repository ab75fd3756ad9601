// SPDX-License-Identifier: MIT OR Apache-2.0
use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::sys::Control;

/// The features of the loaded module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The version of its interface.
    pub abi: u32,
    kinds: u64,
    open_flags: u64,
}

impl Features {
    /// Whether channels of this kind can be opened.
    pub fn has_kind(&self, kind: Kind) -> bool {
        let number = kind.number();
        number < u64::BITS && self.kinds & (1 << number) != 0
    }

    /// Fails with [`Error::ModuleTooOld`] unless channels of this kind can be opened.
    pub fn require(&self, kind: Kind) -> Result<()> {
        match self.has_kind(kind) {
            true => Ok(()),
            false => Err(Error::ModuleTooOld {
                missing: kind.plural(),
            }),
        }
    }

    /// Whether the module supports every feature that this library can use. One with a later `abi` does not: something was
    /// removed or has another meaning.
    pub fn has_all(&self) -> bool {
        let flags = u64::from(abi::OPEN_FLAGS);
        let kinds = [Kind::Pipe, Kind::Ring, Kind::Feed, Kind::Bus, Kind::Map];
        self.abi == abi::ABI
            && kinds.into_iter().all(|kind| self.has_kind(kind))
            && self.open_flags & flags == flags
    }
}

/// Queries the features of the loaded module.
///
/// ```no_run
/// assert!(sluice::features()?.has_kind(sluice::Kind::Pipe));
/// # Ok::<(), sluice::Error>(())
/// ```
pub fn features() -> Result<Features> {
    let mut features = abi::Features::default();
    Control::open()?
        .call(abi::CTL_FEATURES, &mut features)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => Error::ModuleTooOld {
                missing: "SLUICE_CTL_FEATURES",
            },
            _ => Error::io("querying the features of the module", error),
        })?;
    Ok(Features {
        abi: features.abi,
        kinds: features.kinds,
        open_flags: features.open_flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_feature_is_found() {
        let all = Features {
            abi: 1,
            kinds: 0b111110,
            open_flags: 0x7f,
        };
        assert!(all.has_all());
        assert!(!all.has_kind(Kind::Other(6)));
        assert!(!all.has_kind(Kind::Other(64)));
        let without = |kind: Kind| Features {
            kinds: all.kinds & !(1 << kind.number()),
            ..all
        };
        for less in [
            Features { abi: 0, ..all },
            Features { abi: 2, ..all },
            without(Kind::Pipe),
            without(Kind::Ring),
            without(Kind::Feed),
            without(Kind::Bus),
            without(Kind::Map),
            Features {
                open_flags: 0x3f,
                ..all
            },
        ] {
            assert!(!less.has_all(), "{less:?}");
        }
    }
}
