//! Providers and Alerts: which events are sent where, and that they arrive.
//!
//! An event that an Alert listens to is a row of `news`, written with the state that it tells of. [`Notifier::sort`] makes a delivery of it
//! for each Alert that it is for; a pass over the Alert sends those, in their order, one at a time. Both are done by any replica, and
//! again by another one where the first is gone: then an event that was being sent is sent once more, as a repeat.
//!
//! What a Silence keeps back, and what a Provider tells as a digest, is gathered in the place of being sent.
//!
//! Where an Alert is deleted, or tells another Provider than it did, its incidents are told once more where they were told, apart from what Alerts
//! send.
//!
//! Failures that an Alert with `spec.group` is for join an incident in the place of a delivery each; a pass makes deliveries of those that are to
//! be told. Where its Provider makes commit statuses, a pass counts the appliers that it is for, and makes a delivery of each status that is to say
//! something else.

mod app;
mod bus;
mod closing;
mod cloud;
mod counted;
mod forward;
mod gather;
mod incidents;
mod login;
mod provider;
mod relay;
mod rollouts;
mod selected;
mod send;
mod sort;
mod tally;
mod together;
mod way;
mod words;

use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::{ConditionStatus, NotificationStatus};
use roadstead_github_app::Tokens;
use roadstead_hub_store::{Store, StoreError, Stored, Tx};
use roadstead_model::{Queue, Reason};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::clusters::Sessions;
use crate::context::Context;
use crate::identity::AccessRules;
use crate::meters::Meters;
use crate::objects::Objects;
use crate::objects::conditions::{self, SUSPENDED};
use crate::objects::status::{self, HasStatus};
use crate::objects::triggers;
use crate::sources::Clouds;
use crate::{HubError, HubOptions};

/// The name under which passes are logged.
const LOGGER: &str = "controllers.Notification";

/// What is wrong with a Provider or an Alert.
type Fault = (Reason, String);

/// Providers and Alerts, and what is sent of events.
pub struct Notifier {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    access: Arc<AccessRules>,
    objects: Arc<Objects>,
    sessions: Arc<Sessions>,
    meters: Arc<Meters>,
    clouds: Arc<Clouds>,
    app_tokens: Tokens,
    /// Held while appliers are counted: one Alert's are at a time, which takes some 20 MiB where there are 50,000 clusters.
    counting: Mutex<()>,
}

impl Notifier {
    pub(crate) fn new(
        context: &Context,
        clouds: &Arc<Clouds>,
        access: &Arc<AccessRules>,
        objects: &Arc<Objects>,
        sessions: &Arc<Sessions>,
    ) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            access: Arc::clone(access),
            objects: Arc::clone(objects),
            sessions: Arc::clone(sessions),
            meters: Arc::clone(&context.meters),
            clouds: Arc::clone(clouds),
            app_tokens: context.app_tokens.clone(),
            counting: Mutex::new(()),
        }
    }

    /// Has all events sent to a notification-controller at this address, or to none any more.
    ///
    /// # Errors
    /// Where the database refuses, or the address is none.
    pub async fn forward(&self, address: Option<&str>) -> Result<(), HubError> {
        forward::forward(&self.objects, address).await
    }

    /// Has each Alert be looked at: after the clock was put back, when that is due says nothing.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn look_at_all(&self) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let alerts = tx.all_alerts().await?;
        tx.enqueue(Queue::Alert, &alerts).await?;
        tx.commit().await?;
        Ok(())
    }

    /// What a cluster's Flux told to fail, and that was not heard of since then, counts as failing no more.
    fn heard_since(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.options.relayed_failure_timeout).unwrap_or(Timestamp::MIN)
    }

    /// Locks an object again for its status, unless its spec is another one by now.
    async fn again(tx: &mut Tx, seen: &Stored) -> Result<Option<Stored>, StoreError> {
        let stored = tx.get_by_uid(seen.uid).await?;
        Ok(stored
            .filter(|stored| stored.generation == seen.generation && stored.deletion_timestamp.is_none()))
    }
}

/// Writes whether all is well: what is, or what is wrong. True where that is news.
async fn tell<K: HasStatus<Status = NotificationStatus>>(
    tx: &mut Tx,
    stored: &mut Stored,
    found: &Result<String, Fault>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let handled = triggers::request(stored);
    let written = status::write::<K>(tx, stored, now, |status, generation| {
        status.conditions.retain(|condition| condition.type_ != SUSPENDED);
        let (ready, reason, message) = match found {
            Ok(message) => (ConditionStatus::True, Reason::Succeeded, message),
            Err((reason, why)) => (ConditionStatus::False, *reason, why),
        };
        conditions::set_ready(&mut status.conditions, ready, reason, message, generation, now);
        status.observed_generation = Some(generation);
        status.last_handled_reconcile_at = handled.or(status.last_handled_reconcile_at.take());
    });
    Ok(written.await?.is_some())
}

/// Writes that nothing is done.
async fn tell_suspended<K: HasStatus<Status = NotificationStatus>>(
    tx: &mut Tx,
    stored: &mut Stored,
    now: Timestamp,
) -> Result<(), StoreError> {
    status::write::<K>(tx, stored, now, |status, generation| {
        conditions::set_suspended(&mut status.conditions, "what waits to be sent", generation, now);
        status.observed_generation = Some(generation);
    })
    .await?;
    Ok(())
}
