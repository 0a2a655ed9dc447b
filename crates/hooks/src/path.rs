//! Where a Receiver is called.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA256};

use crate::Token;

/// What stands before the digest.
pub const PREFIX: &str = "/hook/";
/// Bytes of the digest.
const LENGTH: usize = 32;

/// The digest that stands in a Receiver's path, as Flux computes it: of the token, the name and the namespace, with nothing
/// between them. Who knows the token of a Receiver knows it.
#[derive(Debug, Clone, Copy)]
pub struct WebhookPath([u8; LENGTH]);

impl WebhookPath {
    /// That of a Receiver; without a token where callers show one of an issuer.
    #[must_use]
    pub fn of(token: Option<&Token>, name: &str, namespace: &str) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(token.map_or(&[], Token::expose));
        context.update(name.as_bytes());
        context.update(namespace.as_bytes());
        let mut digest = [0; LENGTH];
        digest.copy_from_slice(context.finish().as_ref());
        Self(digest)
    }

    /// The digest of a path that somebody calls, where it is of the form that Receivers have: small hexadecimal digits.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let text = path.strip_prefix(PREFIX)?.as_bytes();
        if text.len() != 2 * LENGTH {
            return None;
        }
        let mut digest = [0; LENGTH];
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(digest))
    }

    /// The digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are the same; it takes the same time whatever they have in common.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl std::fmt::Display for WebhookPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_one_that_flux_computes() {
        // printf '%s' "token" "name" "namespace" | sha256sum
        let token = Token::new(b"token".to_vec());
        let path = WebhookPath::of(token.as_ref(), "name", "namespace");
        let expected = "/hook/033cd85fb94eef8b750b62b37d50fa65adb47b1f0ab5d6a8f9f6692e516e686a";
        assert_eq!(path.to_string(), expected);
        let parsed = WebhookPath::parse(expected);
        assert!(parsed.is_some_and(|parsed| parsed.is(&path)));
        assert!(!path.is(&WebhookPath::of(None, "name", "namespace")));
    }

    #[test]
    fn what_has_another_form_is_no_path() {
        let hex = "0123456789abcdef".repeat(4);
        assert!(WebhookPath::parse(&format!("/hook/{hex}")).is_some());
        for path in [
            String::new(),
            hex.clone(),
            "/hook/".to_owned(),
            format!("/hook/{}", &hex[1..]),
            format!("/hook/{hex}0"),
            format!("/hook/{hex}/"),
            format!("/hook/{}", hex.to_uppercase()),
            format!("/hook/{}é", &hex[2..]),
            format!("/hooks/{hex}"),
        ] {
            assert!(WebhookPath::parse(&path).is_none(), "{path}");
        }
    }
}
