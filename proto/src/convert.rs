//! Messages to values, checked and bounded; values to messages, which cannot fail.
//!
//! Every byte from the other side is hostile: names end up in request paths, lists in memory, texts in conditions.

mod correction;
mod decrypt;
mod dispatch;
mod drift;
mod guard;
mod health;
mod relayed;
mod rules;
mod substitute;

pub use relayed::relayed_events;

use std::time::Duration;

use roadstead_kstatus::Status;
use roadstead_model::{
    Action, ApplierRef, ApplierUid, Attempt, Digest, DispatchKey, Generation, HubEpoch, ObjectRef,
    ObjectResult, Position, ReadObject, ServiceAccount, Stage, StepTiming,
};

use crate::limits::{
    MAX_DECRYPTED_WITH, MAX_DNS_LABEL_BYTES, MAX_DNS_NAME_BYTES, MAX_HELD, MAX_OBJECT_NAME_BYTES,
    MAX_OBJECTS, MAX_READ_BYTES, MAX_READS, MAX_RUNNING, MAX_STEPS, MAX_TEXT_BYTES, MAX_TIMINGS,
    MAX_VARIABLE_OBJECTS, MAX_WARNINGS, bounded,
};
use crate::message::{
    Backlog, Failure, Finished, InventoryAck, InventoryIntent, ObjectHealth, OwnedByAnother, Progress,
    Started,
};
use crate::v1;

/// Why a message is refused. `field` is a path within the message, as `inventory[3].name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A field that must be set is not.
    #[error("`{field}` is missing")]
    Missing {
        /// The path of the field.
        field: String,
    },
    /// A text or list is longer than is taken.
    #[error("`{field}` has {length} {unit}, more than {max}")]
    TooLong {
        /// The path of the field.
        field: String,
        /// How long it is.
        length: usize,
        /// What `length` counts: bytes, entries.
        unit: &'static str,
        /// How long it may be.
        max: usize,
    },
    /// A value that is no such thing.
    #[error("`{field}` is {why}")]
    Invalid {
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A step needs what this version cannot do.
    #[error("`{field}` needs `{capability}`, which this version cannot do; upgrade it")]
    Incapable {
        /// The path of the step.
        field: String,
        /// What it needs.
        capability: String,
    },
    /// A kind of step, stage or action that this version does not know: the other side is newer.
    #[error("`{field}` is of a kind that this version does not know; update the older of hub and agent")]
    Unknown {
        /// The path of the field.
        field: String,
    },
}

impl ConvertError {
    fn missing(field: &str) -> Self {
        Self::Missing { field: field.to_owned() }
    }

    fn invalid(field: &str, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.to_owned(), why: why.into() }
    }

    /// The same error, of a field beneath `parent`.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        let (Self::Missing { field }
        | Self::TooLong { field, .. }
        | Self::Invalid { field, .. }
        | Self::Incapable { field, .. }
        | Self::Unknown { field }) = &mut self;
        *field = format!("{parent}.{field}");
        self
    }

    /// What to put in `Refused.what`: the path of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        let (Self::Missing { field }
        | Self::TooLong { field, .. }
        | Self::Invalid { field, .. }
        | Self::Incapable { field, .. }
        | Self::Unknown { field }) = self;
        field
    }
}

type Result<T, E = ConvertError> = std::result::Result<T, E>;

fn sized(field: &str, text: String, max: usize) -> Result<String> {
    if text.len() > max {
        return Err(ConvertError::TooLong {
            field: field.to_owned(),
            length: text.len(),
            unit: "bytes",
            max,
        });
    }
    Ok(text)
}

/// Text for people: any characters but controls other than newline and tab.
fn text(field: &str, value: String) -> Result<String> {
    let value = sized(field, value, MAX_TEXT_BYTES)?;
    if value.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(ConvertError::invalid(field, "not plain text: it holds control characters"));
    }
    Ok(value)
}

/// A DNS name or label: an API group, a namespace, a version, a kind. Empty is for the caller to judge.
fn dns(field: &str, value: String, max: usize) -> Result<String> {
    let value = sized(field, value, max)?;
    let sound = value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.')
        && !value.starts_with(['-', '.'])
        && !value.ends_with(['-', '.']);
    if sound {
        Ok(value)
    } else {
        Err(ConvertError::invalid(field, format!("`{value}`, which is not a DNS name")))
    }
}

/// The name of an object: what the apiserver takes as a segment of a path.
fn object_name(field: &str, value: String) -> Result<String> {
    let value = sized(field, value, MAX_OBJECT_NAME_BYTES)?;
    if value.is_empty() {
        return Err(ConvertError::missing(field));
    }
    let sound = value != "."
        && value != ".."
        && !value
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || matches!(c, '/' | '%' | '\\' | '?' | '#'));
    if sound { Ok(value) } else { Err(ConvertError::invalid(field, "not a valid name of an object")) }
}

fn filled(field: &str, value: String) -> Result<String> {
    if value.is_empty() { Err(ConvertError::missing(field)) } else { Ok(value) }
}

fn required<T>(field: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| ConvertError::missing(field))
}

/// Converts each entry; `max` entries are taken.
fn list<T, U: TryFrom<T, Error = ConvertError>>(field: &str, entries: Vec<T>, max: usize) -> Result<Vec<U>> {
    if entries.len() > max {
        let length = entries.len();
        return Err(ConvertError::TooLong { field: field.to_owned(), length, unit: "entries", max });
    }
    let convert =
        |(index, entry)| U::try_from(entry).map_err(|error| error.within(&format!("{field}[{index}]")));
    entries.into_iter().enumerate().map(convert).collect()
}

fn messages<T, U: From<T>>(values: Vec<T>) -> Vec<U> {
    values.into_iter().map(U::from).collect()
}

/// Texts of at most `max` bytes each, `count` of them.
fn texts(field: &str, values: Vec<String>, count: usize, max: usize) -> Result<Vec<String>> {
    if values.len() > count {
        let length = values.len();
        return Err(ConvertError::TooLong { field: field.to_owned(), length, unit: "entries", max: count });
    }
    let checked = |(index, value)| {
        let field = format!("{field}[{index}]");
        text(&field, sized(&field, value, max)?)
    };
    values.into_iter().enumerate().map(checked).collect()
}

/// An enum whose values have the same names in the protocol: its way there, and a function of this name for the way back.
macro_rules! words {
    ($read:ident: $name:ident { $($value:ident),* } $(but not { $($kept:ident),* })?) => {
        impl From<$name> for v1::$name {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$value => Self::$value,)*
                    $($($name::$kept => Self::Unspecified,)*)?
                }
            }
        }

        fn $read(field: &str, value: i32) -> Result<$name> {
            match v1::$name::try_from(value) {
                $(Ok(v1::$name::$value) => Ok($name::$value),)*
                Ok(v1::$name::Unspecified) => Err(ConvertError::missing(field)),
                Err(_) => Err(ConvertError::Unknown { field: field.to_owned() }),
            }
        }
    };
}
use words;

impl From<DispatchKey> for v1::DispatchKey {
    fn from(key: DispatchKey) -> Self {
        Self {
            // Both count from zero upwards: never negative.
            epoch: u64::try_from(key.epoch.0).unwrap_or_default(),
            applier_uid: key.applier.to_string(),
            generation: key.generation.0,
            attempt: u64::try_from(key.attempt.0).unwrap_or_default(),
            digest: key.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        }
    }
}

impl From<&DispatchKey> for v1::DispatchKey {
    fn from(key: &DispatchKey) -> Self {
        key.clone().into()
    }
}

impl TryFrom<v1::DispatchKey> for DispatchKey {
    type Error = ConvertError;

    fn try_from(key: v1::DispatchKey) -> Result<Self> {
        let count = |field, value: u64| {
            i64::try_from(value).map_err(|_| ConvertError::invalid(field, format!("{value}, beyond 63 bits")))
        };
        let uid: ApplierUid =
            key.applier_uid.parse().map_err(|_| ConvertError::invalid("applier_uid", "not a uid"))?;
        let digest = match key.digest.as_str() {
            "" => None,
            digest => Some(self::digest("digest", digest)?),
        };
        if key.generation < 0 {
            return Err(ConvertError::invalid("generation", "negative"));
        }
        Ok(Self {
            epoch: HubEpoch(count("epoch", key.epoch)?),
            applier: uid,
            generation: Generation(key.generation),
            attempt: Attempt(count("attempt", key.attempt)?),
            digest,
        })
    }
}

/// The dispatch key that `field` holds.
pub fn key(field: &str, key: Option<v1::DispatchKey>) -> Result<DispatchKey> {
    required(field, key)?.try_into().map_err(|error: ConvertError| error.within(field))
}

/// The digest that `field` holds.
pub fn digest(field: &str, text: &str) -> Result<Digest> {
    text.parse()
        .map_err(|_| ConvertError::invalid(field, "not a digest: want `sha256:` and 64 hexadecimal digits"))
}

/// The keys of a `Hello`.
pub fn keys(field: &str, keys: Vec<v1::DispatchKey>) -> Result<Vec<DispatchKey>> {
    list(field, keys, MAX_RUNNING)
}

impl From<ObjectRef> for v1::ObjectRef {
    fn from(object: ObjectRef) -> Self {
        let ObjectRef { group, version, kind, namespace, name } = object;
        Self { group, version, kind, namespace, name }
    }
}

impl TryFrom<v1::ObjectRef> for ObjectRef {
    type Error = ConvertError;

    fn try_from(object: v1::ObjectRef) -> Result<Self> {
        Ok(Self {
            group: dns("group", object.group, MAX_DNS_NAME_BYTES)?,
            version: dns("version", filled("version", object.version)?, MAX_DNS_LABEL_BYTES)?,
            kind: dns("kind", filled("kind", object.kind)?, MAX_DNS_LABEL_BYTES)?,
            namespace: dns("namespace", object.namespace, MAX_DNS_LABEL_BYTES)?,
            name: object_name("name", object.name)?,
        })
    }
}

words!(stage: Stage { Finish, Validate, Apply, Prune, Wait });
// Handing over is between appliers on the hub: no agent is told of it, or tells it.
words!(action: Action { Created, Configured, Recreated, Adopted, Unchanged, Deleted, Skipped, Drifted }
       but not { HandedOver, TakenOver });

impl From<ObjectResult> for v1::ObjectResult {
    fn from(result: ObjectResult) -> Self {
        Self { object: Some(result.object.into()), action: v1::Action::from(result.action).into() }
    }
}

impl TryFrom<v1::ObjectResult> for ObjectResult {
    type Error = ConvertError;

    fn try_from(result: v1::ObjectResult) -> Result<Self> {
        Ok(Self::new(object("object", result.object)?, action("action", result.action)?))
    }
}

/// The index of a step.
fn step(field: &str, value: Option<u32>) -> Result<Option<usize>> {
    let index = value.map(|value| index(field, value, MAX_STEPS));
    index.transpose()
}

/// Where a dispatch is, as the fields `step` and `stage` say it.
fn position(step: Option<u32>, stage: i32) -> Result<Position> {
    Ok(Position { step: self::step("step", step)?, stage: self::stage("stage", stage)? })
}

/// An index into a list of at most `max` entries.
fn index(field: &str, value: u32, max: usize) -> Result<usize> {
    let known = usize::try_from(value).ok().filter(|index| *index < max);
    known.ok_or_else(|| ConvertError::invalid(field, format!("{value}, which is not below {max}")))
}

/// An index as it is sent. There are far fewer steps and groups than fit.
fn number(index: usize) -> Option<u32> {
    u32::try_from(index).ok()
}

fn object(field: &str, object: Option<v1::ObjectRef>) -> Result<ObjectRef> {
    required(field, object)?.try_into().map_err(|error: ConvertError| error.within(field))
}

impl From<StepTiming> for v1::StageTiming {
    fn from(timing: StepTiming) -> Self {
        // The label is the hub's to tell.
        let StepTiming { step, label: _, stage, micros } = timing;
        Self { stage: v1::Stage::from(stage).into(), micros, step: step.and_then(number) }
    }
}

impl TryFrom<v1::StageTiming> for StepTiming {
    type Error = ConvertError;

    fn try_from(timing: v1::StageTiming) -> Result<Self> {
        let stage = stage("stage", timing.stage)?;
        Ok(Self { step: step("step", timing.step)?, label: None, stage, micros: timing.micros })
    }
}

impl From<ServiceAccount> for v1::ServiceAccount {
    fn from(account: ServiceAccount) -> Self {
        Self { namespace: account.namespace, name: account.name }
    }
}

impl TryFrom<v1::ServiceAccount> for ServiceAccount {
    type Error = ConvertError;

    fn try_from(account: v1::ServiceAccount) -> Result<Self> {
        Ok(Self {
            namespace: dns("namespace", filled("namespace", account.namespace)?, MAX_DNS_LABEL_BYTES)?,
            // It becomes part of a user's name in a header.
            name: dns("name", filled("name", account.name)?, MAX_DNS_NAME_BYTES)?,
        })
    }
}

impl From<InventoryIntent> for v1::InventoryIntent {
    fn from(intent: InventoryIntent) -> Self {
        Self { key: Some(intent.key.into()), objects: messages(intent.objects) }
    }
}

impl TryFrom<v1::InventoryIntent> for InventoryIntent {
    type Error = ConvertError;

    fn try_from(intent: v1::InventoryIntent) -> Result<Self> {
        Ok(Self { key: key("key", intent.key)?, objects: list("objects", intent.objects, MAX_OBJECTS)? })
    }
}

/// The kind of an applier; none is named where the other side knows of Kustomizations only.
fn applier_kind(field: &str, kind: String) -> Result<String> {
    if kind.is_empty() {
        return Ok(ApplierRef::kustomization("", "").kind);
    }
    text(field, kind)
}

impl From<OwnedByAnother> for v1::OwnedByAnother {
    fn from(owned: OwnedByAnother) -> Self {
        let ApplierRef { kind, namespace, name } = owned.owner;
        let owner = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        Self { object: Some(owned.object.into()), owner, owner_kind: kind }
    }
}

impl TryFrom<v1::OwnedByAnother> for OwnedByAnother {
    type Error = ConvertError;

    fn try_from(owned: v1::OwnedByAnother) -> Result<Self> {
        let owner = text("owner", owned.owner)?;
        let (namespace, name) = owner.split_once('/').unwrap_or(("", &owner));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let owner = ApplierRef { kind: applier_kind("owner_kind", owned.owner_kind)?, namespace, name };
        Ok(Self { object: object("object", owned.object)?, owner })
    }
}

impl From<InventoryAck> for v1::InventoryAck {
    fn from(ack: InventoryAck) -> Self {
        Self { key: Some(ack.key.into()), owned_by_another: messages(ack.owned_by_another) }
    }
}

impl TryFrom<v1::InventoryAck> for InventoryAck {
    type Error = ConvertError;

    fn try_from(ack: v1::InventoryAck) -> Result<Self> {
        Ok(Self {
            key: key("key", ack.key)?,
            owned_by_another: list("owned_by_another", ack.owned_by_another, MAX_OBJECTS)?,
        })
    }
}

impl From<ObjectHealth> for v1::ObjectHealth {
    fn from(health: ObjectHealth) -> Self {
        Self {
            object: Some(health.object.into()),
            status: health.status.as_str().to_owned(),
            message: bounded(&health.message),
        }
    }
}

impl TryFrom<v1::ObjectHealth> for ObjectHealth {
    type Error = ConvertError;

    fn try_from(health: v1::ObjectHealth) -> Result<Self> {
        let status = match health.status.as_str() {
            "Current" => Status::Current,
            "InProgress" => Status::InProgress,
            "Failed" => Status::Failed,
            "Terminating" => Status::Terminating,
            "NotFound" => Status::NotFound,
            "" => return Err(ConvertError::missing("status")),
            _ => return Err(ConvertError::Unknown { field: "status".to_owned() }),
        };
        Ok(Self {
            object: object("object", health.object)?,
            status,
            message: text("message", health.message)?,
        })
    }
}

impl From<Progress> for v1::Progress {
    fn from(progress: Progress) -> Self {
        Self {
            key: Some(progress.key.into()),
            step: progress.position.step.and_then(number),
            stage: v1::Stage::from(progress.position.stage).into(),
            results: messages(progress.results),
            health: messages(progress.health),
        }
    }
}

impl TryFrom<v1::Progress> for Progress {
    type Error = ConvertError;

    fn try_from(progress: v1::Progress) -> Result<Self> {
        Ok(Self {
            key: key("key", progress.key)?,
            position: position(progress.step, progress.stage)?,
            results: list("results", progress.results, MAX_OBJECTS)?,
            health: list("health", progress.health, MAX_OBJECTS)?,
        })
    }
}

impl From<Started> for v1::Started {
    fn from(started: Started) -> Self {
        let ago_millis = u64::try_from(started.ago.as_millis()).unwrap_or(u64::MAX);
        Self { key: Some(started.key.into()), ago_millis }
    }
}

impl TryFrom<v1::Started> for Started {
    type Error = ConvertError;

    fn try_from(started: v1::Started) -> Result<Self> {
        // It began at most as long ago as it may take.
        let ago = Duration::from_millis(started.ago_millis).min(dispatch::MAX_TIMEOUT);
        Ok(Self { key: key("key", started.key)?, ago })
    }
}

impl From<Backlog> for v1::Backlog {
    fn from(backlog: Backlog) -> Self {
        Self { waiting: messages(backlog.waiting), started: messages(backlog.started) }
    }
}

impl TryFrom<v1::Backlog> for Backlog {
    type Error = ConvertError;

    fn try_from(backlog: v1::Backlog) -> Result<Self> {
        Ok(Self {
            waiting: list("waiting", backlog.waiting, MAX_RUNNING)?,
            started: list("started", backlog.started, MAX_RUNNING)?,
        })
    }
}

impl From<Failure> for v1::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            step: failure.position.step.and_then(number),
            stage: v1::Stage::from(failure.position.stage).into(),
            message: bounded(&failure.message),
            object: failure.object.map(Into::into),
            cancelled: failure.cancelled,
        }
    }
}

impl TryFrom<v1::Failure> for Failure {
    type Error = ConvertError;

    fn try_from(failure: v1::Failure) -> Result<Self> {
        Ok(Self {
            position: position(failure.step, failure.stage)?,
            message: text("message", failure.message)?,
            object: failure.object.map(|named| object("object", Some(named))).transpose()?,
            cancelled: failure.cancelled,
        })
    }
}

impl From<ReadObject> for v1::ReadObject {
    fn from(read: ReadObject) -> Self {
        Self { object: Some(read.object.into()), json: read.json.unwrap_or_default() }
    }
}

impl TryFrom<v1::ReadObject> for ReadObject {
    type Error = ConvertError;

    fn try_from(read: v1::ReadObject) -> Result<Self> {
        let json = Some(read.json).filter(|json| !json.is_empty());
        Ok(Self { object: object("object", read.object)?, json })
    }
}

impl From<Finished> for v1::Finished {
    fn from(finished: Finished) -> Self {
        Self {
            key: Some(finished.key.into()),
            failure: finished.failure.map(Into::into),
            change_set: messages(finished.change_set),
            inventory: messages(finished.inventory),
            timings: messages(finished.timings),
            reads: messages(finished.reads),
            found: messages(finished.found),
            held: messages(finished.held),
            warnings: finished.warnings.iter().take(MAX_WARNINGS).map(|text| bounded(text)).collect(),
            decrypted_with: finished
                .decrypted_with
                .iter()
                .take(MAX_DECRYPTED_WITH)
                .map(|text| bounded(text))
                .collect(),
        }
    }
}

impl TryFrom<v1::Finished> for Finished {
    type Error = ConvertError;

    fn try_from(finished: v1::Finished) -> Result<Self> {
        Ok(Self {
            key: key("key", finished.key)?,
            failure: finished
                .failure
                .map(Failure::try_from)
                .transpose()
                .map_err(|error| error.within("failure"))?,
            change_set: list("change_set", finished.change_set, MAX_OBJECTS)?,
            inventory: list("inventory", finished.inventory, MAX_OBJECTS)?,
            timings: list("timings", finished.timings, MAX_TIMINGS)?,
            reads: reads(finished.reads)?,
            found: list("found", finished.found, MAX_VARIABLE_OBJECTS)?,
            held: list("held", finished.held, MAX_HELD)?,
            warnings: texts("warnings", finished.warnings, MAX_WARNINGS, MAX_TEXT_BYTES)?,
            decrypted_with: texts(
                "decrypted_with",
                finished.decrypted_with,
                MAX_DECRYPTED_WITH,
                MAX_TEXT_BYTES,
            )?,
        })
    }
}

/// What was read, within the bound of all of it.
fn reads(reads: Vec<v1::ReadObject>) -> Result<Vec<ReadObject>> {
    let length = reads.iter().map(|read| read.json.len()).sum();
    if length > MAX_READ_BYTES {
        let field = "reads".to_owned();
        return Err(ConvertError::TooLong { field, length, unit: "bytes", max: MAX_READ_BYTES });
    }
    list("reads", reads, MAX_READS)
}

#[cfg(test)]
mod tests;
