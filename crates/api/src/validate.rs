//! Structural validation: an object against its version's schema.

use roadstead_model::GoDuration;
use serde_json::{Map, Value};

use crate::kind::{Kind, KindId, Version};
use crate::schema::schema;

/// A field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// The path, as `spec.sourceRef.kind`.
    pub field: String,
    /// Kubernetes' word for what is wrong: `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl FieldError {
    /// A value that may not stand there.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl std::fmt::Display) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {why}", shown(value)),
        }
    }

    /// A value that is missing.
    #[must_use]
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A field that may not be set here.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {why}") }
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        Self {
            field: field.to_owned(),
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {}: supported values: {}",
                shown(value),
                supported.join(", ")
            ),
        }
    }

    fn of_type(field: &str, value: &Value, want: &str) -> Self {
        let have = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self {
            field: field.to_owned(),
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: \"{have}\": {field} in body must be of type {want}: \"{have}\""),
        }
    }
}

/// A value as it stands in messages: bounded.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a structural check found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Broken rules.
    pub errors: Vec<FieldError>,
    /// Paths of fields that the schema does not know; they have been removed.
    pub unknown: Vec<String>,
}

/// More than this of either is not worth telling, and costs memory.
const MOST: usize = 100;

/// Checks an object of that version, removes nulls and fields that the schema does not know, and tells of both errors
/// and unknown fields.
#[must_use]
pub fn structural(kind: &Kind, version: &Version, object: &mut Value) -> Findings {
    let mut findings = Findings::default();
    if kind.id == KindId::ResourceQuota {
        crate::resource_quota::numbers_to_text(object);
    }
    check(schema(kind, version), object, &mut String::new(), &mut findings);
    findings
}

fn check(schema: &Value, value: &mut Value, path: &mut String, findings: &mut Findings) {
    if findings.errors.len() >= MOST
        || schema.get("x-kubernetes-preserve-unknown-fields").is_some() && !value.is_object()
    {
        return;
    }
    if let Some(want) = schema.get("type").and_then(Value::as_str)
        && !is_type(value, want)
    {
        findings.errors.push(FieldError::of_type(path, value, want));
        return;
    }
    match value {
        Value::Object(object) => check_object(schema, object, path, findings),
        Value::Array(items) => {
            if let Some(most) = schema.get("maxItems").and_then(Value::as_u64)
                && items.len() as u64 > most
            {
                let message = format!("Too many: {}: must have at most {most} items", items.len());
                let field = path.clone();
                findings.errors.push(FieldError { field, reason: "FieldValueTooMany", message });
                return;
            }
            let Some(item_schema) = schema.get("items") else { return };
            for (index, item) in items.iter_mut().enumerate() {
                nested(path, &format!("[{index}]"), |path| check(item_schema, item, path, findings));
            }
        }
        _ => {
            if let Err(error) = check_scalar(schema, value, path) {
                findings.errors.push(error);
            }
        }
    }
}

fn is_type(value: &Value, want: &str) -> bool {
    match want {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn check_object(schema: &Value, object: &mut Map<String, Value>, path: &mut String, findings: &mut Findings) {
    // As Go's decoder has it: null is not a value.
    object.retain(|_, value| !value.is_null());
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties").filter(|additional| additional.is_object());
    if schema.get("x-kubernetes-preserve-unknown-fields").is_none() {
        object.retain(|key, _| {
            let known = additional.is_some() || properties.is_some_and(|known| known.contains_key(key));
            if !known && findings.unknown.len() < MOST {
                findings.unknown.push(join(path, key));
            }
            known
        });
    }
    for field in
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !object.contains_key(field) {
            findings.errors.push(FieldError::required(join(path, field), ""));
        }
    }
    for (key, value) in object.iter_mut() {
        if let Some(inner) = properties.and_then(|known| known.get(key)) {
            let segment = if path.is_empty() { key.clone() } else { format!(".{key}") };
            nested(path, &segment, |path| check(inner, value, path, findings));
        } else if let Some(inner) = additional {
            if key.contains('\0') {
                findings.errors.push(FieldError::invalid(
                    path.as_str(),
                    &"\\0".into(),
                    "a key must not hold the character NUL",
                ));
            }
            nested(path, &format!("[{key}]"), |path| check(inner, value, path, findings));
        }
    }
}

fn nested(path: &mut String, segment: &str, inner: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(segment);
    inner(path);
    path.truncate(length);
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn check_scalar(schema: &Value, value: &Value, path: &str) -> Result<(), FieldError> {
    if let Some(supported) = schema.get("enum").and_then(Value::as_array)
        && !supported.contains(value)
    {
        return Err(FieldError::unsupported(path, value, supported));
    }
    let Some(text) = value.as_str() else { return Ok(()) };
    if text.contains('\0') {
        // Postgres has no text with it.
        return Err(FieldError::invalid(path, &"\\0".into(), "must not hold the character NUL"));
    }
    match schema.get("format").and_then(Value::as_str) {
        Some("duration") => {
            text.parse::<GoDuration>().map_err(|error| FieldError::invalid(path, value, error))?;
        }
        Some("date-time") if crate::schema::parse_time(text).is_none() => {
            return Err(FieldError::invalid(path, value, "want a time such as 2020-09-17T07:27:11Z"));
        }
        _ => {}
    }
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    let length = text.chars().count() as u64;
    if let Some(most) = bound("maxLength").filter(|most| length > *most) {
        let message = format!("Too long: may not be more than {most} bytes");
        return Err(FieldError { field: path.to_owned(), reason: "FieldValueTooLong", message });
    }
    if let Some(least) = bound("minLength").filter(|least| length < *least) {
        return Err(FieldError::invalid(path, value, format_args!("should be at least {least} chars long")));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && !matches(pattern, text)
    {
        return Err(FieldError::invalid(path, value, format_args!("should match '{pattern}'")));
    }
    Ok(())
}

/// The patterns are our own, few and short; the engine is linear in the text.
fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::structural;
    use crate::{KINDS, KindId, Kustomization, Typed as _, rules, to_storage};

    #[test]
    fn lists_have_bounds() {
        let kind = KindId::Kustomization.get();
        let mut object = json!({
            "metadata": { "name": "web" },
            "spec": {
                "interval": "5m", "prune": true, "path": "./", "sourceRef": { "kind": "GitRepository", "name": "a" },
                "ignore": vec![json!({ "paths": ["/a"] }); 101],
                "postBuild": { "substituteFrom": vec![json!({ "kind": "Secret", "name": "a" }); 256] },
            },
        });
        let findings = structural(kind, kind.version(kind.group(), "v1").unwrap(), &mut object);
        let errors: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["spec.ignore: Too many: 101: must have at most 100 items"]);
    }

    #[test]
    fn finds_each_broken_field_by_its_path() {
        let kind = KindId::Kustomization.get();
        let mut object = json!({
            "metadata": { "name": "web", "creationTimestamp": null, "labels": { "a": 1 } },
            "spec": {
                "interval": "five", "prune": "yes", "colour": "red",
                "sourceRef": { "kind": "Foo" },
                "dependsOn": [{ "name": "a", "x": 1 }, {}],
                "timeout": null,
            },
        });
        let findings = structural(kind, kind.version(kind.group(), "v1alpha1").unwrap(), &mut object);
        let mut errors: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
        errors.sort();
        insta::assert_snapshot!(errors.join("\n"), @r#"
        metadata.labels[a]: Invalid value: "integer": metadata.labels[a] in body must be of type string: "integer"
        spec.dependsOn[1].name: Required value
        spec.interval: Invalid value: "five": `five` is not a duration: want numbers with units, such as `30s`, `5m` or `1h30m`
        spec.path: Required value
        spec.prune: Invalid value: "string": spec.prune in body must be of type boolean: "string"
        spec.sourceRef.kind: Unsupported value: "Foo": supported values: "GitRepository", "Bucket", "OCIRepository", "ExternalArtifact"
        spec.sourceRef.name: Required value
        "#);
        assert_eq!(findings.unknown, ["spec.colour", "spec.dependsOn[0].x"]);
        assert_eq!(object["spec"].get("colour"), None);
        assert_eq!(object["spec"].get("timeout"), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        // Names of real fields, so that the walk gets deep.
        let key = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "labels",
            "sourceRef",
            "dependsOn",
            "interval",
            "prune",
            "patches",
            "name",
            "conditions",
            "x",
            "a.b/c",
            "",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(Value::from("5m")),
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<Map<String, Value>>().into()),
            ]
        })
    }

    proptest! {
        /// Whatever comes in: no panic, what is left has only known fields, and what passes can be read as the type.
        #[test]
        fn anything_may_come_in(object in any_json()) {
            for kind in KINDS {
                for version in kind.versions {
                    let mut once = object.clone();
                    let first = structural(kind, version, &mut once);
                    let mut twice = once.clone();
                    let again = structural(kind, version, &mut twice);
                    prop_assert!(again.unknown.is_empty());
                    prop_assert_eq!(&once, &twice);
                    if first.errors.is_empty() {
                        let stored = to_storage(kind.id, version, once.clone(), None);
                        let _ = rules::check(kind.id, &stored, None);
                        if kind.id == KindId::Kustomization {
                            let read = Kustomization::from_object(&stored);
                            prop_assert!(read.is_ok(), "{:?} of {}", read.err(), stored);
                        }
                    }
                }
            }
        }
    }
}
