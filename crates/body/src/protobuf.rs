//! Kubernetes' protobuf form of the built-in kinds, as far as requests go: kubectl creates them in it, Go clients delete
//! them in it. Answers are JSON, which its clients take too.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::BodyError;

mod messages;

use messages::{
    Binding, ConfigMap, DeleteOptions, Envelope, Namespace, ObjectMeta, ResourceQuota, Role, Secret,
    SelfSubjectAccessReview, SelfSubjectReview, SelfSubjectRulesReview, ServiceAccount, TokenRequest,
};

/// What such a body begins with.
const MAGIC: &[u8] = b"k8s\0";

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const AUTHENTICATION: &str = "authentication.k8s.io/v1";
const AUTHORIZATION: &str = "authorization.k8s.io/v1";

fn bad(why: &dyn std::fmt::Display) -> BodyError {
    BodyError::Malformed { form: "protobuf", why: why.to_string() }
}

/// The error names a field at most, never what is in it.
fn message<T: Message + Default>(bytes: &[u8]) -> Result<T, BodyError> {
    T::decode(bytes).map_err(|error| bad(&error))
}

/// What a field costs in memory at most, beside its bytes: the largest message, in a list that grows, and the JSON value
/// that is made of it.
const FIELD: usize = 1600;
/// Messages in messages; Kubernetes' own nest less deep.
const MAX_DEPTH: usize = 6;

/// The fields of a message, one after the other, with their numbers; of those that are not texts or messages no bytes. Ends
/// where it cannot be read on, as the decoder does.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let none: &[u8] = &[];
        let inner = match tag & 7 {
            0 => self.varint().map(|_| none)?,
            1 => self.take(8).map(|_| none)?,
            5 => self.take(4).map(|_| none)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.take(length)?
            }
            _ => return None,
        };
        Some((tag >> 3, inner))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// How many fields there are in a message and in what could be messages in it.
fn deep(bytes: &[u8], depth: usize) -> usize {
    let inner = |inner| if depth < MAX_DEPTH { deep(inner, depth + 1) } else { 0 };
    Fields(bytes).map(|(_, bytes)| 1 + inner(bytes)).sum()
}

/// How many fields, each of which may become a value, an object has. Of those with texts that may be long, these are not
/// looked into: a text can look like a message of many fields.
fn fields(kind: &str, raw: &[u8]) -> usize {
    let texts = matches!(kind, "Secret" | "ConfigMap");
    let inner = |(number, bytes)| match number {
        // The metadata: texts, maps of texts, and messages of a fixed number of texts.
        1 => 1 + Fields(bytes).count(),
        _ if texts => 1,
        _ => 1 + deep(bytes, 0),
    };
    Fields(raw).map(inner).sum()
}

/// The JSON form of a body, which may take `memory` bytes.
pub(crate) fn decode(body: &[u8], memory: usize) -> Result<Value, BodyError> {
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| bad(&"it does not begin with Kubernetes' prefix"))?;
    // The envelope's copy, the message's, and the value's, which may be base64.
    let texts = rest.len().saturating_mul(5);
    if texts > memory {
        return Err(BodyError::Memory { memory });
    }
    let envelope: Envelope = message(rest)?;
    let type_meta = envelope.type_meta.unwrap_or_default();
    let raw = envelope.raw.as_slice();
    if fields(&type_meta.kind, raw).saturating_mul(FIELD) > memory - texts {
        return Err(BodyError::Memory { memory });
    }
    let mut object = match (type_meta.api_version.as_str(), type_meta.kind.as_str()) {
        ("v1", "Namespace") => json!({ "metadata": metadata(message::<Namespace>(raw)?.metadata) }),
        ("v1", "Secret") => secret(message(raw)?),
        ("v1", "ConfigMap") => config_map(message(raw)?),
        ("v1", "ServiceAccount") => service_account(message(raw)?),
        ("v1", "ResourceQuota") => resource_quota(message(raw)?),
        (RBAC, "Role" | "ClusterRole") => role(message(raw)?),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => binding(message(raw)?),
        (AUTHENTICATION, "TokenRequest") => {
            let spec = message::<TokenRequest>(raw)?.spec.unwrap_or_default();
            let bound = spec.bound.map(|bound| {
                let (version, uid) = (bound.api_version, bound.uid);
                json!({ "kind": bound.kind, "apiVersion": version, "name": bound.name, "uid": uid })
            });
            json!({ "spec": {
                "audiences": spec.audiences, "boundObjectRef": bound, "expirationSeconds": spec.seconds } })
        }
        (AUTHENTICATION, "SelfSubjectReview") => {
            let SelfSubjectReview {} = message(raw)?;
            json!({})
        }
        (AUTHORIZATION, "SelfSubjectAccessReview") => access_review(message(raw)?),
        (AUTHORIZATION, "SelfSubjectRulesReview") => {
            let spec = message::<SelfSubjectRulesReview>(raw)?.spec.unwrap_or_default();
            json!({ "spec": { "namespace": spec.namespace } })
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
                "{kind} of {version} is not accepted as protobuf: want application/json"
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

fn access_review(review: SelfSubjectAccessReview) -> Value {
    let spec = review.spec.unwrap_or_default();
    let mut object = json!({ "spec": {} });
    if let Some(asked) = spec.resource {
        object["spec"]["resourceAttributes"] = json!({
            "namespace": asked.namespace, "verb": asked.verb, "group": asked.group, "version": asked.version,
            "resource": asked.resource, "subresource": asked.subresource, "name": asked.name,
        });
    }
    if let Some(asked) = spec.path {
        object["spec"]["nonResourceAttributes"] = json!({ "path": asked.path, "verb": asked.verb });
    }
    object
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

fn resource_quota(quota: ResourceQuota) -> Value {
    let spec = quota.spec.unwrap_or_default();
    let hard: BTreeMap<String, String> =
        spec.hard.into_iter().map(|(what, quantity)| (what, quantity.text)).collect();
    let mut object = json!({ "metadata": metadata(quota.metadata), "spec": { "hard": hard } });
    if !spec.scopes.is_empty() {
        object["spec"]["scopes"] = json!(spec.scopes);
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

    use super::messages::{ResourceAttributes, SelfSubjectAccessReviewSpec, TypeMeta};
    use serde_json::Value;

    use super::{Envelope, MAGIC, ObjectMeta, Secret, SelfSubjectAccessReview};
    use crate::BodyError;

    fn decode(body: &[u8]) -> Result<Value, BodyError> {
        super::decode(body, 1 << 20)
    }

    fn body(kind: &str, raw: Vec<u8>) -> Vec<u8> {
        body_of("v1", kind, raw)
    }

    fn body_of(version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
        let type_meta = TypeMeta { api_version: version.to_owned(), kind: kind.to_owned() };
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
    fn a_question_about_oneself() {
        let resource = ResourceAttributes {
            verb: "get".to_owned(),
            resource: "secrets".to_owned(),
            ..Default::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource: Some(resource), path: None };
        let raw = SelfSubjectAccessReview { spec: Some(spec) }.encode_to_vec();
        // By hand: the spec is field 2, the attributes are field 1 of it, the verb is 2 there and the resource 5.
        assert_eq!(raw, b"\x12\x10\x0a\x0e\x12\x03get\x2a\x07secrets");
        let type_meta = TypeMeta {
            api_version: super::AUTHORIZATION.to_owned(),
            kind: "SelfSubjectAccessReview".to_owned(),
        };
        let envelope = Envelope { type_meta: Some(type_meta), raw };
        let object = decode(&[MAGIC, envelope.encode_to_vec().as_slice()].concat()).unwrap();
        assert_eq!(object["spec"]["resourceAttributes"]["resource"], "secrets");
        assert!(object["spec"]["nonResourceAttributes"].is_null());
    }

    proptest! {
        /// Whatever follows a kind's name: no panic, and what is read says its kind.
        #[test]
        fn any_bytes_of_any_kind(
            kind in prop::sample::select(vec![
                ("v1", "Namespace"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"), ("v1", "ResourceQuota"), (super::RBAC, "Role"),
                (super::RBAC, "ClusterRoleBinding"), (super::AUTHENTICATION, "TokenRequest"), ("v1", "DeleteOptions"),
                (super::AUTHORIZATION, "SelfSubjectAccessReview"), (super::AUTHORIZATION, "SelfSubjectRulesReview"),
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

    /// Of two bytes each message was made.
    #[test]
    fn many_empty_messages_do_not_fit_the_memory() {
        let large = "x".repeat(1 << 20);
        let honest = Secret { string_data: [("k".to_owned(), large)].into(), ..Secret::default() };
        assert!(super::decode(&body("Secret", honest.encode_to_vec()), 8 << 20).is_ok());
        // Owner references in a Secret's metadata; the last one may be cut short.
        for end in [b"".as_slice(), b"\x6a\x05"] {
            let owners = [b"\x6a\x00".repeat(100_000).as_slice(), end].concat();
            let mut raw = vec![0x0a];
            prost::encoding::encode_varint(owners.len() as u64, &mut raw);
            raw.extend(&owners);
            assert!(matches!(super::decode(&body("Secret", raw), 8 << 20), Err(BodyError::Memory { .. })));
        }
        let rules = b"\x12\x02\x0a\x00".repeat(100_000);
        assert!(matches!(
            super::decode(&body_of(super::RBAC, "Role", rules), 8 << 20),
            Err(BodyError::Memory { .. })
        ));
    }

    #[test]
    fn other_bodies_are_refused() {
        for bad in [b"".to_vec(), b"{}".to_vec(), b"k8s\0\xff\xff".to_vec(), body("Pod", Vec::new())] {
            assert!(decode(&bad).is_err());
        }
    }
}
