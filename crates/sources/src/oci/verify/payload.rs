//! What was signed: cosign's payload of the old form, and in-toto statements. Pure; the bytes are anyone's.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Unfit;
use crate::oci::manifest::Few;
use roadstead_model::Digest;

/// What the old form says that it is.
const SIMPLE: &str = "cosign container image signature";
/// What statements say that they are.
const STATEMENTS: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// What a statement that is a signature says of its subject: that it was signed. Others say what was found of it, or how it
/// was made, which may be anything.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Whether a payload of the old form is about this image.
pub(super) fn is_about(payload: &[u8], image: &Digest) -> Result<(), Unfit> {
    let simple: Simple = serde_json::from_slice(payload)
        .map_err(|error| Unfit::new(format!("its payload is not one of cosign: {error}")))?;
    if simple.critical.kind != SIMPLE {
        return Err(Unfit::new("its payload is of another type"));
    }
    compare(&simple.critical.image.digest, image)
}

fn compare(signed: &str, image: &Digest) -> Result<(), Unfit> {
    if signed == image.to_string() {
        return Ok(());
    }
    Err(Unfit::new(format!("it is a signature of another image, {}", crate::tree::shown(signed))))
}

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Few<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// So that there is one, once.
    #[serde(default)]
    #[expect(dead_code, reason = "it is looked at for being there once")]
    predicate: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    #[serde(default)]
    sha256: String,
}

/// Whether a statement says that this image is signed.
pub(super) fn states(statement: &[u8], image: &Digest) -> Result<(), Unfit> {
    let statement: Statement = serde_json::from_slice(statement)
        .map_err(|error| Unfit::new(format!("its payload is not an in-toto statement: {error}")))?;
    if !STATEMENTS.contains(&statement.kind.as_str()) {
        return Err(Unfit::new("its statement is of another type"));
    }
    if statement.predicate_type != SIGNED {
        let what = crate::tree::shown(&statement.predicate_type);
        return Err(Unfit::new(format!("it is not a signature, but an attestation ({what})")));
    }
    let hex = image.hex();
    if statement.subject.0.iter().any(|subject| subject.digest.sha256 == hex) {
        return Ok(());
    }
    let other = statement.subject.0.first().map(|subject| format!("sha256:{}", subject.digest.sha256));
    compare(&other.unwrap_or_default(), image)
}
