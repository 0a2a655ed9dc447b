//! Trusted roots, as Sigstore's clients have them (`trusted_root.json`): authorities of certificates and of timestamps, and the keys of
//! logs, each with the time that it counts for.
//!
//! Of the text that a Secret has, only what is read here goes on, all of which is public.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;

use super::{Unfit, certificate};
use crate::oci::manifest::Few;
use crate::oci::verify::bundle::Bytes;
use crate::oci::verify::keys::PublicKey;

/// Bytes of a trusted root; that of the public instance has 10 KiB.
const MOST_BYTES: usize = 256 << 10;
/// Authorities and logs of each kind, and the certificates of an authority.
const MOST: usize = 32;
const MOST_CHAIN: usize = 8;
/// What it says that it is.
const MEDIA_TYPES: [&str; 2] = [
    "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    "application/vnd.dev.sigstore.trustedroot.v0.2+json",
];

/// Who is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedRoot {
    pub(super) authorities: Vec<Authority>,
    pub(super) stamps: Vec<Authority>,
    pub(super) logs: Vec<Log>,
    pub(super) certificate_logs: Vec<Log>,
}

/// Since and until when something counts, in seconds; both belong to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    start: Option<i64>,
    end: Option<i64>,
}

/// Who issues certificates, or timestamps: certificates, the last of them the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    chain: Vec<Bytes>,
    pub(super) valid: Span,
}

/// A log, by the name that entries have for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Log {
    id: Bytes,
    key: Bytes,
    pub(super) valid: Span,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    media_type: String,
    #[serde(default)]
    tlogs: Few<LogDocument>,
    #[serde(default)]
    ctlogs: Few<LogDocument>,
    #[serde(default)]
    certificate_authorities: Few<AuthorityDocument>,
    #[serde(default)]
    timestamp_authorities: Few<AuthorityDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogDocument {
    public_key: KeyDocument,
    log_id: IdDocument,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyDocument {
    raw_bytes: Bytes,
    #[serde(default)]
    valid_for: SpanDocument,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdDocument {
    key_id: Bytes,
}

#[derive(Default, Deserialize)]
struct SpanDocument {
    #[serde(default)]
    start: Option<Timestamp>,
    #[serde(default)]
    end: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityDocument {
    cert_chain: ChainDocument,
    #[serde(default)]
    valid_for: SpanDocument,
}

#[derive(Deserialize)]
struct ChainDocument {
    certificates: Few<CertificateDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateDocument {
    raw_bytes: Bytes,
}

impl TrustedRoot {
    /// Reads one.
    ///
    /// # Errors
    /// The text is none, is too large, or has nobody who could vouch for a signature.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("it has more than {MOST_BYTES} bytes"));
        }
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !MEDIA_TYPES.contains(&document.media_type.as_str()) {
            return Err(format!("its mediaType is not {} or {}", MEDIA_TYPES[0], MEDIA_TYPES[1]));
        }
        let root = Self {
            authorities: authorities("certificateAuthorities", document.certificate_authorities)?,
            stamps: authorities("timestampAuthorities", document.timestamp_authorities)?,
            logs: logs("tlogs", document.tlogs)?,
            certificate_logs: logs("ctlogs", document.ctlogs)?,
        };
        let lacks = [
            (root.authorities.is_empty(), "certificateAuthorities: nobody can certify who signs"),
            (
                root.logs.is_empty(),
                "tlogs with a key that can be used: no signature can be in a transparency log",
            ),
            (
                root.certificate_logs.is_empty(),
                "ctlogs with a key that can be used: no certificate can be in a log",
            ),
        ];
        match lacks.iter().find(|(lacks, _)| *lacks) {
            Some((_, what)) => Err(format!("it has no {what}")),
            None => Ok(root),
        }
    }
}

fn few<T>(field: &str, all: Few<T>) -> Result<Vec<T>, String> {
    if all.0.len() > MOST { Err(format!("it has more than {MOST} {field}")) } else { Ok(all.0) }
}

fn authorities(field: &str, all: Few<AuthorityDocument>) -> Result<Vec<Authority>, String> {
    let read = |(number, one): (usize, AuthorityDocument)| {
        let wrong = |why: &str| format!("{field}[{number}]: {why}");
        let chain: Vec<Bytes> = one.cert_chain.certificates.0.into_iter().map(|one| one.raw_bytes).collect();
        if chain.is_empty() || chain.len() > MOST_CHAIN {
            return Err(wrong(&format!("it must have between 1 and {MOST_CHAIN} certificates")));
        }
        let authority = Authority { chain, valid: one.valid_for.span() };
        authority.read().map_err(|unfit| wrong(&unfit.to_string()))?;
        Ok(authority)
    };
    few(field, all)?.into_iter().enumerate().map(read).collect()
}

fn logs(field: &str, all: Few<LogDocument>) -> Result<Vec<Log>, String> {
    let mut found: Vec<Log> = Vec::new();
    for (number, one) in few(field, all)?.into_iter().enumerate() {
        let LogDocument { public_key, log_id } = one;
        let log = Log { id: log_id.key_id, key: public_key.raw_bytes, valid: public_key.valid_for.span() };
        if log.id.0.len() != 32 {
            return Err(format!("{field}[{number}]: its logId is not 32 bytes long"));
        }
        if found.iter().any(|other| other.id == log.id) {
            return Err(format!("{field}[{number}]: there are two with its logId"));
        }
        // One that this version cannot use is as good as none; others may be enough.
        if log.key().is_ok() {
            found.push(log);
        }
    }
    Ok(found)
}

impl SpanDocument {
    fn span(&self) -> Span {
        let seconds = |time: Option<Timestamp>| time.map(Timestamp::as_second);
        Span { start: seconds(self.start), end: seconds(self.end) }
    }
}

impl Span {
    pub(super) fn has(&self, time: i64) -> bool {
        self.start.is_none_or(|start| start <= time) && self.end.is_none_or(|end| time <= end)
    }
}

impl Authority {
    pub(super) fn read(&self) -> Result<Vec<X509Certificate<'_>>, Unfit> {
        self.chain.iter().map(|der| certificate::read(&der.0)).collect()
    }
}

impl Log {
    pub(super) fn id(&self) -> &[u8] {
        &self.id.0
    }

    pub(super) fn key(&self) -> Result<PublicKey, Unfit> {
        PublicKey::of_spki(&self.key.0)
            .map_err(|why| Unfit::new(format!("the key of a log of the trusted root: {why}")))
    }
}
