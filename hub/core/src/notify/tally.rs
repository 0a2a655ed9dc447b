//! What became of deliveries, in the status of Alerts and Providers: told of each once in a while, and not of each delivery.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Alert, DeliveryCounts, KindId, NotificationStatus, Provider, Time};
use roadstead_hub_store::{StoreError, Stored, Tally, Tx};
use roadstead_model::ResourceUid;

use crate::HubError;
use crate::notify::Notifier;
use crate::objects::status::{self, HasStatus};

/// A status is written once in so long at most.
const PAUSE: Duration = Duration::from_secs(10);
/// So many are written at once.
const BATCH: i64 = 100;

impl Notifier {
    /// Writes what became of deliveries where it has not been told for a while; says whether there may be more to tell.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tally(&self) -> Result<bool, HubError> {
        let untold = self.store.untold_tallies(self.clock.now(), PAUSE, BATCH).await?;
        let are_all = (untold.len() as u64) < BATCH.unsigned_abs();
        for uid in untold {
            self.tell_tally(uid).await?;
        }
        Ok(!are_all)
    }

    async fn tell_tally(&self, uid: ResourceUid) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut tally) = tx.take_tally(uid, now, PAUSE).await? else { return Ok(()) };
        if let Some(mut stored) = tx.get_by_uid(uid).await?
            && stored.deletion_timestamp.is_none()
        {
            tally.waiting = tx.waiting_of(&stored).await?;
            match stored.kind {
                KindId::Alert => write::<Alert>(&mut tx, &mut stored, tally, now).await?,
                KindId::Provider => write::<Provider>(&mut tx, &mut stored, tally, now).await?,
                _ => {}
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

async fn write<K: HasStatus<Status = NotificationStatus>>(
    tx: &mut Tx,
    stored: &mut Stored,
    tally: Tally,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Tally { waiting, sent, failed, sent_at, failed_at, error } = tally;
    status::write::<K>(tx, stored, now, |status, _| {
        status.deliveries = Some(DeliveryCounts {
            waiting,
            sent,
            failed,
            last_sent_time: sent_at.map(Time),
            last_failure_time: failed_at.map(Time),
            last_failure: Some(error).filter(|error| !error.is_empty()),
        });
    })
    .await?;
    Ok(())
}
