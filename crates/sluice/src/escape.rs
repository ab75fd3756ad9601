// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes as text, for names and keys.

/// Bytes as text that cannot control a terminal: printable UTF-8 as it is, a backslash twice, and other bytes as `\n`, `\r`, `\t` or
/// `\xHH`. Different bytes have different texts.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            push(&mut text, letter);
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push(text: &mut String, letter: char) {
    match letter {
        '\\' => text.push_str(r"\\"),
        '\n' => text.push_str(r"\n"),
        '\r' => text.push_str(r"\r"),
        '\t' => text.push_str(r"\t"),
        _ if letter.is_control() || is_invisible(letter) => {
            push_hex(text, letter.encode_utf8(&mut [0; 4]).as_bytes())
        }
        _ => text.push(letter),
    }
}

/// Whether it ends a line or changes the direction of the text.
fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!(r"\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_is_shown_as_it_is() {
        for text in ["key", "grüße", "a b/c=\"d\"", ""] {
            assert_eq!(escape(text.as_bytes()), text);
        }
    }

    #[test]
    fn bytes_that_could_control_a_terminal_are_escaped() {
        assert_eq!(escape(b"\x1b[2J\0\x7f"), r"\x1b[2J\x00\x7f");
        assert_eq!(escape(b"a\nb\tc\rd\\e"), r"a\nb\tc\rd\\e");
        assert_eq!(escape("\u{85}".as_bytes()), r"\xc2\x85");
        assert_eq!(escape(b"\xff\xc3ok"), r"\xff\xc3ok");
        assert_eq!(escape("a\u{202e}b".as_bytes()), r"a\xe2\x80\xaeb");
    }
}
