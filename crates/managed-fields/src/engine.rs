//! The two ways of writing: apply, and all others.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::{Conflicts, Error};
use crate::last_applied::{KUBECTL, refresh, still_applied};
use crate::managers::{ManagerId, Managers, Operation, Owned};
use crate::path::PathElement;
use crate::set::Set;
use crate::typed::{Duplicates, check};
use crate::updater::{Typed, Updater, Versions};
use crate::{MAX_DEPTH, MAX_MANAGERS};

/// Entries of updates that are kept apart.
const MAX_UPDATERS: usize = 10;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The manager's name; `unknown` stands for none.
    pub manager: &'a str,
    /// The version that is written.
    pub api_version: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// Fields at the root that this way of writing leaves as they are, and that its writer so never owns.
    pub excluded: &'a [&'a str],
    /// Whether an apply takes fields from others.
    pub force: bool,
    /// The time of the write.
    pub time: Timestamp,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            manager: "",
            api_version: "",
            subresource: "",
            excluded: &[],
            force: false,
            time: Timestamp::UNIX_EPOCH,
        }
    }
}

impl Options<'_> {
    fn id(&self, manager: &str, operation: Operation) -> ManagerId {
        ManagerId {
            operation,
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            api_version: if operation == Operation::Update { self.api_version } else { "" }.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// Keeps `after.metadata.managedFields` up to date for a write that is not an apply: what `options.manager` made of `before`.
/// Both are in the version of the options; `before` is an object without fields for one that is new.
///
/// A client may set the managers itself, by what stands in `after` (an empty list, or one empty entry, takes all away). An
/// object that has none is followed only from the first apply on.
///
/// # Errors
/// An object that does not fit the schema, or cannot be converted. `after` has no managers then.
pub fn update<V: Versions + ?Sized>(
    before: &Value,
    after: &mut Value,
    options: &Options<'_>,
    versions: &V,
) -> Result<(), Error> {
    check_depth(before)?;
    check_depth(after)?;
    let requested = take_managed_fields(after);
    let mut managers = live_or_requested(before, requested.as_ref(), options);
    let is_new = before.pointer("/metadata/uid").and_then(Value::as_str).is_none_or(str::is_empty);
    if !managers.is_empty() || is_new {
        note_update(before, after, &mut managers, options.manager, options, versions)?;
    }
    set_managed_fields(after, &managers);
    Ok(())
}

/// Merges a configuration into an object, as server-side apply. Both are in the version of the options; `live` is an
/// object without fields for one that is new. Gives the object with its new managers.
///
/// # Errors
/// [`Error::Conflicts`] where others own what would change and `options.force` is not set; a configuration that is none,
/// objects that do not fit their schema.
pub fn apply<V: Versions + ?Sized>(
    live: &Value,
    config: &Value,
    options: &Options<'_>,
    versions: &V,
) -> Result<Value, Error> {
    check_depth(live)?;
    check_depth(config)?;
    let version = config.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != options.api_version {
        return Err(Error::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            options.api_version
        )));
    }
    if config.pointer("/metadata/managedFields").is_some_and(Value::is_array) {
        return Err(Error::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let entries = live.pointer("/metadata/managedFields");
    let mut managers = Managers::decode(entries).map_err(Error::ManagedFields)?;
    let mut bare = live.clone();
    take_managed_fields(&mut bare);
    if managers.is_empty() {
        let nothing = Value::Object(Map::new());
        note_update(&nothing, &bare, &mut managers, "before-first-apply", options, versions)?;
    }
    let (mut object, managers) = match applied(&bare, config, &managers, options, options.force, versions) {
        Err(Error::Conflicts(conflicts)) if options.manager == KUBECTL => {
            take_over(&bare, &conflicts, options, versions)?;
            applied(&bare, config, &managers, options, true, versions)?
        }
        other => other?,
    };
    if managers.by_id.len() > MAX_MANAGERS {
        return Err(Error::ManagedFields(format!("more than {MAX_MANAGERS} managers")));
    }
    if options.manager == KUBECTL {
        refresh(&mut object, config);
    }
    set_managed_fields(&mut object, &managers);
    Ok(object)
}

fn applied<V: Versions + ?Sized>(
    live: &Value,
    config: &Value,
    managers: &Managers,
    options: &Options<'_>,
    force: bool,
    versions: &V,
) -> Result<(Value, Managers), Error> {
    let updater = Updater { versions, excluded: options.excluded };
    let mut managers = managers.clone();
    let who = options.id(options.manager, Operation::Apply);
    let config = typed("the configuration", config, Duplicates::Refused, options, &updater)?;
    let live = typed("the present object", live, Duplicates::Allowed, options, &updater)?;
    let object = updater.apply(&live, &config, &mut managers, &who, force)?;
    strip(&mut managers, &who);
    if object.is_some()
        && let Some(owned) = managers.by_id.get_mut(&who)
    {
        owned.time = Some(options.time);
    }
    Ok((object.unwrap_or_else(|| live.value.into_owned()), managers))
}

/// Whether all that stands against kubectl's apply is what its client-side apply set; the rest is the error.
fn take_over<V: Versions + ?Sized>(
    live: &Value,
    conflicts: &Conflicts,
    options: &Options<'_>,
    versions: &V,
) -> Result<(), Error> {
    let schema = versions.schema(options.api_version);
    let Some(allowed) = schema.and_then(|schema| still_applied(live, options.api_version, &schema.root))
    else {
        return Err(Error::Conflicts(conflicts.clone()));
    };
    let left: Vec<_> =
        conflicts.0.iter().filter(|conflict| !allowed.has(&conflict.path.0)).cloned().collect();
    if left.is_empty() { Ok(()) } else { Err(Error::Conflicts(Conflicts(left))) }
}

fn note_update<V: Versions + ?Sized>(
    before: &Value,
    after: &Value,
    managers: &mut Managers,
    manager: &str,
    options: &Options<'_>,
    versions: &V,
) -> Result<(), Error> {
    let updater = Updater { versions, excluded: options.excluded };
    let after = typed("the new object", after, Duplicates::Allowed, options, &updater)?;
    let mut bare = Cow::Borrowed(before);
    if before.pointer("/metadata/managedFields").is_some() {
        take_managed_fields(bare.to_mut());
    }
    let before = typed("the present object", &bare, Duplicates::Allowed, options, &updater)?;
    let set = updater.update(&before, &after, managers)?.difference(&stripped());
    if !set.is_empty() {
        let who = options.id(manager, Operation::Update);
        let api_version = options.api_version.to_owned();
        let owned =
            managers.by_id.entry(who).or_insert(Owned { api_version, time: None, set: Set::default() });
        owned.set.add(&set);
        owned.time = Some(options.time);
    }
    managers.cap(MAX_UPDATERS);
    Ok(())
}

fn typed<'v, V: Versions + ?Sized>(
    what: &'static str,
    value: &'v Value,
    duplicates: Duplicates,
    options: &Options<'v>,
    updater: &Updater<'_, V>,
) -> Result<Typed<'v>, Error> {
    let version = options.api_version;
    let type_ = updater.type_of(version).ok_or_else(|| Error::Conversion {
        from: version.to_owned(),
        to: "a version that is served".to_owned(),
    })?;
    check(what, value, type_, duplicates)?;
    Ok(Typed { value: Cow::Borrowed(value), version: Cow::Borrowed(version) })
}

/// The managers that a client sends with the object, or else those that it has.
fn live_or_requested(before: &Value, requested: Option<&Value>, options: &Options<'_>) -> Managers {
    let live = || Managers::decode(before.pointer("/metadata/managedFields")).unwrap_or_default();
    if !options.subresource.is_empty() {
        return live();
    }
    let is_reset = match requested.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    };
    if is_reset {
        return Managers::default();
    }
    match Managers::decode(requested) {
        Ok(managers) if !managers.is_empty() => managers,
        _ => live(),
    }
}

/// Fields that only the server sets, and no one owns.
fn stripped() -> Set {
    let field = |name: &str| PathElement::Field(name.to_owned());
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[field(name)]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[field("metadata"), field(name)]);
    }
    set
}

fn strip(managers: &mut Managers, who: &ManagerId) {
    if let Some(owned) = managers.by_id.get_mut(who) {
        owned.set = owned.set.difference(&stripped());
    }
    managers.tidy();
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn set_managed_fields(object: &mut Value, managers: &Managers) {
    let Some(entries) = managers.encode() else { return };
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

fn check_depth(value: &Value) -> Result<(), Error> {
    fn fits(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| fits(item, left - 1)),
            Value::Object(map) => left > 0 && map.values().all(|value| fits(value, left - 1)),
            _ => true,
        }
    }
    if fits(value, MAX_DEPTH) {
        return Ok(());
    }
    Err(Error::BadRequest(format!("the object nests deeper than {MAX_DEPTH}")))
}
