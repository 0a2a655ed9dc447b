//! The public keys of an issuer of tokens, as it publishes them.

use std::fmt;

use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;

/// So many keys of one issuer are looked at. Issuers have two or three.
pub const MAX_KEYS: usize = 32;
/// The longest name of a key or an algorithm, in bytes. A key with a longer one is passed over.
const MAX_NAME: usize = 256;
/// Bytes of a modulus: 8192 bits.
const MAX_NUMBER: usize = 1024;

/// What an issuer publishes is not a set of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what the issuer publishes is not a set of JSON Web Keys")]
pub struct BadKeys;

/// An issuer's keys.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    public: Public,
}

#[derive(Clone)]
enum Public {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Uncompressed points.
    P256(Vec<u8>),
    P384(Vec<u8>),
    P521(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key as it is published; what is for other uses is passed over.
#[derive(Deserialize)]
struct Published {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Each key is read by itself: one that is malformed spoils no other, and what is large is never held as values.
#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

impl Keys {
    /// Reads a set of keys. Those of a form that is not known here are passed over.
    ///
    /// # Errors
    /// [`BadKeys`] where it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadKeys> {
        let set: Set<'_> = serde_json::from_slice(bytes).map_err(|_| BadKeys)?;
        let read = |published: &RawValue| {
            let published: Published = serde_json::from_str(published.get()).ok()?;
            let for_signing = published.used.as_deref().is_none_or(|used| used == "sig");
            let is_short = |name: &Option<String>| name.as_ref().is_none_or(|name| name.len() <= MAX_NAME);
            let is_named = is_short(&published.kid) && is_short(&published.alg);
            let public = public(&published).filter(|_| for_signing && is_named)?;
            Some(Key { id: published.kid, algorithm: published.alg, public })
        };
        Ok(Self(set.keys.into_iter().filter_map(read).take(MAX_KEYS).collect()))
    }

    /// Whether there is a key of that name.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether one of the keys made this signature by this algorithm; where the token names a key, only that one.
    pub(crate) fn verify(&self, algorithm: &str, id: Option<&str>, text: &[u8], signature: &[u8]) -> bool {
        let fits = |key: &&Key| {
            id.is_none_or(|id| key.id.as_deref().is_none_or(|own| own == id))
                && key.algorithm.as_deref().is_none_or(|own| own == algorithm)
        };
        self.0.iter().filter(fits).any(|key| key.public.verify(algorithm, text, signature))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

fn number(text: Option<&String>) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()?;
    (!bytes.is_empty() && bytes.len() <= MAX_NUMBER).then_some(bytes)
}

fn public(key: &Published) -> Option<Public> {
    let point = |length: usize| {
        let (x, y) = (number(key.x.as_ref())?, number(key.y.as_ref())?);
        (x.len() == length && y.len() == length).then(|| [&[4], x.as_slice(), &y].concat())
    };
    match (key.kty.as_str(), key.crv.as_deref()) {
        ("RSA", _) => {
            let n = number(key.n.as_ref())?;
            let leading = n.iter().take_while(|byte| **byte == 0).count();
            Some(Public::Rsa { n: n[leading..].to_vec(), e: number(key.e.as_ref())? })
        }
        ("EC", Some("P-256")) => point(32).map(Public::P256),
        ("EC", Some("P-384")) => point(48).map(Public::P384),
        ("EC", Some("P-521")) => point(66).map(Public::P521),
        ("OKP", Some("Ed25519")) => number(key.x.as_ref()).filter(|x| x.len() == 32).map(Public::Ed25519),
        _ => None,
    }
}

impl Public {
    /// An algorithm is taken for keys of its kind only: what a token says decides nothing by itself.
    fn verify(&self, algorithm: &str, text: &[u8], signature: &[u8]) -> bool {
        let plain = |scheme: &'static dyn signature::VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(scheme, point).verify(text, signature).is_ok()
        };
        match self {
            Self::Rsa { n, e } => parameters(algorithm).is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, text, signature).is_ok()
            }),
            Self::P256(point) => algorithm == "ES256" && plain(&ECDSA_P256_SHA256_FIXED, point),
            Self::P384(point) => algorithm == "ES384" && plain(&ECDSA_P384_SHA384_FIXED, point),
            Self::P521(point) => algorithm == "ES512" && plain(&ECDSA_P521_SHA512_FIXED, point),
            Self::Ed25519(point) => algorithm == "EdDSA" && plain(&signature::ED25519, point),
        }
    }
}

fn parameters(algorithm: &str) -> Option<&'static RsaParameters> {
    match algorithm {
        "RS256" => Some(&RSA_PKCS1_2048_8192_SHA256),
        "RS384" => Some(&RSA_PKCS1_2048_8192_SHA384),
        "RS512" => Some(&RSA_PKCS1_2048_8192_SHA512),
        "PS256" => Some(&RSA_PSS_2048_8192_SHA256),
        "PS384" => Some(&RSA_PSS_2048_8192_SHA384),
        "PS512" => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_that_are_malformed_or_have_long_names_are_passed_over() {
        let key = |kid: &str| {
            let x = URL_SAFE_NO_PAD.encode([7; 32]);
            json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid })
        };
        let parse = |keys: Value| Keys::parse(json!({ "keys": keys }).to_string().as_bytes());
        let long = "k".repeat(MAX_NAME + 1);
        let mut other = key("algorithm");
        other["alg"] = json!(long);
        let keys = parse(json!([1, [[]], { "kty": "oct", "k": "c2VjcmV0" }, key(&long), other, key("good")]))
            .unwrap();
        assert_eq!(keys.count(), 1);
        assert!(keys.has("good") && !keys.has(&long));
        let many: Vec<Value> = (0..MAX_KEYS + 1).map(|number| key(&number.to_string())).collect();
        assert_eq!(parse(json!(many)).unwrap().count(), MAX_KEYS);
        assert!(parse(json!("none")).is_err() && Keys::parse(b"{").is_err());
    }
}
