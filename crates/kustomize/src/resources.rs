//! The objects of a build in order, with indices by id and by name.

use std::collections::HashMap;

use crate::origin;
use crate::resource::{Behavior, Id, Resource};
use crate::value::{Map, Str, Value};

/// An ordered set of objects. Indices are made when they are first asked for, and dropped when an id changes.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    index: Option<Index>,
    /// A patch left an object empty, which is still in the list.
    emptied: bool,
}

#[derive(Debug, Default)]
struct Index {
    /// Present ids: unique.
    current: HashMap<Id, usize>,
    /// Present and earlier ids, each object once per id.
    any: HashMap<Id, Vec<usize>>,
    /// Present and earlier names, each object once per name.
    names: HashMap<Str, Vec<usize>>,
}

impl Index {
    fn of(list: &[Resource]) -> Self {
        let mut index = Self::default();
        for (at, resource) in list.iter().enumerate().filter(|(_, resource)| !resource.value().is_empty()) {
            index.add(at, resource);
        }
        index
    }

    fn add(&mut self, at: usize, resource: &Resource) {
        /// Places are in order, and most come last.
        fn put(slot: &mut Vec<usize>, at: usize) {
            if slot.last().is_none_or(|last| *last < at) {
                slot.push(at);
            } else if let Err(place) = slot.binary_search(&at) {
                slot.insert(place, at);
            }
        }
        self.current.insert(resource.id().clone(), at);
        for id in resource.all_ids() {
            put(self.any.entry(id.clone()).or_default(), at);
            put(self.names.entry(id.name.clone()).or_default(), at);
        }
    }

    fn remove(&mut self, at: usize, resource: &Resource) {
        fn take(slot: Option<&mut Vec<usize>>, at: usize) {
            if let Some(slot) = slot
                && let Ok(place) = slot.binary_search(&at)
            {
                slot.remove(place);
            }
        }
        if self.current.get(resource.id()) == Some(&at) {
            self.current.remove(resource.id());
        }
        for id in resource.all_ids() {
            take(self.any.get_mut(id), at);
            take(self.names.get_mut(&id.name), at);
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
        self.index = None;
        &mut self.list
    }

    /// Changes one object in any way. One that is left empty is found no more, and goes with the next sweep.
    pub(crate) fn change<T>(&mut self, at: usize, change: impl FnOnce(&mut Resource) -> T) -> T {
        let resource = &mut self.list[at];
        if let Some(index) = &mut self.index {
            index.remove(at, resource);
        }
        let out = change(resource);
        if resource.value().is_empty() {
            self.emptied = true;
        } else if let Some(index) = &mut self.index {
            index.add(at, resource);
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

    fn index(&mut self) -> &mut Index {
        self.index.get_or_insert_with(|| Index::of(&self.list))
    }

    /// Objects that have or had an id.
    pub(crate) fn by_any_id(&mut self, id: &Id) -> &[usize] {
        self.index().any.get(id).map_or(&[], Vec::as_slice)
    }

    /// Objects that have or had a name.
    pub(crate) fn by_name(&mut self, name: &str) -> &[usize] {
        self.index().names.get(name).map_or(&[], Vec::as_slice)
    }

    /// Adds an object; its id must be new.
    pub(crate) fn append(&mut self, resource: Resource) -> Result<(), String> {
        let at = self.list.len();
        let index = self.index.get_or_insert_with(|| Index::of(&self.list));
        if let Some(other) = index.current.get(resource.id()) {
            let first = &self.list[*other].source;
            return Err(format!(
                "{} is there twice, from {first} and from {}",
                resource.id(),
                resource.source
            ));
        }
        index.add(at, &resource);
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, others: Self) -> Result<(), String> {
        if self.list.is_empty() {
            *self = others;
            return Ok(());
        }
        others.list.into_iter().try_for_each(|resource| self.append(resource))
    }

    /// Fails if two objects have the same id.
    pub(crate) fn check_unique(&mut self) -> Result<(), String> {
        let count = self.list.len();
        if self.index().current.len() == count {
            return Ok(());
        }
        let mut seen: HashMap<&Id, &Resource> = HashMap::with_capacity(count);
        for resource in &self.list {
            if let Some(other) = seen.insert(resource.id(), resource) {
                return Err(format!(
                    "{} is there twice, from {} and from {}",
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
    resource.set_name(&old.id().name);
    resource.set_namespace(old.namespace());
    resource.inherit(old);
    resource.needs_hash &= old.needs_hash;
}

/// The entries of both; those of the second stay where a key is in both.
fn over(old: Option<&Map>, new: Option<&Map>) -> Map {
    old.into_iter().chain(new).flat_map(Map::iter).cloned().collect()
}

fn take_data(resource: &mut Resource, old: &Resource) {
    for field in ["data", "binaryData"] {
        let Some(Value::Map(old)) = old.value().get(field) else { continue };
        let merged = over(Some(old), resource.value().get(field).and_then(Value::as_map));
        if !merged.is_empty() {
            resource.edit(|value| value.insert(field, Value::Map(merged)));
        }
    }
}
