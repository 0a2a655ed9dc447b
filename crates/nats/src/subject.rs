//! Where messages are published.

use std::fmt;

/// Bytes of a subject: a server takes lines of 4 KiB.
const LONGEST: usize = 1_024;

/// What one message is published to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject(String);

/// Not a subject that can be published to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSubject {
    /// It has no form of one.
    #[error(
        "it is not a subject: want tokens with dots between them, none of them empty and without blanks, 1,024 bytes at most"
    )]
    Form,
    /// It stands for several.
    #[error(
        "it has a wildcard (* or >): those are for who subscribes, and what is published needs one subject"
    )]
    Wildcard,
}

impl Subject {
    /// Reads one.
    ///
    /// # Errors
    /// It is none, or stands for several.
    pub fn parse(text: &str) -> Result<Self, BadSubject> {
        let fine = |c: char| !c.is_whitespace() && !c.is_control();
        if text.len() > LONGEST || !text.chars().all(fine) || text.split('.').any(str::is_empty) {
            return Err(BadSubject::Form);
        }
        if text.split('.').any(|token| matches!(token, "*" | ">")) {
            return Err(BadSubject::Wildcard);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subject_and_nothing_else() {
        for good in ["a", "fleet.events", "$KV.bucket.key", "a*b.c", "überwachung.1"] {
            assert_eq!(Subject::parse(good).map(|subject| subject.0), Ok(good.to_owned()));
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nPUB x 1", "a\u{0}", "a\u{85}b"] {
            assert_eq!(Subject::parse(bad), Err(BadSubject::Form), "{bad:?}");
        }
        assert_eq!(Subject::parse(&"a".repeat(LONGEST + 1)), Err(BadSubject::Form));
        for bad in ["*", ">", "a.*", "a.>", "*.b"] {
            assert_eq!(Subject::parse(bad), Err(BadSubject::Wildcard), "{bad}");
        }
    }
}
