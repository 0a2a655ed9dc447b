//! Closing messages of incidents that their Alerts no longer report where they were reported: the Alert was deleted or names another Provider, or the Provider was
//! deleted. Without one an incident would stay open for ever at services that open and close incidents.
//!
//! What a message needs is noted in the unit of work that deletes the Alert, or by the first pass that finds another Provider. Any replica claims it; it is retried and
//! given up as deliveries are. For a deleted Provider only the Secrets and accounts are used that it had when it was deleted: others may own those names by now. So where
//! its Secret is deleted at the same time, the message may not arrive, which is logged and counted.

use std::time::Duration;

use bytes::Bytes;
use roadstead_api::{Alert, AlertSpec, KindId, Provider};
use roadstead_hub_store::{Attempted, ClosedIncident, Closing, DeletedObject, IncidentId, Stored};
use roadstead_model::ResourceUid;
use roadstead_notify::{ClosingReason, Event, Incident, Lapsed, Takes, backoff, takes};
use serde_json::json;

use crate::HubError;
use crate::clock::MOST_APART;
use crate::meters::Delivered;
use crate::notify::send::{Came, Message};
use crate::notify::words::Words;
use crate::notify::{LOGGER, Notifier};

/// Whoever tries one has it for so long: a delivery takes a minute at most.
const LEASE: Duration = Duration::from_secs(120);
/// While a Provider is suspended.
const HELD: Duration = Duration::from_secs(60);

impl Notifier {
    /// Has incidents of an Alert that were told to another Provider than it names now be told there for the last time. They go on as others, of which the one that it
    /// names now was told nothing.
    pub(super) async fn close_at_former_providers(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
    ) -> Result<(), HubError> {
        let named = self.store.get(KindId::Provider, &alert.namespace, &spec.provider_ref.name).await?;
        let named = named.map(|provider| provider.uid);
        if !self.store.tells_others(alert.uid, named).await? {
            return Ok(());
        }
        let why = [ClosingReason::ProviderChanged, ClosingReason::ProviderDeleted].map(ClosingReason::as_str);
        let mut tx = self.store.begin().await?;
        tx.hold_incidents(alert.uid).await?;
        let closed = tx.close_elsewhere(alert.uid, named, why).await?;
        let open: Vec<IncidentId> = closed
            .iter()
            .filter(|one| one.is_open)
            .map(|ClosedIncident { incident, .. }| *incident)
            .collect();
        tx.open_again(&open, self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Takes last messages of incidents that are due, each of another Provider; [`Self::send_closing`] sends one.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn closings(&self, most: usize) -> Result<Vec<Closing>, HubError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        if most == 0 {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        Ok(self.store.claim_closings(most, now, LEASE, now + MOST_APART).await?)
    }

    /// Sends the last message of an incident, and notes what came of it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn send_closing(&self, closing: &Closing) -> Result<(), HubError> {
        let came = self.say(closing).await?;
        let now = self.clock.now();
        let (attempted, result) = match came {
            Came::Sent(_) => (Attempted::Sent, Delivered::Sent),
            Came::Failed(why) => (Attempted::Failed { why }, Delivered::Failed),
            Came::Again { why, .. } if now >= closing.since + self.options.give_up_notifications => {
                (Attempted::Failed { why: format!("given up: {why}") }, Delivered::GivenUp)
            }
            Came::Again { why, after } => {
                let attempts = u32::try_from(closing.attempts).unwrap_or_default();
                let at = now + after.unwrap_or_else(|| backoff(attempts, 0));
                (Attempted::Again { why, at }, Delivered::Again)
            }
        };
        if let Attempted::Failed { why } = &attempted {
            let (incident, alert, provider) = (closing.incident, closing.alert, closing.provider);
            tracing::error!(
                target: LOGGER, %incident, %alert, %provider, error = why,
                "an incident could not be closed at the service that it was sent to, and may stay open there: close it by hand"
            );
        }
        self.store.end_closing(closing.incident, &attempted, now).await?;
        self.meters.delivered(result, 1);
        Ok(())
    }

    async fn say(&self, closing: &Closing) -> Result<Came, HubError> {
        let Some((provider, deleted)) = self.present_or_deleted(closing.provider, KindId::Provider).await?
        else {
            return Ok(Came::Failed("the Provider that it was sent to is no longer known".to_owned()));
        };
        // Nothing about a deleted one will be better the next time.
        let held = |why: String| match &deleted {
            None => Came::Again { why, after: Some(HELD) },
            Some(_) => Came::Failed(why),
        };
        let Ok(Provider { spec, .. }) = provider.decode() else {
            return Ok(held("this version cannot read the Provider".to_owned()));
        };
        if spec.suspend {
            return Ok(held("the Provider is suspended".to_owned()));
        }
        if let Some(deleted) = &deleted
            && let Some(why) = self.lacks(deleted).await?
        {
            return Ok(held(why));
        }
        let mut way = match self.way(&provider, &spec).await? {
            Ok(way) => way,
            Err((_, why)) => return Ok(held(why)),
        };
        way.was_by_git = deleted.as_ref().map(|deleted| deleted.by_git);
        let alert = self.present_or_deleted(closing.alert, KindId::Alert).await?;
        let alert = alert.map_or_else(|| nobody(closing), |(alert, _)| alert);
        way.words = alert.decode::<Alert>().ok().and_then(|it| Words::of(&it.spec).ok()).unwrap_or_default();
        let Some(event) = self.last(closing) else {
            return Ok(Came::Failed("this version cannot read the incident".to_owned()));
        };
        if takes(way.type_, &event) == Takes::Never {
            return Ok(Came::Sent(Bytes::new()));
        }
        let id = closing.incident.to_string();
        let thread = closing.thread.clone();
        let message = Message { alert: &alert, id, is_repeat: closing.is_repeat, event, thread };
        Ok(self.send_message(&way, message).await?.0)
    }

    /// An object, or what is remembered of it since it was deleted.
    async fn present_or_deleted(
        &self,
        uid: ResourceUid,
        kind: KindId,
    ) -> Result<Option<(Stored, Option<DeletedObject>)>, HubError> {
        if let Some(stored) = self.store.get_by_uid(uid).await? {
            return Ok((stored.kind == kind).then_some((stored, None)));
        }
        let deleted = self.store.deleted(uid).await?.filter(|deleted| deleted.stored.kind == kind);
        Ok(deleted.map(|deleted| (deleted.stored.clone(), Some(deleted))))
    }

    /// What a deleted Provider would need and no longer has.
    async fn lacks(&self, deleted: &DeletedObject) -> Result<Option<String>, HubError> {
        let DeletedObject { stored, uses, by_git } = deleted;
        for used in stored.kind.references(&stored.object, &stored.namespace) {
            let found = self.store.get(used.kind, &used.namespace, &used.name).await?;
            if !found.is_some_and(|found| uses.contains(&found.uid)) {
                let what = used.kind.get().kind;
                return Ok(Some(format!(
                    "the Provider was deleted, and {what} '{}/{}', which it used, is not there any more",
                    used.namespace, used.name
                )));
            }
            // Whether it might send as that account, only its being there could say.
            if *by_git && used.kind == KindId::ServiceAccount {
                return Ok(Some(
                    "the Provider, which a Kustomization had made, was deleted, and nothing is sent as its ServiceAccount any more"
                        .to_owned(),
                ));
            }
        }
        Ok(None)
    }

    /// The event that tells it.
    fn last(&self, closing: &Closing) -> Option<Event> {
        if let Some(event) = &closing.event {
            return serde_json::from_value(event.clone()).ok();
        }
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        let incident = Incident {
            id: closing.incident.to_string(),
            first: serde_json::from_value(closing.first.clone()).ok()?,
            opened_at: closing.opened_at,
            told_at: None,
            told: 0,
            failing: count(closing.failing),
            failed: count(closing.failed),
            elsewhere: 0,
            lapsed: Lapsed::default(),
            failing_clusters: 0,
            clusters: count(closing.clusters),
            of_clusters: None,
            names: Vec::new(),
            well_since: None,
        };
        Some(incident.closed_elsewhere(ClosingReason::parse(&closing.why)?, self.clock.now()))
    }
}

/// An Alert of which nothing is known any more.
fn nobody(closing: &Closing) -> Stored {
    let mut alert = Stored::new(KindId::Alert, "", "", closing.opened_at, json!({}));
    alert.uid = closing.alert;
    alert
}
