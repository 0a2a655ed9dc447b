//! What a message of an agent's leads to.

use std::sync::Arc;

use jiff::Timestamp;
use roadstead_hub_core::clusters::Session;
use roadstead_hub_core::clusters::pki::AgentIdentity;
use roadstead_hub_core::{Hub, HubError};
use roadstead_listener::Paces;
use roadstead_model::{ClusterUid, DispatchKey, OrderKind, RelayedEvent};
use roadstead_proto::limits::{MAX_PEM_BYTES, bounded};
use roadstead_proto::v1::{self, Certificate, Refused, agent_message, hub_message};
use roadstead_proto::{
    AgentState, Backlog, ConvertError, Correction, DriftReport, Finished, HealthReport, InventoryAck,
    InventoryIntent, OwnedByAnother, Progress, Tended,
};
use tonic::Status;

use crate::{convert, status};

/// What is refused because something newer has taken its place.
const STALE: &str = "stale";

/// What handling a message led to.
pub(super) enum Answer {
    /// Nothing to be said.
    Silence,
    /// These, in this order.
    Say(Vec<hub_message::Body>),
    /// The session cannot go on: what was told has not been recorded, and is to be told again.
    Cut(Status),
    /// A new certificate, and when it expires: until then the session may go on.
    Renewed(Certificate, Timestamp),
}

fn silence(done: Result<(), HubError>) -> Answer {
    match done {
        Ok(()) => Answer::Silence,
        Err(error) => Answer::Cut(status(&error)),
    }
}

/// Handles one message.
pub(super) struct Handler {
    pub(super) hub: Hub,
    pub(super) session: Session,
    pub(super) identity: AgentIdentity,
    pub(super) seq: u64,
    pub(super) order: Option<(u64, OrderKind)>,
    pub(super) warnings: Arc<Paces<ClusterUid>>,
    /// A certificate was asked for a moment ago.
    pub(super) too_soon: bool,
}

impl Handler {
    /// A line of warning about what the agent says, which it could say as often as it likes.
    fn warn(&self, what: &str, message: &str) {
        if let Some(left_out) = self.warnings.next(self.session.cluster) {
            let cluster = self.session.name.as_str();
            tracing::warn!(
                cluster,
                seq = self.seq,
                what,
                message,
                left_out,
                "a message between an agent and the hub was refused"
            );
        }
    }

    pub(super) async fn handle(&self, body: Option<agent_message::Body>) -> Answer {
        use agent_message::Body;
        match body {
            None => {
                self.refuse(None, "body", "a message of a kind that this hub does not support".to_owned())
            }
            Some(Body::Hello(_)) => Answer::Cut(Status::invalid_argument("a second Hello arrived")),
            // They are answered before it comes to this.
            Some(Body::Heartbeat(_) | Body::BuildRequest(_)) => Answer::Silence,
            Some(Body::InventoryIntent(intent)) => {
                let key = intent.key.clone();
                match InventoryIntent::try_from(intent) {
                    Ok(intent) => self.intent(intent).await,
                    Err(error) => self.not_understood(key, "inventory_intent", &error),
                }
            }
            Some(Body::Progress(progress)) => match Progress::try_from(progress) {
                Ok(progress) => self.progress(&progress),
                Err(error) => self.not_understood(None, "progress", &error),
            },
            Some(Body::Finished(finished)) => {
                let key = finished.key.clone();
                match Finished::try_from(finished) {
                    Ok(finished) => self.finished(finished).await,
                    Err(error) => self.unreadable_result(key, &error).await,
                }
            }
            Some(Body::Backlog(backlog)) => match Backlog::try_from(backlog) {
                Ok(backlog) => self.backlog(backlog).await,
                Err(error) => self.not_understood(None, "backlog", &error),
            },
            Some(Body::ApiServer(told)) => {
                let why = (!told.unreachable.is_empty()).then(|| bounded(&told.unreachable));
                silence(self.hub.sessions.apiserver_told(&self.session, why.as_deref()).await)
            }
            Some(Body::Correction(correction)) => match Correction::try_from(correction) {
                Ok(correction) => {
                    let correction = convert::correction(correction);
                    silence(self.hub.delivery.corrected(&self.session, &correction).await)
                }
                Err(error) => self.not_understood(None, "correction", &error),
            },
            Some(Body::Tended(tended)) => match Tended::try_from(tended) {
                Ok(Tended { begun, ended }) => {
                    silence(self.hub.delivery.tended(&self.session, &begun, &ended).await)
                }
                Err(error) => self.not_understood(None, "tended", &error),
            },
            Some(Body::HealthReport(report)) => match HealthReport::try_from(report) {
                Ok(report) => {
                    let report = convert::health(report);
                    silence(self.hub.delivery.health_reported(&self.session, &report).await)
                }
                Err(error) => self.not_understood(None, "health_report", &error),
            },
            Some(Body::DriftReport(report)) => match DriftReport::try_from(report) {
                Ok(DriftReport { key, objects, total }) => {
                    let report = roadstead_hub_core::delivery::DriftReport { key, objects, total };
                    silence(self.hub.delivery.drift_reported(&self.session, &report).await)
                }
                Err(error) => self.not_understood(None, "drift_report", &error),
            },
            Some(Body::KeysChanged(changed)) => match roadstead_proto::convert::key("key", changed.key) {
                Ok(key) => silence(self.hub.delivery.keys_changed(&self.session, &key).await),
                Err(error) => self.not_understood(None, "keys_changed", &error),
            },
            Some(Body::RelayedEvents(events)) => match roadstead_proto::convert::relayed_events(events) {
                Ok(events) => self.relayed(events).await,
                Err(error) => self.not_understood(None, "relayed_events", &error),
            },
            Some(Body::AgentState(state)) => match AgentState::try_from(state) {
                Ok(state) => {
                    let state = convert::state(state);
                    silence(self.hub.sessions.state_told(&self.session, &state).await)
                }
                Err(error) => self.not_understood(None, "agent_state", &error),
            },
            Some(Body::Refused(refused)) => self.refused(refused).await,
            Some(Body::CertificateRequest(request)) => self.renew(&request.csr_pem),
            Some(Body::UpgradeReport(report)) => match convert::upgrade_report(&report) {
                Some(report) => silence(self.hub.agents.upgrade_reported(&self.session, &report).await),
                None => self.refuse(
                    None,
                    "upgrade_report.state",
                    "a state that this hub does not know".to_owned(),
                ),
            },
            Some(Body::RemovalReport(report)) => {
                let failed = (!report.error.is_empty()).then(|| bounded(&report.error));
                silence(self.hub.agents.removal_reported(&self.session, failed.as_deref()).await)
            }
        }
    }

    async fn intent(&self, intent: InventoryIntent) -> Answer {
        let InventoryIntent { key, objects } = intent;
        match self.hub.delivery.announce(&self.session, &key, &objects).await {
            Ok(contested) => {
                let owned_by_another =
                    contested.into_iter().map(|(object, owner)| OwnedByAnother { object, owner }).collect();
                let ack = v1::InventoryAck::from(InventoryAck { key, owned_by_another });
                Answer::Say(vec![hub_message::Body::InventoryAck(ack)])
            }
            Err(HubError::Gone(why)) => self.refuse(Some((&key).into()), STALE, why),
            Err(HubError::BadRequest(why)) => {
                self.warn("the agent's intended inventory", &why);
                self.refuse(Some((&key).into()), "inventory_intent.objects", why)
            }
            Err(error) => Answer::Cut(status(&error)),
        }
    }

    fn progress(&self, progress: &Progress) -> Answer {
        for result in &progress.results {
            tracing::debug!(
                cluster = self.session.name,
                applier = %progress.key.applier,
                step = progress.position.step,
                stage = ?progress.position.stage,
                object = %result.object,
                action = result.action.as_str(),
                "progress"
            );
        }
        self.hub.sessions.note_progress(
            &self.session,
            &progress.key,
            progress.position,
            &progress.results,
            progress
                .health
                .iter()
                .map(|health| (health.object.clone(), format!("{:?}: {}", health.status, health.message))),
        );
        Answer::Silence
    }

    async fn relayed(&self, events: Vec<RelayedEvent>) -> Answer {
        match self.hub.notify.relay(&self.session, events).await {
            Ok(0) => Answer::Silence,
            Ok(left_out) => {
                let why = format!(
                    "{left_out} were discarded: too many events of this cluster wait to be matched with Alerts"
                );
                self.warn("events of Flux in the cluster", &why);
                Answer::Silence
            }
            Err(error) => Answer::Cut(status(&error)),
        }
    }

    async fn backlog(&self, backlog: Backlog) -> Answer {
        let Backlog { waiting, started } = backlog;
        let started = started.into_iter().map(|started| (started.key, started.ago)).collect::<Vec<_>>();
        silence(self.hub.delivery.backlog_reported(&self.session, &waiting, &started).await)
    }

    async fn finished(&self, finished: Finished) -> Answer {
        match self.hub.delivery.dispatch_finished(&self.session, &convert::finished(finished)).await {
            Ok(()) => Answer::Silence,
            Err(error) => Answer::Cut(status(&error)),
        }
    }

    /// A result that cannot be read will not be told in another way: it is not waited for.
    async fn unreadable_result(&self, key: Option<v1::DispatchKey>, error: &ConvertError) -> Answer {
        if let Some(Ok(key)) = key.clone().map(DispatchKey::try_from) {
            let why = format!("this hub cannot read its result ({error}); their versions may differ");
            if let Err(error) = self.hub.delivery.dispatch_lost(&self.session, &key, &why).await {
                return Answer::Cut(status(&error));
            }
        }
        self.not_understood(key, "finished", error)
    }

    async fn refused(&self, refused: Refused) -> Answer {
        let (what, message) = (bounded(&refused.what), bounded(&refused.message));
        self.warn(&format!("message {} of the hub, by the agent: {what}", refused.seq), &message);
        if let Some((_, order)) = self.order.as_ref().filter(|(seq, _)| *seq == refused.seq) {
            return silence(self.hub.agents.order_refused(&self.session, order, &message).await);
        }
        // A stale dispatch has been superseded; anything else would be waited for in vain.
        let key = refused.key.and_then(|key| DispatchKey::try_from(key).ok()).filter(|_| what != STALE);
        let Some(key) = key else { return Answer::Silence };
        let why = format!("it was refused: {message}");
        match self.hub.delivery.dispatch_lost(&self.session, &key, &why).await {
            Ok(()) => Answer::Silence,
            Err(error) => Answer::Cut(status(&error)),
        }
    }

    fn renew(&self, csr_pem: &str) -> Answer {
        let refused = |why: &str| {
            let certificate = Certificate { error: why.to_owned(), ..Certificate::default() };
            Answer::Say(vec![hub_message::Body::Certificate(certificate)])
        };
        if self.too_soon {
            return refused("a certificate was requested only a moment ago");
        }
        if csr_pem.len() > MAX_PEM_BYTES {
            return refused("the certificate request is too long");
        }
        match self.hub.enrolments.renew(&self.identity, csr_pem) {
            Ok(new) => {
                let certificate = Certificate { certificate_pem: new.pem, error: String::new() };
                Answer::Renewed(certificate, new.expires)
            }
            Err(error) => refused(status(&error).message()),
        }
    }

    fn refuse(&self, key: Option<v1::DispatchKey>, what: &str, message: String) -> Answer {
        let refused = Refused { seq: self.seq, key, what: what.to_owned(), message };
        Answer::Say(vec![hub_message::Body::Refused(refused)])
    }

    fn not_understood(&self, key: Option<v1::DispatchKey>, body: &str, error: &ConvertError) -> Answer {
        self.warn(&format!("a message of the agent: {body}"), &error.to_string());
        // The key is told back only where it is one.
        let key = key.and_then(|key| DispatchKey::try_from(key).ok()).map(v1::DispatchKey::from);
        self.refuse(key, error.field(), format!("{body}: {error}"))
    }
}
