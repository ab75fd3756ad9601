// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of pseudo-random bytes, each of which follows from its position.

/// The byte at `position` of stream number `stream`. Nearby pieces differ, so lost, repeated and swapped pieces are
/// detected.
pub fn stream_byte(stream: u64, position: u64) -> u8 {
    let mixed = (position ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

pub fn stream_bytes(stream: u64, start: u64, count: usize) -> Vec<u8> {
    (start..start + count as u64)
        .map(|position| stream_byte(stream, position))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_stream_does_not_repeat_nearby() {
        let piece = stream_bytes(1, 5000, 64);
        assert!((0..10_000).all(|start| start == 5000 || stream_bytes(1, start, 64) != piece));
        assert_ne!(stream_bytes(2, 5000, 64), piece);
    }
}
