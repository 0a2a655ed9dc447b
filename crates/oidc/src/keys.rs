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

/// So many keys of one issuer are looked at. Issuers have two or three.
pub const MAX_KEYS: usize = 32;
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

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    /// Reads a set of keys. Those of a form that is not known here are passed over.
    ///
    /// # Errors
    /// [`BadKeys`] where it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadKeys> {
        let set: Set = serde_json::from_slice(bytes).map_err(|_| BadKeys)?;
        let read = |published: serde_json::Value| {
            let published: Published = serde_json::from_value(published).ok()?;
            let for_signing = published.used.as_deref().is_none_or(|used| used == "sig");
            let public = public(&published).filter(|_| for_signing)?;
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
