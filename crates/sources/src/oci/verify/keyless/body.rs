//! What an entry of a transparency log is about. An entry that is good by itself, of another signature, says nothing about this one
//! (CVE-2026-22703): the signature, what was signed, and who signed are compared. Pure; the bytes are anyone's.

use serde::Deserialize;

use super::entry::Entry;
use super::{Content, Unfit, hash};
use crate::oci::manifest::Few;
use crate::oci::verify::bundle::Bytes;

#[derive(Deserialize)]
struct Body {
    kind: String,
    #[serde(rename = "apiVersion")]
    version: String,
    spec: serde_json::Value,
}

/// Of a signature of bytes.
#[derive(Deserialize)]
struct Hashed {
    data: Data,
    signature: Signature,
}

#[derive(Deserialize)]
struct Data {
    hash: Hash,
}

#[derive(Deserialize)]
struct Hash {
    algorithm: String,
    value: String,
}

#[derive(Deserialize)]
struct Signature {
    content: Bytes,
    #[serde(rename = "publicKey")]
    by: Content64,
}

#[derive(Deserialize)]
struct Content64 {
    content: Bytes,
}

/// Of an envelope.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dsse {
    payload_hash: Hash,
    signatures: Few<DsseSignature>,
}

#[derive(Deserialize)]
struct DsseSignature {
    signature: Bytes,
    verifier: Bytes,
}

/// Of an envelope, as it once was.
#[derive(Deserialize)]
struct InToto {
    content: InTotoContent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InTotoContent {
    envelope: InTotoEnvelope,
    payload_hash: Hash,
}

#[derive(Deserialize)]
struct InTotoEnvelope {
    signatures: Few<InTotoSignature>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InTotoSignature {
    /// Base64 within base64.
    sig: Bytes,
    public_key: Bytes,
}

/// Of a signature of bytes, in version 2 of the log.
#[derive(Deserialize)]
struct Hashed2 {
    #[serde(rename = "hashedRekordV002")]
    spec: Hashed2Spec,
}

#[derive(Deserialize)]
struct Hashed2Spec {
    data: Data2,
    signature: Signature2,
}

#[derive(Deserialize)]
struct Data2 {
    algorithm: String,
    digest: Bytes,
}

#[derive(Deserialize)]
struct Signature2 {
    content: Bytes,
    verifier: Verifier2,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verifier2 {
    x509_certificate: Certificate2,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Certificate2 {
    raw_bytes: Bytes,
}

/// What an entry says, whatever its form.
struct Said {
    signature: Vec<u8>,
    /// The certificate, as DER.
    by: Vec<u8>,
    is_of_it: bool,
}

/// Whether an entry is about this signature, of this, by who has this certificate.
pub(super) fn check(entry: &Entry, content: &Content<'_>, certificate: &[u8]) -> Result<(), Unfit> {
    let body: Body = parse(&entry.body)?;
    let is_kind = |(kind, version): &(String, String)| *kind == body.kind && *version == body.version;
    if !entry.kind.as_ref().is_none_or(is_kind) {
        return Err(Unfit::new("its entry in the transparency log is of another kind than it says"));
    }
    let said = match (body.kind.as_str(), body.version.as_str(), content.payload) {
        ("hashedrekord", "0.0.1", None) => hashed(body.spec, content)?,
        ("hashedrekord", "0.0.2", _) => hashed2(body.spec, content)?,
        ("dsse", "0.0.1", Some(payload)) => dsse(body.spec, payload)?,
        ("intoto", "0.0.2", Some(payload)) => in_toto(body.spec, payload)?,
        (kind, version, _) => {
            let shown = crate::tree::shown(&format!("{kind} {version}"));
            return Err(Unfit::new(format!(
                "its entry in the transparency log is of a kind that is not known: {shown}"
            )));
        }
    };
    let other =
        |what: &str| Err(Unfit::new(format!("its entry in the transparency log is of another {what}")));
    if said.signature != content.signature {
        return other("signature");
    }
    if !said.is_of_it {
        return other("payload");
    }
    if said.by != certificate {
        return other("certificate");
    }
    Ok(())
}

fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Unfit> {
    serde_json::from_slice(bytes).map_err(|error| unread(&error))
}

fn read<T: serde::de::DeserializeOwned>(spec: serde_json::Value) -> Result<T, Unfit> {
    serde_json::from_value(spec).map_err(|error| unread(&error))
}

fn unread(error: &serde_json::Error) -> Unfit {
    Unfit::new(format!("its entry in the transparency log cannot be read: {error}"))
}

fn hashed(spec: serde_json::Value, content: &Content<'_>) -> Result<Said, Unfit> {
    let Hashed { data, signature } = read(spec)?;
    let is_of_it = is_hash(&data.hash, content.message);
    Ok(Said { signature: signature.content.0, by: der(&signature.by.content.0)?, is_of_it })
}

fn hashed2(spec: serde_json::Value, content: &Content<'_>) -> Result<Said, Unfit> {
    let Hashed2 { spec: Hashed2Spec { data, signature } } = read(spec)?;
    let is_of_it = hash::named(&data.algorithm, content.message).is_some_and(|hash| hash == data.digest.0);
    Ok(Said { signature: signature.content.0, by: signature.verifier.x509_certificate.raw_bytes.0, is_of_it })
}

fn dsse(spec: serde_json::Value, payload: &[u8]) -> Result<Said, Unfit> {
    let Dsse { payload_hash, signatures } = read(spec)?;
    let DsseSignature { signature, verifier } = single(signatures.0)?;
    Ok(Said { signature: signature.0, by: der(&verifier.0)?, is_of_it: is_hash(&payload_hash, payload) })
}

fn in_toto(spec: serde_json::Value, payload: &[u8]) -> Result<Said, Unfit> {
    let InToto { content } = read(spec)?;
    let InTotoSignature { sig, public_key } = single(content.envelope.signatures.0)?;
    let inner = String::from_utf8(sig.0).map_err(|_| Unfit::new("a signature is not base64"))?;
    let Bytes(signature) = read(serde_json::Value::String(inner))?;
    Ok(Said { signature, by: der(&public_key.0)?, is_of_it: is_hash(&content.payload_hash, payload) })
}

/// An envelope has one signature, and so has its entry.
fn single<T>(signatures: Vec<T>) -> Result<T, Unfit> {
    <[T; 1]>::try_from(signatures)
        .map(|[one]| one)
        .map_err(|_| Unfit::new("its entry in the transparency log must have exactly one signature"))
}

fn is_hash(said: &Hash, bytes: &[u8]) -> bool {
    hash::named(&said.algorithm, bytes).is_some_and(|hash| hash::hex(&hash) == said.value)
}

fn der(pem: &[u8]) -> Result<Vec<u8>, Unfit> {
    super::certificate::of_pem(pem)
}
