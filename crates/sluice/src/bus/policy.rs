// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

use sluice_abi::bus;

/// Who receives a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Every subscriber.
    #[default]
    Broadcast,
    /// One subscriber, in turn.
    Multicast,
    /// The first that receives: all share one queue, which also keeps messages while there is no subscriber.
    Unicast,
    /// The number of a mode that this library does not know.
    Other(u32),
}

impl Mode {
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            bus::BROADCAST => Self::Broadcast,
            bus::MULTICAST => Self::Multicast,
            bus::UNICAST => Self::Unicast,
            other => Self::Other(other),
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            Self::Broadcast => bus::BROADCAST,
            Self::Multicast => bus::MULTICAST,
            Self::Unicast => bus::UNICAST,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broadcast => f.write_str("broadcast"),
            Self::Multicast => f.write_str("multicast"),
            Self::Unicast => f.write_str("unicast"),
            Self::Other(number) => write!(f, "mode {number}"),
        }
    }
}

/// What happens to a subscriber that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// It loses its oldest messages, and learns their number.
    Drop,
    /// Senders wait for it.
    Block,
    /// It loses its subscription.
    Evict,
}

impl Policy {
    const ALL: [Self; 3] = [Self::Drop, Self::Block, Self::Evict];

    pub(super) fn bit(self) -> u32 {
        match self {
            Self::Drop => bus::DROP,
            Self::Block => bus::BLOCK,
            Self::Evict => bus::EVICT,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drop => "drop",
            Self::Block => "block",
            Self::Evict => "evict",
        })
    }
}

/// A set of policies, collected from them: `Policies::from([Policy::Drop, Policy::Block])`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policies {
    bits: u32,
}

impl Policies {
    pub(super) fn from_bits(bits: u32) -> Self {
        Self { bits }
    }

    pub(super) fn bits(self) -> u32 {
        self.bits
    }

    pub fn contains(self, policy: Policy) -> bool {
        self.bits & policy.bit() != 0
    }

    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The policies of the set that this library knows.
    pub fn iter(self) -> impl Iterator<Item = Policy> {
        let policies = Policy::ALL.into_iter();
        policies.filter(move |policy| self.contains(*policy))
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<T: IntoIterator<Item = Policy>>(policies: T) -> Self {
        let bits = policies.into_iter().map(Policy::bit);
        Self::from_bits(bits.fold(0, |all, bit| all | bit))
    }
}

impl<const N: usize> From<[Policy; N]> for Policies {
    fn from(policies: [Policy; N]) -> Self {
        policies.into_iter().collect()
    }
}

/// The names, separated by commas.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, policy) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{policy}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_keep_their_numbers() {
        for number in 0..5 {
            assert_eq!(Mode::from_number(number).number(), number);
        }
        assert_eq!(Mode::Other(4).to_string(), "mode 4");
    }

    #[test]
    fn a_set_contains_what_it_was_made_from() {
        let set = Policies::from([Policy::Evict, Policy::Drop]);
        assert!(set.contains(Policy::Drop) && set.contains(Policy::Evict));
        assert!(!set.contains(Policy::Block) && !set.is_empty());
        assert_eq!(set.to_string(), "drop,evict");
        assert_eq!(set.bits(), bus::DROP | bus::EVICT);
        assert_eq!(set.iter().collect::<Policies>(), set);
        assert!(Policies::default().is_empty());
    }
}
