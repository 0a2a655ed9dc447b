//! What may be the name of a user or a group, where a token gives it.

use roadstead_api::rules::is_dns_subdomain;

use crate::Refusal;

/// How the names begin that the hub and Kubernetes keep for themselves.
const RESERVED: &str = "system:";
/// The longest name, in bytes.
const MAX_NAME: usize = 1024;
/// The longest value of what else is known of a user.
const MAX_VALUE: usize = 8 * 1024;

/// Whether a name is one that no token gives. In whatever case it is written: rights are looked up by the very bytes, but people
/// who read a binding or the audit log may take one for the other.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(RESERVED))
}

/// Refuses what no name is: longer than any, or with characters that are not seen, so that two names would look the same where
/// they are shown, or a line of a log like two.
///
/// # Errors
/// [`Refusal`], which says what is wrong with `what`.
pub fn check(what: &'static str, name: &str) -> Result<(), Refusal> {
    within(what, name, MAX_NAME)
}

/// The same of a value that is not compared with names.
pub(crate) fn check_value(what: &'static str, value: &str) -> Result<(), Refusal> {
    within(what, value, MAX_VALUE)
}

fn within(what: &'static str, text: &str, most: usize) -> Result<(), Refusal> {
    if text.len() > most {
        return Err(Refusal::TooLong { what, most });
    }
    if text.chars().any(is_invisible) {
        return Err(Refusal::Invisible { what });
    }
    Ok(())
}

/// Controls, marks that turn the direction of writing, and characters without a width.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// What is wrong with the key of something else that is known of a user, by kube-apiserver's rules.
pub(crate) fn wrong_key(key: &str) -> Option<&'static str> {
    let Some((domain, path)) = key.split_once('/') else {
        return Some("must be a domain and a path, such as example.org/team");
    };
    let in_path = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    let within =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if key.chars().any(char::is_uppercase) {
        Some("must be in lower case")
    } else if !is_dns_subdomain(domain) {
        Some("must begin with a domain, such as example.org/team")
    } else if path.is_empty() || !path.chars().all(in_path) {
        Some("must be a path after the domain, such as example.org/team")
    } else if within("k8s.io") || within("kubernetes.io") {
        Some("must not be in k8s.io or kubernetes.io, which Kubernetes keeps for itself")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_known_in_any_case() {
        for name in ["system:masters", "System:Masters", "SYSTEM:", "system:node:a"] {
            assert!(is_reserved(name), "{name}");
        }
        // Other letters that look the same have none of their rights.
        for name in ["system", "systems:a", "my-system:a", "", "\u{455}ystem:masters", "ſystem:masters", "é"]
        {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn names_have_nothing_that_is_not_seen() {
        assert!(check("name", "Zoë Müller <zoe@example.com> 日本").is_ok());
        for name in
            ["a\0", "a\nb", "\u{202e}nimda", "ad\u{200b}min", "admin\u{ad}", "\u{feff}a", "a\u{e0041}"]
        {
            assert!(matches!(check("name", name), Err(Refusal::Invisible { .. })), "{name:?}");
        }
        assert!(check("name", &"x".repeat(1024)).is_ok());
        assert!(matches!(check("name", &"x".repeat(1025)), Err(Refusal::TooLong { .. })));
    }

    #[test]
    fn keys_are_of_a_domain_that_is_not_reserved() {
        for key in ["example.org/team", "example.org/a/b%20c", "notk8s.io/x", "a/b"] {
            assert_eq!(wrong_key(key), None, "{key}");
        }
        for key in [
            "",
            "team",
            "/team",
            "example.org/",
            "Example.org/team",
            "example.org/Team",
            "a_b/c",
            "example.org/a b",
            "k8s.io/x",
            "a.k8s.io/x",
            "kubernetes.io/x",
            "authentication.kubernetes.io/credential-id",
        ] {
            assert!(wrong_key(key).is_some(), "{key}");
        }
    }
}
