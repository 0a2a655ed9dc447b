//! A key that signs tokens, for who is an issuer itself: the other side of [`Keys`](crate::Keys).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// The algorithm by which tokens are signed.
pub const SIGNED_BY: &str = "ES256";

/// A key could not be made, read or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The operating system gives no randomness.
    #[error("make a key that signs tokens")]
    Make,
    /// The bytes are not a key of this kind.
    #[error("read a key that signs tokens")]
    Read,
    /// It does not sign.
    #[error("sign a token")]
    Sign,
}

/// A key that signs tokens by [`SIGNED_BY`]. Does not print.
pub struct SigningKey {
    id: String,
    x: String,
    y: String,
    pair: EcdsaKeyPair,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

impl SigningKey {
    /// A new key, in the form that [`SigningKey::read`] reads.
    ///
    /// # Errors
    /// [`SigningError::Make`].
    pub fn generate() -> Result<Zeroizing<Vec<u8>>, SigningError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        Ok(Zeroizing::new(document.map_err(|_| SigningError::Make)?.as_ref().to_vec()))
    }

    /// Reads a key (PKCS #8).
    ///
    /// # Errors
    /// [`SigningError::Read`].
    pub fn read(bytes: &[u8]) -> Result<Self, SigningError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes)
            .map_err(|_| SigningError::Read)?;
        // An uncompressed point: a byte that says so, and two numbers of 32 bytes.
        let point = pair.public_key().as_ref();
        let coordinates = point.get(1..).filter(|rest| rest.len() == 64).ok_or(SigningError::Read)?;
        let (x, y) = coordinates.split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        // The thumbprint of RFC 7638.
        let named = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, named.as_bytes()));
        Ok(Self { id, x, y, pair })
    }

    /// Its name in tokens, which depends on nothing but the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its public half, as an issuer publishes it.
    #[must_use]
    pub fn published(&self) -> Value {
        let Self { id, x, y, .. } = self;
        json!({ "use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": SIGNED_BY, "x": x, "y": y })
    }

    /// A token with these claims.
    ///
    /// # Errors
    /// [`SigningError::Sign`].
    pub fn sign(&self, claims: &Value) -> Result<Zeroizing<String>, SigningError> {
        let head = json!({ "alg": SIGNED_BY, "kid": self.id });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&head), part(claims));
        let signature =
            self.pair.sign(&SystemRandom::new(), text.as_bytes()).map_err(|_| SigningError::Sign)?;
        Ok(Zeroizing::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keys, Token, TokenError};

    #[test]
    fn what_a_key_signs_its_public_half_verifies_and_no_other() {
        let bytes = SigningKey::generate().unwrap();
        let (key, other) = (SigningKey::read(&bytes).unwrap(), SigningKey::generate().unwrap());
        let other = SigningKey::read(&other).unwrap();
        assert_eq!(SigningKey::read(&bytes).unwrap().id(), key.id());
        let keys = |key: &SigningKey| {
            Keys::parse(json!({ "keys": [key.published()] }).to_string().as_bytes()).unwrap()
        };
        let claims = json!({ "iss": "https://hub.test", "sub": "robot" });
        let text = key.sign(&claims).unwrap();
        let token = Token::parse(&text).unwrap();
        assert_eq!(token.key(), Some(key.id()));
        assert!(keys(&key).has(key.id()) && !keys(&key).has(other.id()));
        assert_eq!(token.verify(&keys(&key)), Ok(claims));
        assert_eq!(token.verify(&keys(&other)), Err(TokenError::Signature));
        assert!(matches!(SigningKey::read(&bytes[1..]), Err(SigningError::Read)));
        assert!(!format!("{key:?}").contains("pair"));
    }

    /// The example of RFC 7638 is of RSA; this one was computed by hand from the text that it says is hashed.
    #[test]
    fn the_name_is_the_thumbprint() {
        let key = SigningKey::read(&SigningKey::generate().unwrap()).unwrap();
        let published = key.published();
        let text = json!({ "crv": "P-256", "kty": "EC", "x": published["x"], "y": published["y"] });
        // Keys of serde_json's objects are in alphabetical order, as the thumbprint wants them.
        assert_eq!(key.id(), URL_SAFE_NO_PAD.encode(digest(&SHA256, text.to_string().as_bytes())));
    }
}
