//! The way over from client-side apply: kubectl's annotation says what it set then.

use serde_json::{Map, Value};

use crate::compare::compare;
use crate::gojson::write_json;
use crate::schema::TypeRef;
use crate::set::Set;
use crate::typed::{Duplicates, check, field_set};

/// Who has the annotation kept up to date, and is let take over what it says.
pub(crate) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations together may be no larger.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that client-side apply set and that still are as it set them.
pub(crate) fn still_applied(live: &Value, api_version: &str, type_: &TypeRef) -> Option<Set> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    check("the last applied configuration", &applied, type_, Duplicates::Refused).ok()?;
    check("the present object", live, type_, Duplicates::Refused).ok()?;
    let unlike = compare(&applied, live, type_);
    let mut set = field_set(&applied, type_);
    for gone in [&unlike.modified, &unlike.added, &unlike.removed] {
        set = set.difference(gone);
    }
    Some(set)
}

/// Has the annotation say what was applied now, where the object has it.
pub(crate) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let mut text = String::new();
    write_json(&mut text, &config);
    text.push('\n');
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    if size(annotations) > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn size(annotations: &Map<String, Value>) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}
