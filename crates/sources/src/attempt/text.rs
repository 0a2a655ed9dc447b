//! Texts of servers, libraries and users, fit for messages.

use std::io;

use url::Url;

/// Characters of a text that came from elsewhere.
const MOST_CHARS: usize = 400;

/// An error and its causes in one line, each text once.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    one_line(std::iter::successors(Some(error), |error| error.source()))
}

/// Texts in one line, each once.
pub(crate) fn one_line<'a>(errors: impl Iterator<Item = &'a (dyn std::error::Error + 'static)>) -> String {
    const MOST: usize = 8;
    let mut texts: Vec<String> = Vec::new();
    for error in errors.take(4 * MOST) {
        let text = error.to_string();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // A library's link to its own manual helps nobody here.
        let text = text.split(": https://docs.rs/").next().unwrap_or_default();
        let text = without_secrets(text);
        if !text.is_empty() && texts.len() < MOST && !texts.iter().any(|seen| seen.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ").chars().take(MOST_CHARS).collect()
}

/// What a process said that read untrusted bytes, for a message: as long as a library's chain of causes, and no control characters
/// of whoever wrote it.
pub(crate) fn plain(text: &str) -> String {
    without_secrets(text)
        .chars()
        .take(MOST_CHARS)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// `text` with each URL in it as it may be shown: without its query, and without what stands before its host. Quotes and what else
/// touches a URL stay.
pub(crate) fn without_secrets(text: &str) -> String {
    const SIGN: &str = "://";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SIGN) {
        let (before, from) = rest.split_at(at + SIGN.len());
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>');
        let (url, after) = from.split_at(from.find(ends).unwrap_or(from.len()));
        rest = after;
        let (place, path) = url.split_at(url.find(['/', '?', '#']).unwrap_or(url.len()));
        shown.push_str(place.rsplit_once('@').map_or(place, |(_, host)| host));
        match path.find(['?', '#']) {
            Some(query) => {
                shown.push_str(&path[..query]);
                // Of the sentence, and not of the URL.
                let own = path.trim_end_matches([':', ',', ';', '.', ')', ']', '}']).len();
                shown.push_str(&path[own.max(query)..]);
            }
            None => shown.push_str(path),
        }
    }
    shown + rest
}

/// What is wrong with the server's certificate, if that is why there is no connection.
pub(crate) fn untrusted(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref::<rustls::Error>() {
            return Some(match why {
                rustls::CertificateError::UnknownIssuer => "its issuer is not known here".to_owned(),
                rustls::CertificateError::Other(other) => chain(other),
                why => why.to_string(),
            });
        }
        // An io::Error does not count what it wraps as its source.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// `text` as it may be shown: without anything before an `@`, and short.
pub(crate) fn shown_url(text: &str) -> String {
    let clean = match Url::parse(text) {
        Ok(mut url) if url.has_host() => {
            // These fail for URLs that cannot have credentials, so there are none.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        // Nobody knows how this would be read: `user:password@host:path` is not a URL, say.
        _ => match text.rsplit_once('@') {
            Some((_, rest)) => format!("…@{rest}"),
            None => text.to_owned(),
        },
    };
    crate::tree::shown(&clean)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{chain, plain, shown_url, without_secrets};
    use crate::source_cases::{source_cases, tell};

    #[test]
    fn queries_of_urls_are_not_shown() {
        let Some(files) = source_cases("URLs in errors") else { return };
        let cases: Value = serde_json::from_slice(&files["sanitize.json"]).unwrap();
        let cases = cases["cases"].as_array().unwrap();
        for case in cases {
            let (text, shown) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
            assert_eq!(without_secrets(text), shown);
            // As they stand in what libraries say of a failure.
            for (before, after) in
                [("Get \"", "\": dial tcp: refused"), ("", ": not found"), ("(see ", ")"), ("a ", " b")]
            {
                assert_eq!(
                    without_secrets(&format!("{before}{text}{after}")),
                    format!("{before}{shown}{after}")
                );
            }
        }
        tell(format_args!("sanitize.json: {} URLs as expected", cases.len()));
    }

    #[test]
    fn nothing_secret_of_urls_gets_into_messages() {
        for (text, shown) in [
            ("https://u:hunter2@h/x?a=hunter2#hunter2 and http://hunter2@h", "https://h/x and http://h"),
            ("at oci://h/a?hunter2, then s3://h?hunter2.", "at oci://h/a, then s3://h."),
            ("https://h?u=https://h/x?hunter2", "https://h"),
            ("://", "://"),
            ("a@b: ssh://git@h/x", "a@b: ssh://h/x"),
        ] {
            assert_eq!(without_secrets(text), shown);
            assert_eq!(plain(text), shown);
            assert_eq!(chain(&std::io::Error::other(text)), shown);
        }
    }

    proptest! {
        #[test]
        fn a_text_without_urls_stays(text in "[^:]{0,40}") {
            prop_assert_eq!(without_secrets(&text), text);
        }

        #[test]
        fn any_text_is_shown_once_as_twice(text in "(://|[a?@#/:\" .é]){0,20}") {
            let once = without_secrets(&text);
            prop_assert_eq!(without_secrets(&once), once);
        }
    }

    #[test]
    fn shown_urls_are_short() {
        assert_eq!(shown_url("https://git.example/a.git"), "https://git.example/a.git");
        assert!(shown_url(&format!("https://git.example/{}", "a".repeat(4_000))).len() < 300);
    }
}
