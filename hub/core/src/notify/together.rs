//! News that does not tell of failures and says the same of many objects, which an Alert that groups tells as one message.

use jiff::Timestamp;
use roadstead_api::AlertGroup;
use roadstead_hub_store::{MemberKey, NewDelivery, NewsGroup, SharedNews, Tx};
use roadstead_model::{Digest, ResourceUid};
use roadstead_notify::{Event, Pace, Together};
use serde_json::json;

use crate::HubError;
use crate::clock::MOST_APART;
use crate::notify::sort::AGAIN;
use crate::notify::{LOGGER, Notifier};

/// Groups that are told in one unit of work: each has an event of 30 KiB at most, held three times, and there are 16 passes at once, which makes
/// 14 MiB.
const BATCH: i64 = 10;

impl Notifier {
    /// Makes deliveries of the news that was gathered for as long as it is, or of all of it where the Alert does not group any more. When the
    /// next of it is due.
    pub(super) async fn tell_together(
        &self,
        alert: ResourceUid,
        group: Option<&AlertGroup>,
    ) -> Result<Option<Timestamp>, HubError> {
        if group.is_none() && !self.store.gathers_news(alert).await? {
            return Ok(None);
        }
        loop {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert).await?;
            let due = if group.is_some() { now } else { Timestamp::MAX };
            let groups = tx.take_news_groups(alert, due, now + MOST_APART, BATCH).await?;
            let is_done = i64::try_from(groups.len()).is_ok_and(|count| count < BATCH);
            let deliveries: Vec<NewDelivery> =
                groups.into_iter().filter_map(|one| delivery(alert, one)).collect();
            if !deliveries.is_empty() {
                tx.add_deliveries(alert, &deliveries, AGAIN, now).await?;
            }
            let next = tx.next_news_group(alert).await?;
            tx.commit().await?;
            if is_done {
                return Ok(next);
            }
        }
    }
}

fn delivery(alert: ResourceUid, group: NewsGroup) -> Option<NewDelivery> {
    let NewsGroup { cause, first, news, key, trace, objects, clusters, names, of_whom } = group;
    let first: Event = serde_json::from_value(first)
        .inspect_err(|error| tracing::error!(target: LOGGER, %error, "news cannot be read, and is not told"))
        .ok()?;
    let count = |count: i64| u64::try_from(count).unwrap_or_default();
    let key = match objects {
        // As if it had not been gathered.
        ..=1 => key.try_into().ok()?,
        _ => *Digest::of(&[cause.as_slice(), of_whom.as_bytes()].concat()).as_bytes(),
    };
    let together = Together { first, objects: count(objects), clusters: count(clusters), names };
    let event = json!(together.told());
    Some(NewDelivery { alert, news, key, event, trace })
}

/// News of an object that does not tell of a failure.
pub(super) struct News<'a> {
    /// As the Alert tells it.
    pub(super) told: &'a Event,
    /// What the same news has in common.
    pub(super) key: &'a [u8; 32],
    pub(super) object: &'a MemberKey,
    pub(super) cluster: Option<&'a str>,
    pub(super) news: i64,
    pub(super) trace: Option<&'a str>,
}

impl News<'_> {
    /// Gathers it, to be told with that of others; false where there is no room for that.
    pub(super) async fn gather(
        &self,
        tx: &mut Tx,
        alert: ResourceUid,
        group: &AlertGroup,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let cause = Together::key(self.told, self.cluster);
        let shared = SharedNews {
            cause: cause.as_bytes(),
            object: self.object,
            cluster: self.cluster,
            news: self.news,
            key: self.key,
            event: &json!(self.told),
            trace: self.trace,
        };
        Ok(tx.gather_news(alert, shared, now + Pace::from(group).wait, now).await?)
    }
}
