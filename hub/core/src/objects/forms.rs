//! From what a user sends to what is stored, and back to what a user sees. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use roadstead_api::{
    FieldError, Kind, KindId, Version, annotated, from_storage, rbac, rules, structural, to_storage,
};
use roadstead_hub_store::{LAST_APPLIED, SecretData, Stored};
use serde_json::{Map, Value, json};

use crate::HubError;
use crate::address::named;

/// What to do about fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them, with a warning.
    #[default]
    Warn,
    /// Refuse the object.
    Strict,
}

/// The metadata that only the hub sets.
pub(crate) const SYSTEM_METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];

/// An object as `version` shows it, a Secret with its data.
pub(crate) fn show(stored: &Stored, version: &Version) -> Value {
    from_storage(stored.kind, version, whole(stored))
}

/// The storage form with what the store keeps apart.
pub(crate) fn whole(stored: &Stored) -> Value {
    let mut object = stored.object.clone();
    if let (Some(secret), Some(fields)) = (&stored.secret, object.as_object_mut()) {
        fields.insert("data".to_owned(), json!(secret.expose_all()));
        if let Some(annotation) = secret.expose_last_applied() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            map(metadata, "annotations").insert(LAST_APPLIED.to_owned(), annotation.into());
        }
    }
    object
}

/// As named where its rules are broken: `Kustomization.kustomize.toolkit.fluxcd.io "web"`.
fn named_kind(kind: &Kind, name: &str) -> String {
    let group = kind.group();
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group} \"{name}\"", kind.kind)
}

/// Checks what came in against the structure of its version.
pub(crate) fn check_structure(
    kind: &'static Kind,
    version: &Version,
    object: &mut Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), HubError> {
    let Some(fields) = object.as_object() else {
        return Err(HubError::BadRequest("the body is not an object".to_owned()));
    };
    let want = (version.api_version(), kind.kind);
    for (field, want) in [("apiVersion", want.0.as_str()), ("kind", want.1)] {
        match fields.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(have)) if have == want || have.is_empty() => {}
            Some(have) => {
                return Err(HubError::BadRequest(format!(
                    "{field} in the body is {have}, and the URL says {want}"
                )));
            }
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let findings = structural(kind, version, object);
    if !findings.errors.is_empty() {
        return Err(HubError::Invalid { what: named_kind(kind, &name), causes: findings.errors });
    }
    tell_unknown(kind, version, &findings.unknown, validation, warnings)
}

/// Takes away what the schema does not know, of a configuration that need not be a whole object.
pub(crate) fn prune_unknown(
    kind: &'static Kind,
    version: &Version,
    config: &mut Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), HubError> {
    // What else is wrong with it is found in what it is laid over.
    let unknown = structural(kind, version, config).unknown;
    tell_unknown(kind, version, &unknown, validation, warnings)
}

/// What is said of fields that the schema does not know.
fn tell_unknown(
    kind: &'static Kind,
    version: &Version,
    unknown: &[String],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), HubError> {
    if unknown.is_empty() || validation == FieldValidation::Ignore {
        return Ok(());
    }
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    if validation == FieldValidation::Strict {
        let unknown: Vec<String> = unknown.collect();
        return Err(HubError::BadRequest(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            kind.kind,
            version.name,
            kind.kind,
            unknown.join(", ")
        )));
    }
    warnings.extend(unknown);
    Ok(())
}

/// The rules beyond structure, on the storage form with its data.
fn check_rules(
    kind: &'static Kind,
    name: &str,
    object: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), HubError> {
    let verdict = rules::check(kind.id, object, old);
    warnings.extend(verdict.warnings);
    if verdict.errors.is_empty() {
        Ok(())
    } else {
        Err(HubError::Invalid { what: named_kind(kind, name), causes: verdict.errors })
    }
}

fn map<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object[field].is_object() {
        object[field] = json!({});
    }
    match &mut object[field] {
        Value::Object(map) => map,
        // It was made one above; the type system cannot know.
        _ => unreachable!("an object was just put there"),
    }
}

/// Fills in what a kind's objects always have, on the storage form.
fn default(kind: KindId, name: &str, object: &mut Value) {
    match kind {
        KindId::Secret => {
            let texts = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
            for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
                let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
                map(object, "data").insert(key.clone(), encoded.into());
            }
            if object["type"].as_str().is_none_or(str::is_empty) {
                object["type"] = "Opaque".into();
            }
        }
        KindId::Namespace => {
            map(object, "metadata");
            map(&mut object["metadata"], "labels")
                .insert("kubernetes.io/metadata.name".to_owned(), name.to_owned().into());
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
        }
        KindId::RoleBinding | KindId::ClusterRoleBinding => rbac::default_binding(object),
        _ => {}
    }
}

/// A Secret's data leaves the object, and what `kubectl apply` noted of it: they are stored sealed.
fn split_secret(kind: KindId, object: &mut Value) -> Option<SecretData> {
    if kind != KindId::Secret {
        return None;
    }
    let data = object.as_object_mut().and_then(|fields| fields.remove("data"));
    let data = data.as_ref().and_then(Value::as_object).into_iter().flatten();
    let texts: BTreeMap<String, String> =
        data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    let last_applied = match object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        Some(annotations) => annotations.remove(LAST_APPLIED),
        None => None,
    };
    let last_applied = last_applied.and_then(|annotation| annotation.as_str().map(str::to_owned));
    Some(SecretData::new(texts).with_last_applied(last_applied))
}

/// A new object, from what a user sent.
pub(crate) fn create(
    kind: &'static Kind,
    version: &Version,
    namespace: &str,
    mut incoming: Value,
    validation: FieldValidation,
    now: Timestamp,
    warnings: &mut Vec<String>,
) -> Result<Stored, HubError> {
    if kind.status
        && let Some(fields) = incoming.as_object_mut()
    {
        fields.remove("status");
    }
    check_structure(kind, version, &mut incoming, validation, warnings)?;
    let metadata = map(&mut incoming, "metadata");
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
        let why = "metadata.resourceVersion: must not be set on objects to be created".to_owned();
        return Err(HubError::BadRequest(why));
    }
    same_namespace(kind, metadata, namespace)?;
    for field in SYSTEM_METADATA {
        metadata.remove(field);
    }
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty) && !prefix.is_empty() {
        metadata.insert("name".to_owned(), generated_name(&prefix)?.into());
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut object = to_storage(kind.id, version, incoming, None);
    default(kind.id, &name, &mut object);
    check_rules(kind, &name, &object, None, warnings)?;
    if kind.id == KindId::Namespace {
        object["status"] = json!({ "phase": "Active" });
    }
    let secret = split_secret(kind.id, &mut object);
    let mut stored = Stored::new(kind.id, namespace, &name, now, object);
    stored.secret = secret;
    Ok(stored)
}

/// The namespace in the body is the URL's, or not there.
fn same_namespace(kind: &Kind, metadata: &mut Map<String, Value>, namespace: &str) -> Result<(), HubError> {
    let given = metadata.remove("namespace");
    match given.as_ref().and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(given) if kind.namespaced() && given == namespace => Ok(()),
        Some(_) if !kind.namespaced() => {
            Err(HubError::BadRequest(format!("metadata.namespace: {} are not namespaced", kind.plural)))
        }
        Some(given) => Err(HubError::BadRequest(format!(
            "the namespace of the provided object does not match the namespace sent on the request: {given} is not \
             {namespace}"
        ))),
    }
}

/// Letters and digits that make no words.
const SUFFIX: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn generated_name(prefix: &str) -> Result<String, HubError> {
    let mut bytes = [0_u8; 5];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| HubError::Internal("no randomness for a name".to_owned()))?;
    let suffix = bytes.iter().map(|byte| char::from(SUFFIX[usize::from(*byte) % SUFFIX.len()]));
    Ok(prefix.chars().take(58).chain(suffix).collect())
}

/// Which part of an object a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// All but the status.
    #[default]
    Main,
    /// The status only.
    Status,
}

/// `before` with what a user sent in its place.
pub(crate) fn replace(
    before: &Stored,
    version: &Version,
    part: Part,
    mut incoming: Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Stored, HubError> {
    let kind = before.kind.get();
    if part == Part::Main
        && kind.status
        && let Some(fields) = incoming.as_object_mut()
    {
        fields.remove("status");
    }
    check_structure(kind, version, &mut incoming, validation, warnings)?;
    let metadata = map(&mut incoming, "metadata");
    check_identity(before, metadata)?;
    let old = whole(before);
    let mut object = to_storage(kind.id, version, incoming, Some(&old));
    let mut after = before.clone();
    if part == Part::Status {
        if let Some(fields) = after.object.as_object_mut() {
            match object.get_mut("status") {
                Some(status) => fields.insert("status".to_owned(), status.take()),
                None => fields.remove("status"),
            };
        }
        return Ok(after);
    }
    default(kind.id, &before.name, &mut object);
    check_finalizers(before, &object)?;
    check_rules(kind, &before.name, &object, Some(&old), warnings)?;
    if kind.status {
        match before.object.get("status") {
            Some(status) => object["status"] = status.clone(),
            None => {
                object.as_object_mut().map(|fields| fields.remove("status"));
            }
        }
    }
    after.secret = split_secret(kind.id, &mut object);
    after.object = object;
    after.generation += i64::from(is_new_generation(before, &after));
    Ok(after)
}

/// Whether a write asks for something else than before, so that it makes a new generation.
pub(crate) fn is_new_generation(before: &Stored, after: &Stored) -> bool {
    wanted(&after.object) != wanted(&before.object)
        || after.kind.is_applier() && annotated::wanted(&after.object) != annotated::wanted(&before.object)
}

/// All that is not metadata or status: a change of it makes a new generation.
pub(crate) fn wanted(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind")).collect()
}

/// Name, namespace and uid stay; a resourceVersion that is given must be the present one. Then all that only the hub
/// sets goes: the store fills it in.
fn check_identity(before: &Stored, metadata: &mut Map<String, Value>) -> Result<(), HubError> {
    let kind = before.kind.get();
    match metadata.get("name").and_then(Value::as_str) {
        None | Some("") => {
            metadata.insert("name".to_owned(), before.name.clone().into());
        }
        Some(name) if name == before.name => {}
        Some(name) => {
            return Err(HubError::BadRequest(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                before.name
            )));
        }
    }
    same_namespace(kind, metadata, &before.namespace)?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(uid) = text("uid")
        && uid != before.uid.to_string()
    {
        let why = format!("the object was deleted and recreated: its uid is {}, not {uid}", before.uid);
        return Err(HubError::Conflict { what: named(kind, &before.name), why });
    }
    if let Some(version) = text("resourceVersion")
        && version != before.resource_version.to_string()
    {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return Err(HubError::Conflict { what: named(kind, &before.name), why: why.to_owned() });
    }
    for field in SYSTEM_METADATA {
        metadata.remove(field);
    }
    Ok(())
}

/// What is going cannot be held back by new finalizers.
fn check_finalizers(before: &Stored, object: &Value) -> Result<(), HubError> {
    if before.deletion_timestamp.is_none() {
        return Ok(());
    }
    let present: Vec<&str> = before.finalizers().collect();
    let new = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let added: Vec<&str> = new.filter(|finalizer| !present.contains(finalizer)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new: {}",
        added.join(", ")
    );
    Err(HubError::Invalid {
        what: named_kind(before.kind.get(), &before.name),
        causes: vec![FieldError::forbidden("metadata.finalizers", why)],
    })
}
