//! An error with all its causes in one line, for conditions and logs.

use std::error::Error;

/// The error and its causes, from the outside in: `fetch the source: connect to the server: connection refused`.
///
/// Some errors print their cause themselves; it is not told twice.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::chain;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("inner")]
        Inner,
        #[error("quotes it: {0}")]
        Quotes(#[source] Box<Failed>),
        #[error("outer")]
        Outer(#[source] Box<Failed>),
    }

    #[test]
    fn each_cause_once() {
        let quotes = Failed::Quotes(Box::new(Failed::Inner));
        assert_eq!(chain(&Failed::Outer(Box::new(quotes))), "outer: quotes it: inner");
    }
}
