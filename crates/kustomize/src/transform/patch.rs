//! Patches of a kustomization: which kind they are, which objects they are for, and applying them.

mod settle;

use std::rc::Rc;

use crate::budget::{Budget, Size};
use crate::error::Error;
use crate::fields::Site;
use crate::kustomization::Patch;
use crate::load::{Documents, Loader, yaml_error};
use crate::resource::{Id, KEPT_ID, Resource};
use crate::resources::Resources;
use crate::value::{Map, NullForm, Num, Str, Text, TextStyle, Value};
use crate::yaml::{self, Again, Dialect, Document, KeyNotes, ReadError};

use super::json6902::{self, Operation};
use super::merge;
use super::select::Matcher;
use super::shared::Watch;
use super::tangle::Tangles;
use settle::{settle, settle_annotations};

/// `patchesStrategicMerge`: each entry is a file, or a patch itself.
pub(super) fn strategic_merge_files(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    entries: &[String],
    objects: &mut Resources,
) -> Result<(), Error> {
    for (i, entry) in entries.iter().enumerate() {
        let field = format!("{field}[{i}]");
        let inline = if entry.contains('\n') || entry.contains(": ") {
            match loader.parse(entry.as_bytes(), Dialect::Patch) {
                Err(error) if entry.contains('\n') => {
                    return Err(yaml_error(&format!("{field} in {:?}", site.dir.display()), error));
                }
                read => read.ok(),
            }
        } else {
            None
        };
        let (documents, name) = match inline {
            Some(documents) if documents.list.iter().all(|d| matches!(d.value, Value::Map(_))) => {
                (documents, format!("{field} in {}", site.dir.display()))
            }
            _ => {
                let file = loader.file(site, &field, entry)?;
                (loader.documents(&file, Dialect::Patch)?, file.to_string())
            }
        };
        let (patches, _held) = loader.objects_of(documents, &name)?;
        if patches.is_empty() {
            return Err(site.error(field, "the patch is empty"));
        }
        for patch in &patches {
            let mut patch = patch.clone();
            settle(&mut patch);
            by_id(loader, &patch, Allow::default(), Some(give_version), objects)
                .map_err(|message| loader.fail(site, &field, message))?;
        }
    }
    Ok(())
}

/// What a patch may change besides the rest.
#[derive(Debug, Clone, Copy, Default)]
struct Allow {
    name: bool,
    kind: bool,
}

/// An entry of `patches`, or of `patchesJson6902`, which takes JSON patches for a name only and forgets the ids that they
/// change.
pub(super) fn apply(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    patch: &Patch,
    json_only: bool,
    objects: &mut Resources,
) -> Result<(), Error> {
    let error = |message: String| loader.fail(site, field, message);
    if json_only && patch.target.as_ref().is_none_or(|target| target.name.is_empty()) {
        return Err(error("target.name is missing".into()));
    }
    let (documents, name) = read(loader, site, field, patch)?;
    let lists =
        matches!(documents.list.as_slice(), [Document { value: Value::List(list), .. }] if !list.is_empty());
    if json_only && !lists {
        return Err(error("a JSON 6902 patch, a list of operations, is needed".into()));
    }
    if documents.list.is_empty() {
        // A file with nothing in it is not a patch, and no mistake for kustomize.
        return Ok(());
    }
    let matcher = patch.target.as_ref().map(|target| Matcher::new(target, &loader.budget));
    let matcher = matcher.transpose().map_err(error)?;
    // Of several documents, kustomize takes the first for a JSON patch.
    if let [Document { value: Value::List(operations), line, .. }, ..] = documents.list.as_slice() {
        let copies = loader.budget.hold(documents.held.bytes()).map_err(error)?;
        let operations = json6902::parse(operations).map_err(|message| {
            error(if name.is_empty() { message } else { format!("{name}:{line}: {message}") })
        })?;
        if matcher.is_none() && operations.is_empty() {
            return Ok(());
        }
        let matcher = matcher.ok_or_else(|| error("a JSON 6902 patch needs a target".into()))?;
        let done = json_patch(&operations, &matcher, !json_only, &loader.budget, objects);
        drop(copies);
        return done.map_err(error);
    }
    let name = if name.is_empty() { format!("{field} in {}", site.dir.display()) } else { name };
    let allow = Allow { name: patch.allow_name_change, kind: patch.allow_kind_change };
    let Some(matcher) = matcher else {
        let (patches, _held) = loader.objects_of(documents, &name)?;
        return patches
            .iter()
            .try_for_each(|patch| by_id(loader, patch, allow, None, objects))
            .map_err(error);
    };
    let (patches, _held) = loader.objects_of(documents, &name)?;
    let [patch] = patches.as_slice() else {
        if patches.is_empty() {
            return Ok(());
        }
        return Err(error("one strategic merge patch is needed where there is a target, not several".into()));
    };
    loader.budget.work(matcher.cost(objects)).map_err(error)?;
    let mut settled = patch.clone();
    settle(&mut settled);
    for at in matcher.select(objects) {
        // The patch takes the group and version of its target.
        let mut patch = settled.value().clone();
        match objects.get(at).value().get("apiVersion") {
            Some(version) => patch.insert("apiVersion", version.clone()),
            None => patch.remove("apiVersion"),
        };
        let change = objects.change(at, |resource| {
            take_notes(loader, resource, &settled)?;
            merge_into(loader, resource, patch, &settled.notes, allow)?;
            if !merge::is_forgotten(settled.value()) {
                give_version(resource);
            }
            Ok(())
        });
        change.map_err(error)?;
    }
    if allow.name || allow.kind {
        objects.check_unique().map_err(error)?;
    }
    Ok(())
}

fn read(loader: &Loader<'_>, site: &Site, field: &str, patch: &Patch) -> Result<(Documents, String), Error> {
    match (&patch.path, &patch.patch) {
        (Some(_), Some(_)) => Err(site.error(field, "path and patch cannot both be set")),
        (None, None) => Err(site.error(field, "path or patch is missing")),
        (Some(path), None) => {
            let file = loader.file(site, &format!("{field}.path"), path)?;
            let documents = patch_documents(&loader.read(&file)?, loader);
            let documents = documents.map_err(|error| yaml_error(file.as_str(), error))?;
            Ok((documents, file.to_string()))
        }
        (None, Some(text)) => {
            let documents = patch_documents(text.as_bytes(), loader);
            let place = format!("{field}.patch in {:?}", site.dir.display());
            documents.map(|documents| (documents, String::new())).map_err(|error| yaml_error(&place, error))
        }
    }
}

/// A strategic merge patch is read as an object, and a JSON patch as a kustomization.
fn patch_documents(bytes: &[u8], loader: &Loader<'_>) -> Result<Documents, ReadError> {
    // What starts as a JSON list must be JSON.
    if bytes.starts_with(b"[") {
        let (value, held) = loader.json(bytes)?;
        return Ok(Documents {
            single: true,
            list: vec![Document { value, line: 1, notes: KeyNotes::default() }],
            held,
        });
    }
    let documents = loader.parse(bytes, Dialect::Patch)?;
    if matches!(documents.list.as_slice(), [Document { value: Value::List(_), .. }, ..]) {
        drop(documents);
        return loader.parse(bytes, Dialect::Kustomization);
    }
    Ok(documents)
}

fn json_patch(
    operations: &[Operation],
    matcher: &Matcher,
    keep_id: bool,
    budget: &Budget,
    objects: &mut Resources,
) -> Result<(), String> {
    budget.work(matcher.cost(objects))?;
    for at in matcher.select(objects) {
        objects.change(at, |resource| {
            let id = resource.id().clone();
            budget.work(1 + resource.previous_ids().len())?;
            if keep_id {
                budget.keep(KEPT_ID)?;
                resource.store_id()?;
            }
            // kustomize keeps its notes of earlier ids and of generators among the annotations: where it has some, there
            // are annotations to add to.
            let noted = !resource.previous_ids().is_empty() || resource.source.line == 0;
            resource.shared.clear();
            resource.check()?;
            resource.tangles = Tangles::default();
            resource.notes.clear();
            let mut value = resource.edit(std::mem::take);
            // kustomize writes the object and reads it again, annotations with the rest.
            Again::default().map(&mut value, budget)?;
            let lent = noted && lend_annotations(&mut value);
            let mut value = Value::Map(value);
            json6902::apply(operations, &mut value, budget).map_err(|message| format!("{id}: {message}"))?;
            let Value::Map(mut map) = value else {
                return Err(format!("{id}: the patch makes it {}", value.type_name()));
            };
            if lent {
                take_annotations_back(&mut map);
            }
            pass_map_through_json(&mut map);
            set_annotations_again(&mut map);
            resource.set_value(map);
            Ok(())
        })?;
    }
    Ok(())
}

/// What kustomize's way of applying a JSON patch makes of a value: whole numbers become floats on the way, and a null is
/// written out.
fn pass_through_json(value: &mut Value) {
    /// Up to here, floats have all whole numbers.
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Null(NullForm::Quoted) => *value = Value::string(""),
        Value::Null(form) => *form = NullForm::Written,
        Value::Number(number) => {
            number.num = match number.num {
                Num::Int(i) if i.unsigned_abs() > EXACT => Num::Float(i as f64),
                Num::Uint(u) => Num::Float(u as f64),
                num => num,
            };
            let float = match number.num {
                Num::Int(i) => i as f64,
                Num::Uint(u) => u as f64,
                Num::Float(f) => f,
            };
            let text = yaml::float_as_written(float);
            if *text != *number.text {
                number.text = text.into();
            }
        }
        Value::List(items) => {
            items.set_brackets(items.is_empty());
            items.iter_mut().for_each(pass_through_json);
        }
        Value::Map(map) => pass_map_through_json(map),
        Value::String(text) => *text = Text::written(text.as_shared().clone()),
        Value::Bool(_) => {}
    }
}

fn pass_map_through_json(map: &mut Map) {
    map.set_brackets(map.is_empty());
    map.values_mut().for_each(|(_, value)| pass_through_json(value));
}

/// kustomize sets all annotations again after a JSON patch, as texts: what another patch copies from them is a text.
fn set_annotations_again(object: &mut Map) {
    if let Some(Value::Map(meta)) = object.get_mut("metadata")
        && let Some(Value::Map(annotations)) = meta.get_mut("annotations")
    {
        for (_, value) in annotations.values_mut() {
            if !matches!(value, Value::String(_)) {
                *value = value.scalar_text().map_or_else(|| Value::string(""), Value::string);
            }
        }
    }
}

/// Makes an empty mapping of annotations where there are none.
fn lend_annotations(object: &mut Map) -> bool {
    let meta = crate::resource::metadata(object);
    if meta.get("annotations").is_some_and(|annotations| !annotations.is_null()) {
        return false;
    }
    meta.insert("annotations", Value::Map(Map::new()));
    true
}

/// Takes the empty mapping away, if nothing came into it.
fn take_annotations_back(object: &mut Map) {
    if let Some(Value::Map(meta)) = object.get_mut("metadata")
        && meta.get("annotations").and_then(Value::as_map).is_some_and(Map::is_empty)
    {
        meta.remove("annotations");
    }
}

/// Whether it has what [`give_version`] gives.
fn is_given_version(value: &Value) -> bool {
    matches!(value, Value::Map(map) if matches!(map.get("apiVersion"), Some(Value::Null(NullForm::Empty))))
}

/// Whether a patch says itself what becomes of the whole object.
fn patch_directs(patch: &Value) -> bool {
    matches!(patch, Value::Map(map) if map.contains_key("$patch"))
}

/// kustomize gives a patch an empty version where its target has none.
fn give_version(resource: &mut Resource) {
    if !resource.value().is_empty() && !resource.value().contains_key("apiVersion") {
        resource.edit(|object| object.insert("apiVersion", Value::Null(NullForm::Empty)));
    }
}

/// A strategic merge patch for the object that it names.
fn by_id(
    loader: &Loader<'_>,
    patch: &Resource,
    allow: Allow,
    then: Option<fn(&mut Resource)>,
    objects: &mut Resources,
) -> Result<(), String> {
    let id: &Id = patch.original_id();
    let at = match objects.by_any_id(id) {
        [at] => *at,
        [] => return Err(format!("no object matches the strategic merge patch for {id} ({})", patch.source)),
        _ => {
            return Err(format!(
                "several objects match the strategic merge patch for {id} ({})",
                patch.source
            ));
        }
    };
    objects.change(at, |resource| {
        take_notes(loader, resource, patch)?;
        merge_into(loader, resource, patch.value().clone(), &patch.notes, allow)?;
        if !merge::is_forgotten(patch.value()) {
            then.into_iter().for_each(|then| then(resource));
        }
        Ok(())
    })
}

/// Memory of what a comment of a patch says of a key and that is kept, without its schema: its place in a list that grows, and the
/// list.
const KEPT_HINT: usize = 256;

/// Notes for an object which keys of a patch are not texts, or stand several times, and which values have quotes.
fn take_notes(loader: &Loader<'_>, resource: &mut Resource, patch: &Resource) -> Result<(), String> {
    /// Of a list of keys or values, and of each place where a set of them is made.
    const EACH: usize = 192;
    for notes in patch.notes.iter().filter(|notes| notes.is_of_values()) {
        let count = notes.odd_keys.len() + notes.again.len() + notes.quoted.len();
        loader.budget.keep(EACH * (1 + count))?;
        resource.notes.push(notes.clone());
    }
    Ok(())
}

/// Merges a patch into one object, which may be left empty.
fn merge_into(
    loader: &Loader<'_>,
    resource: &mut Resource,
    patch: Map,
    notes: &[Rc<KeyNotes>],
    allow: Allow,
) -> Result<(), String> {
    let id = resource.id().clone();
    let (name, namespace, kind) = (id.name.clone(), resource.namespace().clone(), id.gvk.kind.clone());
    let text = |key: &str| resource.value().get(key).and_then(Value::as_str).unwrap_or_default();
    loader.schemas.mark_used();
    let schema = loader.schemas.current();
    let of = schema.of_object(text("apiVersion"), text("kind"));
    if allow.name || allow.kind {
        loader.budget.keep(KEPT_ID)?;
        resource.store_id()?;
    }
    let budget = &loader.budget;
    let old = Old::of(resource);
    let watch = Watch::start(resource, budget)?;
    let forgotten = merge::is_forgotten(&patch);
    let (value, patch) = (Value::Map(resource.edit(std::mem::take)), Value::Map(patch));
    budget.work(Size::of(&value).nodes + resource.previous_ids().len())?;
    budget.put(Size::of(&patch), 0)?;
    let own_notes = resource.notes.clone();
    let values = !std::mem::replace(&mut resource.merged, true);
    // A patch before gave it an empty version, which a merge would take for a null to be left out.
    let has_given_version = !values && is_given_version(&value) && !patch_directs(&patch);
    let own_hints = own_notes.iter().flat_map(|notes| &notes.hints).filter(|hint| values || !hint.on_value);
    let hints = merge::Hints::new(own_hints.chain(notes.iter().flat_map(|notes| &notes.hints)))
        .with_values(own_notes.iter().chain(notes).map(|notes| &**notes));
    budget.work(hints.len())?;
    let merged = if forgotten {
        Ok(merge::Merged {
            value: Some(value),
            tangles: std::mem::take(&mut resource.tangles),
            ..Default::default()
        })
    } else {
        merge::merge(value, patch, of, &resource.tangles, &hints, budget)
    };
    let merged = merged.map_err(|message| format!("{id}: {message}"))?;
    let made = KeyNotes { hints: hints.staying(), again: merged.again, ..KeyNotes::default() };
    budget.keep(KEPT_HINT * made.hints.len())?;
    let made = Rc::new(made);
    if !made.is_empty() {
        resource.notes.push(made.clone());
    }
    resource.tangles = merged.tangles;
    match merged.value {
        Some(Value::Map(mut map)) if !map.is_empty() => {
            settle_annotations(&mut map, std::slice::from_ref(&made));
            if resource.untagged {
                map.values_mut().for_each(|(_, value)| value.quote_untagged());
            }
            restore(
                &mut map,
                &old,
                (!allow.name).then_some(&name),
                (!allow.kind).then_some(&kind),
                &namespace,
            );
            resource.set_value(map);
            if has_given_version {
                give_version(resource);
            }
            watch.settle(resource, true)?;
        }
        _ => {
            resource.set_value(Map::new());
        }
    }
    Ok(())
}

/// A patch must not rename its object: name, kind and namespace are put back, as they were written.
fn restore(map: &mut Map, old: &Old, name: Option<&Str>, kind: Option<&Str>, namespace: &Str) {
    let written = |old: &Option<Value>, text: &Str| match old {
        Some(value) if value.scalar_text().as_ref() == Some(text) => without_tag(value, text),
        _ => Value::string(text.clone()),
    };
    if let Some(kind) = kind {
        map.insert("kind", Value::string(kind.clone()));
    }
    let meta = map.get_or_insert_map("metadata");
    if let Some(name) = name {
        meta.insert("name", written(&old.name, name));
    }
    if namespace.is_empty() {
        meta.remove("namespace");
    } else {
        meta.insert("namespace", written(&old.namespace, namespace));
    }
}

/// A name that kustomize sets again, with its quotes but without a tag: it is a text as long as nobody looks.
fn without_tag(value: &Value, text: &Str) -> Value {
    let style = match value {
        Value::String(text) => match text.style() {
            TextStyle::TaggedQuoted => TextStyle::Quoted,
            TextStyle::Made if yaml::is_quoted_when_set(text) => return value.clone(),
            TextStyle::Plain | TextStyle::Made | TextStyle::Tagged => TextStyle::Untagged,
            _ => return value.clone(),
        },
        _ => TextStyle::Untagged,
    };
    Value::String(Text::new(text.clone(), style))
}

/// Name and namespace before a patch.
struct Old {
    name: Option<Value>,
    namespace: Option<Value>,
}

impl Old {
    fn of(resource: &Resource) -> Self {
        let meta = resource.value().get("metadata").and_then(Value::as_map);
        let field = |key| meta.and_then(|meta| meta.get(key)).cloned();
        Self { name: field("name"), namespace: field("namespace") }
    }
}
