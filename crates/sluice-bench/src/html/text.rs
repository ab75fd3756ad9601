// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text in the page.

/// Escapes text that may contain markup: host names, labels, reasons. Valid in elements and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A link target.
pub fn anchor(words: &[&str]) -> String {
    let word = |text: &&str| -> String {
        let plain = |character: char| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_ascii_lowercase(),
            _ => '-',
        };
        text.chars().map(plain).collect()
    };
    words.iter().map(word).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        assert_eq!(
            escape("<b title='x'>\"&\"</b>"),
            "&lt;b title=&#39;x&#39;&gt;&quot;&amp;&quot;&lt;/b&gt;"
        );
    }

    #[test]
    fn anchors_are_plain() {
        assert_eq!(anchor(&["rtt", "1 KiB <x>"]), "rtt-1-kib--x-");
    }
}
