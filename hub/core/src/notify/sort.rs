//! Sorts events to the Alerts that they are for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Alert, AlertSpec, KindId};
use roadstead_hub_store::{MemberKey, NewDelivery, Stored, Tx, WaitingNews};
use roadstead_model::{Queue, ResourceUid};
use roadstead_notify::{Event, Involved, QUALIFIED, STATUSES_AND_COMMENTS, Selector, makes_statuses};
use serde_json::json;

use crate::HubError;
use crate::notify::gather::{Gathering, InForce, ToGather, about, in_force};
use crate::notify::incidents::{Heard, of_place, place_in};
use crate::notify::selected::Selected;
use crate::notify::together::News;
use crate::notify::{LOGGER, Notifier};

/// Events that are sorted in one unit of work: each of 30 KiB at most, and held three times while that is done, which makes 10 MiB
/// with those of clusters.
const BATCH: i64 = 100;
/// Events of clusters that are sorted with a full batch of the hub's own.
const RELAYED: i64 = 10;
/// The same news again within so long is none, as in Flux.
pub(super) const AGAIN: Duration = Duration::from_secs(300);

/// Namespaces whose Silences are held at once: those of one are some 800 KiB at most.
const MOST_NAMESPACES: usize = 8;

/// What is sorted in one unit of work.
struct Batch {
    news: Arc<Vec<WaitingNews>>,
    /// Each read, where it can be.
    events: Arc<Vec<Option<Event>>>,
    now: Timestamp,
}

/// What was asked while a batch is sorted.
#[derive(Default)]
struct Asked {
    may: Known,
    /// The Silences in force, by namespace.
    silences: BTreeMap<String, InForce>,
}

/// What Alerts may be told of, as far as it was asked.
pub(super) type Known = BTreeMap<(ResourceUid, String), bool>;

/// An Alert that a batch is sorted to, and what has come of that until now.
struct To {
    alert: Stored,
    spec: AlertSpec,
    gathering: Gathering,
    /// Those that it is for, and whether a source says that statuses and comments may be made of them.
    matches: BTreeMap<usize, bool>,
    deliveries: Vec<NewDelivery>,
    changed: bool,
}

impl Asked {
    async fn in_force(&mut self, tx: &mut Tx, namespace: &str, now: Timestamp) -> Result<&InForce, HubError> {
        if !self.silences.contains_key(namespace) {
            // A tenant with many Alerts has its Silences read once.
            if self.silences.len() >= MOST_NAMESPACES {
                self.silences.clear();
            }
            let found = in_force(tx, namespace, now).await?;
            self.silences.insert(namespace.to_owned(), found);
        }
        Ok(&self.silences[namespace])
    }
}

impl Notifier {
    /// Sorts the events that wait for it; true where there may be more.
    ///
    /// # Errors
    /// Where the database fails; then nothing was sorted.
    pub async fn sort(&self) -> Result<bool, HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut news) = tx.take_news(BATCH).await? else { return Ok(false) };
        let is_full = |count: usize, most: i64| i64::try_from(count).is_ok_and(|count| count == most);
        let mut has_more = is_full(news.len(), BATCH);
        // However much news there is of the hub's own, that of clusters comes to its turn.
        let room = if has_more { RELAYED } else { BATCH - i64::try_from(news.len()).unwrap_or(BATCH) };
        let relayed = tx.take_relayed(room).await?;
        has_more |= is_full(relayed.len(), room);
        news.extend(relayed);
        if news.is_empty() {
            return Ok(false);
        }
        let news = Arc::new(news);
        let events: Arc<Vec<Option<Event>>> = Arc::new(news.iter().map(read).collect());
        let mut listening: BTreeMap<ResourceUid, Vec<usize>> = BTreeMap::new();
        for (index, one) in news.iter().enumerate() {
            for alert in &one.alerts {
                listening.entry(*alert).or_default().push(index);
            }
        }
        let batch = Batch { news, events, now };
        let (mut woken, mut asked) = (Vec::new(), Asked::default());
        for (uid, heard) in listening {
            if self.sort_to(&mut tx, uid, &batch, heard, &mut asked).await? {
                woken.push(uid);
            }
        }
        tx.enqueue(Queue::Alert, &woken).await?;
        tx.commit().await?;
        Ok(has_more)
    }

    /// Sorts what an Alert hears: into what it sends, or its incidents. True where that changed anything.
    async fn sort_to(
        &self,
        tx: &mut Tx,
        uid: ResourceUid,
        batch: &Batch,
        heard: Vec<usize>,
        asked: &mut Asked,
    ) -> Result<bool, HubError> {
        let Some(alert) = self.store.get_by_uid(uid).await? else { return Ok(false) };
        if alert.kind != KindId::Alert || alert.deletion_timestamp.is_some() {
            return Ok(false);
        }
        // One that an older version stored, and that cannot be read, holds up no other: a pass over it says what is wrong.
        let Ok(Alert { spec, .. }) = alert.decode::<Alert>() else { return Ok(false) };
        let groups = spec.group.is_some();
        let provider = self.provider_of(&alert, &spec).await?.map(|(_, provider)| provider);
        if groups && provider.as_ref().is_some_and(|provider| makes_statuses(provider.type_)) {
            // It counts, and what it says follows from how the objects are then.
            return Ok(true);
        }
        let digest = provider.and_then(|provider| provider.digest);
        let in_force = asked.in_force(tx, &alert.namespace, batch.now).await?;
        let gathering = Gathering::of(tx, &alert, digest, in_force).await?;
        if groups || !gathering.is_idle() {
            tx.hold_incidents(uid).await?;
            // Of what a cluster's Flux tells, this says that it is still there, whatever becomes of it here.
            let relayed = heard.iter().filter_map(|index| batch.events[*index].as_ref());
            let relayed = relayed.filter(|event| event.relayed_from.is_some()).map(object_of);
            tx.hear_of(uid, &relayed.collect::<Vec<_>>(), batch.now).await?;
        }
        let about = heard.iter().filter_map(|index| {
            let namespace = batch.events[*index].as_ref()?.involved_object.namespace.as_str();
            Some((namespace, batch.news[*index].cluster.as_deref()))
        });
        let selected = Selected::read(tx, &spec, about).await?;
        let matches = matching(&alert, &spec, batch, selected, heard.clone()).await;
        let mut to = To { alert, spec, gathering, matches, deliveries: Vec::new(), changed: false };
        for index in heard {
            self.sort_one(tx, &mut to, batch, index, &mut asked.may).await?;
        }
        let To { deliveries, mut changed, .. } = to;
        if !deliveries.is_empty() {
            let added = tx.add_deliveries(uid, &deliveries, AGAIN, batch.now).await?;
            changed |= added > 0;
        }
        Ok(changed)
    }

    async fn sort_one(
        &self,
        tx: &mut Tx,
        to: &mut To,
        batch: &Batch,
        index: usize,
        may: &mut Known,
    ) -> Result<(), HubError> {
        let (news, Some(event)) = (&batch.news[index], &batch.events[index]) else { return Ok(()) };
        let (uid, groups, cluster) = (to.alert.uid, to.spec.group.is_some(), news.cluster.as_deref());
        let condition = news.condition.as_deref();
        let of_condition = condition.map(|condition| Heard::of(event, cluster, condition));
        let recovery = of_condition.as_ref().filter(|_| event.is_recovery());
        let mut was_kept = false;
        if let Some(one) = recovery.filter(|_| to.gathering.has_some) {
            was_kept = tx.recover_gathered(uid, one.member()).await?;
        }
        // The end of something that was told, whatever else the Alert leaves out.
        if let Some(one) = recovery.filter(|_| groups)
            && one.is_well(tx, uid, batch.now).await?
        {
            to.changed = true;
            return Ok(());
        }
        let Some(may_write) = to.matches.get(&index).copied() else { return Ok(()) };
        if !self.may_hear(&to.alert, event, may).await? {
            return Ok(());
        }
        let event =
            &Event { statuses_and_comments: may_write && event.relayed_from.is_some(), ..event.clone() };
        let of_condition = condition.map(|condition| Heard::of(event, cluster, condition));
        if let Some(place) = to.gathering.keeps(about(event, cluster, &news.labels)) {
            let was_told = place.is_silence
                && recovery.is_some()
                && self.store.tells_of_failure(uid, &json!(event)).await?;
            if !was_told {
                if !was_kept {
                    let kept = ToGather { event, cluster, condition, labels: &news.labels, news: news.id };
                    kept.gather(tx, &to.alert, place, batch.now).await?;
                }
                (to.changed, to.gathering.has_some) = (true, true);
                return Ok(());
            }
        }
        // What has no end by itself is told by itself.
        if let Some(one) = of_condition.filter(|_| groups && event.is_error()) {
            to.changed = true;
            return one.fails(tx, uid, &to.spec, batch.now).await;
        }
        self.tell_one(tx, to, (news, event), batch.now).await
    }

    /// Has an event be told: by itself, or of an Alert that groups, with what says the same of others, as long as there is room for that.
    async fn tell_one(
        &self,
        tx: &mut Tx,
        to: &mut To,
        (news, event): (&WaitingNews, &Event),
        now: Timestamp,
    ) -> Result<(), HubError> {
        let (uid, cluster) = (to.alert.uid, news.cluster.as_deref());
        let told = as_told(event, &to.alert, &to.spec, cluster);
        let key = *event.key().as_bytes();
        if let Some(group) = to.spec.group.as_ref().filter(|_| !event.is_error()) {
            let trace = news.trace.as_deref();
            let object = &object_of(event);
            let one = News { told: &told, key: &key, object, cluster, news: news.id, trace };
            if one.gather(tx, uid, group, now).await? {
                to.changed = true;
                return Ok(());
            }
        }
        let (event, trace) = (json!(told), news.trace.clone());
        to.deliveries.push(NewDelivery { alert: uid, news: news.id, key, event, trace });
        Ok(())
    }

    /// Whether an Alert may be told of an object: one of its own namespace, or one that its writer may get or a grant names, which is asked
    /// once for each object; or of what a cluster's Flux tells, which is asked once for each cluster.
    pub(super) async fn may_hear(
        &self,
        alert: &Stored,
        event: &Event,
        known: &mut Known,
    ) -> Result<bool, HubError> {
        let object = &event.involved_object;
        let of_cluster = event.relayed_from.as_deref();
        if of_cluster.is_none() && object.namespace == alert.namespace {
            return Ok(true);
        }
        let key = match of_cluster {
            Some(cluster) => (alert.uid, cluster.to_owned()),
            None => (alert.uid, format!("{}/{}/{}", object.kind, object.namespace, object.name)),
        };
        if let Some(may) = known.get(&key) {
            return Ok(*may);
        }
        let may = match of_cluster {
            Some(cluster) => self.access.may_hear_of_cluster(alert, cluster).await?.is_ok(),
            None => self.may_be_told_of(alert, &object.kind, &object.namespace, &object.name).await?,
        };
        known.insert(key, may);
        Ok(may)
    }

    /// Whether an Alert may be told of an object of another namespace, or of a cluster's.
    pub(super) async fn may_be_told_of(
        &self,
        alert: &Stored,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<bool, HubError> {
        if let (Some(cluster), _) = of_place(namespace) {
            return Ok(self.access.may_hear_of_cluster(alert, cluster).await?.is_ok());
        }
        let Some(kind) = KindId::named(kind) else { return Ok(false) };
        // Whether it is still there says nothing.
        let about = Stored::new(kind, namespace, name, self.clock.now(), json!({}));
        Ok(self.access.may_use(alert, &about).await?.is_ok())
    }
}

/// The object of an event, as incidents know it.
fn object_of(event: &Event) -> MemberKey {
    let Involved { kind, namespace, name, .. } = &event.involved_object;
    let place = match event.relayed_from.as_deref() {
        Some(cluster) => place_in(cluster, namespace),
        None => namespace.clone(),
    };
    (kind.clone(), place, name.clone())
}

/// An event as an Alert tells it.
pub(super) fn as_told(event: &Event, alert: &Stored, spec: &AlertSpec, cluster: Option<&str>) -> Event {
    if alert.object["metadata"]["annotations"][QUALIFIED] == "true" {
        return event.qualified_by(spec, cluster);
    }
    event.told_by(spec, cluster)
}

fn read(news: &WaitingNews) -> Option<Event> {
    let event = serde_json::from_value(news.event.clone());
    event
        .inspect_err(
            |error| tracing::error!(target: LOGGER, %error, "an event cannot be read, and is not sent"),
        )
        .ok()
}

/// Which of the events an Alert is for, and whether a source that chooses one has `statusesAndComments`. Off the threads that serve others: an
/// Alert's expressions take their time.
async fn matching(
    alert: &Stored,
    spec: &AlertSpec,
    batch: &Batch,
    selected: Selected,
    heard: Vec<usize>,
) -> BTreeMap<usize, bool> {
    let all_may = alert.object["metadata"]["annotations"][STATUSES_AND_COMMENTS] == "true";
    let (namespace, spec) = (alert.namespace.clone(), spec.clone());
    let (news, events) = (Arc::clone(&batch.news), Arc::clone(&batch.events));
    let matched = tokio::task::spawn_blocking(move || {
        // An Alert whose expressions cannot be used says so in its condition.
        let Ok(selector) = Selector::new(&spec, &namespace) else { return BTreeMap::new() };
        let is_for = |index: usize| {
            let event = events[index].as_ref()?;
            let WaitingNews { labels, cluster, .. } = &news[index];
            let labels = selected.labels(labels, &event.involved_object.namespace, cluster.as_deref());
            let sources = selector.matching(event, labels);
            let may_write = all_may || sources.iter().any(|source| source.statuses_and_comments);
            (!sources.is_empty()).then_some((index, may_write))
        };
        heard.into_iter().filter_map(is_for).collect()
    });
    matched.await.unwrap_or_default()
}
