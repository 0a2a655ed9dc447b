//! The resource API's use cases: what every client of the hub reads and writes, with who may do it.

use roadstead_api::KindId;
use roadstead_body::Patch;
use roadstead_hub_store::{HeldNamespace, Stored, Tx};
use roadstead_model::Action;
use serde_json::Value;

use crate::HubError;
use crate::address::{Address, named};
use crate::identity::auth::Identity;
use crate::identity::{AuditLog, references};
use crate::objects::changed::Change;
use crate::objects::forms::{self, FieldValidation, Part};
use crate::objects::managers::{self, Writer};
use crate::objects::reads::{ListOptions, ObjectList};
use crate::objects::{Objects, family, quota, triggers};

/// Namespaces that every hub has, and that cannot be deleted.
pub const NAMESPACES: [&str; 2] = ["default", "roadstead-system"];

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Under which name the writer manages fields.
    pub manager: String,
    /// Check and answer, but change nothing.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub field_validation: FieldValidation,
    /// What is written.
    pub part: Part,
}

/// What a write did.
#[derive(Debug)]
pub struct Written {
    /// The object afterwards, in the version asked for.
    pub object: Value,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What was done: created, configured or unchanged.
    pub action: Action,
}

/// How a deletion is to be done.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Check and answer, but change nothing.
    pub dry_run: bool,
    /// Only if the object has this uid.
    pub uid: Option<String>,
    /// Only if the object has this version.
    pub resource_version: Option<String>,
}

/// What a deletion did.
#[derive(Debug)]
pub enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Value),
    /// The object waits for its finalizers.
    Going(Value),
}

impl Objects {
    /// Makes the namespaces and the roles that every hub has.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn bootstrap(&self) -> Result<(), HubError> {
        let kind = KindId::Namespace;
        let version = kind.get().storage_version();
        for name in NAMESPACES {
            let address = Address { kind, version, namespace: String::new(), name: String::new() };
            let object = serde_json::json!({ "metadata": { "name": name } });
            let options = WriteOptions { manager: managers::HUB.to_owned(), ..WriteOptions::default() };
            match self.create(&Identity::hub(), &address, object, options).await {
                Ok(_) | Err(HubError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.bootstrap_roles().await
    }

    /// Makes the roles that every hub has, and adds what those that are there lack of a newer version's.
    async fn bootstrap_roles(&self) -> Result<(), HubError> {
        let who = Identity::hub();
        for (kind, name, wanted) in roadstead_rbac::built_in() {
            let (version, namespace) = (kind.get().storage_version(), String::new());
            let options = WriteOptions { manager: managers::HUB.to_owned(), ..WriteOptions::default() };
            let written = match self.store.get(kind, "", &name).await? {
                None => {
                    let address = Address { kind, version, namespace, name: String::new() };
                    self.create(&who, &address, wanted, options).await
                }
                Some(stored) => {
                    let address = Address { kind, version, namespace, name };
                    let present = forms::show(&stored, version);
                    let Some(object) = roadstead_rbac::reconciled(kind, &present, &wanted) else { continue };
                    self.update(&who, &address, object, options).await
                }
            };
            match written {
                // Another replica did it, or a person is at it.
                Ok(_)
                | Err(
                    HubError::AlreadyExists { .. } | HubError::Conflict { .. } | HubError::NotFound { .. },
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Forgets changes that are older than `age`, apart from the newest `keep`: watches that would begin before them are
    /// told to list again. Returns how many were forgotten.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn compact_changes(&self, age: std::time::Duration, keep: i64) -> Result<u64, HubError> {
        Ok(self.store.compact(age, keep).await?)
    }

    /// One object.
    ///
    /// # Errors
    /// [`HubError::NotFound`], [`HubError::Forbidden`].
    pub async fn get(&self, who: &Identity, address: &Address) -> Result<Value, HubError> {
        self.get_by(who, address, "").await
    }

    /// One object, by the right to this subresource of it; empty is the object itself.
    ///
    /// # Errors
    /// [`HubError::NotFound`], [`HubError::Forbidden`].
    pub async fn get_by(
        &self,
        who: &Identity,
        address: &Address,
        subresource: &str,
    ) -> Result<Value, HubError> {
        who.authorize("get", address.kind.get(), subresource, &address.namespace, &address.name)?;
        let stored = self.store.get(address.kind, &address.namespace, &address.name).await?;
        let mut stored = stored.ok_or_else(|| address.not_found())?;
        self.count_used(&mut stored).await?;
        self.audit.note_read(who, "get", address).await?;
        Ok(forms::show(&stored, address.version))
    }

    /// Makes an object.
    ///
    /// # Errors
    /// [`HubError::AlreadyExists`], [`HubError::Invalid`], [`HubError::NotFound`] for its namespace.
    pub async fn create(
        &self,
        who: &Identity,
        address: &Address,
        object: Value,
        options: WriteOptions,
    ) -> Result<Written, HubError> {
        let kind = address.kind.get();
        who.authorize("create", kind, "", &address.namespace, "")?;
        let mut warnings = Vec::new();
        let requested = managers::entries(&object).cloned();
        let mut stored = forms::create(
            kind,
            address.version,
            &address.namespace,
            object,
            options.field_validation,
            self.clock.now(),
            &mut warnings,
        )?;
        let writer = Writer {
            manager: &options.manager,
            version: address.version,
            part: Part::Main,
            now: self.clock.now(),
        };
        managers::note(None, &mut stored, requested, writer);
        // The name is in the body alone.
        who.prepare_grant(address.kind).await?;
        who.check_grant("", None, &stored)?;
        let tx = self.store.begin().await?;
        let object = self.insert(tx, who, address, stored, options.dry_run).await?;
        Ok(Written { object, warnings, action: Action::Created })
    }

    /// Completes a new object and writes it, with all that follows from it.
    pub(crate) async fn insert(
        &self,
        mut tx: Tx,
        who: &Identity,
        address: &Address,
        mut stored: Stored,
        dry_run: bool,
    ) -> Result<Value, HubError> {
        triggers::on_create(&mut stored, self.clock.now())?;
        self.complete(&mut tx, who, address, None, &mut stored.object).await?;
        who.check_use(None, &stored)?;
        if stored.kind.get().namespaced() {
            require_namespace(&mut tx, &address.namespace).await?;
            quota::admit(&mut tx, &stored).await?;
        }
        put(&mut tx, &stored).await?;
        family::check(&mut tx, who, None, &stored).await?;
        references::note(&mut tx, who, None, &stored).await?;
        triggers::on_change(&mut tx, None, Some(&stored)).await?;
        let entry = self.audit.of_change(&tx, who, "create", (None, Some(&stored)));
        write_down(&self.audit, tx, entry, &mut stored, dry_run).await?;
        Ok(forms::show(&stored, address.version))
    }

    /// Replaces an object, or its status.
    ///
    /// # Errors
    /// [`HubError::NotFound`], [`HubError::Invalid`], [`HubError::Conflict`] where it names an older version.
    pub async fn update(
        &self,
        who: &Identity,
        address: &Address,
        object: Value,
        options: WriteOptions,
    ) -> Result<Written, HubError> {
        self.change(who, address, options, "update", |_| Ok(object)).await
    }

    /// Patches an object, or its status.
    ///
    /// # Errors
    /// As [`Self::update`]; [`HubError::BadRequest`] where the patch does not fit,
    /// [`HubError::UnsupportedMediaType`] for a strategic merge of a kind that Kubernetes does not have built in.
    pub async fn patch(
        &self,
        who: &Identity,
        address: &Address,
        patch: &Patch,
        options: WriteOptions,
    ) -> Result<Written, HubError> {
        let kind = address.kind.get();
        if matches!(patch, Patch::Strategic(_)) && !kind.builtin {
            return Err(HubError::UnsupportedMediaType(format!(
                "{} is not a built-in kind: want application/merge-patch+json or application/json-patch+json",
                kind.kind
            )));
        }
        self.change(who, address, options, "patch", |shown| Ok(patch.apply_to(shown)?)).await
    }

    async fn change(
        &self,
        who: &Identity,
        address: &Address,
        options: WriteOptions,
        verb: &'static str,
        make: impl FnOnce(Value) -> Result<Value, HubError>,
    ) -> Result<Written, HubError> {
        let subresource = if options.part == Part::Status { "status" } else { "" };
        who.authorize(verb, address.kind.get(), subresource, &address.namespace, &address.name)?;
        who.prepare_grant(address.kind).await?;
        let mut warnings = Vec::new();
        let mut tx = self.store.begin().await?;
        let before = tx.get(address.kind, &address.namespace, &address.name).await?;
        let before = before.ok_or_else(|| address.not_found())?;
        let mut incoming = make(forms::show(&before, address.version))?;
        let requested = managers::entries(&incoming).cloned();
        if options.part == Part::Main {
            self.complete(&mut tx, who, address, Some(&before), &mut incoming).await?;
        }
        let mut after = forms::replace(
            &before,
            address.version,
            options.part,
            incoming,
            options.field_validation,
            &mut warnings,
        )?;
        let writer = Writer {
            manager: &options.manager,
            version: address.version,
            part: options.part,
            now: self.clock.now(),
        };
        managers::note(Some(&before), &mut after, requested, writer);
        who.check_grant(&address.name, Some(&before), &after)?;
        who.check_use(Some(&before), &after)?;
        let (after, action) = save(&self.audit, tx, (who, verb), &before, after, options.dry_run).await?;
        if options.dry_run || action == Action::Unchanged {
            // It was shown, and nothing was written that tells of it.
            self.audit.note_read(who, "get", address).await?;
        }
        Ok(Written { object: forms::show(&after, address.version), warnings, action })
    }

    /// Deletes an object, or marks it where it has finalizers.
    ///
    /// # Errors
    /// [`HubError::NotFound`], [`HubError::Conflict`] where a precondition does not hold.
    pub async fn delete(
        &self,
        who: &Identity,
        address: &Address,
        options: &DeleteOptions,
    ) -> Result<Deleted, HubError> {
        who.authorize("delete", address.kind.get(), "", &address.namespace, &address.name)?;
        self.delete_allowed(who, address, options).await
    }

    /// Deletes an object; that this is allowed was decided before.
    async fn delete_allowed(
        &self,
        who: &Identity,
        address: &Address,
        options: &DeleteOptions,
    ) -> Result<Deleted, HubError> {
        let kind = address.kind.get();
        let mut tx = self.store.begin().await?;
        let before = tx.get(address.kind, &address.namespace, &address.name).await?;
        let before = before.ok_or_else(|| address.not_found())?;
        check_preconditions(&before, options)?;
        if address.kind == KindId::Namespace && NAMESPACES.contains(&address.name.as_str()) {
            let why =
                format!("{} is forbidden: this namespace may not be deleted", named(kind, &address.name));
            return Err(HubError::Forbidden(why));
        }
        let mut after = before.clone();
        triggers::on_delete(&mut after)?;
        let waits = after.finalizers().next().is_some() || before.kind == KindId::Namespace;
        let fate = if waits {
            mark_deleted(&mut after, self.clock.now());
            Fate::Stays(after)
        } else {
            Fate::Gone(after)
        };
        let after = write(&self.audit, tx, (who, "delete"), &before, fate, options.dry_run).await?;
        if options.dry_run {
            self.audit.note_read(who, "get", address).await?;
        }
        let shown = forms::show(&after, address.version);
        Ok(if waits { Deleted::Going(shown) } else { Deleted::Gone(shown) })
    }

    /// Deletes all objects that the options select, each on its own. Returns them.
    ///
    /// # Errors
    /// As [`Self::delete`]; what was deleted before stays so.
    pub async fn delete_all(
        &self,
        who: &Identity,
        address: &Address,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<ObjectList, HubError> {
        // That is the right to delete each of them.
        who.authorize("deletecollection", address.kind.get(), "", &address.namespace, "")?;
        let (present, end) = self.list_stored(address, selection).await?;
        let mut items = Vec::with_capacity(present.len());
        for stored in &present {
            let one =
                Address { namespace: stored.namespace.clone(), name: stored.name.clone(), ..address.clone() };
            match self.delete_allowed(who, &one, options).await {
                Ok(Deleted::Gone(object) | Deleted::Going(object)) => items.push(object),
                // Someone else was faster.
                Err(HubError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ObjectList { items, end })
    }

    /// A step of a namespace's deletion: deletes what is in it, and then itself. Returns when the next pass is due.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn process_namespace(
        &self,
        uid: roadstead_model::ResourceUid,
    ) -> Result<jiff::Timestamp, HubError> {
        let later = |seconds| self.clock.now() + jiff::SignedDuration::from_secs(seconds);
        let Some(namespace) = self.store.get_by_uid(uid).await? else { return Ok(later(3600)) };
        if namespace.deletion_timestamp.is_none() {
            return Ok(later(3600));
        }
        let mut left = 0;
        for kind in roadstead_api::KINDS.iter().filter(|kind| kind.namespaced()) {
            let version = kind.storage_version();
            let address =
                Address { kind: kind.id, version, namespace: namespace.name.clone(), name: String::new() };
            for stored in self.list_stored(&address, &ListOptions::default()).await?.0 {
                if stored.deletion_timestamp.is_none() {
                    let one = Address { name: stored.name.clone(), ..address.clone() };
                    match self.delete(&Identity::hub(), &one, &DeleteOptions::default()).await {
                        Ok(Deleted::Gone(_)) | Err(HubError::NotFound { .. }) => continue,
                        Ok(Deleted::Going(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                left += 1;
            }
        }
        if left > 0 {
            // The finalizers' owners take their time.
            return Ok(later(2));
        }
        let mut tx = self.store.begin().await?;
        let Some(namespace) = tx.get_by_uid(uid).await? else { return Ok(later(3600)) };
        if tx.has_newer_kinds(&namespace.name).await? {
            // A replica that knows them empties it.
            return Ok(later(5));
        }
        // Nothing new can have come since: creating takes a shared lock on the namespace and sees that it is going.
        if namespace.finalizers().next().is_none() {
            tx.remove(uid).await?;
            triggers::on_change(&mut tx, Some(&namespace), None).await?;
            tx.commit().await?;
        }
        Ok(later(2))
    }
}

/// Writes what an object became, which may be its end; nothing where it is as it was. Says which of the two.
pub(crate) async fn save(
    audit: &AuditLog,
    tx: Tx,
    by: (&Identity, &str),
    before: &Stored,
    after: Stored,
    dry_run: bool,
) -> Result<(Stored, Action), HubError> {
    if managers::unchanged(before, &after) {
        return Ok((before.clone(), Action::Unchanged));
    }
    let fate = if is_finished(&after) { Fate::Gone(after) } else { Fate::Stays(after) };
    Ok((write(audit, tx, by, before, fate, dry_run).await?, Action::Configured))
}

/// What becomes of an object.
enum Fate {
    /// It is there, as this.
    Stays(Stored),
    /// It is no more; this is how it was last.
    Gone(Stored),
}

/// Writes what became of an object, and all that follows from it. Returns the object with its new version.
async fn write(
    audit: &AuditLog,
    mut tx: Tx,
    (who, verb): (&Identity, &str),
    before: &Stored,
    fate: Fate,
    dry_run: bool,
) -> Result<Stored, HubError> {
    let (mut after, entry) = match fate {
        Fate::Stays(after) => {
            put(&mut tx, &after).await?;
            family::check(&mut tx, who, Some(before), &after).await?;
            references::note(&mut tx, who, Some(before), &after).await?;
            triggers::on_change(&mut tx, Some(before), Some(&after)).await?;
            let entry = audit.of_change(&tx, who, verb, (Some(before), Some(&after)));
            (after, entry)
        }
        Fate::Gone(last) => {
            triggers::on_removal(&mut tx, before).await?;
            tx.remove(before.uid).await?;
            triggers::on_change(&mut tx, Some(before), None).await?;
            (last, audit.of_change(&tx, who, verb, (Some(before), None)))
        }
    };
    write_down(audit, tx, entry, &mut after, dry_run).await?;
    Ok(after)
}

/// Ends a write with its entry of the audit log; a dry run ends without one.
async fn write_down(
    audit: &AuditLog,
    mut tx: Tx,
    entry: Change,
    stored: &mut Stored,
    dry_run: bool,
) -> Result<(), HubError> {
    if dry_run {
        // Dropping the transaction undoes it; what is shown is the object as it would be, with the version that it has.
        stored.write_metadata();
        return Ok(());
    }
    let noted = audit.note_change(&mut tx, &entry).await;
    let done = match noted {
        Ok(()) => tx.commit().await,
        Err(error) => Err(error),
    };
    match done {
        Ok(committed) => committed.stamp(stored),
        Err(error) => {
            audit.was_not_made(&entry);
            return Err(error.into());
        }
    }
    Ok(())
}

async fn put(tx: &mut Tx, stored: &Stored) -> Result<(), HubError> {
    match tx.put(stored.clone()).await {
        Err(error) if error.is_unique_violation() => {
            Err(HubError::AlreadyExists { what: named(stored.kind.get(), &stored.name) })
        }
        other => Ok(other?),
    }
}

/// Objects live in a namespace that is there and stays.
async fn require_namespace(tx: &mut Tx, name: &str) -> Result<(), HubError> {
    let kind = KindId::Namespace.get();
    match tx.hold_namespace(name).await? {
        HeldNamespace::Open => Ok(()),
        HeldNamespace::Absent => Err(HubError::NotFound { what: named(kind, name) }),
        HeldNamespace::Terminating => {
            let why = format!("{} is being deleted: nothing new can be created in it", named(kind, name));
            Err(HubError::Forbidden(why))
        }
    }
}

fn check_preconditions(before: &Stored, options: &DeleteOptions) -> Result<(), HubError> {
    let conflict = |what: &str, want: &str, have: String| {
        Err(HubError::Conflict {
            what: named(before.kind.get(), &before.name),
            why: format!("precondition failed: {what} in the precondition is {want}, in the object {have}"),
        })
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != before.uid.to_string()) {
        return conflict("uid", uid, before.uid.to_string());
    }
    let version = before.resource_version.to_string();
    if let Some(want) = options.resource_version.as_deref().filter(|want| *want != version) {
        return conflict("resourceVersion", want, version);
    }
    Ok(())
}

fn mark_deleted(after: &mut Stored, now: jiff::Timestamp) {
    if after.deletion_timestamp.is_some() {
        return;
    }
    after.deletion_timestamp = Some(now);
    after.generation += 1;
    if let Some(metadata) = after.object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    }
    if after.kind == KindId::Namespace {
        after.object["status"]["phase"] = "Terminating".into();
    }
}

/// Whether the last finalizer of something that is going was taken off.
fn is_finished(stored: &Stored) -> bool {
    stored.deletion_timestamp.is_some()
        && stored.finalizers().next().is_none()
        && stored.kind != KindId::Namespace
}
