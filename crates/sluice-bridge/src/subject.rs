// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a subject may be: tokens, separated by dots. In a pattern, `*` is any token and a final `>` one or more.

/// What to write instead, if it is no subject to publish to.
pub fn literal_error(subject: &str) -> Option<&'static str> {
    let has_wildcard = subject.split('.').any(|token| matches!(token, "*" | ">"));
    match has_wildcard {
        true => Some(
            "a subject to publish to has no '*' and no '>'; write it out, such as \"orders.new\"",
        ),
        false => pattern_error(subject),
    }
}

/// What to write instead, if it is no subject to subscribe to.
pub fn pattern_error(subject: &str) -> Option<&'static str> {
    let tokens: Vec<&str> = subject.split('.').collect();
    let is_forbidden = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
    if subject.bytes().any(is_forbidden) {
        return Some(
            "a subject has no blanks and no control characters; write tokens with dots, such as \"orders.new\"",
        );
    }
    if tokens.iter().any(|token| token.is_empty()) {
        return Some(
            "a subject has no empty tokens; write tokens with dots between, such as \"orders.new\"",
        );
    }
    if tokens[..tokens.len() - 1].contains(&">") {
        return Some("'>' is the last token of a subject; use '*' for one token before");
    }
    if subject.starts_with('$') || tokens[0] == "_INBOX" {
        return Some(
            "subjects that begin with '$' and '_INBOX' belong to servers and clients; choose another",
        );
    }
    None
}

/// What to write instead of a pattern that matches subjects of servers and clients, such as replies. A stream has only its own subjects.
pub fn reply_error(pattern: &str) -> Option<&'static str> {
    let is_wide = pattern == ">" || pattern.starts_with("*.");
    is_wide.then_some(
        "this pattern matches replies to other clients, too; begin it with a word, such as \"orders.>\", or write stream",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_consists_of_tokens() {
        for subject in ["orders", "orders.new", "a.b-c.D_1", "größe.1", "a*b.c>"] {
            assert_eq!(literal_error(subject), None, "{subject}");
        }
        for subject in [
            "",
            ".",
            "a..b",
            ".a",
            "a.",
            "a b",
            "a\n",
            "\u{7f}",
            "$JS.API.INFO",
            "_INBOX.a.b",
            "_INBOX",
        ] {
            assert!(literal_error(subject).is_some(), "{subject:?}");
            assert!(pattern_error(subject).is_some(), "{subject:?}");
        }
    }

    #[test]
    fn no_pattern_matches_replies() {
        for pattern in [">", "*.>", "*.a", "*.*.*"] {
            assert!(reply_error(pattern).is_some(), "{pattern}");
        }
        for pattern in ["*", "a.>", "a.*", "orders", "*a.b"] {
            assert_eq!(reply_error(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn only_a_pattern_has_wildcards() {
        for pattern in ["*", ">", "a.*.b", "a.>"] {
            assert_eq!(pattern_error(pattern), None, "{pattern}");
            assert!(literal_error(pattern).is_some(), "{pattern}");
        }
        assert!(pattern_error("a.>.b").is_some());
    }
}
