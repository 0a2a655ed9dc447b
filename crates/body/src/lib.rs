//! Bodies of requests to a Kubernetes API as values: JSON, YAML and Kubernetes' protobuf form, each bounded in depth and
//! size, and the patches that change an object.
//!
//! All of it is computation over untrusted bytes: it never panics, and what it says of a body names fields,
//! never what is in them.
//!
//! ```
//! use roadstead_body::{Patch, decode};
//! use serde_json::json;
//!
//! let body = decode("application/yaml", b"metadata: {name: web}\nspec: {prune: true}\n")?;
//! let patch = Patch::read("application/merge-patch+json", br#"{"spec":{"prune":null}}"#, 1 << 20)?;
//! assert_eq!(patch.apply_to(body.value)?, json!({ "metadata": { "name": "web" }, "spec": {} }));
//! # Ok::<(), roadstead_body::BodyError>(())
//! ```

mod json;
mod patch;
mod protobuf;
mod yaml;

use serde_json::Value;

pub use patch::Patch;

/// JSON's media type.
pub const JSON: &str = "application/json";
/// YAML's media type.
pub const YAML: &str = "application/yaml";
/// The media type of Kubernetes' protobuf form.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media type of the configuration of a server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Of no bytes, where it ought to have some.
    #[error("the request has no body")]
    Empty,
    /// It cannot be read, or breaks a limit.
    #[error("the body is not readable as {form}: {why}")]
    Malformed {
        /// What it says to be: JSON, YAML, protobuf.
        form: &'static str,
        /// Where and why.
        why: String,
    },
    /// Of a form, or in it of a kind, that is not taken here.
    #[error("{0}")]
    Unsupported(String),
    /// What it says would take more memory than there is for it.
    #[error("the request's body would take more than {memory} bytes of memory")]
    Memory {
        /// So much there was for it.
        memory: usize,
    },
    /// A patch that is none, or does not fit the object.
    #[error("{0}")]
    Patch(String),
}

/// A body that says an object.
#[derive(Debug)]
pub struct Body {
    /// The object, or whatever else it says.
    pub value: Value,
    /// The paths of keys that stood twice in it, of which the last counted: an error only where the request says so.
    pub duplicates: Vec<String>,
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new() }
    }
}

/// What a body may take in memory where nobody says: enough for any object that people write.
pub const MEMORY: usize = 32 << 20;

/// Reads a body of this media type, which may take [`MEMORY`]; without one it is taken for JSON.
///
/// # Errors
/// As [`decode_within`].
pub fn decode(media_type: &str, bytes: &[u8]) -> Result<Body, BodyError> {
    decode_within(media_type, bytes, MEMORY)
}

/// Reads a body of this media type, of which all values and what it takes to make them may take `memory` bytes.
///
/// Three megabytes of JSON can be a quarter of a gigabyte of values; so what there may be of these is counted while they are
/// made.
///
/// # Errors
/// [`BodyError::Empty`], [`BodyError::Malformed`], [`BodyError::Memory`], and [`BodyError::Unsupported`] for other media
/// types and for kinds that are not taken as protobuf.
pub fn decode_within(media_type: &str, bytes: &[u8], memory: usize) -> Result<Body, BodyError> {
    if bytes.is_empty() {
        return Err(BodyError::Empty);
    }
    match media_type {
        "" | JSON => json::parse(bytes, memory),
        YAML => yaml::parse(bytes, memory).map(Body::from),
        // kubectl sends the built-in kinds so when it creates them.
        PROTOBUF => protobuf::decode(bytes, memory).map(Body::from),
        other => Err(BodyError::Unsupported(format!(
            "the body of the request was in an unknown format ({}): accepted media types are {JSON}, {YAML} and {PROTOBUF}",
            json::beginning(other)
        ))),
    }
}

/// Reads the configuration of a server-side apply: YAML, of which JSON is a part, in which a key may stand twice.
///
/// # Errors
/// [`BodyError::Empty`], [`BodyError::Malformed`], [`BodyError::Memory`].
pub fn decode_apply(bytes: &[u8], memory: usize) -> Result<Body, BodyError> {
    if bytes.is_empty() {
        return Err(BodyError::Empty);
    }
    match json::parse(bytes, memory) {
        Err(BodyError::Malformed { .. }) => yaml::parse(bytes, memory).map(Body::from),
        read => read,
    }
}
