//! Ownership through a write: who loses fields to whom, and what goes with those who no longer want it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::compare::{Comparison, compare};
use crate::error::{Conflict, Conflicts, Error};
use crate::managers::{ManagerId, Managers, Owned};
use crate::merge::merge;
use crate::reconcile::reconcile;
use crate::remove::remove;
use crate::schema::{Schema, TypeRef};
use crate::set::Set;
use crate::typed::field_set;

/// The versions of a kind: managers own fields of the version that they wrote.
pub trait Versions {
    /// The schema of a version; none for one that is no longer served, whose managers are forgotten.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// An object of one version as another shows it; none where that cannot be.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;
}

/// A kind that has only one version.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion<'s> {
    /// Its name.
    pub api_version: &'s str,
    /// Its schema.
    pub schema: &'s Schema,
}

impl Versions for OneVersion<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == self.api_version).then_some(self.schema)
    }

    fn convert(&self, _object: &Value, _from: &str, _to: &str) -> Option<Value> {
        None
    }
}

/// An object in some version.
#[derive(Clone)]
pub(crate) struct Typed<'v> {
    pub(crate) value: Cow<'v, Value>,
    pub(crate) version: Cow<'v, str>,
}

pub(crate) struct Updater<'a, V: Versions + ?Sized> {
    pub(crate) versions: &'a V,
    /// Fields at the root that this way of writing does not touch.
    pub(crate) excluded: &'a [&'a str],
}

impl<V: Versions + ?Sized> Updater<'_, V> {
    pub(crate) fn type_of(&self, version: &str) -> Option<&TypeRef> {
        self.versions.schema(version).map(|schema| &schema.root)
    }

    /// The object in a version; none where that version is not known.
    fn convert<'v>(&self, object: &Typed<'v>, version: &str) -> Result<Option<Typed<'v>>, Error> {
        if object.version == version {
            return Ok(Some(object.clone()));
        }
        if self.versions.schema(version).is_none() {
            return Ok(None);
        }
        match self.versions.convert(&object.value, &object.version, version) {
            Some(value) => {
                Ok(Some(Typed { value: Cow::Owned(value), version: Cow::Owned(version.to_owned()) }))
            }
            None => {
                Err(Error::Conversion { from: object.version.clone().into_owned(), to: version.to_owned() })
            }
        }
    }

    fn field_set(&self, object: &Typed<'_>) -> Set {
        self.type_of(&object.version).map(|type_| field_set(&object.value, type_)).unwrap_or_default()
    }

    fn remove<'v>(&self, object: &Typed<'v>, gone: &Set) -> Typed<'v> {
        match self.type_of(&object.version) {
            Some(type_) if !gone.is_empty() => Typed {
                value: Cow::Owned(remove(&object.value, gone, type_)),
                version: object.version.clone(),
            },
            _ => object.clone(),
        }
    }

    /// Brings sets into the form of today's schemas, and forgets those of versions that are not known.
    fn reconcile(&self, managers: &mut Managers) {
        managers.by_id.retain(|_, owned| match self.type_of(&owned.api_version) {
            None => false,
            Some(type_) => {
                if let Some(set) = reconcile(&owned.set, type_) {
                    owned.set = set;
                }
                true
            }
        });
    }

    /// Takes from all but `who` what the write changed. Gives what it changed, in its own version.
    fn take(
        &self,
        old: &Typed<'_>,
        new: &Typed<'_>,
        managers: &mut Managers,
        who: Option<&ManagerId>,
        force: bool,
    ) -> Result<Comparison, Error> {
        let mut by_version: BTreeMap<String, Comparison> = BTreeMap::new();
        let version = old.version.clone().into_owned();
        by_version.insert(version.clone(), self.compare(old, new));
        let mut conflicts = Vec::new();
        let mut lost: Vec<(ManagerId, Set)> = Vec::new();
        for (id, owned) in &managers.by_id {
            if who == Some(id) {
                continue;
            }
            if !by_version.contains_key(&owned.api_version) {
                let old = self.convert(old, &owned.api_version)?;
                let new = self.convert(new, &owned.api_version)?;
                let (Some(old), Some(new)) = (old, new) else { continue };
                by_version.insert(owned.api_version.clone(), self.compare(&old, &new));
            }
            let Some(compared) = by_version.get(&owned.api_version) else { continue };
            let mut taken =
                owned.set.intersection(&compared.modified).union(&owned.set.intersection(&compared.added));
            if !taken.is_empty() && !force {
                conflicts.extend(taken.paths().into_iter().map(|path| Conflict { id: id.clone(), path }));
            }
            taken.add(&compared.removed);
            if !taken.is_empty() {
                lost.push((id.clone(), taken));
            }
        }
        if !conflicts.is_empty() {
            return Err(Error::Conflicts(Conflicts(conflicts)));
        }
        for (id, taken) in lost {
            if let Some(owned) = managers.by_id.get_mut(&id) {
                owned.set = owned.set.difference(&taken);
            }
        }
        managers.tidy();
        Ok(by_version.remove(&version).unwrap_or_default())
    }

    fn compare(&self, old: &Typed<'_>, new: &Typed<'_>) -> Comparison {
        let mut compared = self
            .type_of(&old.version)
            .map(|type_| compare(&old.value, &new.value, type_))
            .unwrap_or_default();
        compared.without_roots(self.excluded);
        compared
    }

    /// What a write of `new` in the place of `old` makes its writer own; the others lose it.
    pub(crate) fn update(
        &self,
        old: &Typed<'_>,
        new: &Typed<'_>,
        managers: &mut Managers,
    ) -> Result<Set, Error> {
        self.reconcile(managers);
        let compared = self.take(old, new, managers, None, true)?;
        let mut set = compared.modified;
        set.add(&compared.added);
        Ok(set)
    }

    /// The object with a configuration applied; none where that changes nothing of it.
    pub(crate) fn apply(
        &self,
        live: &Typed<'_>,
        config: &Typed<'_>,
        managers: &mut Managers,
        who: &ManagerId,
        force: bool,
    ) -> Result<Option<Value>, Error> {
        self.reconcile(managers);
        let Some(type_) = self.type_of(&live.version) else { return Ok(None) };
        let merged = merge(&live.value, &config.value, type_);
        let mut set = field_set(&config.value, type_);
        set.without_roots(self.excluded);
        let last = managers.by_id.get(who).cloned();
        let time = last.as_ref().and_then(|last| last.time);
        let api_version = config.version.clone().into_owned();
        managers.by_id.insert(who.clone(), Owned { api_version, time, set });
        let merged = Typed { value: Cow::Owned(merged), version: live.version.clone() };
        let new = match &last {
            Some(last) if !last.set.is_empty() => self.prune(merged, managers, &config.version, last)?,
            _ => merged,
        };
        self.take(live, &new, managers, Some(who), force)?;
        Ok((!crate::path::same(&live.value, &new.value)).then(|| new.value.into_owned()))
    }

    /// Removes what the manager applied last time and not this time, and no one else owns.
    fn prune<'v>(
        &self,
        merged: Typed<'v>,
        managers: &Managers,
        version: &str,
        last: &Owned,
    ) -> Result<Typed<'v>, Error> {
        let Some(merged_then) = self.convert(&merged, &last.api_version)? else { return Ok(merged) };
        let Some(type_) = self.type_of(&last.api_version) else { return Ok(merged) };
        let pruned = self.remove(&merged_then, &last.set.with_named_fields(type_));
        let pruned = self.add_back_owned(&merged_then, pruned, &last.api_version, managers)?;
        // Of what is gone now, only what was this manager's goes.
        let Some(pruned_then) = self.convert(&pruned, &last.api_version)? else { return Ok(merged_then) };
        let kept = self.field_set(&pruned_then).with_named_fields(type_);
        let all = self.field_set(&merged_then).with_named_fields(type_);
        let gone = all.difference(&kept).intersection(&last.set.with_named_fields(type_));
        let pruned = self.remove(&merged_then, &gone);
        let from = pruned.version.clone().into_owned();
        self.convert(&pruned, version)?.ok_or_else(|| Error::Conversion { from, to: version.to_owned() })
    }

    /// What was removed and someone owns, in whatever version, comes back.
    fn add_back_owned<'v>(
        &self,
        merged: &Typed<'v>,
        pruned: Typed<'v>,
        first: &str,
        managers: &Managers,
    ) -> Result<Typed<'v>, Error> {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for owned in managers.by_id.values() {
            by_version.entry(&owned.api_version).or_default().add(&owned.set);
        }
        let own = by_version.remove(first).map(|set| (first, set));
        let (mut merged, mut pruned) = (merged.clone(), pruned);
        for (version, managed) in own.into_iter().chain(by_version) {
            let Some(merged_here) = self.convert(&merged, version)? else { continue };
            let Some(pruned_here) = self.convert(&pruned, version)? else { continue };
            let Some(type_) = self.type_of(version) else { continue };
            let keep = self.field_set(&pruned_here).with_named_fields(type_);
            let keep = keep.union(&managed.with_named_fields(type_));
            let gone = self.field_set(&merged_here).with_named_fields(type_).difference(&keep);
            pruned = self.remove(&merged_here, &gone);
            merged = merged_here;
        }
        Ok(pruned)
    }
}
