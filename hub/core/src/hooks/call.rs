//! Calls of Receivers: found by their paths, proven, and acted on.

use std::borrow::Cow;

use roadstead_api::{Receiver, ReceiverSpec, ReceiverType};
use roadstead_hooks::{
    BadPayload, Call, NotProven, Payload, WebhookPath, is_always_read, is_cd_event, is_listened_to, payload,
};
use roadstead_hub_store::Stored;
use roadstead_model::{AuditEntry, AuditOrigin, ResourceUid};
use serde_json::Value;

use crate::HubError;
use crate::hooks::Hooks;
use crate::hooks::choose::{Filters, Seen};
use crate::hooks::secret::Credentials;
use crate::objects::conditions::{self, READY};

/// A Receiver that is called.
pub struct Called {
    pub(super) stored: Stored,
    pub(super) spec: ReceiverSpec,
    pub(super) credentials: Credentials,
    filters: Filters,
    origin: AuditOrigin,
}

/// Why a call is not taken. The caller is told which of these, and no more.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// What should prove it does not.
    #[error(transparent)]
    NotProven(#[from] NotProven),
    /// It tells an event, or has a body, that callers of this type do not send.
    #[error(transparent)]
    Payload(#[from] BadPayload),
    /// The issuer of what the caller shows cannot be asked for its keys.
    #[error("ask issuer {issuer} for its keys: {why}")]
    Issuer {
        /// Its URL.
        issuer: String,
        /// Why not.
        why: String,
    },
    /// Something of the hub's own failed.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// A call that comes from whom it should.
pub struct Proven {
    /// What the caller's token claims; null where callers show none.
    pub(super) claims: Value,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acted {
    /// Of how many objects a reconciliation was asked for.
    pub objects: usize,
    /// Whether of all of which one was to be.
    pub in_full: bool,
}

impl Called {
    /// Which one it is: for counting its calls.
    #[must_use]
    pub fn uid(&self) -> ResourceUid {
        self.stored.uid
    }

    /// It is called by a request from there.
    #[must_use]
    pub fn asked_from(self, origin: AuditOrigin) -> Self {
        Self { origin, ..self }
    }

    /// Whether calls are taken: not while it is suspended, or not Ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready = self.stored.decode::<Receiver>().ok().and_then(|receiver| receiver.status);
        !self.spec.suspend
            && ready
                .is_some_and(|status| conditions::is_true(&status.conditions, READY, self.stored.generation))
    }

    /// Whether it acts on the event that a call tells.
    #[must_use]
    pub fn listens_to(&self, call: &Call<'_>) -> bool {
        is_listened_to(self.spec.type_, &self.spec.events, call)
    }

    /// What of a proven call's body is to be read as JSON before it is acted on; none where it is of no interest.
    ///
    /// # Errors
    /// [`NotTaken::Payload`] where callers of this type do not send such.
    pub fn payload<'a>(&self, call: &Call<'a>) -> Result<Option<Cow<'a, [u8]>>, NotTaken> {
        let is_read = self.filters.are_any() || is_always_read(self.spec.type_);
        Ok(match payload(self.spec.type_, call)? {
            Payload::Json(bytes) if is_read => Some(bytes),
            Payload::Json(_) | Payload::Nothing => None,
        })
    }

    /// That what is to be JSON is not, where callers of this type are known by nothing but that.
    #[must_use]
    pub fn unreadable(&self) -> Option<NotTaken> {
        is_always_read(self.spec.type_).then_some(NotTaken::Payload(BadPayload::Json))
    }

    /// Checks what was read of it.
    ///
    /// # Errors
    /// [`NotTaken::Payload`] where callers of this type do not send such.
    pub fn check(&self, call: &Call<'_>, req: &Value) -> Result<(), NotTaken> {
        match self.spec.type_ {
            ReceiverType::Cdevents => Ok(is_cd_event(call, req)?),
            _ => Ok(()),
        }
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.stored.namespace, self.stored.name)
    }
}

impl Hooks {
    /// The Receiver that is called at this path. None where nobody is called, whatever was there before: the token in its
    /// Secret counts as it is now.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn called(&self, path: &str) -> Result<Option<Called>, HubError> {
        let Some(path) = WebhookPath::parse(path) else { return Ok(None) };
        let Some(uid) = self.store.receiver_at(path.as_bytes()).await? else { return Ok(None) };
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(None) };
        if stored.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let spec = stored.decode::<Receiver>()?.spec;
        let Ok(credentials) = self.credentials(&stored, &spec).await? else { return Ok(None) };
        if !credentials.path(&stored).is(&path) {
            return Ok(None);
        }
        // A pass says what is wrong with them; until then it is not Ready for this generation.
        let filters = match Filters::parse(&spec) {
            Ok(filters) => filters,
            Err(why) => return Err(HubError::Unavailable(why)),
        };
        Ok(Some(Called { stored, spec, credentials, filters, origin: AuditOrigin::default() }))
    }

    /// Checks that a call comes from whom it should. Nothing of its body is parsed for that.
    ///
    /// # Errors
    /// [`NotTaken`] where it does not, which is noted in the audit log.
    pub async fn prove(&self, called: &Called, call: &Call<'_>) -> Result<Proven, NotTaken> {
        let proven = self.proven(called, call).await;
        if let Err(why) = &proven {
            self.note_refusal(called, why);
        }
        proven
    }

    /// Notes that a call was not taken, and why.
    pub fn note_refusal(&self, called: &Called, why: &NotTaken) {
        let detail = why.to_string();
        tracing::warn!(receiver = called.shown(), why = detail, "a call of a Receiver is not taken");
        self.audit.note_refusal(AuditEntry {
            username: "system:anonymous".to_owned(),
            origin: called.origin.clone(),
            verb: "call".to_owned(),
            group: called.stored.kind.get().group().to_owned(),
            kind: called.stored.kind.get().kind.to_owned(),
            namespace: called.stored.namespace.clone(),
            name: called.stored.name.clone(),
            detail,
            ..AuditEntry::default()
        });
    }

    /// Has the Receiver's objects reconciled, as far as its filters say so: what was read of the body is `req`. Where something is
    /// wrong with an object or an entry, the others are reconciled all the same, and why is logged.
    ///
    /// # Errors
    /// Where nothing could be looked up.
    pub async fn act(&self, called: Called, proven: Proven, req: Value) -> Result<Acted, HubError> {
        let receiver = called.shown();
        roadstead_trace::describe("namespace", called.stored.namespace.as_str());
        roadstead_trace::describe("name", called.stored.name.as_str());
        // What so many objects say is in memory for few calls at once.
        let _place = self.evaluations.acquire().await;
        let (candidates, mut failed) = self.candidates(&called).await?;
        let Called { stored, filters, origin, .. } = called;
        let seen = Seen { req, claims: proven.claims };
        // The memory of what was read is its request's; it goes on to its end where the caller leaves.
        let chosen = tokio::task::spawn_blocking(move || filters.choose(&seen, candidates)).await;
        let (chosen, why) = chosen.map_err(|_| HubError::Internal("a filter panicked".to_owned()))?;
        failed = failed.or(why);
        let (objects, why) = self.wake(&stored, chosen, &origin).await;
        failed = failed.or(why);
        let acted = Acted { objects, in_full: failed.is_none() };
        roadstead_trace::describe("objects", objects);
        roadstead_trace::describe("result", if acted.in_full { "acted" } else { "not in full" });
        if let Some(error) = failed {
            tracing::error!(receiver, objects, error, "a call of a Receiver is not acted on in full");
        } else {
            tracing::info!(receiver, objects, "a call of a Receiver asks for reconciliations");
        }
        Ok(acted)
    }
}
