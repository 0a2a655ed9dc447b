//! Labels and annotations of patches, which kustomize sets again.

use std::collections::HashMap;
use std::rc::Rc;

use crate::resource::Resource;
use crate::value::{Map, Str, Value};
use crate::yaml::KeyNotes;

/// Sets labels and annotations of a patch again, so that nothing but their texts is left of them.
pub(super) fn settle(patch: &mut Resource) {
    let notes = patch.notes.clone();
    patch.edit(|patch| settle_texts(patch, &last_values(&notes)));
}

/// The last values of keys of a patch that stand several times in a mapping, by the places of the keys.
fn last_values(notes: &[Rc<KeyNotes>]) -> HashMap<*const str, &Value> {
    let again = notes.iter().flat_map(|notes| &notes.again);
    again.filter_map(|again| Some((Str::as_ptr(&again.key), again.later.last()?))).collect()
}

/// Of annotations that stand several times in a patch, and all came to the object, the last one counts: kustomize sets them
/// again in the end.
pub(super) fn settle_annotations(object: &mut Map, notes: &[Rc<KeyNotes>]) {
    let last = last_values(notes);
    if !last.is_empty()
        && let Some(Value::Map(meta)) = object.get_mut("metadata")
        && let Some(Value::Map(annotations)) = meta.get_mut("annotations")
    {
        let entries = std::mem::take(annotations).into_entries().into_iter();
        *annotations = entries.map(|entry| last_entry(entry, &last)).collect();
    }
}

/// An entry with its key's last value.
fn last_entry((key, value): (Str, Value), last: &HashMap<*const str, &Value>) -> (Str, Value) {
    match last.get(&Str::as_ptr(&key)) {
        Some(last) => (Str::from(&*key), (*last).clone()),
        None => (key, value),
    }
}

/// Makes texts of the labels and annotations of a patch, nulls included. kustomize does so to patches that have a target,
/// and to those of `patchesStrategicMerge`: they cannot take a label away.
fn settle_texts(patch: &mut Map, last: &HashMap<*const str, &Value>) {
    let meta = crate::resource::metadata(patch);
    for field in ["labels", "annotations"] {
        match meta.remove(field) {
            Some(Value::Map(map)) if !map.is_empty() => {
                // A list or mapping has no text.
                let text = |value: Value| Value::string(value.scalar_text().unwrap_or_default());
                let entries = map.into_entries().into_iter().map(|entry| last_entry(entry, last));
                let map: Map = entries.map(|(key, value)| (key, text(value))).collect();
                meta.insert(field, Value::Map(map));
            }
            _ => {}
        }
    }
}
