//! One object of a build: its value, its ids now and before, and what generators and transformers noted about it.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use crate::notes::{self, Notes};
use crate::schema::Schema;
use crate::transform::{Group, Tangles};
use crate::value::{Map, Str, Text, Value};
use crate::yaml::KeyNotes;

/// The namespace that stands for "none" in the ids of objects without one.
const NO_NAMESPACE: &str = "_non_namespaceable_";
const DEFAULT_NAMESPACE: &str = "default";

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gvk {
    pub(crate) group: Str,
    pub(crate) version: Str,
    pub(crate) kind: Str,
    pub(crate) cluster_scoped: bool,
}

impl Gvk {
    pub(crate) fn new(api_version: &str, kind: &Str, schema: &Schema) -> Self {
        let (group, version) = split_version(api_version);
        Self {
            cluster_scoped: schema.is_cluster_scoped(group, version, kind),
            group: group.into(),
            version: version.into(),
            kind: kind.clone(),
        }
    }

    /// A namespace as it counts for comparing objects of this kind.
    pub(crate) fn effective_namespace(&self, namespace: &str) -> Str {
        if self.cluster_scoped {
            NO_NAMESPACE.into()
        } else if namespace.is_empty() {
            DEFAULT_NAMESPACE.into()
        } else {
            namespace.into()
        }
    }

    /// The same group and version with another kind.
    pub(crate) fn with_kind(&self, kind: &Str, schema: &Schema) -> Self {
        let cluster_scoped = schema.is_cluster_scoped(&self.group, &self.version, kind);
        Self { kind: kind.clone(), cluster_scoped, ..self.clone() }
    }

    /// Is it what these texts mean?
    fn is(&self, api_version: &str, kind: &str) -> bool {
        *self.kind == *kind && split_version(api_version) == (&*self.group, &*self.version)
    }

    /// Do the parts that are not empty agree?
    pub(crate) fn is_selected(&self, group: &str, version: &str, kind: &str) -> bool {
        (group.is_empty() || group == &*self.group)
            && (version.is_empty() || version == &*self.version)
            && (kind.is_empty() || kind == &*self.kind)
    }
}

/// Group and version of an `apiVersion`.
fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Memory of an earlier id that is kept, without its texts: its place in a list that grows, in the indices, and in what
/// references are looked for in.
pub(crate) const KEPT_ID: usize = 320;

/// The id of an object: unique in a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Id {
    /// Shared: an object has an id for each change of its name, and they all agree in this.
    pub(crate) gvk: Rc<Gvk>,
    pub(crate) name: Str,
    /// As it counts for comparing: `default` for none, a mark of its own for objects without namespaces.
    pub(crate) effective_namespace: Str,
}

impl Id {
    pub(crate) fn new(gvk: Rc<Gvk>, name: Str, namespace: &str) -> Self {
        let effective_namespace = gvk.effective_namespace(namespace);
        Self { gvk, name, effective_namespace }
    }
}

impl Hash for Id {
    /// Groups and versions hardly ever tell ids apart that agree in the rest.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.gvk.kind.hash(state);
        self.effective_namespace.hash(state);
    }
}

impl fmt::Display for Id {
    /// `Deployment.apps/web in namespace prod`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gvk.kind)?;
        if !self.gvk.group.is_empty() {
            write!(f, ".{}", self.gvk.group)?;
        }
        write!(f, "/{}", self.name)?;
        if !self.gvk.cluster_scoped {
            write!(f, " in namespace {}", self.effective_namespace)?;
        }
        Ok(())
    }
}

/// What a generated object does to one that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Behavior {
    #[default]
    Create,
    Replace,
    Merge,
}

/// Where an object came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// The file, from the root of the tree.
    pub(crate) file: Str,
    /// Its line, from 1; 0 for generated objects.
    pub(crate) line: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { write!(f, "{}", self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

/// An object on its way through a build.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    value: Map,
    id: Id,
    /// The namespace as it stands in the object.
    namespace: Str,
    /// Ids that it had before, the oldest first.
    previous: Vec<Id>,
    /// How often an id was stored, also where the last one was the same.
    stored: usize,
    pub(crate) prefixes: Vec<Str>,
    pub(crate) suffixes: Vec<Str>,
    pub(crate) behavior: Behavior,
    pub(crate) needs_hash: bool,
    /// Names of the vars that take their value from this object.
    pub(crate) vars: Vec<Str>,
    /// Labels and annotations that stand in several places and change together.
    pub(crate) shared: Vec<Rc<Group>>,
    pub(crate) source: Source,
    /// Of keys of the documents that it and its patches come from, until a JSON patch writes the object once more.
    pub(crate) notes: Vec<Rc<KeyNotes>>,
    /// A strategic merge patch came to it: what comments said of its values is forgotten.
    pub(crate) merged: bool,
    /// A build may have set a text without a tag somewhere in it.
    pub(crate) untagged: bool,
    /// Places that hold one and the same since a patch.
    pub(crate) tangles: Tangles,
    /// Tells which kinds have no namespace.
    schema: Rc<Schema>,
}

impl Resource {
    /// An object of a kind of Kubernetes' own.
    pub(crate) fn new(value: Map, source: Source) -> Self {
        Self::in_schema(value, source, Rc::default())
    }

    /// An object of any kind.
    pub(crate) fn in_schema(mut value: Map, source: Source, schema: Rc<Schema>) -> Self {
        let (id, namespace) = read_id(&value, &schema, None);
        let Notes { previous, prefixes, suffixes, needs_hash } =
            notes::take(&mut value, &id, &schema).unwrap_or_default();
        Self {
            schema,
            value,
            id,
            namespace,
            previous,
            stored: 0,
            prefixes,
            suffixes,
            behavior: Behavior::Create,
            needs_hash,
            vars: Vec::new(),
            shared: Vec::new(),
            source,
            notes: Vec::new(),
            merged: false,
            untagged: false,
            tangles: Tangles::default(),
        }
    }

    pub(crate) fn value(&self) -> &Map {
        &self.value
    }

    pub(crate) fn into_value(self) -> Map {
        self.value
    }

    /// The id that it has now.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// The namespace as written, empty for none.
    pub(crate) fn namespace(&self) -> &Str {
        &self.namespace
    }

    /// The id that it had first.
    pub(crate) fn original_id(&self) -> &Id {
        self.previous.first().unwrap_or(&self.id)
    }

    /// Earlier ids, the oldest first, without the present one.
    pub(crate) fn previous_ids(&self) -> &[Id] {
        &self.previous
    }

    /// How often an id was stored: kustomize notes each time in the object.
    pub(crate) fn times_stored(&self) -> usize {
        self.stored
    }

    /// All ids, the present one last.
    pub(crate) fn all_ids(&self) -> impl Iterator<Item = &Id> {
        self.previous.iter().chain(std::iter::once(&self.id))
    }

    /// Keeps the present id among the earlier ones; fails for one that has lost its name, as kustomize does.
    pub(crate) fn store_id(&mut self) -> Result<(), String> {
        let original = self.original_id();
        // An object without a name can be kept once, and a List as often as one likes.
        let kept_without =
            self.previous.iter().any(|id| id.name.is_empty() && !id.gvk.kind.ends_with("List"));
        if kept_without || (self.id.name.is_empty() && !original.name.is_empty()) {
            return Err(format!("{original}: a patch or a replacement removed its name, or set it to null"));
        }
        self.stored += 1;
        // Many patches of one object would keep the same id again and again.
        if self.previous.last() != Some(&self.id) {
            self.previous.push(self.id.clone());
        }
        Ok(())
    }

    /// Changes fields that are not part of the id.
    pub(crate) fn edit<T>(&mut self, change: impl FnOnce(&mut Map) -> T) -> T {
        change(&mut self.value)
    }

    /// Replaces the whole value, and reads the id again. Tells whether the id changed.
    pub(crate) fn set_value(&mut self, value: Map) -> bool {
        self.value = value;
        self.refresh()
    }

    /// Reads the id again. Tells whether it changed.
    pub(crate) fn refresh(&mut self) -> bool {
        let (id, namespace) = read_id(&self.value, &self.schema, Some((&self.id, &self.namespace)));
        let changed = id != self.id;
        if id.gvk.group != self.id.gvk.group || id.gvk.version != self.id.gvk.version {
            // Earlier ids keep their kind and take the version of today: what kustomize's notes amount to.
            for previous in &mut self.previous {
                previous.gvk = Rc::new(id.gvk.with_kind(&previous.gvk.kind, &self.schema));
            }
        }
        (self.id, self.namespace) = (id, namespace);
        changed
    }

    pub(crate) fn set_name(&mut self, name: impl Into<Text>) {
        metadata(&mut self.value).insert("name", Value::string(name));
        self.refresh();
    }

    pub(crate) fn set_namespace(&mut self, namespace: impl Into<Text>) {
        let namespace = namespace.into();
        if namespace.is_empty() {
            if let Some(Value::Map(meta)) = self.value.get_mut("metadata") {
                meta.remove("namespace");
            }
        } else {
            metadata(&mut self.value).insert("namespace", Value::string(namespace));
        }
        self.refresh();
    }

    /// Labels or annotations.
    pub(crate) fn texts(&self, field: &str) -> Option<&Map> {
        self.value.get("metadata")?.as_map()?.get(field)?.as_map()
    }

    /// Fails if there is a key that is not a text: a patch may have some, an object not. And where places that hold the same
    /// do so no longer.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.tangles.check(&self.value)?;
        self.check_keys()
    }

    fn check_keys(&self) -> Result<(), String> {
        fn check(map: &Map, odd: &HashMap<*const str, bool>) -> Result<(), String> {
            if map.is_odd() {
                return Err("a mapping key must be a string".into());
            }
            map.iter().try_for_each(|(key, value)| {
                match odd.get(&Str::as_ptr(key)) {
                    Some(true) => Err(format!("duplicate key {key:?} in a mapping of the patch")),
                    Some(false) => Err(format!(
                        "a mapping key must be a string, {key:?} of a patch is not one; quote it"
                    )),
                    None => Ok(()),
                }?;
                check_value(value, odd)
            })
        }
        fn check_value(value: &Value, odd: &HashMap<*const str, bool>) -> Result<(), String> {
            match value {
                Value::Map(map) => check(map, odd),
                Value::List(items) => items.iter().try_for_each(|item| check_value(item, odd)),
                Value::Null(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
            }
        }
        // Is the key there several times? If not, it is not a text.
        let mut odd: HashMap<*const str, bool> = HashMap::new();
        for notes in &self.notes {
            odd.extend(notes.odd_keys.iter().map(|key| (Str::as_ptr(key), false)));
            odd.extend(notes.again.iter().map(|again| (Str::as_ptr(&again.key), true)));
        }
        if odd.is_empty() { Ok(()) } else { check(&self.value, &odd) }
    }

    /// Takes over ids and notes of an object that this one stands in for.
    pub(crate) fn inherit(&mut self, other: &Self) {
        self.previous.clone_from(&other.previous);
        self.prefixes.clone_from(&other.prefixes);
        self.suffixes.clone_from(&other.suffixes);
        self.vars.clone_from(&other.vars);
        self.notes.clone_from(&other.notes);
        self.merged = other.merged;
        self.untagged |= other.untagged;
        self.tangles.clone_from(&other.tangles);
    }
}

/// `metadata`, made where it is missing.
pub(crate) fn metadata(value: &mut Map) -> &mut Map {
    value.get_or_insert_map("metadata")
}

/// The id and the namespace as they stand in an object. What did not change since the last reading is shared with it.
fn read_id(value: &Map, schema: &Schema, last: Option<(&Id, &Str)>) -> (Id, Str) {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null(_)) => None,
        Some(value) => value.scalar_text(),
    };
    let or_empty = |text: Option<Str>| text.unwrap_or_else(|| "".into());
    let meta = value.get("metadata").and_then(Value::as_map);
    let namespace = text(meta.and_then(|meta| meta.get("namespace")));
    let name = or_empty(text(meta.and_then(|meta| meta.get("name"))));
    let (api_version, kind) = (text(value.get("apiVersion")), text(value.get("kind")));
    if let Some((id, last_namespace)) = last
        && id.gvk.is(api_version.as_deref().unwrap_or_default(), kind.as_deref().unwrap_or_default())
    {
        let gvk = id.gvk.clone();
        return if **last_namespace == *namespace.as_deref().unwrap_or_default() {
            let effective_namespace = id.effective_namespace.clone();
            (Id { gvk, name, effective_namespace }, last_namespace.clone())
        } else {
            let namespace = or_empty(namespace);
            (Id::new(gvk, name, &namespace), namespace)
        };
    }
    let gvk = Rc::new(Gvk::new(&or_empty(api_version), &or_empty(kind), schema));
    let namespace = or_empty(namespace);
    (Id::new(gvk, name, &namespace), namespace)
}
