//! Signatures of images as cosign makes them with a key: ECDSA P-256 over SHA-256 of a payload in the "simple signing" form.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

/// The longest payload that is looked at, in bytes.
const MAX_PAYLOAD: usize = 64 * 1024;

/// What stands before the point of a P-256 key in a SubjectPublicKeyInfo: two algorithm identifiers and a bit string's head.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// An uncompressed point: a byte 4 and two coordinates.
const POINT: usize = 65;

/// A signature that the hub passes on, with what was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The signed bytes.
    pub payload: Vec<u8>,
    /// The signature, DER.
    pub signature: Vec<u8>,
}

/// The key of whoever signs images of the agent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PublicKey(Vec<u8>);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey")
    }
}

/// What a signer says of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) digest: String,
    /// As which image, perhaps with a tag.
    reference: String,
    /// The annotation `version`.
    pub(crate) version: Option<String>,
}

impl Claim {
    pub(crate) fn repository(&self) -> &str {
        crate::Image::parse(&self.reference).map_or(self.reference.as_str(), |image| image.repository)
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
    optional: Option<Value>,
}

#[derive(Deserialize)]
struct Critical {
    identity: Identity,
    image: Digested,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Deserialize)]
struct Digested {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl PublicKey {
    /// A key as `cosign generate-key-pair` writes it to `cosign.pub`.
    pub(crate) fn from_pem(pem: &str) -> Option<Self> {
        let body = pem
            .trim()
            .strip_prefix("-----BEGIN PUBLIC KEY-----")?
            .strip_suffix("-----END PUBLIC KEY-----")?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).ok()?;
        let point = der.strip_prefix(&P256)?;
        (point.len() == POINT && point[0] == 4).then(|| Self(point.to_vec()))
    }

    /// What the signature says, where it is this key's.
    pub(crate) fn verify(&self, signature: &Signature) -> Result<Claim, &'static str> {
        if signature.payload.len() > MAX_PAYLOAD {
            return Err("the signed payload is too large");
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0)
            .verify(&signature.payload, &signature.signature)
            .map_err(|_| "the signature was not made with the policy's key")?;
        let payload: Payload = serde_json::from_slice(&signature.payload)
            .map_err(|_| "the signed payload is not a claim about an image")?;
        if payload.critical.kind != "cosign container image signature" {
            return Err("the signed payload is not a claim about an image");
        }
        let version = payload.optional.as_ref().and_then(|optional| optional.get("version")?.as_str());
        Ok(Claim {
            digest: payload.critical.image.digest,
            reference: payload.critical.identity.reference,
            version: version.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::{PublicKey, Signature};

    /// Made by OpenSSL: `openssl ecparam -name prime256v1 -genkey`, `openssl ec -pubout`, `openssl dgst -sha256 -sign`.
    const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEWstzwWiBHwqmYDuzjNtvM9FgH1f5\n\
        iNp4ei+8jXrAO8mY7V9l5yAxahZuV7JBSrmJJpz7HW9ef5ReQwjSYufTZA==\n\
        -----END PUBLIC KEY-----";
    const PAYLOAD: &str = r#"{"critical":{"identity":{"docker-reference":"registry.example/roadstead-agent"},"image":{"docker-manifest-digest":"sha256:abababababababababababababababababababababababababababababababab"},"type":"cosign container image signature"},"optional":{"version":"1.2.3"}}"#;
    const SIGNATURE: &str =
        "MEQCIFh5E6a/dnLv3fH++4P9c7vbF5iubprnY2AKHJkOTesQAiBuPO7LR+mvM8xc2s4gp3Kw9u2Pisk70NZ9C7Hegv8dbg==";

    fn signature() -> Signature {
        Signature {
            payload: PAYLOAD.as_bytes().to_vec(),
            signature: STANDARD.decode(SIGNATURE).expect("base64"),
        }
    }

    #[test]
    fn a_signature_of_another_implementation_verifies() {
        let claim = PublicKey::from_pem(PEM).expect("a key").verify(&signature()).expect("verified");
        assert_eq!(claim.repository(), "registry.example/roadstead-agent");
        assert_eq!(claim.version.as_deref(), Some("1.2.3"));
        assert_eq!(claim.digest, format!("sha256:{}", "ab".repeat(32)));
    }

    #[test]
    fn no_changed_byte_verifies() {
        let (key, good) = (PublicKey::from_pem(PEM).expect("a key"), signature());
        for at in 0..good.payload.len() {
            let mut bad = good.clone();
            bad.payload[at] ^= 1;
            assert!(key.verify(&bad).is_err(), "payload byte {at}");
        }
        for at in 0..good.signature.len() {
            let mut bad = good.clone();
            bad.signature[at] ^= 1;
            assert!(key.verify(&bad).is_err(), "signature byte {at}");
        }
        assert!(key.verify(&Signature { signature: Vec::new(), ..good }).is_err());
    }

    #[test]
    fn what_is_no_such_key_is_not_taken() {
        let cut = PEM.replace("MFkw", "MFkx");
        for pem in ["", "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----", cut.as_str(), &PEM[..60]] {
            assert!(PublicKey::from_pem(pem).is_none(), "{pem}");
        }
    }
}
