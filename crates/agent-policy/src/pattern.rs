//! Patterns: `left/right`, each side a text in which `*` stands for any characters.

use crate::Malformed;

/// A pattern of two parts, as `apps/Deployment` for kinds and `team-a/deployer` for service accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    left: String,
    right: String,
}

impl Pattern {
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self, Malformed> {
        match text.split_once('/') {
            Some((left, right)) if is_plain(left) && is_plain(right) => {
                Ok(Self { left: left.to_owned(), right: right.to_owned() })
            }
            _ => Err(Malformed::new(format!(
                "{field}: `{text}` is not of the form GROUP/KIND, where `*` matches anything"
            ))),
        }
    }

    pub(crate) fn anything() -> Self {
        Self { left: "*".to_owned(), right: "*".to_owned() }
    }

    pub(crate) fn is_match(&self, left: &str, right: &str) -> bool {
        matches(&self.left, left) && matches(&self.right, right)
    }
}

/// A name in which `*` stands for any characters.
pub(crate) fn name(field: &str, text: &str) -> Result<String, Malformed> {
    if is_plain(text) {
        return Ok(text.to_owned());
    }
    Err(Malformed::new(format!("{field}: `{text}` is not a name, in which `*` matches anything")))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._*".contains(&c))
}

/// Whether `text` is what `pattern` says. Letters count alike in both cases: a never-list must not be evaded by spelling.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{Pattern, matches};

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "abc", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXc", false),
            ("ab*ba", "aba", false),
            ("team-*", "team-", true),
            ("RBAC.*", "rbac.authorization.k8s.io", true),
            ("kube-system", "kube-systems", false),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_has_two_sides() {
        let kinds = Pattern::parse("kinds", "rbac.authorization.k8s.io/*").expect("a pattern");
        assert!(kinds.is_match("rbac.authorization.k8s.io", "ClusterRole"));
        assert!(!kinds.is_match("apps", "Deployment"));
        for text in ["", "a", "a/", "/b", "a/b/c", "a b/c", "a/b\n"] {
            assert!(Pattern::parse("kinds", text).is_err(), "{text:?}");
        }
    }
}
