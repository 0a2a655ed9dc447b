//! Public keys that a user trusts, as a Secret has them, and what they signed.
//!
//! Only what is public leaves the Secret: blocks of PEM that hold a public key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Keys of one Secret: each of them is tried with each signature.
const MOST_KEYS: usize = 64;
/// Bytes of a block; an RSA key of 8,192 bits has 1.5 KiB.
const MOST_PEM: usize = 16 << 10;
/// What blocks of a public key are called: the usual form, and one of RSA's own.
const LABELS: [&str; 2] = ["PUBLIC KEY", "RSA PUBLIC KEY"];

/// Public keys, each with the name of its entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CosignKeys(Vec<(String, String)>);

impl CosignKeys {
    /// Adds an entry of a Secret, where it is one of keys (`*.pub`): all blocks of PEM in it that are public keys. What comes after
    /// the first 64 keys is left out.
    pub fn add(&mut self, name: &str, text: &str) {
        if !name.ends_with(".pub") {
            return;
        }
        for block in blocks(text) {
            if self.0.len() < MOST_KEYS && block.len() <= MOST_PEM {
                self.0.push((name.to_owned(), block));
            }
        }
        self.0.sort();
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of them that can be used, and why the others cannot.
    pub(super) fn read(&self) -> (Vec<PublicKey>, Vec<String>) {
        let (mut keys, mut unusable) = (Vec::new(), Vec::new());
        for (name, block) in &self.0 {
            match PublicKey::of_pem(block) {
                Ok(key) => keys.push(key),
                Err(why) => unusable.push(format!("{name}: {why}")),
            }
        }
        (keys, unusable)
    }
}

fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for label in LABELS {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        let mut rest = text;
        while let Some(from) = rest.find(&begin) {
            let Some(to) = rest[from..].find(&end).map(|at| from + at + end.len()) else { break };
            found.push(format!("{}\n", &rest[from..to]));
            rest = &rest[to..];
        }
    }
    found
}

type Algorithm = &'static dyn VerificationAlgorithm;

/// With each key, what signatures can be made; which one it was, they do not say. cosign takes SHA-256 with all keys, and with
/// bundles what fits the curve.
const P256: [Algorithm; 3] = [&ECDSA_P256_SHA256_ASN1, &ECDSA_P256_SHA384_ASN1, &ECDSA_P256_SHA512_ASN1];
const P384: [Algorithm; 3] = [&ECDSA_P384_SHA384_ASN1, &ECDSA_P384_SHA256_ASN1, &ECDSA_P384_SHA512_ASN1];
const P521: [Algorithm; 3] = [&ECDSA_P521_SHA512_ASN1, &ECDSA_P521_SHA256_ASN1, &ECDSA_P521_SHA384_ASN1];
const EDWARDS: [Algorithm; 1] = [&ED25519];
const RSA: [Algorithm; 6] = [
    &RSA_PKCS1_2048_8192_SHA256,
    &RSA_PKCS1_2048_8192_SHA384,
    &RSA_PKCS1_2048_8192_SHA512,
    &RSA_PSS_2048_8192_SHA256,
    &RSA_PSS_2048_8192_SHA384,
    &RSA_PSS_2048_8192_SHA512,
];

/// A key that signatures are verified by.
#[derive(Clone)]
pub(super) struct PublicKey {
    algorithms: &'static [Algorithm],
    is_edwards: bool,
    /// A point of a curve, or RSA's two numbers.
    bytes: Vec<u8>,
}

impl PublicKey {
    fn of_pem(block: &str) -> Result<Self, &'static str> {
        let (pem, _) = Pem::read(std::io::Cursor::new(block)).map_err(|_| "it is not PEM")?;
        match pem.label.as_str() {
            "RSA PUBLIC KEY" => Ok(Self { algorithms: &RSA, is_edwards: false, bytes: pem.contents }),
            _ => Self::of_spki(&pem.contents),
        }
    }

    /// From a SubjectPublicKeyInfo.
    pub(super) fn of_spki(der: &[u8]) -> Result<Self, &'static str> {
        let (rest, key) = SubjectPublicKeyInfo::from_der(der).map_err(|_| "it is not a public key")?;
        if !rest.is_empty() {
            return Err("there is something behind the public key");
        }
        Self::of(&key)
    }

    pub(super) fn of(key: &SubjectPublicKeyInfo<'_>) -> Result<Self, &'static str> {
        let curve = key.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let curve = curve.map(|oid| oid.to_id_string());
        let algorithms: &[Algorithm] =
            match (key.algorithm.algorithm.to_id_string().as_str(), curve.as_deref()) {
                ("1.2.840.10045.2.1", Some("1.2.840.10045.3.1.7")) => &P256,
                ("1.2.840.10045.2.1", Some("1.3.132.0.34")) => &P384,
                ("1.2.840.10045.2.1", Some("1.3.132.0.35")) => &P521,
                ("1.2.840.113549.1.1.1", _) => &RSA,
                ("1.3.101.112", _) => &EDWARDS,
                _ => return Err("it is not an ECDSA (P-256, P-384, P-521), RSA or Ed25519 key"),
            };
        let is_edwards = algorithms.len() == EDWARDS.len();
        Ok(Self { algorithms, is_edwards, bytes: key.subject_public_key.data.to_vec() })
    }

    /// Whether it made this signature of this message.
    pub(super) fn made(&self, signature: &[u8], message: &[u8]) -> bool {
        if self.is_edwards && self.made_of_hash(signature, message) {
            return true;
        }
        self.algorithms.iter().any(|algorithm| {
            UnparsedPublicKey::new(*algorithm, &self.bytes).verify(message, signature).is_ok()
        })
    }

    /// The same of the message's hash, as cosign has Ed25519 keys sign in the old form.
    fn made_of_hash(&self, signature: &[u8], message: &[u8]) -> bool {
        let key = <&[u8; 32]>::try_from(self.bytes.as_slice()).ok();
        let key = key.and_then(|key| ed25519_dalek::VerifyingKey::from_bytes(key).ok());
        let (Some(key), Ok(signature)) = (key, ed25519_dalek::Signature::from_slice(signature)) else {
            return false;
        };
        let hash = sha2::Sha512::new().chain_update(message);
        key.verify_prehashed_strict(hash, None, &signature).is_ok()
    }
}
