//! One fetch of the index of a repository over HTTP.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

use super::error::{HelmError, Step, Why};
use super::reader::{Order, Reply, What};
use super::request::HelmIndexRequest;
use super::wire::{Came, Received, Wire};
use crate::artifact::Artifact;
use crate::attempt::{Desk, Ended, Engine, Limited, Room, Stop, TrustedBy, shown_url};
use crate::reading::Job;
use crate::source::{FetchError, Fetched, Outcome, Source};
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
        stop.enter("receiving the index");
        let validator = self.known_index.validator(known);
        let most = (Measure::HelmIndexBytes, self.bounds.limits.index_bytes);
        let received = match wire.get(&url, validator.as_ref(), most).await.map_err(at)? {
            Came::File(received) => *received,
            Came::Unchanged => match known {
                Some(known) => return Ok(Outcome::Unchanged(known.clone())),
                None => return Err(at(Why::Internal("nothing is known of it".to_owned()))),
            },
        };
        self.read(received, known, engine, stop).await
    }

    async fn read(
        &self,
        received: Received,
        known: Option<&Revision>,
        engine: &dyn Engine,
        stop: &Stop,
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
        let (versions, dropped) = match serde_json::from_slice(&reply) {
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
        self.known_index.keep(received.validator, &revision);
        tracing::debug!(url = self.url(), versions, dropped, "the index of a Helm repository was read");
        if known == Some(&revision) {
            return Ok(Outcome::Unchanged(revision));
        }
        let unpacked_bytes = brought.bytes.len() as u64;
        let artifact = Artifact { digest, bytes: brought.bytes, files: 1, unpacked_bytes };
        Ok(Outcome::Fetched(Box::new(Fetched {
            revision,
            artifact,
            notes: Vec::new(),
            metadata: BTreeMap::new(),
            verified: None,
            chart: None,
            room: brought.held,
        })))
    }
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
    ) -> Result<Outcome, FetchError> {
        let timeout = self.bounds.timeout;
        let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
        let (url, trust) = (self.url(), TrustedBy::CertSecretRef);
        let limited = Limited { kind: "Helm index", url, trust, timeout, stop: &stop, cancel };
        let outcome = limited.run(self.run(known, engine, &stop)).await;
        Ok(outcome.map_err(|error| error.or_at(Step::FetchIndex))?)
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
