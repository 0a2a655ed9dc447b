//! One fetch of the index of a repository over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use roadstead_budget::Reservation;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::error::{HelmError, Step, Why};
use super::known::LastIndex;
use super::reader::{Answered, Order, Reply, What};
use super::request::HelmIndexRequest;
use super::wire::{Came, Received, Wire};
use crate::artifact::Artifact;
use crate::attempt::{Desk, Ended, Engine, Limited, Room, Stop, TrustedBy, shown_url};
use crate::git::{Stored, StoredBytes};
use crate::reading::Job;
use crate::source::{Facts, Failed, Fetched, Outcome, Source};
use crate::tree::Measure;

/// What a reader is at, while it reads an index.
const ABOUT: &str = "index";

impl HelmIndexRequest {
    fn url(&self) -> String {
        shown_url(&self.server.url)
    }

    async fn run(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        stop: &Stop,
    ) -> Result<Outcome, HelmError> {
        let at = |why: Why| why.at(Step::FetchIndex);
        let home = super::url::repository(&self.server.url);
        let home = home.map_err(|why| at(Why::Url { url: self.url(), why }))?;
        let url = super::url::index(&home);
        let wire = Wire::new(&self.server, &self.bounds, stop, home).map_err(at)?;
        engine.admit(ABOUT).await.map_err(|ended| at(of_ended(ended)))?;
        stop.enter("waiting for who asks for the same index");
        let wanted = Instant::now();
        let turn = self.known_index.turn().await;
        let last = self.last(known).await;
        if let Some((last, had)) = &last
            && last.begun >= wanted
        {
            // It was asked for while this one waited.
            return self.same(last, had, (stop, turn)).await;
        }
        stop.enter("receiving the index");
        let begun = Instant::now();
        let validator = last.as_ref().and_then(|(last, _)| last.validator.as_ref());
        let most = (Measure::HelmIndexBytes, self.bounds.limits.index_bytes);
        let received = wire.get(&url, validator, most).await.map_err(at)?;
        match (received, last) {
            (Came::Unchanged, Some((last, had))) => {
                self.known_index.keep(LastIndex { begun, ..last.clone() });
                self.same(&last, &had, (stop, turn)).await
            }
            (Came::Unchanged, None) => Err(at(Why::Internal("nothing is known of it".to_owned()))),
            (Came::File(received), Some((last, had))) if received.digest == last.sent => {
                self.known_index.keep(LastIndex { validator: received.validator, begun, ..last.clone() });
                self.same(&last, &had, (stop, turn)).await
            }
            (Came::File(received), _) => self.read(*received, known, (engine, stop), (begun, turn)).await,
        }
    }

    /// What came last, where that is what the caller has, or is stored.
    async fn last(&self, known: Option<&Revision>) -> Option<(LastIndex, Had)> {
        let last = self.known_index.last()?;
        if Some(&last.revision) == known {
            return Some((last, Had::ByCaller));
        }
        let stored = self.indexes.as_ref()?.at(&last.revision).await?;
        Some((last, Had::Stored(stored)))
    }

    /// The index that came last is still the one.
    async fn same(
        &self,
        last: &LastIndex,
        had: &Had,
        (stop, turn): (&Stop, OwnedMutexGuard<()>),
    ) -> Result<Outcome, HelmError> {
        stop.progress().learn(last.revision.clone());
        let stored = match had {
            Had::ByCaller => return Ok(Outcome::Unchanged(last.revision.clone())),
            Had::Stored(stored) => stored.bytes().await,
        };
        let StoredBytes { bytes, held } = stored.map_err(|why| Why::Artifact(why).at(Step::FetchIndex))?;
        let brought = (Digest::of(&bytes), bytes, held);
        Ok(self.fetched(last.revision.clone(), brought, turn))
    }

    async fn read(
        &self,
        received: Received,
        known: Option<&Revision>,
        (engine, stop): (&dyn Engine, &Stop),
        (begun, turn): (Instant, OwnedMutexGuard<()>),
    ) -> Result<Outcome, HelmError> {
        let internal = |detail: &str| Why::Internal(detail.to_owned()).at(Step::LoadIndex);
        let limits = &self.bounds.limits;
        let mut desk = Desk::new(limits.index_artifact_bytes, self.bounds.room.clone(), stop);
        desk.answers.push(received.kept.answer);
        stop.enter("reading the index");
        let order = Order { limits: limits.clone(), what: What::Index };
        let order = Job::Helm(&order).encode().map_err(|error| internal(&error.to_string()))?;
        let reply = engine.run(ABOUT, order, &mut desk).await;
        let reply = reply.map_err(|ended| of_ended(ended).at(Step::LoadIndex))?;
        let (versions, dropped) = match serde_json::from_slice(&reply).map(|Answered { reply, .. }| reply) {
            Ok(Reply::Indexed { versions, dropped }) => (versions, dropped),
            Ok(Reply::Unread(unread)) => return Err(unread.of(self.url(), Step::LoadIndex)),
            Ok(_) => return Err(internal("the reader answers another question")),
            Err(_) => return Err(internal("the reader's reply cannot be parsed")),
        };
        let brought = desk.take_artifact();
        let brought = brought.ok_or_else(|| internal("the reader returned an incomplete index"))?;
        let digest = Digest::of(&brought.bytes);
        let revision: Revision = digest.to_string().parse().map_err(|_| internal("no revision"))?;
        // As soon as it is read, whatever it holds: the next request is then about what came now.
        stop.progress().learn(revision.clone());
        let (validator, sent) = (received.validator, received.digest);
        self.known_index.keep(LastIndex { validator, sent, revision: revision.clone(), begun });
        tracing::debug!(url = self.url(), versions, dropped, "the index of a Helm repository was read");
        if known == Some(&revision) {
            return Ok(Outcome::Unchanged(revision));
        }
        Ok(self.fetched(revision, (digest, brought.bytes, brought.held), turn))
    }

    fn fetched(
        &self,
        revision: Revision,
        (digest, bytes, room): (Digest, Vec<u8>, Option<Reservation>),
        turn: OwnedMutexGuard<()>,
    ) -> Outcome {
        let unpacked_bytes = bytes.len() as u64;
        Outcome::Fetched(Box::new(Fetched {
            revision,
            artifact: Artifact { digest, bytes, files: 1, unpacked_bytes },
            notes: Vec::new(),
            metadata: BTreeMap::new(),
            verified: None,
            facts: Facts::Index(unpacked_bytes),
            room,
            // Others wait for it to be stored only where they would find it.
            turn: self.indexes.is_some().then_some(turn),
        }))
    }
}

/// Who has the index that came last.
enum Had {
    ByCaller,
    Stored(Arc<dyn Stored>),
}

/// What ended a reader.
pub(super) fn of_ended(Ended { why, transient }: Ended) -> Why {
    Why::Ended { why, transient }
}

#[async_trait]
impl Source for HelmIndexRequest {
    async fn fetch(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        cancel: &CancellationToken,
    ) -> Result<Outcome, Failed> {
        let timeout = self.bounds.timeout;
        let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
        let (url, trust) = (self.url(), TrustedBy::CertSecretRef);
        let limited = Limited { kind: "Helm index", url, trust, timeout, stop: &stop, cancel };
        let outcome = limited.run(self.run(known, engine, &stop)).await;
        outcome.map_err(|error| stop.progress().failed(error.or_at(Step::FetchIndex)))
    }

    fn shown_url(&self) -> String {
        self.url()
    }

    fn has_credentials(&self) -> bool {
        self.server.login.is_some()
    }

    fn tolerated(&self) -> Option<Refusal> {
        self.server.guard.tolerated()
    }

    fn reserve_in(&mut self, room: Room) {
        self.bounds.room = Some(room);
    }
}
