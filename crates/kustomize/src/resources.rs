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
        for (at, resource) in list.iter().enumerate() {
            index.add(at, resource);
        }
        index
    }

    fn add(&mut self, at: usize, resource: &Resource) {
        self.current.insert(resource.id().clone(), at);
        for id in resource.all_ids() {
            let slot = self.any.entry(id.clone()).or_default();
            if slot.last() != Some(&at) {
                slot.push(at);
            }
            let slot = self.names.entry(id.name.clone()).or_default();
            if slot.last() != Some(&at) {
                slot.push(at);
            }
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

    /// Tells that ids changed.
    pub(crate) fn ids_changed(&mut self) {
        self.index = None;
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
                self.list[at] = resource;
                self.index = None;
                Ok(())
            }
            _ => Err(format!("several objects had the id {}", resource.id())),
        }
    }
}

/// Metadata of a generated object over that of the one it replaces. It gets a hash if both would.
fn take_metadata(resource: &mut Resource, old: &Resource) {
    for field in ["labels", "annotations"] {
        let mut merged = old.texts(field).cloned().unwrap_or_default();
        for (key, value) in resource.texts(field).into_iter().flat_map(Map::iter) {
            merged.insert(key.clone(), value.clone());
        }
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

fn take_data(resource: &mut Resource, old: &Resource) {
    for field in ["data", "binaryData"] {
        let Some(Value::Map(old)) = old.value().get(field) else { continue };
        let mut merged = old.clone();
        if let Some(Value::Map(new)) = resource.value().get(field) {
            for (key, value) in new.iter() {
                merged.insert(key.clone(), value.clone());
            }
        }
        if !merged.is_empty() {
            resource.edit(|value| value.insert(field, Value::Map(merged)));
        }
    }
}
