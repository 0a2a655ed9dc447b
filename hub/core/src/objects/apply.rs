//! Server-side apply: what a manager wants of an object, merged with what others want.

use roadstead_hub_store::Stored;
use roadstead_model::{Action, ApplierUid};
use serde_json::{Map, Value};

use crate::HubError;
use crate::address::{Address, named};
use crate::identity::Identity;
use crate::objects::exact;
use crate::objects::forms::{self, Part};
use crate::objects::managers::{self, Writer};
use crate::objects::resources::save;
use crate::objects::{Objects, WriteOptions, Written};

/// What is to be applied.
pub(crate) struct Wanted {
    /// What the manager wants of the object.
    pub(crate) config: Value,
    /// Whether it takes from others what they manage.
    pub(crate) force: bool,
    /// The Kustomization whose it then is.
    pub(crate) maker: Option<ApplierUid>,
    /// Whether nothing of what others want of it stays ([`exact`]).
    pub(crate) exact: bool,
}

impl Objects {
    /// Applies a configuration to an object, or to its status; makes the object where there is none.
    ///
    /// # Errors
    /// [`HubError::ApplyConflict`] where others manage what would change, unless `force` takes it from them; as
    /// [`Self::update`] and [`Self::create`].
    pub async fn apply(
        &self,
        who: &Identity,
        address: &Address,
        config: Value,
        force: bool,
        options: WriteOptions,
    ) -> Result<Written, HubError> {
        let wanted = Wanted { config, force, maker: None, exact: false };
        self.apply_guarded(who, address, wanted, options, |_, _| Ok(())).await
    }

    /// The same, unless `guard` refuses to make what there is (none where there is nothing yet) into what there would be.
    pub(crate) async fn apply_guarded(
        &self,
        who: &Identity,
        address: &Address,
        wanted: Wanted,
        options: WriteOptions,
        guard: impl FnOnce(Option<&Stored>, &Stored) -> Result<(), HubError> + Send,
    ) -> Result<Written, HubError> {
        let Wanted { mut config, force, maker, exact } = wanted;
        let kind = address.kind.get();
        let subresource = if options.part == Part::Status { "status" } else { "" };
        who.authorize("patch", kind, subresource, &address.namespace, &address.name)?;
        who.prepare_grant(address.kind).await?;
        let mut warnings = Vec::new();
        complete(address, &mut config)?;
        if options.part == Part::Main
            && kind.status
            && let Some(fields) = config.as_object_mut()
        {
            fields.remove("status");
        }
        let validation = options.field_validation;
        forms::prune_unknown(kind, address.version, &mut config, validation, &mut warnings)?;
        let writer = Writer {
            manager: &options.manager,
            version: address.version,
            part: options.part,
            now: self.clock.now(),
        };
        let mut tx = self.store.begin().await?;
        let Some(before) = tx.get(address.kind, &address.namespace, &address.name).await? else {
            let stored = new_object(who, address, &config, &options, writer, &mut warnings)?;
            guard(None, &stored)?;
            who.check_grant(&address.name, None, &stored)?;
            if let Some(maker) = maker
                && !tx.note_made(maker, &stored).await?
            {
                let why =
                    "its Kustomization has released it in the meantime; it will be tried again".to_owned();
                return Err(HubError::Conflict { what: named(kind, &address.name), why });
            }
            let object = self.insert(tx, who, address, stored, options.dry_run).await?;
            return Ok(Written { object, warnings, action: Action::Created });
        };
        // What the configuration is laid over.
        let bare = exact.then(|| exact::bare(&before, writer.manager));
        let under = bare.as_ref().unwrap_or(&before);
        let (mut object, entries) = managers::merge(Some(under), kind, &config, force, writer)?;
        if options.part == Part::Main {
            self.complete(&mut tx, who, address, Some(under), &mut object).await?;
        }
        let mut after =
            forms::replace(under, address.version, options.part, object, validation, &mut warnings)?;
        after.generation = before.generation + i64::from(forms::is_new_generation(&before, &after));
        managers::put_entries(&mut after.object, entries);
        managers::settle(&before, &mut after);
        guard(Some(&before), &after)?;
        who.check_grant(&address.name, Some(&before), &after)?;
        who.check_use(Some(&before), &after)?;
        let is_taken = match maker {
            Some(maker) => tx.note_taken(maker, &before).await?,
            None => false,
        };
        if is_taken && !options.dry_run && managers::unchanged(&before, &after) {
            tx.commit().await?;
            return Ok(Written {
                object: forms::show(&after, address.version),
                warnings,
                action: Action::Unchanged,
            });
        }
        let (after, action) = save(&self.audit, tx, (who, "patch"), &before, after, options.dry_run).await?;
        if options.dry_run || action == Action::Unchanged {
            self.audit.note_read(who, "get", address).await?;
        }
        Ok(Written { object: forms::show(&after, address.version), warnings, action })
    }
}

/// What a configuration is where there is no object yet.
fn new_object(
    who: &Identity,
    address: &Address,
    config: &Value,
    options: &WriteOptions,
    writer: Writer<'_>,
    warnings: &mut Vec<String>,
) -> Result<Stored, HubError> {
    let kind = address.kind.get();
    if options.part == Part::Status {
        return Err(address.not_found());
    }
    who.authorize("create", kind, "", &address.namespace, &address.name)?;
    if let Some(uid) = config["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(HubError::Conflict { what: named(kind, &address.name), why });
    }
    let (object, entries) = managers::merge(None, kind, config, false, writer)?;
    let validation = options.field_validation;
    let mut stored =
        forms::create(kind, address.version, &address.namespace, object, validation, writer.now, warnings)?;
    managers::put_entries(&mut stored.object, entries);
    Ok(stored)
}

/// The name that the URL says, and the kind, where the configuration does not.
fn complete(address: &Address, config: &mut Value) -> Result<(), HubError> {
    let kind = address.kind.get();
    let api_version = address.version.api_version();
    let Some(fields) = config.as_object_mut() else {
        return Err(HubError::BadRequest("the body is not an object".to_owned()));
    };
    for (field, want) in [("apiVersion", api_version.as_str()), ("kind", kind.kind)] {
        match fields.get(field).and_then(Value::as_str) {
            Some(have) if have == want => {}
            None if field == "apiVersion" => {
                return Err(HubError::BadRequest("apiVersion must be set".to_owned()));
            }
            None => return Err(HubError::BadRequest("kind must be set".to_owned())),
            Some(have) => {
                return Err(HubError::BadRequest(format!(
                    "invalid object type: {field} in the body is {have}, and the URL says {want}"
                )));
            }
        }
    }
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(HubError::BadRequest("metadata is not an object".to_owned()));
    };
    if metadata.get("managedFields").is_some_and(|entries| !entries.is_null()) {
        return Err(HubError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    match metadata.get("name").and_then(Value::as_str) {
        Some(name) if name == address.name => Ok(()),
        None | Some("") => {
            metadata.insert("name".to_owned(), address.name.clone().into());
            Ok(())
        }
        Some(name) => Err(HubError::BadRequest(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            address.name
        ))),
    }
}
