//! An object as it comes in: checked, bounded, and brought into the form in which it is sent.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_model::{Confidential, ObjectRef, json_length};
use serde_json::{Map, Value};

use crate::InputError;

/// How large one object may be, as JSON: what an apiserver takes in a request.
pub const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// An object to apply.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    pub(crate) object: Confidential,
    pub(crate) sensitive: bool,
}

impl From<Value> for Manifest {
    /// Secrets are sensitive by their kind; anything else only where [`Manifest::sensitive`] says so.
    fn from(object: Value) -> Self {
        Self::from(Confidential::from(object))
    }
}

impl From<Confidential> for Manifest {
    /// As of a value.
    fn from(object: Confidential) -> Self {
        let sensitive = object.get("kind").is_some_and(|kind| kind == "Secret");
        Self { object, sensitive }
    }
}

impl Manifest {
    /// Marks an object whose values came from a secret: what the apiserver says of it is not repeated word for word.
    #[must_use]
    pub fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self
    }
}

/// Names the object; its content may be secret.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Manifest").field(&describe(&self.object)).finish()
    }
}

/// What can be told of an object that may lack everything.
fn describe(object: &Value) -> String {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
        text.chars().take(253).collect::<String>()
    };
    format!("{}/{}", text("/kind"), text("/metadata/name"))
}

/// The reference of `object`, as far as the object itself tells (its namespace may be missing, or be one too many).
/// `position` counts from 1.
pub(crate) fn check(object: &Value, position: usize) -> Result<ObjectRef, InputError> {
    let malformed = |problem: &str| InputError::Malformed {
        position,
        object: describe(object),
        problem: problem.to_owned(),
    };
    let bytes = json_length(object);
    if bytes > MAX_OBJECT_BYTES {
        return Err(InputError::TooLarge { object: describe(object), bytes, limit: MAX_OBJECT_BYTES });
    }
    let text =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let api_version = text("/apiVersion").ok_or_else(|| malformed("it has no apiVersion"))?;
    let kind = text("/kind").ok_or_else(|| malformed("it has no kind"))?;
    let name = text("/metadata/name").ok_or_else(|| malformed("it has no metadata.name"))?;
    if kind.ends_with("List") && object.get("items").is_some() {
        return Err(malformed("it is a list; its items must be given one by one"));
    }
    let (group, version) = ObjectRef::split_api_version(api_version);
    // These become segments of a URL's path.
    let plain =
        |text: &str| text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._:".contains(&c)) && text != "..";
    let usable = |text: &str| plain(text) && text != "." && text.len() <= 253;
    if !usable(version)
        || !(group.is_empty() || usable(group))
        || (group.is_empty() && api_version.contains('/'))
    {
        return Err(malformed("its apiVersion is not valid"));
    }
    if !usable(kind) {
        return Err(malformed("its kind is not valid"));
    }
    // RBAC takes names that others do not; the path is percent-encoded.
    let is_segment =
        name != "." && name != ".." && !name.contains(|c: char| c == '/' || c == '%' || c.is_control());
    if !is_segment || name.len() > 253 {
        return Err(malformed("its metadata.name is not valid"));
    }
    let namespace = match object.pointer("/metadata/namespace") {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) if text.is_empty() || usable(text) => text,
        Some(_) => return Err(malformed("its metadata.namespace is not valid")),
    };
    for key in ["labels", "annotations"] {
        let map = object.get("metadata").and_then(|metadata| metadata.get(key));
        let fits = match map {
            None | Some(Value::Null) => true,
            Some(Value::Object(map)) => map.values().all(|value| value.is_string() || value.is_null()),
            Some(_) => false,
        };
        if !fits {
            return Err(malformed(&format!("its metadata.{key} must all be strings")));
        }
    }
    Ok(ObjectRef {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Brings `object` into the form in which it is sent: without what only the apiserver sets, with its settled
/// namespace, with `owner` as a label, and with a Secret's `stringData` where its `data` is.
pub(crate) fn normalise(object: &mut Value, reference: &ObjectRef, owner_label: (&str, &str)) {
    let Some(root) = object.as_object_mut() else { return };
    if reference.kind != "CustomResourceDefinition" {
        root.remove("status");
    } else {
        drop_blank_ca_bundle(root);
    }
    if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"]
        {
            metadata.remove(key);
        }
        if reference.namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), reference.namespace.clone().into());
        }
        for key in ["labels", "annotations"] {
            if metadata.get(key).is_some_and(Value::is_null) {
                metadata.remove(key);
            }
        }
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(owner_label.0.to_owned(), owner_label.1.into());
        }
    }
    if reference.group.is_empty() && reference.kind == "Secret" {
        merge_string_data(root);
    }
}

/// `stringData` is write-only: a server-side apply that drops a key from it would leave the key in `data` for ever.
fn merge_string_data(secret: &mut Map<String, Value>) {
    // Anything else than a map of texts is left for the apiserver to refuse.
    let Some(Value::Object(texts)) = secret.get("stringData") else { return };
    if !texts.values().all(Value::is_string)
        || !secret.get("data").is_none_or(|data| data.is_object() || data.is_null())
    {
        return;
    }
    let encoded: Vec<(String, Value)> = texts
        .iter()
        .filter_map(|(key, value)| Some((key.clone(), Value::String(BASE64.encode(value.as_str()?)))))
        .collect();
    secret.remove("stringData");
    if secret.get("data").is_some_and(Value::is_null) {
        secret.remove("data");
    }
    if let Some(data) = secret.entry("data").or_insert_with(|| Value::Object(Map::new())).as_object_mut() {
        data.extend(encoded);
    }
}

/// Generators write `caBundle: Cg==` (a newline) for "to be injected", which the apiserver refuses.
fn drop_blank_ca_bundle(crd: &mut Map<String, Value>) {
    let client = crd
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("conversion"))
        .and_then(|conversion| conversion.get_mut("webhook"))
        .and_then(|webhook| webhook.get_mut("clientConfig"))
        .and_then(Value::as_object_mut);
    let Some(client) = client else { return };
    let blank = client.get("caBundle").and_then(Value::as_str).is_some_and(|text| {
        BASE64.decode(text.trim()).is_ok_and(|bytes| bytes.iter().all(u8::is_ascii_whitespace))
    });
    if blank {
        client.remove("caBundle");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check, normalise};
    use crate::OWNER_LABEL;

    #[test]
    fn what_is_no_object_is_refused_and_named() {
        let named = |object| check(&object, 3).expect_err("taken").to_string();
        assert_eq!(named(json!({})), "object 3 (?/?): it has no apiVersion");
        assert_eq!(named(json!({"apiVersion": "v1"})), "object 3 (?/?): it has no kind");
        assert_eq!(named(json!("text")), "object 3 (?/?): it has no apiVersion");
        assert_eq!(
            named(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "a-"}})),
            "object 3 (Service/?): it has no metadata.name"
        );
        for (api_version, kind, name) in [
            ("a/b/c", "K", "n"),
            ("/v1", "K", "n"),
            ("v1", "K/x", "n"),
            ("v1", "K", "../../x"),
            ("v1", "K", ".."),
        ] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
            assert!(check(&object, 1).is_err(), "{object} was taken");
        }
        let bad = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": 1}}});
        assert!(check(&bad, 1).is_err());
        let list =
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"name": "n"}, "items": []});
        assert!(check(&list, 1).is_err());
    }

    #[test]
    fn a_secret_is_sent_with_data_only_and_the_owner() {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s", "creationTimestamp": null, "resourceVersion": "1", "labels": null},
            "data": {"a": "QQ==", "b": "Qg=="}, "stringData": {"b": "new"}, "status": {},
        });
        let mut reference = check(&secret, 1).expect("well-formed");
        reference.namespace = "dev".to_owned();
        normalise(&mut secret, &reference, (OWNER_LABEL, "u"));
        assert_eq!(
            secret,
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "namespace": "dev", "labels": {OWNER_LABEL: "u"}},
                "data": {"a": "QQ==", "b": "bmV3"},
            })
        );
    }

    #[test]
    fn a_cluster_scoped_object_loses_its_namespace_and_a_crd_keeps_its_status() {
        let mut crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.b", "namespace": "x"}, "status": {"conditions": []},
            "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Cg=="}}}},
        });
        let mut reference = check(&crd, 1).expect("well-formed");
        reference.namespace.clear();
        normalise(&mut crd, &reference, (OWNER_LABEL, "u"));
        assert_eq!(crd["metadata"], json!({"name": "a.b", "labels": {OWNER_LABEL: "u"}}));
        assert_eq!(crd["status"], json!({"conditions": []}));
        assert_eq!(crd["spec"]["conversion"]["webhook"]["clientConfig"], json!({}));
    }
}
