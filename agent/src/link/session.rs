//! A session after its welcome: one loop that reads, answers, sends what is pending, and notices silence.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_agent_policy::Signature;
use roadstead_model::{Capabilities, Capability, Dispatch, DispatchKey};
use roadstead_proto::capabilities::fit_to_hub;
use roadstead_proto::limits::{bounded, fits};
use roadstead_proto::v1::{
    self, AgentMessage, BuildRequest, CertificateRequest, Heartbeat, HubMessage, Refused, Welcome,
    agent_message, hub_message,
};
use roadstead_proto::{AgentState, ConvertError, Finished, InventoryAck, convert};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::connect::{Opened, ended};
use super::{End, Keeper};
use crate::cluster::Cluster;
use crate::identity::Identity;
use crate::outbox::{Next, Outgoing};
use crate::runner::Runner;
use crate::upgrade::Report;

/// What a hub may ask for as the span between heartbeats.
const HEARTBEAT: std::ops::RangeInclusive<u64> = 50..=60_000;

/// How long to wait for the hub's side of the stream to end after ours did.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long to wait before a certificate is asked for again.
const RENEW_AGAIN: Duration = Duration::from_secs(60);

/// How many signatures of an image are looked at.
const MAX_SIGNATURES: usize = 16;

/// What either side calls a dispatch that something newer has taken the place of.
const STALE: &str = "stale";

/// Whether the cluster has begun to remove the agent; the error is for the hub.
type Removed = Result<(), String>;

/// A message that must not be lost, by its number.
enum Awaited {
    /// What was corrected.
    Correction(u64),
    /// How what was waited for is.
    Health(u64),
    /// What differs from what was applied.
    Drift(u64),
    /// What Flux's controllers have told, up to this one.
    Relayed(u64),
    Intent(DispatchKey),
    Finished(DispatchKey),
}

pub(super) struct Session<'a, C, K> {
    runner: &'a Runner<C>,
    keeper: Arc<K>,
    identity: Arc<Identity>,
    opened: Opened,
    /// The hub's.
    capabilities: Capabilities,
    heartbeat: Duration,
    heard: Instant,
    said: Instant,
    renew_at: Instant,
    /// In the order of their numbers.
    awaited: Vec<(u64, Awaited)>,
    upgrades: watch::Receiver<Option<Report>>,
    apiserver: watch::Receiver<Option<String>>,
    state: watch::Receiver<AgentState>,
    /// What came of the agent's own removal.
    removed: (mpsc::Sender<Removed>, mpsc::Receiver<Removed>),
}

impl<'a, C: Cluster, K: Keeper> Session<'a, C, K> {
    pub(super) fn new(
        runner: &'a Runner<C>,
        keeper: Arc<K>,
        identity: Arc<Identity>,
        opened: Opened,
        welcome: &Welcome,
        upgrades: watch::Receiver<Option<Report>>,
    ) -> Self {
        let now = Instant::now();
        let heartbeat = u64::from(welcome.heartbeat_millis).clamp(*HEARTBEAT.start(), *HEARTBEAT.end());
        let mut apiserver = keeper.apiserver();
        if apiserver.borrow_and_update().is_some() {
            // The hub takes it for one that answers until it is told.
            apiserver.mark_changed();
        }
        let mut state = keeper.state();
        if *state.borrow_and_update() != AgentState::default() {
            // The hub takes it that there is nothing to be said.
            state.mark_changed();
        }
        Self {
            runner,
            upgrades,
            apiserver,
            state,
            removed: mpsc::channel(1),
            keeper,
            renew_at: now + identity.validity.renew_in(Timestamp::now()),
            identity,
            opened,
            capabilities: Capabilities::named(&welcome.capabilities),
            heartbeat: Duration::from_millis(heartbeat),
            heard: now,
            said: now,
            awaited: Vec::new(),
        }
    }

    /// Runs the session to its end.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> End {
        self.runner.allow_corrections(self.capabilities.has(Capability::Corrections));
        self.runner.allow_health(self.capabilities.has(Capability::HealthAfterReady));
        self.runner.hub_is_there(true);
        self.runner.builds().begin_session();
        self.runner.outbox().begin_session();
        if self.capabilities.has(Capability::RelayedEvents) {
            self.runner.outbox().relayed().begin_session();
        } else if !self.runner.outbox().relayed().is_drained() {
            tracing::warn!(
                "events from Flux are kept until the hub is upgraded: this version of it does not accept them"
            );
        }
        let runner = self.runner;
        let end = match self.converse(stop).await {
            Ok(()) => {
                self.say_goodbye().await;
                End::Stopped
            }
            Err(end) => end,
        };
        runner.outbox().end_session();
        runner.hub_is_there(false);
        end
    }

    /// Reads and writes until `stop`, or until the session cannot go on.
    async fn converse(&mut self, stop: &CancellationToken) -> Result<(), End> {
        let silence = self.heartbeat * 3;
        loop {
            let wake = self.send_pending();
            let has_room = self.opened.to_hub.capacity() > 0;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                message = self.opened.from_hub.message() => {
                    let message = message.map_err(|status| ended(&status))?;
                    let message = message.ok_or_else(|| End::Closed("it closed the stream".to_owned()))?;
                    self.heard = Instant::now();
                    self.receive(message)?;
                }
                () = self.runner.outbox().changed(), if has_room => {}
                // A permit is taken and given back: there is room now.
                () = async { drop(self.opened.to_hub.reserve().await) }, if !has_room => {}
                () = sleep_until(wake.unwrap_or(self.heard)), if wake.is_some() => {}
                () = sleep_until(self.said + self.heartbeat), if has_room => {
                    self.send(agent_message::Body::Heartbeat(Heartbeat {}));
                }
                () = sleep_until(self.heard + silence) => return Err(End::Silent(silence)),
                () = sleep_until(self.renew_at), if has_room => self.ask_for_a_certificate(),
                Ok(()) = self.upgrades.changed(), if has_room => {
                    let report = self.upgrades.borrow_and_update().clone();
                    if let Some(report) = report {
                        self.send(agent_message::Body::UpgradeReport(report.into()));
                    }
                }
                Ok(()) = self.apiserver.changed(), if has_room => {
                    let why = self.apiserver.borrow_and_update().clone();
                    // An older hub would not understand it.
                    if self.capabilities.has(Capability::ApiServer) {
                        let unreachable = why.map(|why| bounded(&why)).unwrap_or_default();
                        self.send(agent_message::Body::ApiServer(v1::ApiServer { unreachable }));
                    }
                }
                Ok(()) = self.state.changed(), if has_room => {
                    let state = self.state.borrow_and_update().clone();
                    if self.capabilities.has(Capability::DriftReports) {
                        self.send(agent_message::Body::AgentState(state.into()));
                    }
                }
                Some(removed) = self.removed.1.recv(), if has_room => {
                    let error = removed.err().map(|why| bounded(&why)).unwrap_or_default();
                    self.send(agent_message::Body::RemovalReport(v1::RemovalReport { error }));
                }
            }
        }
    }

    /// Sends what is pending while there is room; gives the time at which more will be due.
    fn send_pending(&mut self) -> Option<Instant> {
        while self.opened.to_hub.capacity() > 0 {
            match self.runner.outbox().next(Instant::now()) {
                Next::Message(message) => self.send_outgoing(*message),
                Next::At(due) => return Some(due),
                Next::Nothing => return None,
            }
        }
        None
    }

    fn send_outgoing(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Refused(refused) => {
                self.send(agent_message::Body::Refused(refused));
            }
            Outgoing::Build(digest) => {
                self.send(agent_message::Body::BuildRequest(BuildRequest { digest: digest.to_string() }));
            }
            Outgoing::Intent(intent) => {
                let key = intent.key.clone();
                let message = v1::InventoryIntent::from(intent);
                if fits(&message) {
                    let seq = self.send(agent_message::Body::InventoryIntent(message));
                    self.awaited.push((seq, Awaited::Intent(key)));
                } else {
                    let why = "it exceeds the maximum message size: split the Kustomization".to_owned();
                    self.runner.outbox().answer_intent(&key, Err(why));
                }
            }
            Outgoing::Progress(progress) => {
                let message = v1::Progress::from(progress);
                if fits(&message) {
                    self.send(agent_message::Body::Progress(message));
                } else {
                    tracing::warn!(
                        "the progress does not fit in one message: the hub receives it when the dispatch ends"
                    );
                }
            }
            Outgoing::Backlog(backlog) => {
                let message = v1::Backlog::from(backlog);
                // An older hub counts from when it sent the dispatch.
                if self.capabilities.has(Capability::Backlog) && fits(&message) {
                    self.send(agent_message::Body::Backlog(message));
                }
            }
            Outgoing::Correction(number, correction) => {
                if self.capabilities.has(Capability::Corrections) {
                    let seq = self.send(agent_message::Body::Correction(correction.into()));
                    self.awaited.push((seq, Awaited::Correction(number)));
                } else {
                    // Nobody is there to be told.
                    self.runner.outbox().confirm_correction(number);
                }
            }
            Outgoing::Tended(tended) => {
                if self.capabilities.has(Capability::Corrections) {
                    self.send(agent_message::Body::Tended(tended.into()));
                }
            }
            Outgoing::Health(number, report) => {
                if self.capabilities.has(Capability::HealthAfterReady) {
                    let seq = self.send(agent_message::Body::HealthReport(report.into()));
                    self.awaited.push((seq, Awaited::Health(number)));
                } else {
                    // Nobody is there to be told.
                    self.runner.outbox().confirm_report(number);
                }
            }
            Outgoing::Drift(number, report) => {
                let message = v1::DriftReport::from(report);
                if self.capabilities.has(Capability::DriftReports) && fits(&message) {
                    let seq = self.send(agent_message::Body::DriftReport(message));
                    self.awaited.push((seq, Awaited::Drift(number)));
                } else {
                    // Nobody is there to be told.
                    self.runner.outbox().confirm_drift(number);
                }
            }
            Outgoing::KeysChanged(key) => {
                // An older hub tries again when it would have anyway.
                if self.capabilities.has(Capability::KeyChanges) {
                    let key = Some(key.into());
                    self.send(agent_message::Body::KeysChanged(v1::KeysChanged { key }));
                }
            }
            Outgoing::Relayed(last, events) => {
                let events = events.into_iter().map(v1::RelayedEvent::from).collect();
                let seq = self.send(agent_message::Body::RelayedEvents(v1::RelayedEvents { events }));
                self.awaited.push((seq, Awaited::Relayed(last)));
            }
            Outgoing::Finished(finished) => {
                let key = finished.key.clone();
                let seq = self.send(agent_message::Body::Finished(fitting(finished)));
                self.awaited.push((seq, Awaited::Finished(key)));
            }
        }
    }

    /// Sends a message for which there is room, and gives its number.
    fn send(&mut self, mut body: agent_message::Body) -> u64 {
        fit_to_hub(&self.capabilities, &mut body);
        let (seq, ack) = self.opened.counts.stamp();
        self.said = Instant::now();
        // Where the transport is gone already, reading tells why.
        let _ = self.opened.to_hub.try_send(AgentMessage { seq, ack, body: Some(body) });
        seq
    }

    fn ask_for_a_certificate(&mut self) {
        self.renew_at = Instant::now() + RENEW_AGAIN;
        match self.identity.key.csr() {
            Ok(csr_pem) => {
                self.send(agent_message::Body::CertificateRequest(CertificateRequest { csr_pem }));
            }
            Err(error) => tracing::error!(%error, "could not request a certificate"),
        }
    }

    /// Takes in one message.
    fn receive(&mut self, message: HubMessage) -> Result<(), End> {
        let HubMessage { seq, ack, body } = message;
        self.opened.counts.receive(seq, ack).map_err(|error| End::Protocol(error.to_string()))?;
        let refusal = match body {
            None => Some(refused(
                seq,
                None,
                "body",
                "a message of a kind that this agent does not support".to_owned(),
            )),
            Some(hub_message::Body::Welcome(_)) => {
                return Err(End::Protocol("it sent a second welcome".to_owned()));
            }
            Some(hub_message::Body::Heartbeat(_)) => None,
            Some(hub_message::Body::Dispatch(dispatch)) => self.dispatch(seq, dispatch),
            Some(hub_message::Body::BuildChunk(chunk)) => {
                self.runner.builds().take(&chunk);
                None
            }
            Some(hub_message::Body::InventoryAck(ack)) => match InventoryAck::try_from(ack) {
                Ok(ack) => {
                    let key = ack.key.clone();
                    self.awaited
                        .retain(|(_, awaited)| !matches!(awaited, Awaited::Intent(intent) if *intent == key));
                    self.runner.outbox().answer_intent(&key, Ok(ack));
                    None
                }
                Err(error) => Some(not_understood(seq, None, "inventory_ack", &error)),
            },
            Some(hub_message::Body::Cancel(cancel)) => match convert::key("key", cancel.key) {
                Ok(key) => {
                    self.runner.cancel(&key);
                    None
                }
                Err(error) => Some(not_understood(seq, None, "cancel", &error)),
            },
            Some(hub_message::Body::Rest(rest)) => match rest.applier_uid.parse() {
                Ok(applier) => {
                    self.runner.rest(applier, rest.health_goes_on);
                    None
                }
                Err(_) => Some(refused(seq, None, "rest.applier_uid", "it is not a uid".to_owned())),
            },
            Some(hub_message::Body::Refused(refused)) => {
                self.was_refused(&refused);
                None
            }
            Some(hub_message::Body::Certificate(certificate)) => {
                self.take_certificate(certificate);
                None
            }
            Some(hub_message::Body::Upgrade(upgrade)) => {
                let (keeper, timeout) = (self.keeper.clone(), Duration::from_millis(upgrade.timeout_millis));
                let signatures = upgrade.signatures.into_iter().take(MAX_SIGNATURES);
                let signatures = signatures
                    .map(|one| Signature { payload: one.payload, signature: one.signature })
                    .collect();
                tokio::spawn(async move { keeper.upgrade(upgrade.image, timeout, signatures).await });
                None
            }
            Some(hub_message::Body::Remove(_)) => {
                let (keeper, removed) = (self.keeper.clone(), self.removed.0.clone());
                // Whoever listens is gone with the session; the hub asks again in the next.
                tokio::spawn(async move { removed.send(keeper.remove().await).await });
                None
            }
        };
        self.confirm(ack);
        if refusal.is_none_or(|refusal| self.runner.outbox().refuse(refusal)) {
            Ok(())
        } else {
            Err(End::Protocol("too many of its messages could not be read".to_owned()))
        }
    }

    fn dispatch(&self, seq: u64, dispatch: v1::Dispatch) -> Option<Refused> {
        let key = dispatch.key.clone();
        match Dispatch::try_from(dispatch) {
            Err(error) => Some(not_understood(seq, key, "dispatch", &error)),
            Ok(dispatch) => {
                let name = dispatch.spec.applier.to_string();
                let not_taken = self.runner.dispatch(dispatch).err()?;
                tracing::warn!(applier = name, reason = %not_taken, "a dispatch was refused");
                Some(refused(seq, key, not_taken.what(), not_taken.to_string()))
            }
        }
    }

    /// The hub has taken in everything up to `ack`.
    fn confirm(&mut self, ack: u64) {
        let outbox = self.runner.outbox();
        self.awaited.retain(|(seq, awaited)| match awaited {
            Awaited::Finished(key) if *seq <= ack => {
                outbox.confirm_finished(key);
                false
            }
            Awaited::Correction(number) if *seq <= ack => {
                outbox.confirm_correction(*number);
                false
            }
            Awaited::Health(number) if *seq <= ack => {
                outbox.confirm_report(*number);
                false
            }
            Awaited::Drift(number) if *seq <= ack => {
                outbox.confirm_drift(*number);
                false
            }
            Awaited::Relayed(last) if *seq <= ack => {
                outbox.relayed().settle(*last, true);
                false
            }
            _ => true,
        });
    }

    /// The hub did not understand, or want, something: it must not be told again for ever.
    fn was_refused(&mut self, refused: &Refused) {
        let (what, message) = (bounded(&refused.what), bounded(&refused.message));
        tracing::warn!(seq = refused.seq, what, message, "the hub refused a message");
        let Some(at) = self.awaited.iter().position(|(seq, _)| *seq == refused.seq) else { return };
        match self.awaited.remove(at).1 {
            // Superseded: whoever waits for the answer learns that it is not awaited any more.
            Awaited::Intent(key) if what == STALE => self.runner.outbox().withdraw_intent(&key),
            Awaited::Intent(key) => {
                self.runner.outbox().answer_intent(&key, Err(format!("{what}: {message}")));
            }
            Awaited::Finished(key) => self.runner.outbox().confirm_finished(&key),
            Awaited::Correction(number) => self.runner.outbox().confirm_correction(number),
            Awaited::Health(number) => self.runner.outbox().confirm_report(number),
            Awaited::Drift(number) => self.runner.outbox().confirm_drift(number),
            Awaited::Relayed(last) => self.runner.outbox().relayed().settle(last, false),
        }
    }

    fn take_certificate(&mut self, certificate: v1::Certificate) {
        if !certificate.error.is_empty() {
            tracing::warn!(error = bounded(&certificate.error), "the hub did not renew the certificate");
            return;
        }
        match self.identity.renewed(certificate.certificate_pem) {
            Ok(identity) => {
                tracing::info!(not_after = %identity.validity.not_after, "the certificate was renewed");
                self.renew_at =
                    Instant::now() + identity.validity.renew_in(Timestamp::now()).max(RENEW_AGAIN);
                self.identity = Arc::new(identity.clone());
                let keeper = self.keeper.clone();
                // Keeping it takes requests to the apiserver, and the session must not wait for those.
                tokio::spawn(async move { keeper.renewed(identity).await });
            }
            Err(error) => tracing::warn!(%error, "the renewed certificate cannot be used"),
        }
    }

    /// Sends what is left, ends our side, and gives the hub a moment to take that in.
    async fn say_goodbye(mut self) {
        self.send_pending();
        let Opened { to_hub, mut from_hub, .. } = self.opened;
        drop(to_hub);
        let ended = async { while let Ok(Some(_)) = from_hub.message().await {} };
        // A hub that does not answer is left alone.
        let _ = tokio::time::timeout(GOODBYE, ended).await;
    }
}

/// A refusal of what came as `seq`.
fn refused(seq: u64, key: Option<v1::DispatchKey>, what: &str, message: String) -> Refused {
    Refused { seq, key, what: what.to_owned(), message }
}

fn not_understood(seq: u64, key: Option<v1::DispatchKey>, body: &str, error: &ConvertError) -> Refused {
    tracing::warn!(seq, body, %error, "a message from the hub was refused");
    refused(seq, key, error.field(), format!("{body}: {error}"))
}

/// The message, with less of a change set that would not fit: what did not change first, then all of it.
fn fitting(mut finished: Finished) -> v1::Finished {
    let message = v1::Finished::from(finished.clone());
    if fits(&message) {
        return message;
    }
    finished.change_set.retain(|result| result.action != roadstead_model::Action::Unchanged);
    let message = v1::Finished::from(finished.clone());
    if fits(&message) {
        return message;
    }
    finished.change_set.clear();
    finished.into()
}
