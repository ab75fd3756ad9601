// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a map as keys of a bucket, and back. A key that a bucket permits is the same on both sides, unless it begins with `=` or `_kv`.
//! Any other key is `=`, followed by the key in which `=XX` replaces each byte that a bucket does not permit there, and each `=`.

/// Of a key in a bucket, in bytes: the subject, in a line of the protocol, has up to 4,096.
const ENCODED_MAX: usize = 3072;
const ESCAPE: u8 = b'=';
/// Keys that begin so belong to clients of NATS.
const RESERVED: &[u8] = b"_kv";

/// None: the key is too long for a bucket.
pub fn encode(key: &[u8]) -> Option<String> {
    let encoded = match is_plain(key) {
        true => key.iter().copied().map(char::from).collect(),
        false => escape(key),
    };
    (encoded.len() <= ENCODED_MAX).then_some(encoded)
}

/// None: no key of a map is encoded like this.
pub fn decode(encoded: &str) -> Option<Vec<u8>> {
    let key = match encoded.strip_prefix(char::from(ESCAPE)) {
        None => encoded.as_bytes().to_vec(),
        Some(escaped) => unescape(escaped.as_bytes())?,
    };
    // A key has one encoding.
    (!key.is_empty() && encode(&key)? == encoded).then_some(key)
}

fn is_plain(key: &[u8]) -> bool {
    let is_permitted = |(at, &byte): (usize, &u8)| byte == ESCAPE || is_literal(key, at, byte);
    !key.is_empty()
        && !key.starts_with(&[ESCAPE])
        && !key.starts_with(RESERVED)
        && key.iter().enumerate().all(is_permitted)
}

fn is_literal(key: &[u8], at: usize, byte: u8) -> bool {
    match byte {
        b'-' | b'/' | b'_' => true,
        // A token between dots is not empty.
        b'.' => at > 0 && key[at - 1] != b'.' && at + 1 < key.len(),
        _ => byte.is_ascii_alphanumeric(),
    }
}

fn escape(key: &[u8]) -> String {
    let mut text = String::from(char::from(ESCAPE));
    for (at, &byte) in key.iter().enumerate() {
        match is_literal(key, at, byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("={byte:02X}")),
        }
    }
    text
}

fn unescape(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    while let Some((&byte, rest)) = text.split_first() {
        text = match byte {
            ESCAPE => {
                let (digits, rest) = rest.split_at_checked(2)?;
                key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest
            }
            _ => {
                key.push(byte);
                rest
            }
        };
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_keys_are_the_same_in_the_bucket() {
        for key in [
            "a",
            "orders.4711",
            "a/b-c_D",
            "Zm9v==",
            "size=10",
            "a.=3",
            "-",
            "_k",
        ] {
            assert_eq!(encode(key.as_bytes()).as_deref(), Some(key));
            assert_eq!(decode(key).as_deref(), Some(key.as_bytes()));
        }
    }

    #[test]
    fn other_keys_are_escaped() {
        for (key, encoded) in [
            (&b"gr\xc3\xb6\xc3\x9fe"[..], "=gr=C3=B6=C3=9Fe"),
            (b"a b", "=a=20b"),
            (b".", "==2E"),
            (b".a", "==2Ea"),
            (b"a.", "=a=2E"),
            (b"a..b", "=a.=2Eb"),
            (b"a.>", "=a.=3E"),
            (b"*", "==2A"),
            (b"=a", "==3Da"),
            (b"a= ", "=a=3D=20"),
            (b"_kv", "=_kv"),
            (b"\0", "==00"),
        ] {
            assert_eq!(encode(key).as_deref(), Some(encoded));
            assert_eq!(decode(encoded).as_deref(), Some(key));
        }
    }

    #[test]
    fn only_an_encoding_is_decoded() {
        for text in [
            "", "=", "=a", "=a=2", "=a=", "=a=2e", "=a=41", "=a=+1", "==3da", "a b", "a..b", "_kv",
            "=a=C3é",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_for_the_bucket_has_no_encoding() {
        assert!(encode(&[b'a'; ENCODED_MAX]).is_some());
        assert!(encode(&[b'a'; ENCODED_MAX + 1]).is_none());
        let escaped_max = (ENCODED_MAX - 1) / 3;
        assert!(encode(&vec![0; escaped_max]).is_some());
        assert!(encode(&vec![0; escaped_max + 1]).is_none());
        assert!(decode(&"a".repeat(ENCODED_MAX + 1)).is_none());
    }

    #[test]
    fn a_key_that_is_encoded_and_decoded_is_the_same() {
        let mut random = fastrand::Rng::with_seed(1);
        let special = b".=_kvAa0/-\0 \xff";
        for round in 0..20_000 {
            let byte = |random: &mut fastrand::Rng| match round % 2 {
                0 => special[random.usize(..special.len())],
                _ => random.u8(..),
            };
            let len = random.usize(1..40);
            let key: Vec<u8> = (0..len).map(|_| byte(&mut random)).collect();
            let encoded = encode(&key).unwrap();
            assert_eq!(decode(&encoded).as_ref(), Some(&key), "{encoded}");
            let tokens = encoded.split('.').all(|token| !token.is_empty());
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_=.".contains(&byte);
            assert!(tokens && encoded.bytes().all(is_letter), "{encoded}");
            assert!(!encoded.starts_with("_kv"));
        }
    }

    #[test]
    fn a_text_that_is_decoded_is_its_only_encoding() {
        let mut random = fastrand::Rng::with_seed(2);
        let letters = b".=_kv23DEe";
        let mut decoded = 0;
        for _ in 0..50_000 {
            let len = random.usize(1..8);
            let text: Vec<u8> = (0..len)
                .map(|_| letters[random.usize(..letters.len())])
                .collect();
            let text = String::from_utf8(text).unwrap();
            if let Some(key) = decode(&text) {
                decoded += 1;
                assert_eq!(encode(&key), Some(text));
            }
        }
        assert!(decoded > 1000);
    }
}
