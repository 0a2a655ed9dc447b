//! News that does not tell of failures and says the same of many objects, which an Alert that groups tells as one message.
//!
//! What was gathered is asked about again when it is told: who may not be told of any more is left out, and whom a Silence is for by then is counted there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use roadstead_api::{AlertGroup, AlertSpec, CronSchedule, SilencedObject};
use roadstead_hub_store::{DueNews, MemberKey, NewDelivery, NewsGroup, SharedNews, Stored, Tx};
use roadstead_model::{Digest, ResourceUid};
use roadstead_notify::{Another, Event, Pace, Together};
use serde_json::json;

use crate::HubError;
use crate::clock::MOST_APART;
use crate::notify::gather::{Gathering, in_force, uncounted};
use crate::notify::incidents::of_place;
use crate::notify::sort::AGAIN;
use crate::notify::{LOGGER, Notifier};

/// Groups that are told in one unit of work: each has an event of 30 KiB at most, held three times, and there are 16 passes at once, which makes
/// 14 MiB. Of those in other namespaces a pass holds the names of the objects, some 400 bytes each.
const BATCH: i64 = 10;
/// Objects of a group that are read at once with their labels, of some KiB each.
const OBJECTS: i64 = 100;

impl Notifier {
    /// Makes deliveries of the news that was gathered for as long as it is, or of all of it where the Alert does not group any more. When the
    /// next of it is due.
    pub(super) async fn tell_together(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        group: Option<&AlertGroup>,
        digest: Option<&CronSchedule>,
    ) -> Result<Option<Timestamp>, HubError> {
        if group.is_none() && !self.store.gathers_news(alert.uid).await? {
            return Ok(None);
        }
        let mut may = BTreeMap::new();
        loop {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert.uid).await?;
            let due = if group.is_some() { now } else { Timestamp::MAX };
            let groups = tx.due_news_groups(alert.uid, due, now + MOST_APART, BATCH).await?;
            let mut is_done = i64::try_from(groups.len()).is_ok_and(|count| count < BATCH);
            let in_force = in_force(&mut tx, &alert.namespace, now).await?;
            let gathering = Gathering::of(&mut tx, alert, digest.cloned(), &in_force).await?;
            let (mut ready, mut unknown) = (Vec::new(), BTreeSet::new());
            for news in groups {
                let elsewhere = tx.news_elsewhere(alert.uid, &news.cause, &alert.namespace).await?;
                let asked: Vec<MemberKey> =
                    elsewhere.iter().filter(|about| !may.contains_key(*about)).cloned().collect();
                if !asked.is_empty() {
                    unknown.extend(asked);
                    continue;
                }
                let denied: Vec<MemberKey> =
                    elsewhere.into_iter().filter(|about| may.get(about) == Some(&false)).collect();
                tx.leave_out_of_news(alert.uid, &news.cause, &denied).await?;
                keep_back(&mut tx, alert.uid, &gathering, &news, now).await?;
                ready.push(news.cause);
            }
            let told = tx.take_news_groups(alert.uid, &ready).await?;
            let deliveries: Vec<NewDelivery> =
                told.into_iter().filter_map(|one| delivery(alert.uid, spec, one)).collect();
            if !deliveries.is_empty() {
                tx.add_deliveries(alert.uid, &deliveries, AGAIN, now).await?;
            }
            let next = tx.next_news_group(alert.uid).await?;
            tx.commit().await?;
            // Not while the Alert is held: others sort for it.
            for about in unknown {
                let may_be_told = self.may_be_told_of(alert, &about.0, &about.1, &about.2).await?;
                may.insert(about, may_be_told);
                is_done = false;
            }
            if is_done {
                return Ok(next);
            }
        }
    }
}

/// Takes those out of news for whom there is a Silence by now, or a digest, and counts them there. That something is over which was told is told also in a Silence.
async fn keep_back(
    tx: &mut Tx,
    alert: ResourceUid,
    gathering: &Gathering,
    news: &DueNews,
    now: Timestamp,
) -> Result<(), HubError> {
    // What cannot be read is told by nobody.
    let Ok(first) = serde_json::from_value::<Event>(news.first.clone()) else { return Ok(()) };
    let group = first.involved_object.api_version.split_once('/').map_or("", |(group, _)| group);
    let mut after = None;
    while !gathering.is_idle() {
        let objects = tx.news_objects((alert, &news.cause), group, after.as_ref(), OBJECTS).await?;
        let mut kept: BTreeMap<&str, Vec<MemberKey>> = BTreeMap::new();
        for one in &objects {
            let (kind, place, name) = &one.object;
            let (_, namespace) = of_place(place);
            let (cluster, labels) = (one.cluster.as_deref(), &one.labels);
            let object = SilencedObject { kind, namespace, name, cluster, labels };
            let Some(place) = gathering.keeps(object) else { continue };
            if !(place.is_silence && one.is_told && first.is_recovery()) {
                kept.entry(place.silence).or_default().push(one.object.clone());
            }
        }
        for (silence, objects) in kept {
            tx.leave_out_of_news(alert, &news.cause, &objects).await?;
            let count = i64::try_from(objects.len()).unwrap_or(i64::MAX);
            tx.count_gathered(alert, silence, (uncounted(&first), count), now).await?;
        }
        match objects.into_iter().next_back() {
            Some(last) => after = Some(last.object),
            None => break,
        }
    }
    Ok(())
}

fn delivery(alert: ResourceUid, spec: &AlertSpec, group: NewsGroup) -> Option<NewDelivery> {
    let NewsGroup {
        cause,
        first,
        news,
        key,
        shared,
        trace,
        objects,
        clusters,
        names,
        of_whom,
        has_first,
        one,
    } = group;
    let mut first: Event = serde_json::from_value(first)
        .inspect_err(|error| tracing::error!(target: LOGGER, %error, "news cannot be read, and is not told"))
        .ok()?;
    if !has_first {
        first = Together::of_another(&first, shared.as_deref(), &another(&one), spec);
    }
    let count = |count: i64| u64::try_from(count).unwrap_or_default();
    let key = match objects {
        // As if it had not been gathered.
        ..=1 if has_first => key.try_into().ok()?,
        _ => *Digest::of(&[cause.as_slice(), of_whom.as_bytes()].concat()).as_bytes(),
    };
    let together = Together { first, objects: count(objects), clusters: count(clusters), names };
    let event = json!(together.told());
    Some(NewDelivery { alert, news, key, event, trace })
}

/// An object as the database names it: namespace, name, cluster and uid.
fn another(one: &[String]) -> Another {
    let of = |place: usize| one.get(place).map_or("", String::as_str);
    let (relayed_from, namespace) = of_place(of(0));
    Another {
        namespace: namespace.to_owned(),
        name: of(1).to_owned(),
        uid: of(3).to_owned(),
        relayed_from: relayed_from.map(str::to_owned),
        cluster: Some(of(2)).filter(|cluster| !cluster.is_empty()).map(str::to_owned),
    }
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
        let common = Together::common(self.told, self.cluster);
        let shared = SharedNews {
            cause: common.digest.as_bytes(),
            shared: &common.text,
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
