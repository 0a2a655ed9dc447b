//! The objects of a build in order, with indices by id and by name.

use std::collections::HashMap;
use std::hash::Hash;

use crate::origin;
use crate::resource::{Behavior, Id, Resource};
use crate::value::{Map, Str, Text, TextStyle, Value};

/// An ordered set of objects. Each index is made when it is first asked for, and all are dropped when ids change.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    index: Index,
    /// A patch left an object empty, which is still in the list.
    emptied: bool,
}

#[derive(Debug, Default)]
struct Index {
    /// Present ids: unique.
    current: Option<HashMap<Id, usize>>,
    /// Present and earlier ids, each object once per id.
    any: Option<HashMap<Id, Places>>,
    /// Present and earlier names, each object once per name.
    names: Option<HashMap<Str, Places>>,
}

/// Places in the list, in order: mostly one.
#[derive(Debug)]
enum Places {
    One(usize),
    Many(Vec<usize>),
}

impl Places {
    fn as_slice(&self) -> &[usize] {
        match self {
            Self::One(at) => std::slice::from_ref(at),
            Self::Many(list) => list,
        }
    }

    fn put(&mut self, at: usize) {
        match self {
            Self::One(only) if *only == at => {}
            Self::One(only) => *self = Self::Many(vec![at.min(*only), at.max(*only)]),
            // Most come last.
            Self::Many(list) if list.last().is_none_or(|last| *last < at) => list.push(at),
            Self::Many(list) => {
                if let Err(place) = list.binary_search(&at) {
                    list.insert(place, at);
                }
            }
        }
    }

    fn take(&mut self, at: usize) {
        match self {
            Self::One(only) if *only == at => *self = Self::Many(Vec::new()),
            Self::One(_) => {}
            Self::Many(list) => {
                if let Ok(place) = list.binary_search(&at) {
                    list.remove(place);
                }
            }
        }
    }
}

/// Adds a place under a key.
fn put<K: Clone + Eq + Hash>(index: &mut HashMap<K, Places>, key: &K, at: usize) {
    match index.get_mut(key) {
        Some(places) => places.put(at),
        None => {
            index.insert(key.clone(), Places::One(at));
        }
    }
}

/// Objects that are there, with their places.
fn present(list: &[Resource]) -> impl Iterator<Item = (usize, &Resource)> {
    list.iter().enumerate().filter(|(_, resource)| !resource.value().is_empty())
}

impl Index {
    fn current(&mut self, list: &[Resource]) -> &mut HashMap<Id, usize> {
        self.current.get_or_insert_with(|| {
            let mut index = HashMap::with_capacity(list.len());
            index.extend(present(list).map(|(at, resource)| (resource.id().clone(), at)));
            index
        })
    }

    fn any(&mut self, list: &[Resource]) -> &HashMap<Id, Places> {
        self.any.get_or_insert_with(|| {
            let mut index = HashMap::with_capacity(list.len());
            for (at, resource) in present(list) {
                resource.all_ids().for_each(|id| put(&mut index, id, at));
            }
            index
        })
    }

    fn names(&mut self, list: &[Resource]) -> &HashMap<Str, Places> {
        self.names.get_or_insert_with(|| {
            let mut index = HashMap::with_capacity(list.len());
            for (at, resource) in present(list) {
                resource.all_ids().for_each(|id| put(&mut index, &id.name, at));
            }
            index
        })
    }

    /// Is there none?
    fn is_empty(&self) -> bool {
        self.current.is_none() && self.any.is_none() && self.names.is_none()
    }

    fn add(&mut self, at: usize, resource: &Resource) {
        if let Some(current) = &mut self.current {
            current.insert(resource.id().clone(), at);
        }
        for id in resource.all_ids() {
            self.any.iter_mut().for_each(|any| put(any, id, at));
            self.names.iter_mut().for_each(|names| put(names, &id.name, at));
        }
    }

    /// Removes an object by the ids that it had: the present one last.
    fn remove(&mut self, at: usize, ids: &[Id]) {
        if let (Some(current), Some(id)) = (&mut self.current, ids.last())
            && current.get(id) == Some(&at)
        {
            current.remove(id);
        }
        for id in ids {
            self.any.iter_mut().filter_map(|any| any.get_mut(id)).for_each(|places| places.take(at));
            self.names
                .iter_mut()
                .filter_map(|names| names.get_mut(&id.name))
                .for_each(|places| places.take(at));
        }
    }
}

impl Resources {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Resource> {
        self.list.iter()
    }

    pub(crate) fn get(&self, at: usize) -> &Resource {
        &self.list[at]
    }

    /// An object, for changes that leave its ids as they are.
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Resource {
        &mut self.list[at]
    }

    /// All objects, for changes that leave their ids as they are.
    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Resource> {
        self.list.iter_mut()
    }

    /// All objects, for changes of any kind.
    pub(crate) fn list_mut(&mut self) -> &mut Vec<Resource> {
        self.index = Index::default();
        &mut self.list
    }

    /// Changes one object in any way. One that is left empty is found no more, and goes with the next sweep.
    pub(crate) fn change<T>(&mut self, at: usize, change: impl FnOnce(&mut Resource) -> T) -> T {
        let resource = &mut self.list[at];
        let indexed = !self.index.is_empty();
        let before: Vec<Id> = resource.all_ids().filter(|_| indexed).cloned().collect();
        let out = change(resource);
        let emptied = resource.value().is_empty();
        self.emptied |= emptied;
        if indexed && (emptied || !resource.all_ids().eq(&before)) {
            self.index.remove(at, &before);
            if !emptied {
                self.index.add(at, resource);
            }
        }
        out
    }

    /// Drops objects that were left empty.
    pub(crate) fn sweep(&mut self) {
        if std::mem::take(&mut self.emptied) {
            self.list_mut().retain(|resource| !resource.value().is_empty());
        }
    }

    pub(crate) fn into_list(self) -> Vec<Resource> {
        self.list
    }

    /// Objects that have or had an id.
    pub(crate) fn by_any_id(&mut self, id: &Id) -> &[usize] {
        self.index.any(&self.list).get(id).map_or(&[], Places::as_slice)
    }

    /// Objects that have or had a name.
    pub(crate) fn by_name(&mut self, name: &str) -> &[usize] {
        self.index.names(&self.list).get(name).map_or(&[], Places::as_slice)
    }

    /// Adds an object; its id must be new.
    pub(crate) fn append(&mut self, resource: Resource) -> Result<(), String> {
        let at = self.list.len();
        if let Some(other) = self.index.current(&self.list).get(resource.id()) {
            let first = &self.list[*other].source;
            return Err(format!("{} is defined twice, in {first} and in {}", resource.id(), resource.source));
        }
        self.index.add(at, &resource);
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, mut others: Self) -> Result<(), String> {
        if self.list.is_empty() {
            // A change of theirs may have given two the same id.
            others.check_unique()?;
            *self = others;
            return Ok(());
        }
        others.list.into_iter().try_for_each(|resource| self.append(resource))
    }

    /// Fails if two objects have the same id.
    pub(crate) fn check_unique(&mut self) -> Result<(), String> {
        let count = self.list.len();
        if self.index.current(&self.list).len() == count {
            return Ok(());
        }
        let mut seen: HashMap<&Id, &Resource> = HashMap::with_capacity(count);
        for (_, resource) in present(&self.list) {
            if let Some(other) = seen.insert(resource.id(), resource) {
                return Err(format!(
                    "{} is defined twice, in {} and in {}",
                    resource.id(),
                    other.source,
                    resource.source
                ));
            }
        }
        Ok(())
    }

    /// Adds a generated object, or replaces or merges into the one that it names.
    pub(crate) fn absorb(&mut self, mut resource: Resource) -> Result<(), String> {
        match *self.by_any_id(&resource.id().clone()) {
            [] if resource.behavior == Behavior::Create => self.append(resource),
            [] => Err(format!(
                "{} does not exist, so there is nothing to merge into or to replace",
                resource.id()
            )),
            [_] if resource.behavior == Behavior::Create => {
                Err(format!("{} exists; behavior must be merge or replace", resource.id()))
            }
            [at] => {
                let old = &self.list[at];
                take_metadata(&mut resource, old);
                if resource.behavior == Behavior::Merge {
                    take_data(&mut resource, old);
                    // What is merged into stays where it comes from.
                    if let Some(origin) = origin::origin(old).cloned() {
                        origin::check(&origin).map_err(|message| format!("{}: {message}", old.id()))?;
                        resource.edit(|value| {
                            let meta = crate::resource::metadata(value);
                            meta.get_or_insert_map("annotations").insert(origin::ORIGIN, origin);
                        });
                    }
                }
                self.change(at, |slot| *slot = resource);
                Ok(())
            }
            _ => Err(format!("several objects had the id {}", resource.id())),
        }
    }
}

/// Metadata of a generated object over that of the one it replaces. It gets a hash if both would.
fn take_metadata(resource: &mut Resource, old: &Resource) {
    for field in ["labels", "annotations"] {
        let merged = over(old.texts(field), resource.texts(field));
        resource.edit(|value| {
            let meta = crate::resource::metadata(value);
            if merged.is_empty() { meta.remove(field) } else { meta.insert(field, Value::Map(merged)) }
        });
    }
    let name = in_place_of(resource, "name", &old.id().name);
    resource.set_name(name);
    let namespace = in_place_of(resource, "namespace", old.namespace());
    resource.set_namespace(namespace);
    resource.inherit(old);
    resource.untagged = true;
    resource.needs_hash &= old.needs_hash;
}

/// The name or namespace of the object that is there, in the place of the generated one's: with the quotes that this has, and
/// without a tag.
fn in_place_of(resource: &Resource, field: &str, text: &str) -> Text {
    let own = resource.value().get("metadata").and_then(|meta| meta.as_map()?.get(field));
    let quoted = matches!(own, Some(Value::String(own)) if own.kept_style() == TextStyle::Quoted);
    Text::new(text, if quoted { TextStyle::Quoted } else { TextStyle::Untagged })
}

/// The entries of both as texts; those of the second stay where a key is in both. Nothing is folded any more.
fn over(old: Option<&Map>, new: Option<&Map>) -> Map {
    let text = |(key, value): &(Str, Value)| {
        (key.clone(), Value::string(value.scalar_text().unwrap_or_else(|| "".into())))
    };
    old.into_iter().chain(new).flat_map(Map::iter).map(text).collect()
}

fn take_data(resource: &mut Resource, old: &Resource) {
    for field in ["data", "binaryData"] {
        let Some(Value::Map(data)) = old.value().get(field) else { continue };
        let merged = over(Some(data), resource.value().get(field).and_then(Value::as_map));
        let as_data = |(key, value): (Str, Value)| {
            let text = value.scalar_text().unwrap_or_else(|| "".into());
            (key, Value::String(Text::data(text)))
        };
        let merged: Map = merged.into_entries().into_iter().map(as_data).collect();
        if !merged.is_empty() {
            resource.edit(|value| value.insert(field, Value::Map(merged)));
        }
    }
}
