//! Sigstore's bundles of version 0.3, as JSON. Pure; the bytes are anyone's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_model::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Unfit;
use super::payload;
use crate::oci::manifest::Few;

/// What bundles are called in a registry, and in themselves. (Those of older versions have chains in them that nobody needs.)
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// Once it was called so inside.
const OLDER_NAME: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";
/// The type of a statement in its envelope.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// Bytes that JSON has as base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

/// A bundle.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bundle {
    media_type: String,
    #[serde(default)]
    dsse_envelope: Option<Envelope>,
    #[serde(default)]
    message_signature: Option<MessageSignature>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: Bytes,
    payload_type: String,
    signatures: Few<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageSignature {
    #[serde(default)]
    message_digest: Option<MessageDigest>,
    signature: Bytes,
}

#[derive(Deserialize)]
struct MessageDigest {
    algorithm: String,
    digest: Bytes,
}

/// A signature, and the bytes that it is of.
pub(super) struct Signed {
    pub(super) signature: Vec<u8>,
    pub(super) message: Vec<u8>,
}

impl Bundle {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Unfit> {
        let bundle: Self = serde_json::from_slice(bytes)
            .map_err(|error| Unfit::new(format!("it is not a bundle of Sigstore's: {error}")))?;
        if bundle.media_type != MEDIA_TYPE && bundle.media_type != OLDER_NAME {
            return Err(Unfit::new("its bundle is not of version 0.3"));
        }
        Ok(bundle)
    }

    /// What is in its envelope, where it has one.
    pub(super) fn payload(&self) -> Option<&[u8]> {
        self.dsse_envelope.as_ref().map(|envelope| envelope.payload.0.as_slice())
    }

    /// What it has signed, where that is about this image, whose manifest has these bytes.
    pub(super) fn signed(&self, image: &Digest, manifest: &[u8]) -> Result<Signed, Unfit> {
        match (&self.dsse_envelope, &self.message_signature) {
            (Some(envelope), None) => envelope.signed(image),
            (None, Some(message)) => message.signed(image, manifest),
            _ => Err(Unfit::new("its bundle must have exactly one signature")),
        }
    }
}

impl Envelope {
    fn signed(&self, image: &Digest) -> Result<Signed, Unfit> {
        if self.payload_type != STATEMENT {
            return Err(Unfit::new("its envelope holds no in-toto statement"));
        }
        // With several, it would have to be said how many of them count.
        let [signature] = self.signatures.0.as_slice() else {
            return Err(Unfit::new("its envelope must have exactly one signature"));
        };
        payload::states(&self.payload.0, image)?;
        Ok(Signed { signature: signature.sig.0.clone(), message: self.encoded() })
    }

    /// What is signed of an envelope: its type and payload, each with its length.
    fn encoded(&self) -> Vec<u8> {
        let (kind, payload) = (&self.payload_type, &self.payload.0);
        let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
        [head.as_bytes(), payload].concat()
    }
}

impl MessageSignature {
    fn signed(&self, image: &Digest, manifest: &[u8]) -> Result<Signed, Unfit> {
        // The signature is of the manifest itself; its digest is a hint, which is to be right where it is there.
        let says_other = |said: &MessageDigest| {
            said.algorithm == "SHA2_256" && STANDARD.encode(&said.digest.0) != base64_of(image)
        };
        if self.message_digest.as_ref().is_some_and(says_other) || Digest::of(manifest) != *image {
            return Err(Unfit::new("it is a signature of another image"));
        }
        Ok(Signed { signature: self.signature.0.clone(), message: manifest.to_vec() })
    }
}

pub(super) fn base64_of(digest: &Digest) -> String {
    let hex = digest.hex();
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    STANDARD.encode((0..hex.len()).step_by(2).filter_map(byte).collect::<Vec<u8>>())
}
