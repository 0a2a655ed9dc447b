//! Messages to values, checked and bounded; values to messages, which cannot fail.
//!
//! Every byte from the other side is hostile: names end up in request paths, lists in memory, texts in conditions.

use std::time::Duration;

use roadstead_kstatus::Status;
use roadstead_model::{
    Action, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, Generation, HubEpoch, KustomizationUid,
    ObjectRef, ObjectResult, ServiceAccount, Stage, StageTiming, Step,
};

use crate::limits::{
    MAX_DNS_LABEL_BYTES, MAX_DNS_NAME_BYTES, MAX_OBJECT_NAME_BYTES, MAX_OBJECTS, MAX_STEPS, MAX_TEXT_BYTES,
    MAX_TIMINGS, bounded,
};
use crate::message::{
    Failure, Finished, InventoryAck, InventoryIntent, ObjectHealth, OwnedByAnother, Progress,
};
use crate::v1;

/// The longest timeout of a dispatch that is taken.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

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

impl From<DispatchKey> for v1::DispatchKey {
    fn from(key: DispatchKey) -> Self {
        Self {
            // Both count from zero upwards: never negative.
            epoch: u64::try_from(key.epoch.0).unwrap_or_default(),
            kustomization_uid: key.kustomization.to_string(),
            generation: key.generation.0,
            attempt: u64::try_from(key.attempt.0).unwrap_or_default(),
            build_digest: key.build.map(|digest| digest.to_string()).unwrap_or_default(),
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
        let uid: KustomizationUid = key
            .kustomization_uid
            .parse()
            .map_err(|_| ConvertError::invalid("kustomization_uid", "not a uid"))?;
        let build = match key.build_digest.as_str() {
            "" => None,
            digest => Some(self::digest("build_digest", digest)?),
        };
        if key.generation < 0 {
            return Err(ConvertError::invalid("generation", "negative"));
        }
        Ok(Self {
            epoch: HubEpoch(count("epoch", key.epoch)?),
            kustomization: uid,
            generation: Generation(key.generation),
            attempt: Attempt(count("attempt", key.attempt)?),
            build,
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
    list(field, keys, crate::limits::MAX_RUNNING)
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

impl From<Stage> for v1::Stage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Finish => Self::Finish,
            Stage::Validate => Self::Validate,
            Stage::Apply => Self::Apply,
            Stage::Prune => Self::Prune,
            Stage::Wait => Self::Wait,
        }
    }
}

fn stage(field: &str, value: i32) -> Result<Stage> {
    match v1::Stage::try_from(value) {
        Ok(v1::Stage::Finish) => Ok(Stage::Finish),
        Ok(v1::Stage::Validate) => Ok(Stage::Validate),
        Ok(v1::Stage::Apply) => Ok(Stage::Apply),
        Ok(v1::Stage::Prune) => Ok(Stage::Prune),
        Ok(v1::Stage::Wait) => Ok(Stage::Wait),
        Ok(v1::Stage::Unspecified) => Err(ConvertError::missing(field)),
        Err(_) => Err(ConvertError::Unknown { field: field.to_owned() }),
    }
}

impl From<Action> for v1::Action {
    fn from(action: Action) -> Self {
        match action {
            Action::Created => Self::Created,
            Action::Configured => Self::Configured,
            Action::Recreated => Self::Recreated,
            Action::Adopted => Self::Adopted,
            Action::Unchanged => Self::Unchanged,
            Action::Deleted => Self::Deleted,
            Action::Skipped => Self::Skipped,
        }
    }
}

fn action(field: &str, value: i32) -> Result<Action> {
    match v1::Action::try_from(value) {
        Ok(v1::Action::Created) => Ok(Action::Created),
        Ok(v1::Action::Configured) => Ok(Action::Configured),
        Ok(v1::Action::Recreated) => Ok(Action::Recreated),
        Ok(v1::Action::Adopted) => Ok(Action::Adopted),
        Ok(v1::Action::Unchanged) => Ok(Action::Unchanged),
        Ok(v1::Action::Deleted) => Ok(Action::Deleted),
        Ok(v1::Action::Skipped) => Ok(Action::Skipped),
        Ok(v1::Action::Unspecified) => Err(ConvertError::missing(field)),
        Err(_) => Err(ConvertError::Unknown { field: field.to_owned() }),
    }
}

impl From<ObjectResult> for v1::ObjectResult {
    fn from(result: ObjectResult) -> Self {
        Self { object: Some(result.object.into()), action: v1::Action::from(result.action).into() }
    }
}

impl TryFrom<v1::ObjectResult> for ObjectResult {
    type Error = ConvertError;

    fn try_from(result: v1::ObjectResult) -> Result<Self> {
        Ok(Self { object: object("object", result.object)?, action: action("action", result.action)? })
    }
}

fn object(field: &str, object: Option<v1::ObjectRef>) -> Result<ObjectRef> {
    required(field, object)?.try_into().map_err(|error: ConvertError| error.within(field))
}

impl From<StageTiming> for v1::StageTiming {
    fn from(timing: StageTiming) -> Self {
        Self { stage: v1::Stage::from(timing.stage).into(), micros: timing.micros }
    }
}

impl TryFrom<v1::StageTiming> for StageTiming {
    type Error = ConvertError;

    fn try_from(timing: v1::StageTiming) -> Result<Self> {
        Ok(Self { stage: stage("stage", timing.stage)?, micros: timing.micros })
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

impl From<Step> for v1::Step {
    fn from(step: Step) -> Self {
        use v1::step::Kind;
        let kind = match step {
            Step::Apply { force } => Kind::Apply(v1::Apply { force }),
            Step::Prune => Kind::Prune(v1::Prune {}),
            Step::Wait { objects, all } => Kind::Wait(v1::Wait { objects: messages(objects), all }),
            Step::Delete => Kind::Delete(v1::Delete {}),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Step> for Step {
    type Error = ConvertError;

    fn try_from(step: v1::Step) -> Result<Self> {
        use v1::step::Kind;
        // A step of a later version arrives as one without a kind.
        let kind = step.kind.ok_or_else(|| ConvertError::Unknown { field: "kind".to_owned() })?;
        Ok(match kind {
            Kind::Apply(apply) => Self::Apply { force: apply.force },
            Kind::Prune(_) => Self::Prune,
            Kind::Wait(wait) => {
                Self::Wait { objects: list("wait.objects", wait.objects, MAX_OBJECTS)?, all: wait.all }
            }
            Kind::Delete(_) => Self::Delete,
        })
    }
}

impl From<Dispatch> for v1::Dispatch {
    fn from(dispatch: Dispatch) -> Self {
        let Dispatch { key, spec, inventory } = dispatch;
        Self {
            key: Some(key.into()),
            default_namespace: spec.default_namespace().to_owned(),
            namespace: spec.namespace,
            name: spec.name,
            service_account: spec.service_account.map(Into::into),
            inventory: messages(inventory),
            timeout_millis: u64::try_from(spec.timeout.as_millis()).unwrap_or(u64::MAX),
            steps: messages(spec.steps),
        }
    }
}

impl TryFrom<v1::Dispatch> for Dispatch {
    type Error = ConvertError;

    fn try_from(dispatch: v1::Dispatch) -> Result<Self> {
        let timeout = Duration::from_millis(dispatch.timeout_millis);
        if timeout.is_zero() || timeout > MAX_TIMEOUT {
            return Err(ConvertError::invalid("timeout_millis", "not between 1 ms and 24 h"));
        }
        let service_account = dispatch.service_account.map(ServiceAccount::try_from).transpose();
        let default_namespace = dns("default_namespace", dispatch.default_namespace, MAX_DNS_LABEL_BYTES)?;
        let spec = DispatchSpec {
            namespace: dns("namespace", filled("namespace", dispatch.namespace)?, MAX_DNS_LABEL_BYTES)?,
            name: object_name("name", dispatch.name)?,
            default_namespace: Some(default_namespace).filter(|namespace| !namespace.is_empty()),
            service_account: service_account.map_err(|error| error.within("service_account"))?,
            timeout,
            steps: list("steps", dispatch.steps, MAX_STEPS)?,
        };
        let inventory = list("inventory", dispatch.inventory, MAX_OBJECTS)?;
        Ok(Self { key: key("key", dispatch.key)?, spec, inventory })
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

impl From<OwnedByAnother> for v1::OwnedByAnother {
    fn from(owned: OwnedByAnother) -> Self {
        Self { object: Some(owned.object.into()), owner: owned.owner }
    }
}

impl TryFrom<v1::OwnedByAnother> for OwnedByAnother {
    type Error = ConvertError;

    fn try_from(owned: v1::OwnedByAnother) -> Result<Self> {
        Ok(Self { object: object("object", owned.object)?, owner: text("owner", owned.owner)? })
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
            stage: v1::Stage::from(progress.stage).into(),
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
            stage: stage("stage", progress.stage)?,
            results: list("results", progress.results, MAX_OBJECTS)?,
            health: list("health", progress.health, MAX_OBJECTS)?,
        })
    }
}

impl From<Failure> for v1::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            stage: v1::Stage::from(failure.stage).into(),
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
            stage: stage("stage", failure.stage)?,
            message: text("message", failure.message)?,
            object: failure.object.map(|named| object("object", Some(named))).transpose()?,
            cancelled: failure.cancelled,
        })
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
        })
    }
}

#[cfg(test)]
mod tests;
