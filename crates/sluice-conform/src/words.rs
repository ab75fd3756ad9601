// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of commands and results that all kinds have: options, times, bytes and errors.

use std::time::Duration;

use nix::errno::Errno;
use sluice::{Creatable, Options};

use crate::content;

/// Bytes that are longer than a word should be, or no text, are those of the table.
const LONGEST_WORD: usize = 64;

/// The options of a command, as in `create capacity=4096`.
#[derive(Clone, Copy)]
pub struct Settings<'a>(pub &'a [&'a str]);

impl<'a> Settings<'a> {
    pub fn has(self, flag: &str) -> bool {
        self.0.contains(&flag)
    }

    pub fn text(self, key: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    pub fn number(self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// Sets the options that channels of all kinds have.
    pub fn apply<K: Creatable>(self, options: Options<K>) -> Options<K> {
        let options = options
            .create(self.has("create"))
            .exclusive(self.has("exclusive"))
            .persistent(self.has("persistent"));
        match self.number("capacity") {
            Some(bytes) => options.capacity(bytes),
            None => options,
        }
    }
}

/// The time of a call, from the word that may be there. None: the call waits.
pub fn time(words: &[&str]) -> Option<Duration> {
    words.first()?.parse().ok().map(Duration::from_millis)
}

/// Calls the method of an object that waits, that does not wait, or that waits for a time.
macro_rules! within {
    ($words:expr, $object:ident, $waits:ident | $tries:ident | $times:ident ($($argument:expr),*)) => {
        match crate::words::time($words) {
            None => $object.$waits($($argument),*),
            Some(std::time::Duration::ZERO) => $object.$tries($($argument),*),
            Some(time) => $object.$times($($argument,)* time),
        }
    };
}
pub(crate) use within;

/// The bytes of a word: `#5` is the first 5 bytes of the table, which repeat if it is too short; another word is itself.
pub fn bytes(word: &str) -> Vec<u8> {
    match word.strip_prefix('#').map(str::parse) {
        Some(Ok(length)) => content::repeated(length),
        _ => word.as_bytes().to_vec(),
    }
}

pub fn word(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(u8::is_ascii_graphic) && !bytes.starts_with(b"#");
    match bytes.len() {
        1..=LONGEST_WORD if is_text => String::from_utf8_lossy(bytes).into_owned(),
        length if bytes == content::repeated(length) => format!("#{length}"),
        _ => "wrong".to_owned(),
    }
}

/// The result of a call that failed with this errno. `again` stands for EAGAIN.
pub fn failed(errno: Option<i32>, again: &str) -> String {
    match Errno::from_raw(errno.unwrap_or(0)) {
        Errno::EAGAIN => again.to_owned(),
        Errno::ETIMEDOUT => "timeout".to_owned(),
        Errno::EMSGSIZE => "too-long".to_owned(),
        _ => refused(errno),
    }
}

pub fn refused(errno: Option<i32>) -> String {
    format!("refused {:?}", Errno::from_raw(errno.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bytes_and_bytes_words() {
        for text in ["a", "key=1", "#0", "#5", "#300000"] {
            assert_eq!(word(&bytes(text)), text);
        }
        assert_eq!(bytes("#300000").len(), 300_000);
        assert_eq!(word(&[1, 2, 3]), "wrong");
        assert_eq!(word(b"two words"), "wrong");
    }

    #[test]
    fn options_are_found_by_their_names() {
        let settings = Settings(&["create", "capacity=4096", "mode=unicast"]);
        assert!(settings.has("create") && !settings.has("persistent"));
        assert_eq!(settings.number("capacity"), Some(4096));
        assert_eq!(settings.text("mode"), Some("unicast"));
        assert_eq!(settings.text("cap"), None);
    }
}
