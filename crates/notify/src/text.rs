//! Texts of others, made fit for where they go: escaped, without what would do something there, and cut at what that takes.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use data_encoding::HEXLOWER;

/// What stands for the rest of a text that was cut, and the room for it.
const ROOM_FOR_REST: usize = 24;

/// How a service counts the length of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Chars,
    Bytes,
}

impl Unit {
    fn of(self, text: &str) -> usize {
        match self {
            Self::Chars => text.chars().count(),
            Self::Bytes => text.len(),
        }
    }
}

/// `text` escaped character by character, in at most `limit`: what does not fit is counted at the end. No escape is cut apart.
pub(crate) fn fit<E: AsRef<str>>(text: &str, limit: usize, unit: Unit, escape: impl Fn(char) -> E) -> String {
    let mut out = String::with_capacity(text.len().min(limit) + 16);
    // Up to where the end of the text would still fit behind it.
    let (mut length, mut whole, mut taken) = (0, None, 0);
    let total = text.chars().count();
    for c in text.chars() {
        let escaped = escape(c);
        let width = unit.of(escaped.as_ref());
        if length + width + ROOM_FOR_REST > limit && whole.is_none() {
            whole = Some((out.len(), taken));
        }
        if length + width > limit {
            let (end, kept) = whole.unwrap_or((0, 0));
            out.truncate(end);
            for c in format!("… ({} more)", total - kept).chars() {
                let escaped = escape(c);
                if unit.of(&out) + unit.of(escaped.as_ref()) > limit {
                    break;
                }
                out.push_str(escaped.as_ref());
            }
            return out;
        }
        out.push_str(escaped.as_ref());
        length += width;
        taken += 1;
    }
    out
}

/// Cut at so many characters, not escaped.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    fit(text, limit, Unit::Chars, |c| c.encode_utf8(&mut [0; 4]).to_owned())
}

/// Cut at so many bytes, not escaped.
pub(crate) fn cut_bytes(text: &str, limit: usize) -> String {
    fit(text, limit, Unit::Bytes, |c| c.encode_utf8(&mut [0; 4]).to_owned())
}

/// For people to read: without control characters, without marks that turn the direction of what follows, and without mentions that
/// would call everybody in a channel.
pub(crate) fn calm(text: &str) -> String {
    const EVERYBODY: [&str; 4] = ["here", "channel", "everyone", "all"];
    let is_mark = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    let kept: String =
        text.chars().filter(|c| !is_mark(*c) && (!c.is_control() || matches!(c, '\n' | '\t'))).collect();
    let mut rest = kept.as_str();
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        out.push('@');
        let calls =
            |name: &&str| after.get(..name.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(name));
        if EVERYBODY.iter().any(calls) {
            // A word joiner, which nobody sees.
            out.push('\u{2060}');
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// As Slack and what follows it want it: nothing becomes a link or a mention.
pub(crate) fn slack(text: &str, limit: usize) -> String {
    fit(&calm(text), limit, Unit::Chars, |c| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        c => c.to_string(),
    })
}

/// As a text within HTML.
pub(crate) fn html(text: &str, limit: usize) -> String {
    slack(text, limit)
}

/// As Telegram's MarkdownV2 has it: each character that means something has a backslash.
pub(crate) fn telegram(text: &str, limit: usize) -> String {
    const SPECIAL: &str = "\\.-_[]()~>`#+=|{}!*";
    fit(
        &calm(text),
        limit,
        Unit::Chars,
        |c| if SPECIAL.contains(c) { format!("\\{c}") } else { c.to_string() },
    )
}

/// As Markdown with a backslash before what means something, which calls nobody.
pub(crate) fn markdown(text: &str, limit: usize) -> String {
    const SPECIAL: &str = "\\`*_[]<>#|~";
    fit(&nobody(&calm(text)), limit, Unit::Bytes, |c| {
        if SPECIAL.contains(c) { format!("\\{c}") } else { c.to_string() }
    })
}

/// The same text without mentions: `@` at the beginning of a word, which that of `main@sha1:…` is not.
fn nobody(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within = false;
    for c in text.chars() {
        out.push(c);
        if c == '@' && !within {
            // A word joiner, which nobody sees.
            out.push('\u{2060}');
        }
        within = c.is_alphanumeric() || c == '_';
    }
    // What was made harmless already.
    out.replace("\u{2060}\u{2060}", "\u{2060}")
}

/// The SHA-1 in hex, where a service wants a short name and nothing hangs on it.
pub(crate) fn sha1(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref())
}

/// The first line.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_cut_is_counted() {
        assert_eq!(cut("short", 30), "short");
        assert_eq!(cut(&"x".repeat(30), 30), "x".repeat(30));
        assert_eq!(cut(&"x".repeat(31), 30), format!("{}… (25 more)", "x".repeat(6)));
        assert_eq!(cut_bytes(&"ü".repeat(40), 60), format!("{}… (22 more)", "ü".repeat(18)));
    }

    #[test]
    fn nobody_is_called_and_nothing_is_turned_round() {
        let hostile = "@here <!channel> @Everyone a@b.test \u{202e}gnp.exe\u{0007} <https://x|y> & @all";
        assert_eq!(
            slack(hostile, 1000),
            "@\u{2060}here &lt;!channel&gt; @\u{2060}Everyone a@b.test gnp.exe &lt;https://x|y&gt; &amp; @\u{2060}all"
        );
        assert_eq!(telegram("a_b [x](y) 1.2!", 100), "a\\_b \\[x\\]\\(y\\) 1\\.2\\!");
        assert_eq!(markdown("*a* <b> `c` @all", 100), "\\*a\\* \\<b\\> \\`c\\` @\u{2060}all");
    }

    proptest! {
        #[test]
        fn nothing_is_longer_than_its_limit_and_no_escape_is_cut(text in "\\PC{0,400}", limit in 1usize..300) {
            prop_assert!(slack(&text, limit).chars().count() <= limit);
            prop_assert!(telegram(&text, limit).chars().count() <= limit);
            prop_assert!(markdown(&text, limit).len() <= limit);
            prop_assert!(cut_bytes(&text, limit).len() <= limit);
            let escaped = slack(&text, limit);
            prop_assert!(!escaped.contains(['<', '>']));
            for (at, _) in escaped.match_indices('&') {
                let rest = &escaped[at..];
                prop_assert!(["&amp;", "&lt;", "&gt;"].iter().any(|whole| rest.starts_with(whole)), "{rest}");
            }
            // Each backslash has what it is for.
            let escaped = telegram(&text, limit);
            let mut chars = escaped.chars();
            while let Some(c) = chars.next() {
                if c == '\\' {
                    prop_assert!(chars.next().is_some(), "{escaped}");
                } else {
                    prop_assert!(!"._[]()~>`#+=|{}!*-".contains(c), "{escaped}");
                }
            }
        }

        #[test]
        fn what_fits_is_whole(text in "[a-z ]{0,100}") {
            prop_assert_eq!(cut(&text, 100), text);
        }
    }
}
