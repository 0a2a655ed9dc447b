//! Kubernetes' protobuf form of the built-in kinds, as far as requests go: kubectl creates them in it, Go clients delete
//! them in it.
//! Answers are JSON, which its clients take too.
//!
//! Field numbers are those of Kubernetes' published `generated.proto` files. Fields that only a server sets are passed
//! over.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::BodyError;

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
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(map = "string, string", tag = "2")]
    data: HashMap<String, String>,
    #[prost(map = "string, bytes", tag = "3")]
    binary_data: HashMap<String, Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    immutable: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceAccount {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    secrets: Vec<ObjectReference>,
    #[prost(message, repeated, tag = "3")]
    image_pull_secrets: Vec<LocalObjectReference>,
    #[prost(bool, optional, tag = "4")]
    automount_token: Option<bool>,
}

/// As far as ServiceAccounts use it.
#[derive(Clone, PartialEq, Message)]
struct ObjectReference {
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct LocalObjectReference {
    #[prost(string, tag = "1")]
    name: String,
}

/// A Role, and a ClusterRole.
#[derive(Clone, PartialEq, Message)]
struct Role {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    rules: Vec<PolicyRule>,
    #[prost(message, optional, tag = "3")]
    aggregation: Option<Aggregation>,
}

#[derive(Clone, PartialEq, Message)]
struct Aggregation {
    #[prost(message, repeated, tag = "1")]
    selectors: Vec<LabelSelector>,
}

/// kubectl makes such with labels only.
#[derive(Clone, PartialEq, Message)]
struct LabelSelector {
    #[prost(map = "string, string", tag = "1")]
    labels: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    expressions: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message)]
struct Requirement {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    operator: String,
    #[prost(string, repeated, tag = "3")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct PolicyRule {
    #[prost(string, repeated, tag = "1")]
    verbs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    api_groups: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    resource_names: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    non_resource_urls: Vec<String>,
}

/// A RoleBinding, and a ClusterRoleBinding.
#[derive(Clone, PartialEq, Message)]
struct Binding {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    subjects: Vec<Subject>,
    #[prost(message, optional, tag = "3")]
    role: Option<RoleRef>,
}

#[derive(Clone, PartialEq, Message)]
struct Subject {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    api_group: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct RoleRef {
    #[prost(string, tag = "1")]
    api_group: String,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TokenRequest {
    #[prost(message, optional, tag = "2")]
    spec: Option<TokenRequestSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct TokenRequestSpec {
    #[prost(string, repeated, tag = "1")]
    audiences: Vec<String>,
    #[prost(message, optional, tag = "3")]
    bound: Option<BoundObjectReference>,
    #[prost(int64, optional, tag = "4")]
    seconds: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct BoundObjectReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
}

/// It says nothing but its kind.
#[derive(Clone, PartialEq, Message)]
struct SelfSubjectReview {}

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

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const AUTHENTICATION: &str = "authentication.k8s.io/v1";

fn bad(why: &dyn std::fmt::Display) -> BodyError {
    BodyError::Malformed { form: "protobuf", why: why.to_string() }
}

/// The error names a field at most, never what is in it.
fn message<T: Message + Default>(bytes: &[u8]) -> Result<T, BodyError> {
    T::decode(bytes).map_err(|error| bad(&error))
}

/// The JSON form of a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, BodyError> {
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| bad(&"it does not begin as Kubernetes' does"))?;
    let envelope: Envelope = message(rest)?;
    let type_meta = envelope.type_meta.unwrap_or_default();
    let raw = envelope.raw.as_slice();
    let mut object = match (type_meta.api_version.as_str(), type_meta.kind.as_str()) {
        ("v1", "Namespace") => json!({ "metadata": metadata(message::<Namespace>(raw)?.metadata) }),
        ("v1", "Secret") => secret(message(raw)?),
        ("v1", "ConfigMap") => config_map(message(raw)?),
        ("v1", "ServiceAccount") => service_account(message(raw)?),
        (RBAC, "Role" | "ClusterRole") => role(message(raw)?),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => binding(message(raw)?),
        (AUTHENTICATION, "TokenRequest") => {
            let spec = message::<TokenRequest>(raw)?.spec.unwrap_or_default();
            let bound = spec.bound.map(|bound| json!({ "kind": bound.kind, "name": bound.name }));
            json!({ "spec": {
                "audiences": spec.audiences, "boundObjectRef": bound, "expirationSeconds": spec.seconds } })
        }
        (AUTHENTICATION, "SelfSubjectReview") => {
            let SelfSubjectReview {} = message(raw)?;
            json!({})
        }
        (_, "DeleteOptions") => {
            let options: DeleteOptions = message(raw)?;
            let preconditions = options.preconditions.unwrap_or_default();
            json!({
                "preconditions": { "uid": preconditions.uid, "resourceVersion": preconditions.resource_version },
                "dryRun": options.dry_run,
            })
        }
        (version, kind) => {
            return Err(BodyError::Unsupported(format!(
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

fn config_map(map: ConfigMap) -> Value {
    let mut object = json!({ "metadata": metadata(map.metadata) });
    if !map.data.is_empty() {
        object["data"] = json!(sorted(map.data));
    }
    if !map.binary_data.is_empty() {
        let encoded: BTreeMap<String, String> =
            map.binary_data.into_iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
        object["binaryData"] = json!(encoded);
    }
    if let Some(immutable) = map.immutable {
        object["immutable"] = immutable.into();
    }
    object
}

fn service_account(account: ServiceAccount) -> Value {
    let secrets = account.secrets.into_iter().map(|secret| {
        let mut object = json!({ "name": secret.name });
        if !secret.namespace.is_empty() {
            object["namespace"] = secret.namespace.into();
        }
        object
    });
    let pull = account.image_pull_secrets.into_iter().map(|secret| json!({ "name": secret.name }));
    let mut object = json!({ "metadata": metadata(account.metadata) });
    for (field, list) in
        [("secrets", secrets.collect::<Vec<_>>()), ("imagePullSecrets", pull.collect::<Vec<_>>())]
    {
        if !list.is_empty() {
            object[field] = list.into();
        }
    }
    if let Some(automount) = account.automount_token {
        object["automountServiceAccountToken"] = automount.into();
    }
    object
}

fn role(role: Role) -> Value {
    let rules = role.rules.into_iter().map(|rule| {
        let mut object = Map::new();
        object.insert("verbs".to_owned(), json!(rule.verbs));
        for (field, list) in [
            ("apiGroups", rule.api_groups),
            ("resources", rule.resources),
            ("resourceNames", rule.resource_names),
            ("nonResourceURLs", rule.non_resource_urls),
        ] {
            if !list.is_empty() {
                object.insert(field.to_owned(), json!(list));
            }
        }
        Value::Object(object)
    });
    let mut object = json!({ "metadata": metadata(role.metadata), "rules": rules.collect::<Vec<_>>() });
    if let Some(aggregation) = role.aggregation {
        let selectors = aggregation.selectors.into_iter().map(|selector| {
            let expressions = selector.expressions.into_iter().map(|one| {
                json!({ "key": one.key, "operator": one.operator, "values": one.values })
            });
            json!({ "matchLabels": sorted(selector.labels), "matchExpressions": expressions.collect::<Vec<_>>() })
        });
        object["aggregationRule"] = json!({ "clusterRoleSelectors": selectors.collect::<Vec<_>>() });
    }
    object
}

fn binding(binding: Binding) -> Value {
    let subjects = binding.subjects.into_iter().map(|subject| {
        let mut object = json!({ "kind": subject.kind, "name": subject.name });
        for (field, text) in [("apiGroup", subject.api_group), ("namespace", subject.namespace)] {
            if !text.is_empty() {
                object[field] = text.into();
            }
        }
        object
    });
    let role = binding.role.unwrap_or_default();
    json!({
        "metadata": metadata(binding.metadata), "subjects": subjects.collect::<Vec<_>>(),
        "roleRef": { "apiGroup": role.api_group, "kind": role.kind, "name": role.name },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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

    proptest! {
        /// Whatever follows a kind's name: no panic, and what is read says its kind.
        #[test]
        fn any_bytes_of_any_kind(
            kind in prop::sample::select(vec![
                ("v1", "Namespace"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"), (super::RBAC, "Role"),
                (super::RBAC, "ClusterRoleBinding"), (super::AUTHENTICATION, "TokenRequest"), ("v1", "DeleteOptions"),
            ]),
            // The first bytes of fields are small numbers, so that many get past them.
            raw in prop::collection::vec(prop_oneof![4 => 0_u8..48, 1 => any::<u8>()], 0..80),
        ) {
            let type_meta = TypeMeta { api_version: kind.0.to_owned(), kind: kind.1.to_owned() };
            let envelope = Envelope { type_meta: Some(type_meta), raw };
            let body = [MAGIC, envelope.encode_to_vec().as_slice()].concat();
            if let Ok(object) = decode(&body) {
                prop_assert_eq!(&object["kind"], kind.1);
            }
        }
    }

    #[test]
    fn other_bodies_are_refused() {
        for bad in [b"".to_vec(), b"{}".to_vec(), b"k8s\0\xff\xff".to_vec(), body("Pod", Vec::new())] {
            assert!(decode(&bad).is_err());
        }
    }
}
