//! The last messages of incidents that their Alerts tell no more where they were told: since the Alert is deleted, or names another Provider, or the Provider is
//! deleted. Without them they would stay open at services that open and close for ever.
//!
//! What has to be known for one is noted in the unit of work that deletes the Alert, or by the first pass that finds another Provider. Each is claimed by any replica, tried
//! again, and given up as deliveries are. Of a Provider that is no more, only Secrets and accounts are used that it had when it went: others of their names may be
//! somebody else's. So where its Secret goes at the same time, the message may not arrive, which is logged and counted.

use std::time::Duration;

use bytes::Bytes;
use roadstead_api::{Alert, AlertSpec, KindId, Provider};
use roadstead_hub_store::{Attempted, Departed, Farewell, IncidentId, Parted, Stored};
use roadstead_model::ResourceUid;
use roadstead_notify::{Event, Incident, Lapsed, Parting, Takes, backoff, takes};
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
    pub(super) async fn part_with_others(&self, alert: &Stored, spec: &AlertSpec) -> Result<(), HubError> {
        let named = self.store.get(KindId::Provider, &alert.namespace, &spec.provider_ref.name).await?;
        let named = named.map(|provider| provider.uid);
        if !self.store.tells_others(alert.uid, named).await? {
            return Ok(());
        }
        let why = [Parting::ProviderChanged, Parting::ProviderDeleted].map(Parting::as_str);
        let mut tx = self.store.begin().await?;
        tx.hold_incidents(alert.uid).await?;
        let parted = tx.part(alert.uid, named, why).await?;
        let open: Vec<IncidentId> =
            parted.iter().filter(|one| one.is_open).map(|Parted { incident, .. }| *incident).collect();
        tx.open_again(&open, self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Takes last messages of incidents that are due, each of another Provider; [`Self::take_leave`] sends one.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn farewells(&self, most: usize) -> Result<Vec<Farewell>, HubError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        if most == 0 {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        Ok(self.store.claim_farewells(most, now, LEASE, now + MOST_APART).await?)
    }

    /// Sends the last message of an incident, and notes what came of it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn take_leave(&self, farewell: &Farewell) -> Result<(), HubError> {
        let came = self.say(farewell).await?;
        let now = self.clock.now();
        let (attempted, result) = match came {
            Came::Sent(_) => (Attempted::Sent, Delivered::Sent),
            Came::Failed(why) => (Attempted::Failed { why }, Delivered::Failed),
            Came::Again { why, .. } if now >= farewell.since + self.options.give_up_notifications => {
                (Attempted::Failed { why: format!("given up: {why}") }, Delivered::GivenUp)
            }
            Came::Again { why, after } => {
                let attempts = u32::try_from(farewell.attempts).unwrap_or_default();
                let at = now + after.unwrap_or_else(|| backoff(attempts, 0));
                (Attempted::Again { why, at }, Delivered::Again)
            }
        };
        if let Attempted::Failed { why } = &attempted {
            let (incident, alert, provider) = (farewell.incident, farewell.alert, farewell.provider);
            tracing::error!(
                target: LOGGER, %incident, %alert, %provider, error = why,
                "an incident is told no more, and the service that was told of it could not be told so: it may stay open there"
            );
        }
        self.store.end_farewell(farewell.incident, &attempted, now).await?;
        self.meters.delivered(result, 1);
        Ok(())
    }

    async fn say(&self, farewell: &Farewell) -> Result<Came, HubError> {
        let Some((provider, departed)) = self.there_or_departed(farewell.provider, KindId::Provider).await?
        else {
            return Ok(Came::Failed(
                "nothing is known any more of the Provider that was told of it".to_owned(),
            ));
        };
        // Of one that is no more, nothing will be better the next time.
        let held = |why: String| match &departed {
            None => Came::Again { why, after: Some(HELD) },
            Some(_) => Came::Failed(why),
        };
        let Ok(Provider { spec, .. }) = provider.decode() else {
            return Ok(held("this version cannot read the Provider".to_owned()));
        };
        if spec.suspend {
            return Ok(held("the Provider is suspended".to_owned()));
        }
        if let Some(departed) = &departed
            && let Some(why) = self.lacks(departed).await?
        {
            return Ok(held(why));
        }
        let mut way = match self.way(&provider, &spec).await? {
            Ok(way) => way,
            Err((_, why)) => return Ok(held(why)),
        };
        way.was_by_git = departed.as_ref().map(|departed| departed.by_git);
        let alert = self.there_or_departed(farewell.alert, KindId::Alert).await?;
        let alert = alert.map_or_else(|| nobody(farewell), |(alert, _)| alert);
        way.words = alert.decode::<Alert>().ok().and_then(|it| Words::of(&it.spec).ok()).unwrap_or_default();
        let Some(event) = self.last(farewell) else {
            return Ok(Came::Failed("this version cannot read the incident".to_owned()));
        };
        if takes(way.type_, &event) == Takes::Never {
            return Ok(Came::Sent(Bytes::new()));
        }
        let id = farewell.incident.to_string();
        let thread = farewell.thread.clone();
        let message = Message { alert: &alert, id, is_repeat: farewell.is_repeat, event, thread };
        Ok(self.send_message(&way, message).await?.0)
    }

    /// An object that is there, or what is known of it since it is no more.
    async fn there_or_departed(
        &self,
        uid: ResourceUid,
        kind: KindId,
    ) -> Result<Option<(Stored, Option<Departed>)>, HubError> {
        if let Some(stored) = self.store.get_by_uid(uid).await? {
            return Ok((stored.kind == kind).then_some((stored, None)));
        }
        let departed = self.store.departed(uid).await?.filter(|departed| departed.stored.kind == kind);
        Ok(departed.map(|departed| (departed.stored.clone(), Some(departed))))
    }

    /// What a Provider that is no more would need, and does not have any more.
    async fn lacks(&self, departed: &Departed) -> Result<Option<String>, HubError> {
        let Departed { stored, uses, by_git } = departed;
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
    fn last(&self, farewell: &Farewell) -> Option<Event> {
        if let Some(event) = &farewell.event {
            return serde_json::from_value(event.clone()).ok();
        }
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        let incident = Incident {
            id: farewell.incident.to_string(),
            first: serde_json::from_value(farewell.first.clone()).ok()?,
            opened_at: farewell.opened_at,
            told_at: None,
            told: 0,
            failing: count(farewell.failing),
            failed: count(farewell.failed),
            elsewhere: 0,
            lapsed: Lapsed::default(),
            failing_clusters: 0,
            clusters: count(farewell.clusters),
            of_clusters: None,
            names: Vec::new(),
            well_since: None,
        };
        Some(incident.parted(Parting::parse(&farewell.why)?, self.clock.now()))
    }
}

/// An Alert of which nothing is known any more.
fn nobody(farewell: &Farewell) -> Stored {
    let mut alert = Stored::new(KindId::Alert, "", "", farewell.opened_at, json!({}));
    alert.uid = farewell.alert;
    alert
}
