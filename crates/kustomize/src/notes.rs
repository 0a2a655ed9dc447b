//! Annotations in which kustomize keeps notes during a build. An object may come with some, from a tool that was stopped
//! half-way or from an input made for one; they count as if the build had taken them, and are not printed.

use std::rc::Rc;

use crate::resource::{Id, metadata};
use crate::schema::Schema;
use crate::value::{Map, Str, Value};

const DOMAIN: &str = "internal.config.kubernetes.io/";
/// Notes of other tools of the family, which kustomize takes out too.
const OTHERS: [&str; 3] = ["config.kubernetes.io/path", "config.kubernetes.io/index", "config.k8s.io/id"];
/// Notes that mean nothing here, and are taken out all the same.
const SILENT: [&str; 10] = [
    "allowNameChange",
    "allowKindChange",
    "refBy",
    "generatorBehavior",
    "path",
    "index",
    "seqindent",
    "id",
    "annotations-migration-resource-id",
    "helm-generated",
];

/// What an object says of its past.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Earlier ids, the oldest first.
    pub(crate) previous: Vec<Id>,
    pub(crate) prefixes: Vec<Str>,
    pub(crate) suffixes: Vec<Str>,
    pub(crate) needs_hash: bool,
}

/// Memory that the notes of an object may take.
pub(crate) fn cost(object: &Map) -> usize {
    /// Of one entry in each of the lists, and the id that they make.
    const ID: usize = 512;
    let annotations = object.get("metadata").and_then(|meta| meta.as_map()?.get("annotations")?.as_map());
    let texts = annotations.into_iter().flat_map(Map::iter).filter(|(key, _)| key.starts_with(DOMAIN));
    let entries = |text: &str| text.bytes().filter(|byte| *byte == b',').count() + 1;
    texts.filter_map(|(_, text)| text.as_str()).map(|text| entries(text) * ID + text.len()).sum()
}

/// Takes the notes out of an object; `id` is what it is now.
pub(crate) fn take(object: &mut Map, id: &Id, schema: &Schema) -> Option<Notes> {
    let annotations = object.get("metadata")?.as_map()?.get("annotations")?.as_map()?;
    if !annotations.iter().any(|(key, _)| key.starts_with(DOMAIN) || OTHERS.contains(&&**key)) {
        return None;
    }
    let meta = metadata(object);
    let annotations = meta.get_or_insert_map("annotations");
    let mut text = |name: &str| {
        let value = annotations.remove(&format!("{DOMAIN}{name}"));
        value.as_ref().and_then(Value::scalar_text)
    };
    let list = |text: Option<Str>| -> Vec<Str> {
        text.map_or_else(Vec::new, |text| text.split(',').map(Str::from).collect())
    };
    let names = list(text("previousNames"));
    let namespaces = list(text("previousNamespaces"));
    let kinds = list(text("previousKinds"));
    let notes = Notes {
        previous: names
            .into_iter()
            .zip(namespaces)
            .zip(kinds)
            .map(|((name, namespace), kind)| {
                Id::new(Rc::new(id.gvk.with_kind(&kind, schema)), name, &namespace)
            })
            .collect(),
        prefixes: list(text("prefixes")),
        suffixes: list(text("suffixes")),
        needs_hash: text("needsHashSuffix").as_deref() == Some("enabled"),
    };
    for name in SILENT {
        text(name);
    }
    for name in OTHERS {
        annotations.remove(name);
    }
    if annotations.is_empty() {
        meta.remove("annotations");
    }
    Some(notes)
}
