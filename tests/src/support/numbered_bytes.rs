// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that say who wrote them, and in which order.

/// The number of writers that can be told apart.
pub const SLOTS: usize = 256 / Byte::PERIOD;

/// A byte that encodes its writer's slot and its position in the writer's sequence, modulo `PERIOD`.
#[derive(Clone, Copy)]
pub struct Byte(pub u8);

impl Byte {
    /// The number of distinguishable positions.
    pub const PERIOD: usize = 32;

    pub fn new(slot: usize, position: usize) -> Self {
        Byte((slot * Self::PERIOD + position % Self::PERIOD) as u8)
    }

    fn slot(self) -> usize {
        self.0 as usize / Self::PERIOD
    }

    fn position(self) -> usize {
        self.0 as usize % Self::PERIOD
    }
}

/// The bytes of one read, counted for each writer's slot.
pub struct Piece {
    pub counts: [u64; SLOTS],
    /// How often a byte did not follow its predecessor of the same writer.
    pub breaks: [u64; SLOTS],
}

impl Piece {
    pub fn of(bytes: &[u8]) -> Self {
        let mut piece = Piece {
            counts: [0; SLOTS],
            breaks: [0; SLOTS],
        };
        let mut next = [None; SLOTS];
        for byte in bytes.iter().copied().map(Byte) {
            let (slot, position) = (byte.slot(), byte.position());
            piece.counts[slot] += 1;
            if next[slot].is_some_and(|next| next != position) {
                piece.breaks[slot] += 1;
            }
            next[slot] = Some((position + 1) % Byte::PERIOD);
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(slot: usize, positions: std::ops::Range<usize>) -> Vec<u8> {
        positions
            .map(|position| Byte::new(slot, position).0)
            .collect()
    }

    #[test]
    fn writers_may_interleave() {
        let bytes = [sequence(1, 0..40), sequence(7, 9..10), sequence(1, 40..80)].concat();
        let piece = Piece::of(&bytes);
        assert_eq!(piece.counts, [0, 80, 0, 0, 0, 0, 0, 1]);
        assert_eq!(piece.breaks, [0; SLOTS]);
    }

    #[test]
    fn a_lost_byte_and_a_repeated_one_are_breaks() {
        let bytes = [sequence(2, 0..10), sequence(2, 11..20), sequence(2, 19..30)].concat();
        assert_eq!(Piece::of(&bytes).breaks[2], 2);
    }
}
