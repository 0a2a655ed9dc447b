//! What is done once, over all objects: hash suffixes, objects that stay local, the order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::budget::{Budget, Size};
use crate::error::Error;
use crate::json::{self, Sink};
use crate::kustomization::SortOptions;
use crate::limits::Limits;
use crate::order::{FIRST, LAST};
use crate::resource::{Id, Resource};
use crate::resources::Resources;
use crate::run::{self, Bytes};
use crate::value::{Map, NullForm, Num, Str, TextStyle, Value};
use crate::yaml::{Again, comes_out_otherwise};

/// Fails if the objects together are larger than a build may get.
pub(crate) fn check_size(limits: &Limits, objects: &Resources) -> Result<(), Error> {
    let mut bytes = 0_usize;
    for resource in objects.iter() {
        let entry = |(key, value): &(Str, Value)| key.len().saturating_add(Size::of(value).bytes());
        bytes = resource.value().iter().map(entry).fold(bytes, usize::saturating_add);
        if bytes > limits.made_bytes {
            let (place, what) = (resource.source.to_string(), "bytes of objects in all");
            return Err(Error::Limit { place, what, limit: limits.made_bytes });
        }
    }
    Ok(())
}

/// Adds the hash of their content to the names of generated objects.
pub(crate) fn hashes(objects: &mut Resources, budget: &Budget) -> Result<(), String> {
    if !objects.iter().any(|resource| resource.needs_hash) {
        return Ok(());
    }
    for resource in objects.list_mut().iter_mut().filter(|resource| resource.needs_hash) {
        let hash = hash(resource, budget)?;
        resource.store_id()?;
        let name = format!("{}-{hash}", resource.id().name);
        resource.set_name(name);
    }
    Ok(())
}

/// The digest of a text that is never held in whole: as JSON it can be six times as long as in the object.
struct Hasher {
    digest: Sha256,
    waiting: String,
}

impl Sink for Hasher {
    fn push_str(&mut self, text: &str) {
        const BLOCK: usize = 4_096;
        if text.len() >= BLOCK {
            self.digest.update(self.waiting.as_bytes());
            self.waiting.clear();
            self.digest.update(text.as_bytes());
            return;
        }
        self.waiting.push_str(text);
        if self.waiting.len() >= BLOCK {
            self.digest.update(self.waiting.as_bytes());
            self.waiting.clear();
        }
    }
}

/// The first ten digits of the SHA-256 of the content as JSON, with letters that spell nothing.
fn hash(resource: &Resource, budget: &Budget) -> Result<String, String> {
    let mut object = Cow::Borrowed(resource.value());
    if comes_out_otherwise(&object) || object.iter().any(|(_, value)| has_large_numbers(value)) {
        let object = object.to_mut();
        Again::default().map(object, budget)?;
        object.values_mut().for_each(|(_, value)| round(value));
    }
    let mut out = Hasher { digest: Sha256::new(), waiting: String::from("{") };
    let secret = &*resource.id().gvk.kind == "Secret";
    let container =
        |name: &str| object.get(name).filter(|value| matches!(value, Value::Map(_) | Value::List(_)));
    if !secret && let Some(binary) = container("binaryData") {
        out.push_str("\"binaryData\":");
        write_data(&mut out, binary);
        out.push(',');
    }
    out.push_str("\"data\":");
    write_data(&mut out, object.get("data").unwrap_or(&Value::Null(NullForm::Empty)));
    out.push_str(",\"kind\":");
    json::write_text(&mut out, &resource.id().gvk.kind);
    // kustomize means the name here and looks for a field called "metadata/name", which no object has.
    out.push_str(",\"name\":\"\"");
    if secret {
        if let Some(texts) = container("stringData") {
            out.push_str(",\"stringData\":");
            write_data(&mut out, texts);
        }
        out.push_str(",\"type\":");
        json::write_text(&mut out, object.get("type").and_then(Value::as_str).unwrap_or_default());
    }
    out.push('}');
    out.digest.update(out.waiting.as_bytes());
    let digest = out.digest.finalize();
    let mut hex = String::with_capacity(10);
    for byte in digest.iter().take(5) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    let swap = |c| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        c => c,
    };
    Ok(hex.chars().map(swap).collect())
}

/// What kustomize looks for in `data` and its like is a mapping: it finds nothing in a list, and the text of a scalar.
fn write_data(out: &mut Hasher, data: &Value) {
    match data {
        Value::Map(map) => json::write_map(out, map),
        Value::List(_) => out.push_str("null"),
        scalar => json::write_text(out, &scalar.scalar_text().unwrap_or_default()),
    }
}

/// The float that a whole number becomes on its way through Go's JSON, where that is another number.
fn rounded(num: Num) -> Option<f64> {
    /// Up to here, floats have all whole numbers.
    const EXACT: u64 = 1 << 53;
    match num {
        Num::Int(int) if int.unsigned_abs() > EXACT => Some(int as f64),
        Num::Uint(int) => Some(int as f64),
        Num::Int(_) | Num::Float(_) => None,
    }
}

fn has_large_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => rounded(number.num).is_some(),
        Value::List(items) => items.iter().any(has_large_numbers),
        Value::Map(map) => map.iter().any(|(_, value)| has_large_numbers(value)),
        Value::Null(_) | Value::Bool(_) | Value::String(_) => false,
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) => number.num = rounded(number.num).map_or(number.num, Num::Float),
        Value::List(items) => items.iter_mut().for_each(round),
        Value::Map(map) => map.values_mut().for_each(|(_, value)| round(value)),
        Value::Null(_) | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Annotations in which kustomize keeps notes during a build; it takes them out at the end, whoever wrote them.
const NOTES: [&str; 5] = [
    "config.kubernetes.io/index",
    "config.kubernetes.io/path",
    "config.k8s.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
    "internal.config.kubernetes.io/helm-generated",
];
const NOTES_DOMAIN: &str = "internal.config.kubernetes.io/";
const NOTES_IN_DOMAIN: [&str; 14] = [
    "previousKinds",
    "previousNames",
    "previousNamespaces",
    "prefixes",
    "suffixes",
    "allowNameChange",
    "allowKindChange",
    "refBy",
    "generatorBehavior",
    "needsHashSuffix",
    "path",
    "index",
    "seqindent",
    "id",
];

fn is_note(key: &str) -> bool {
    NOTES.contains(&key) || key.strip_prefix(NOTES_DOMAIN).is_some_and(|name| NOTES_IN_DOMAIN.contains(&name))
}

/// On its way out, kustomize writes an object as JSON and reads that as YAML, which has fewer characters than JSON.
fn pass_through_yaml(value: &mut Value, again: &mut Again, budget: &Budget) -> Result<(), String> {
    match value {
        Value::String(_) => {
            again.value(value, budget)?;
            let Value::String(text) = value else { return Ok(()) };
            // What is wrong here begins with one of these.
            if run::len(text.as_bytes(), &Bytes([0x7f, 0xc2, 0xef], [])) == text.len() {
                return Ok(());
            }
            check_text(text)?;
            if text.contains(NEXT_LINE) {
                *text = break_lines(text).into();
            }
        }
        Value::List(items) => {
            items.iter_mut().try_for_each(|item| pass_through_yaml(item, again, budget))?;
        }
        Value::Map(map) => {
            for (key, value) in map.values_mut() {
                check_text(key)?;
                pass_through_yaml(value, again, budget)?;
            }
        }
        Value::Null(_) | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

/// Fails where there are characters that JSON has and YAML has not.
pub(crate) fn check_characters(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check_text(text),
        Value::List(items) => items.iter().try_for_each(check_characters),
        Value::Map(map) => map.iter().try_for_each(|(key, value)| {
            check_text(key)?;
            check_characters(value)
        }),
        Value::Null(_) | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The other control characters are escaped in JSON.
fn check_text(text: &str) -> Result<(), String> {
    let wrong = |c: char| matches!(c, '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(wrong) { Err("control characters are not allowed".into()) } else { Ok(()) }
}

const NEXT_LINE: char = '\u{85}';

/// The character for "next line", which JSON does not escape, breaks a line of a quoted text: with the spaces around it,
/// it comes to one space, and more of them to line breaks.
fn break_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest: &str = text;
    while let Some((before, after)) = rest.split_once(NEXT_LINE) {
        out.push_str(before.trim_end_matches(' '));
        rest = after.trim_start_matches(' ');
        let mut more = 0;
        while let Some(after) = rest.strip_prefix(NEXT_LINE) {
            (rest, more) = (after.trim_start_matches(' '), more + 1);
        }
        match more {
            0 => out.push(' '),
            more => out.extend(std::iter::repeat_n('\n', more)),
        }
    }
    out.push_str(rest);
    out
}

/// Sets all annotations again: they have no style any more, and are not folded again.
fn reset_annotations(object: &mut Map) {
    let meta = object.get_mut("metadata").and_then(Value::as_map_mut);
    let annotations = meta.and_then(|meta| meta.get_mut("annotations")?.as_map_mut());
    for (_, value) in annotations.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = value {
            *text = text.with_style(TextStyle::Made);
        }
    }
}

/// Makes all annotations texts, and removes kustomize's own notes and annotations that are there and empty.
pub(crate) fn tidy(objects: &mut Resources, budget: &Budget) -> Result<(), String> {
    let mut again = Again::default();
    for resource in objects.iter_mut() {
        resource.check().map_err(|message| format!("{} ({}): {message}", resource.id(), resource.source))?;
        let result = resource.edit(|object| {
            reset_annotations(object);
            object.values_mut().try_for_each(|(_, value)| pass_through_yaml(value, &mut again, budget))
        });
        result.map_err(|message| format!("{} ({}): {message}", resource.id(), resource.source))?;
        if !resource.value().contains_key("metadata") {
            // Only a list without items has none.
            resource.edit(|object| object.insert("metadata", Value::Map(Map::new())));
        }
        let meta = resource.value().get("metadata").and_then(Value::as_map);
        let done = match meta.and_then(|meta| meta.get("annotations")) {
            Some(Value::Map(map)) => {
                !map.is_empty() && map.iter().all(|(key, value)| value.as_str().is_some() && !is_note(key))
            }
            Some(_) => false,
            None => true,
        };
        if done {
            continue;
        }
        resource.edit(|object| {
            let meta = crate::resource::metadata(object);
            let Some(Value::Map(map)) = meta.remove("annotations") else { return };
            let entries = map.into_entries().into_iter().filter(|(key, _)| !is_note(key));
            let text = |value: Value| Value::string(value.scalar_text().unwrap_or_else(|| "".into()));
            let map: Map = entries.map(|(key, value)| (key, text(value))).collect();
            if !map.is_empty() {
                meta.insert("annotations", Value::Map(map));
            }
        });
    }
    Ok(())
}

/// Drops objects that say they are configuration of a tool. All objects must have kept a kind and a name until here. kustomize
/// drops them by id: one with the id of an object that stays is kept, and two with the same id are an error.
pub(crate) fn drop_local(objects: &mut Resources, budget: &Budget) -> Result<(), String> {
    /// Of an id in a set.
    const ID: usize = 128;
    objects.iter().try_for_each(check_named)?;
    let local = |resource: &Resource| {
        let mark = resource.texts("annotations").and_then(|map| map.get("config.kubernetes.io/local-config"));
        mark.is_some_and(|value| value.as_str() != Some("false"))
    };
    if !objects.iter().any(local) {
        return Ok(());
    }
    budget.work(objects.len())?;
    let _held = budget.hold(objects.len() * ID)?;
    let id_of = |resource: &Resource| (resource.id().clone(), resource.namespace().clone());
    let stay: HashSet<_> = objects.iter().filter(|resource| !local(resource)).map(id_of).collect();
    let mut dropped = HashMap::new();
    for resource in objects.iter().filter(|resource| local(resource) && !stay.contains(&id_of(resource))) {
        if let Some(first) = dropped.insert(id_of(resource), &resource.source) {
            let (id, source) = (resource.id(), &resource.source);
            return Err(format!("{id} is defined twice, in {first} and in {source}"));
        }
    }
    objects.list_mut().retain(|resource| !local(resource) || stay.contains(&id_of(resource)));
    Ok(())
}

/// A patch or a replacement may have taken the name or the kind away.
fn check_named(resource: &Resource) -> Result<(), String> {
    let Id { gvk, name, .. } = resource.id();
    let missing = if gvk.kind.is_empty() {
        "kind"
    } else if name.is_empty() && !gvk.kind.ends_with("List") {
        "metadata.name"
    } else {
        return Ok(());
    };
    let (id, source) = (resource.original_id(), &resource.source);
    Err(format!("{id} ({source}) no longer has {missing}: a patch or a replacement removed it"))
}

/// Puts the objects in the order of `sortOptions`; without them, in the legacy order.
pub(crate) fn sort(options: Option<&SortOptions>, objects: &mut Resources) {
    let (first, last): (Vec<&str>, Vec<&str>) = match options {
        Some(SortOptions::Fifo) => return,
        Some(SortOptions::Legacy(Some((first, last)))) => {
            (first.iter().map(String::as_str).collect(), last.iter().map(String::as_str).collect())
        }
        Some(SortOptions::Legacy(None)) | None => (FIRST.to_vec(), LAST.to_vec()),
    };
    let mut ranks: HashMap<&str, i64> = HashMap::new();
    for (i, kind) in first.iter().rev().enumerate() {
        ranks.entry(kind).or_insert(-1 - i64::try_from(i).unwrap_or(i64::MAX));
    }
    for (i, kind) in last.iter().enumerate() {
        ranks.insert(kind, 1 + i64::try_from(i).unwrap_or(i64::MAX));
    }
    let key = |resource: &Resource| {
        SortKey::new(resource, ranks.get(&*resource.id().gvk.kind).copied().unwrap_or(0))
    };
    let mut keys: Vec<SortKey> = objects.iter().map(key).collect();
    put_namespaces_first(&mut keys, objects);
    let mut list: Vec<(SortKey, Resource)> =
        keys.into_iter().zip(std::mem::take(objects.list_mut())).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    *objects.list_mut() = list.into_iter().map(|(_, resource)| resource).collect();
}

/// Puts namespaces of Kubernetes' own before objects of other groups that are called so; but not where other kinds stand between
/// them: kustomize compares neighbours.
fn put_namespaces_first(keys: &mut [SortKey], objects: &Resources) {
    let is_namespace = |object: &Resource| &*object.id().gvk.kind == "Namespace";
    let is_core = |object: &Resource| is_namespace(object) && object.id().gvk.group.is_empty();
    let of = |wanted: &dyn Fn(&Resource) -> bool| {
        let found = keys.iter().zip(objects.iter()).filter(|(_, object)| wanted(object));
        found.map(|(key, _)| (key.rank, key.gvk.clone())).collect::<Vec<_>>()
    };
    let first = of(&|object| is_namespace(object) && !is_core(object)).into_iter().min();
    let last = of(&is_core).into_iter().max();
    let (Some(first), Some(last)) = (first, last) else { return };
    if of(&|object| !is_namespace(object)).iter().any(|other| first < *other && *other < last) {
        return;
    }
    for (key, _) in keys.iter_mut().zip(objects.iter()).filter(|(_, object)| is_core(object)) {
        (key.gvk, key.is_other) = (first.1.clone(), false);
    }
}

/// Rank of the kind, then texts as kustomize compares them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    rank: i64,
    gvk: String,
    is_other: bool,
    id: String,
}

impl SortKey {
    fn new(resource: &Resource, rank: i64) -> Self {
        let Id { gvk, name, .. } = resource.id();
        let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let (group, version, kind) = (&gvk.group, &gvk.version, &gvk.kind);
        let texts = [or(group, "~G"), or(version, "~V"), or(kind, "~K")].join("_");
        Self {
            rank,
            gvk: texts,
            is_other: true,
            id: [
                [or(kind, "[noKind]"), or(version, "[noVer]"), or(group, "[noGrp]")].join("."),
                or(resource.namespace(), "~X"),
                or(name, "~N"),
            ]
            .join("|"),
        }
    }
}
