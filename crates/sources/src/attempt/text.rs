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
        if !text.is_empty() && texts.len() < MOST && !texts.iter().any(|seen| seen.contains(text)) {
            texts.push(text.to_owned());
        }
    }
    texts.join(": ").chars().take(MOST_CHARS).collect()
}

/// What a process said that read untrusted bytes, for a message: as long as a library's chain of causes, and no control characters
/// of whoever wrote it.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .take(MOST_CHARS)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
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
    use super::shown_url;

    #[test]
    fn shown_urls_are_short() {
        assert_eq!(shown_url("https://git.example/a.git"), "https://git.example/a.git");
        assert!(shown_url(&format!("https://git.example/{}", "a".repeat(4_000))).len() < 300);
    }
}
