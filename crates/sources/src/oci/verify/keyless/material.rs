//! What comes beside a signature: the certificate, entries of transparency logs, and timestamps; as bundles have it, and as annotations
//! of the old form do. Pure; the bytes are anyone's.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::entry::{Entry, Proof};
use super::{Unfit, certificate};
use crate::oci::manifest::Few;
use crate::oci::verify::bundle::Bytes;

/// Entries and timestamps of one signature.
const MOST: usize = 8;
/// What annotations of the old form are called.
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const LOGGED: &str = "dev.sigstore.cosign/bundle";
const STAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";

/// All of it.
pub(in crate::oci::verify) struct Material {
    /// As DER. (What else of a chain may be there is not needed: a trusted root has it.)
    pub(super) certificate: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    pub(super) stamps: Vec<Vec<u8>>,
    /// Whether the entries are to prove that the log has them, rather than that it promised to.
    pub(super) needs_proof: bool,
}

/// A number, which JSON of protocol buffers has as text.
#[derive(Clone, Copy)]
struct Number(i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

impl Number {
    fn count(self) -> Result<u64, Unfit> {
        u64::try_from(self.0)
            .map_err(|_| Unfit::new("its entry in the transparency log has a negative number"))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleDocument {
    #[serde(default)]
    verification_material: Option<MaterialDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MaterialDocument {
    #[serde(default)]
    certificate: Option<CertificateDocument>,
    #[serde(default)]
    tlog_entries: Few<EntryDocument>,
    #[serde(default)]
    timestamp_verification_data: Option<StampsDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateDocument {
    raw_bytes: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryDocument {
    log_index: Number,
    log_id: IdDocument,
    kind_version: KindDocument,
    #[serde(default)]
    integrated_time: Option<Number>,
    #[serde(default)]
    inclusion_promise: Option<PromiseDocument>,
    #[serde(default)]
    inclusion_proof: Option<ProofDocument>,
    canonicalized_body: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdDocument {
    key_id: Bytes,
}

#[derive(Deserialize)]
struct KindDocument {
    kind: String,
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromiseDocument {
    signed_entry_timestamp: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProofDocument {
    /// Left out by some where it is zero.
    #[serde(default)]
    log_index: Option<Number>,
    root_hash: Bytes,
    tree_size: Number,
    #[serde(default)]
    hashes: Few<Bytes>,
    checkpoint: CheckpointDocument,
}

#[derive(Deserialize)]
struct CheckpointDocument {
    envelope: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StampsDocument {
    #[serde(default)]
    rfc3161_timestamps: Few<StampDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StampDocument {
    signed_timestamp: Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OldDocument {
    signed_entry_timestamp: Bytes,
    payload: OldPayload,
}

#[derive(Deserialize)]
struct OldPayload {
    body: Bytes,
    #[serde(rename = "integratedTime")]
    time: Number,
    #[serde(rename = "logIndex")]
    index: Number,
    #[serde(rename = "logID")]
    log: String,
}

#[derive(Deserialize)]
struct OldStamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    stamp: Bytes,
}

impl Material {
    /// That of a bundle.
    pub(in crate::oci::verify) fn of_bundle(bundle: &[u8]) -> Result<Self, Unfit> {
        let document: BundleDocument = serde_json::from_slice(bundle)
            .map_err(|error| Unfit::new(format!("it is not a bundle of Sigstore's: {error}")))?;
        let material = document.verification_material;
        let material = material.and_then(|material| {
            Some((material.certificate?, material.tlog_entries, material.timestamp_verification_data))
        });
        let Some((certificate, entries, stamps)) = material else {
            return Err(Unfit::new("its bundle has no certificate: it was made by a key"));
        };
        let stamps = stamps.map(|stamps| stamps.rfc3161_timestamps.0).unwrap_or_default();
        if entries.0.len() > MOST || stamps.len() > MOST {
            let why = format!("its bundle has more than {MOST} entries of logs, or timestamps");
            return Err(Unfit::new(why));
        }
        Ok(Self {
            certificate: certificate.raw_bytes.0,
            entries: entries.0.into_iter().map(Entry::try_from).collect::<Result<_, _>>()?,
            stamps: stamps.into_iter().map(|stamp| stamp.signed_timestamp.0).collect(),
            needs_proof: true,
        })
    }

    /// That of a signature of the old form. There, the log's promise is all that there is of it.
    pub(in crate::oci::verify) fn of_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, Unfit> {
        let Some(pem) = annotations.get(CERTIFICATE).filter(|text| !text.is_empty()) else {
            return Err(Unfit::new("it has no certificate: it was made by a key"));
        };
        let Some(logged) = annotations.get(LOGGED) else {
            return Err(Unfit::new("it has no entry of a transparency log"));
        };
        let unread =
            |what: &str, error: &serde_json::Error| Unfit::new(format!("its {what} cannot be read: {error}"));
        let logged: OldDocument =
            serde_json::from_str(logged).map_err(|error| unread("entry of a log", &error))?;
        let stamp = annotations.get(STAMP).map(|text| serde_json::from_str(text)).transpose();
        let stamp: Option<OldStamp> = stamp.map_err(|error| unread("timestamp", &error))?;
        let OldPayload { body, time, index, log } = logged.payload;
        let entry = Entry {
            log: of_hex(&log)?,
            index: index.count()?,
            time: time.0,
            kind: None,
            body: body.0,
            promise: Some(logged.signed_entry_timestamp.0),
            proof: None,
        };
        Ok(Self {
            certificate: certificate::of_pem(pem.as_bytes())?,
            entries: vec![entry],
            stamps: stamp.into_iter().map(|stamp| stamp.stamp.0).collect(),
            needs_proof: false,
        })
    }
}

fn of_hex(text: &str) -> Result<Vec<u8>, Unfit> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| Unfit::new("the name of a transparency log is not hexadecimal"))
}

impl TryFrom<EntryDocument> for Entry {
    type Error = Unfit;

    fn try_from(document: EntryDocument) -> Result<Self, Unfit> {
        let proof = document.inclusion_proof.map(Proof::try_from).transpose()?;
        let promise = document.inclusion_promise.map(|promise| promise.signed_entry_timestamp.0);
        Ok(Self {
            log: document.log_id.key_id.0,
            index: document.log_index.count()?,
            time: document.integrated_time.map_or(0, |time| time.0),
            kind: Some((document.kind_version.kind, document.kind_version.version)),
            body: document.canonicalized_body.0,
            promise: promise.filter(|promise| !promise.is_empty()),
            proof,
        })
    }
}

impl TryFrom<ProofDocument> for Proof {
    type Error = Unfit;

    fn try_from(document: ProofDocument) -> Result<Self, Unfit> {
        Ok(Self {
            index: document.log_index.unwrap_or(Number(0)).count()?,
            size: document.tree_size.count()?,
            root: document.root_hash.0,
            hashes: document.hashes.0.into_iter().map(|hash| hash.0).collect(),
            checkpoint: document.checkpoint.envelope,
        })
    }
}
