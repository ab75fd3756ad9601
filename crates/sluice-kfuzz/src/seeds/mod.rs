// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs to begin with: they use each kind as intended, because chance would take long to find such programs.

mod bus;
mod calls;
mod durable;
mod feed;
mod map;
mod netlink;
mod pipe;
mod processes;
mod ring;
mod uring;

use crate::generate::control;
use crate::program::Program;

/// Each as root and as another user.
pub fn all() -> Vec<Program> {
    let sequences = [
        pipe::all(),
        ring::all(),
        feed::all(),
        bus::all(),
        map::all(),
        durable::all(),
        netlink::all(),
        uring::all(),
        processes::all(),
    ];
    let as_both = |calls: Vec<_>| {
        [0, 1].map(|unprivileged| Program {
            unprivileged,
            calls: [vec![control()], calls.clone()].concat(),
        })
    };
    sequences.concat().into_iter().flat_map(as_both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::way;
    use crate::program::CALLS_MAX;

    #[test]
    fn their_calls_exist() {
        for program in all() {
            assert!(program.calls.len() <= CALLS_MAX, "{program:?}");
            for call in program.calls {
                assert!(way(&call.name).is_some(), "{}", call.name);
            }
        }
    }
}
