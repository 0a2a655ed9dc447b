//! Kubernetes' protobuf form of the core kinds, as far as requests go: kubectl creates Namespaces and Secrets in it,
//! Go clients delete them in it.
//! Answers are JSON, which its clients take too.
//!
//! Field numbers are those of Kubernetes' published `generated.proto` files. Fields that only a server sets are passed
//! over.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use roadstead_hub_core::HubError;
use serde_json::{Map, Value, json};

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What such a body begins with.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(map = "string, string", tag = "11")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "12")]
    annotations: HashMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct OwnerReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

/// All that there is of a Namespace for a user to say.
#[derive(Clone, PartialEq, Message)]
struct Namespace {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// Does not print (prost would).
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Secret {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(map = "string, bytes", tag = "2")]
    data: HashMap<String, Vec<u8>>,
    #[prost(string, tag = "3")]
    type_: String,
    #[prost(map = "string, string", tag = "4")]
    string_data: HashMap<String, String>,
    #[prost(bool, optional, tag = "5")]
    immutable: Option<bool>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
struct DeleteOptions {
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Preconditions>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Preconditions {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

/// The JSON form of a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, HubError> {
    let bad = |why: &str| HubError::BadRequest(format!("the body is no protobuf that can be read: {why}"));
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| bad("it does not begin as Kubernetes' does"))?;
    let envelope = Envelope::decode(rest).map_err(|error| bad(&error.to_string()))?;
    let type_meta = envelope.type_meta.unwrap_or_default();
    let mut object = match (type_meta.api_version.as_str(), type_meta.kind.as_str()) {
        ("v1", "Namespace") => {
            let namespace =
                Namespace::decode(envelope.raw.as_slice()).map_err(|error| bad(&error.to_string()))?;
            json!({ "metadata": metadata(namespace.metadata) })
        }
        // The error names a field at most.
        ("v1", "Secret") => {
            secret(Secret::decode(envelope.raw.as_slice()).map_err(|error| bad(&error.to_string()))?)
        }
        (_, "DeleteOptions") => {
            let options =
                DeleteOptions::decode(envelope.raw.as_slice()).map_err(|error| bad(&error.to_string()))?;
            let preconditions = options.preconditions.unwrap_or_default();
            json!({
                "preconditions": { "uid": preconditions.uid, "resourceVersion": preconditions.resource_version },
                "dryRun": options.dry_run,
            })
        }
        (version, kind) => {
            return Err(HubError::UnsupportedMediaType(format!(
                "{kind} of {version} is not taken as protobuf: want application/json"
            )));
        }
    };
    object["apiVersion"] = type_meta.api_version.into();
    object["kind"] = type_meta.kind.into();
    Ok(object)
}

fn sorted<V>(map: HashMap<String, V>) -> BTreeMap<String, V> {
    map.into_iter().collect()
}

fn metadata(metadata: Option<ObjectMeta>) -> Value {
    let metadata = metadata.unwrap_or_default();
    let mut object = Map::new();
    for (field, text) in [
        ("name", metadata.name),
        ("generateName", metadata.generate_name),
        ("namespace", metadata.namespace),
        ("uid", metadata.uid),
        ("resourceVersion", metadata.resource_version),
    ] {
        if !text.is_empty() {
            object.insert(field.to_owned(), text.into());
        }
    }
    for (field, map) in [("labels", metadata.labels), ("annotations", metadata.annotations)] {
        if !map.is_empty() {
            object.insert(field.to_owned(), json!(sorted(map)));
        }
    }
    if !metadata.finalizers.is_empty() {
        object.insert("finalizers".to_owned(), json!(metadata.finalizers));
    }
    if !metadata.owner_references.is_empty() {
        let owners: Vec<Value> = metadata
            .owner_references
            .into_iter()
            .map(|owner| {
                json!({
                    "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                    "controller": owner.controller, "blockOwnerDeletion": owner.block_owner_deletion,
                })
            })
            .collect();
        object.insert("ownerReferences".to_owned(), owners.into());
    }
    object.into()
}

fn secret(secret: Secret) -> Value {
    let data: BTreeMap<String, String> =
        secret.data.into_iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
    let mut object = json!({ "metadata": metadata(secret.metadata), "data": data });
    if !secret.string_data.is_empty() {
        object["stringData"] = json!(sorted(secret.string_data));
    }
    if !secret.type_.is_empty() {
        object["type"] = secret.type_.into();
    }
    if let Some(immutable) = secret.immutable {
        object["immutable"] = immutable.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::{Envelope, MAGIC, ObjectMeta, Secret, TypeMeta, decode};

    fn body(kind: &str, raw: Vec<u8>) -> Vec<u8> {
        let type_meta = TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() };
        let envelope = Envelope { type_meta: Some(type_meta), raw };
        [MAGIC, envelope.encode_to_vec().as_slice()].concat()
    }

    #[test]
    fn a_secret() {
        let secret = Secret {
            metadata: Some(ObjectMeta { name: "a".to_owned(), ..ObjectMeta::default() }),
            data: [("k".to_owned(), vec![0, 255])].into(),
            ..Secret::default()
        };
        let body = body("Secret", secret.encode_to_vec());
        let want = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "k": "AP8=" } });
        assert_eq!(decode(&body).unwrap(), want);
        assert!(!format!("{secret:?}").contains("255"));
        for length in 0..body.len() {
            // Cut short it is an error or less, never a panic.
            let _ = decode(&body[..length]);
        }
    }

    #[test]
    fn other_bodies_are_refused() {
        for bad in [b"".to_vec(), b"{}".to_vec(), b"k8s\0\xff\xff".to_vec(), body("Pod", Vec::new())] {
            assert!(decode(&bad).is_err());
        }
    }
}
