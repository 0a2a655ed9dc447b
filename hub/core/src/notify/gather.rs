//! What an Alert does not send now: a Silence keeps it back, or its Provider tells digests.
//!
//! Failures are kept by object, the rest is counted. When a Silence is over, one message sums up what happened, and what still fails is told as
//! if it had happened then. What an Alert told before is told to be over also in a Silence: nothing stays open that is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::{
    AlertSpec, CronSchedule, KindId, Provider, ProviderSpec, Silence, SilenceSpec, SilencedObject, Time,
    Times,
};
use roadstead_hub_store::{
    Gathered, KeptFailure, NewDelivery, StillFailing, Stored, StoredSilence, Tx, Uncounted,
};
use roadstead_model::{Digest, Reason};
use roadstead_notify::{Event, Failing, SumOf, Summary};
use serde_json::json;

use crate::HubError;
use crate::clock::MOST_APART;
use crate::notify::incidents::Heard;
use crate::notify::sort::{AGAIN, as_told};
use crate::notify::{LOGGER, Notifier};

/// Failures that are told in one unit of work: each of 30 KiB at most, held twice, and there are 16 passes at once, which makes 20 MiB.
const BATCH: i64 = 20;

/// A Silence that is in force.
pub(super) struct Active {
    name: String,
    spec: SilenceSpec,
    until: Timestamp,
}

/// The Silences of a namespace that are in force.
pub(super) type InForce = Vec<Arc<Active>>;

/// Where what an Alert hears goes in the place of being sent.
pub(super) struct Gathering {
    silences: InForce,
    digest: Option<CronSchedule>,
    /// Whether anything was gathered before.
    pub(super) has_some: bool,
}

/// Where an event goes in the place of being sent.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The Silence; empty for a digest.
    pub(super) silence: &'a str,
    pub(super) is_silence: bool,
    /// Until when the Silence keeps it.
    pub(super) until: Timestamp,
}

impl Gathering {
    /// Of an Alert, while those are in force in its namespace.
    pub(super) async fn of(
        tx: &mut Tx,
        alert: &Stored,
        digest: Option<CronSchedule>,
        in_force: &InForce,
    ) -> Result<Self, HubError> {
        let has_some = !tx.gathered_for(alert.uid).await?.is_empty();
        let is_for = |silence: &&Arc<Active>| silence.spec.is_for_alert(&alert.name);
        Ok(Self { silences: in_force.iter().filter(is_for).cloned().collect(), digest, has_some })
    }

    /// Whether nothing is gathered, and nothing was.
    pub(super) fn is_idle(&self) -> bool {
        self.silences.is_empty() && self.digest.is_none() && !self.has_some
    }

    /// Where an event goes in the place of being sent, if it does.
    pub(super) fn keeps(&self, object: SilencedObject<'_>) -> Option<Place<'_>> {
        let silence = self.silences.iter().find(|silence| silence.spec.is_for(object));
        let of_silence =
            silence.map(|silence| Place { silence: &silence.name, is_silence: true, until: silence.until });
        let of_digest =
            self.digest.as_ref().map(|_| Place { silence: "", is_silence: false, until: Timestamp::MAX });
        of_silence.or(of_digest)
    }

    /// When the first of the Silences that keep something back now is over.
    fn first_end(&self) -> Option<Timestamp> {
        self.silences.iter().map(|silence| silence.until).min()
    }

    /// What people are told of it.
    fn told(&self) -> Option<String> {
        let until = self.first_end()?;
        let named: Vec<String> =
            self.silences.iter().take(5).map(|silence| format!("'{}'", silence.name)).collect();
        let (named, until) = (named.join(", "), Time(until));
        Some(if self.silences.len() == 1 {
            format!("Silence {named} is in force until {until}")
        } else {
            format!("Silences {named} are in force, the first until {until}")
        })
    }
}

/// The Silences of a namespace that are in force now.
pub(super) async fn in_force(tx: &mut Tx, namespace: &str, now: Timestamp) -> Result<InForce, HubError> {
    let stored = tx.silences(namespace, now).await?;
    if stored.is_empty() {
        return Ok(InForce::new());
    }
    // Off the threads that serve others: the times of schedules are searched for.
    let found = tokio::task::spawn_blocking(move || {
        stored.into_iter().filter_map(|silence| active(silence, now)).map(Arc::new).collect()
    });
    Ok(found.await.unwrap_or_default())
}

fn active(silence: StoredSilence, now: Timestamp) -> Option<Active> {
    let StoredSilence { name, spec } = silence;
    // One that an older or newer version stored, and that cannot be read, keeps nothing back.
    let spec: SilenceSpec = serde_json::from_value(spec)
        .inspect_err(|error| tracing::warn!(target: LOGGER, name, %error, "a Silence cannot be read, and silences nothing"))
        .ok()?;
    let until = spec.silences_until(now)?;
    Some(Active { name, spec, until })
}

/// What an event is about, for Silences.
pub(super) fn about<'a>(
    event: &'a Event,
    cluster: Option<&'a str>,
    labels: &'a BTreeMap<String, String>,
) -> SilencedObject<'a> {
    let object = &event.involved_object;
    SilencedObject { kind: &object.kind, namespace: &object.namespace, name: &object.name, cluster, labels }
}

/// News that is gathered.
pub(super) struct ToGather<'a> {
    pub(super) event: &'a Event,
    pub(super) cluster: Option<&'a str>,
    pub(super) condition: Option<&'a str>,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) news: i64,
}

impl ToGather<'_> {
    /// Keeps it, or counts it.
    pub(super) async fn gather(
        &self,
        tx: &mut Tx,
        alert: &Stored,
        place: Place<'_>,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let Self { event, cluster, condition, labels, news } = *self;
        if let Some(condition) = condition.filter(|_| event.is_error()) {
            let heard = Heard::of(event, cluster, condition);
            let kept = KeptFailure { member: heard.member(), labels, news, event: &json!(event) };
            return Ok(tx.keep_failure(alert.uid, place.silence, &kept, now).await?);
        }
        Ok(tx.count_gathered(alert.uid, place.silence, (uncounted(event), 1), now).await?)
    }
}

/// As what news is counted that belongs to no object that fails.
pub(super) fn uncounted(event: &Event) -> Uncounted {
    let drifts = [Reason::DriftDetected, Reason::CorrectionFailed, Reason::Contended];
    if drifts.iter().any(|reason| reason.as_str() == event.reason) {
        Uncounted::Drift
    } else if event.is_error() {
        Uncounted::Failure
    } else {
        Uncounted::Other
    }
}

/// What a pass over an Alert finds of what is not sent.
pub(super) struct Kept {
    /// When it is to be looked at again.
    pub(super) look_at: Option<Timestamp>,
    /// What people are told of it.
    pub(super) told: Option<String>,
}

impl Notifier {
    /// The Provider of an Alert. What cannot be read is told by the pass over the Provider.
    pub(super) async fn provider_of(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
    ) -> Result<Option<(Stored, ProviderSpec)>, HubError> {
        let found = self.store.get(KindId::Provider, &alert.namespace, &spec.provider_ref.name).await?;
        let Some(provider) = found else { return Ok(None) };
        let spec = provider.decode::<Provider>().ok().map(|provider| provider.spec);
        Ok(spec.map(|spec| (provider, spec)))
    }

    /// The Provider of an Alert, and when that tells digests, if it does.
    async fn digest_of(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
    ) -> Result<Option<(Stored, CronSchedule)>, HubError> {
        let found = self.provider_of(alert, spec).await?;
        Ok(found.and_then(|(provider, spec)| Some((provider, spec.digest?))))
    }

    /// Tells what Silences that are over kept back, and the digest where it is time.
    pub(super) async fn tell_gathered(&self, alert: &Stored, spec: &AlertSpec) -> Result<Kept, HubError> {
        let digest = self.digest_of(alert, spec).await?;
        let mut kept = loop {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert.uid).await?;
            let schedule = digest.as_ref().map(|(_, schedule)| schedule.clone());
            let in_force = in_force(&mut tx, &alert.namespace, now).await?;
            let gathering = Gathering::of(&mut tx, alert, schedule, &in_force).await?;
            let mut is_done = true;
            if gathering.has_some {
                is_done = self.end_silences(&mut tx, alert, spec, &gathering, now).await?;
            }
            tx.commit().await?;
            if is_done {
                break Kept { look_at: gathering.first_end(), told: gathering.told() };
            }
        };
        if let Some((provider, schedule)) = &digest {
            let next = self.tell_digest(alert, provider, schedule).await?;
            kept.look_at = kept.look_at.into_iter().chain(next).min();
            if let Some(next) = next {
                let digest = format!("they are told in one message, the next time at {}", Time(next));
                kept.told = Some(kept.told.map_or(digest.clone(), |told| format!("{digest}; {told}")));
            }
        }
        Ok(kept)
    }

    /// Sums up what the Silences kept back that are over; false where there is more to be told of who still fails.
    async fn end_silences(
        &self,
        tx: &mut Tx,
        alert: &Stored,
        spec: &AlertSpec,
        gathering: &Gathering,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let mut is_done = true;
        for name in tx.gathered_for(alert.uid).await? {
            if gathering.silences.iter().any(|silence| silence.name == name) {
                continue;
            }
            let is_digest = name.is_empty();
            if gathering.digest.is_some() {
                if !is_digest {
                    tx.leave_to_digest(alert.uid, &name).await?;
                }
                continue;
            }
            if let Some(sum) = tx.sum_up(&[alert.uid], &name, self.heard_since(now)).await?
                && sum.failed + sum.recovered + sum.lapsed + sum.drifted + sum.others > 0
            {
                let of = if is_digest { SumOf::Digest } else { self.silence(alert, &name).await? };
                let about = if is_digest { &spec.provider_ref.name } else { &name };
                self.add_summary(tx, alert, sum, &of, about, now).await?;
            }
            let failing = tx.take_failures(alert.uid, &name, BATCH).await?;
            is_done &= i64::try_from(failing.len()).is_ok_and(|count| count < BATCH);
            self.tell_failing(tx, alert, spec, gathering, failing, now).await?;
        }
        Ok(is_done)
    }

    async fn silence(&self, alert: &Stored, name: &str) -> Result<SumOf, HubError> {
        let found = self.store.get(KindId::Silence, &alert.namespace, name).await?;
        let spec = found.and_then(|found| found.decode::<Silence>().ok()).map(|silence| silence.spec);
        let (author, reason) = spec.map_or((None, None), |spec| (spec.author, Some(spec.reason)));
        Ok(SumOf::Silence { author, reason })
    }

    /// Tells what still fails as if it had happened now.
    async fn tell_failing(
        &self,
        tx: &mut Tx,
        alert: &Stored,
        spec: &AlertSpec,
        gathering: &Gathering,
        failing: Vec<StillFailing>,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let mut deliveries = Vec::new();
        let mut may = BTreeMap::new();
        for one in failing {
            let StillFailing { condition, cluster, labels, news, event } = one;
            let Ok(event) = serde_json::from_value::<Event>(event) else { continue };
            if !self.may_hear(alert, &event, &mut may).await? {
                continue;
            }
            let cluster = cluster.as_deref();
            if let Some(place) = gathering.keeps(about(&event, cluster, &labels)) {
                let again =
                    ToGather { event: &event, cluster, condition: Some(&condition), labels: &labels, news };
                again.gather(tx, alert, place, now).await?;
            } else if spec.group.is_some() {
                Heard::of(&event, cluster, &condition).fails(tx, alert.uid, spec, now).await?;
            } else {
                let told = json!(as_told(&event, alert, spec, cluster));
                deliveries.push(NewDelivery {
                    alert: alert.uid,
                    news,
                    key: *event.key().as_bytes(),
                    event: told,
                    trace: None,
                });
            }
        }
        tx.add_deliveries(alert.uid, &deliveries, AGAIN, now).await?;
        Ok(())
    }

    /// Tells a Provider's digest where it is time: what was gathered for all of its Alerts, as one message of whichever comes first. When the next
    /// one is due.
    async fn tell_digest(
        &self,
        alert: &Stored,
        provider: &Stored,
        schedule: &CronSchedule,
    ) -> Result<Option<Timestamp>, HubError> {
        // The Provider's condition says what is wrong with it.
        let Ok(times) = Times::of(schedule) else { return Ok(None) };
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let mut told_at = tx.hold_digest(provider.uid, now).await?;
        // A clock that was put back holds nothing up.
        if told_at > now + MOST_APART {
            tx.digest_told(provider.uid, now).await?;
            told_at = now;
        }
        if times.next(told_at).is_some_and(|due| due <= now) {
            let alerts =
                tx.users_of_kind(provider.kind, &provider.namespace, &provider.name, KindId::Alert).await?;
            // In the order in which all hold them. What a suspended one has heard waits.
            let alerts = tx.listening(&alerts).await?;
            for one in &alerts {
                tx.hold_incidents(*one).await?;
            }
            if let Some(sum) = tx.sum_up(&alerts, "", self.heard_since(now)).await? {
                self.add_summary(&mut tx, alert, sum, &SumOf::Digest, &provider.name, now).await?;
            }
            tx.digest_told(provider.uid, now).await?;
        }
        tx.commit().await?;
        Ok(times.next(now))
    }

    async fn add_summary(
        &self,
        tx: &mut Tx,
        alert: &Stored,
        sum: Gathered,
        of: &SumOf,
        name: &str,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let mut named = Vec::new();
        for one in sum.named {
            // Leave may have been withdrawn.
            if one.namespace == alert.namespace
                || self.may_be_told_of(alert, &one.kind, &one.namespace, &one.name).await?
            {
                let object = format!("{}/{}/{}", one.kind, one.namespace, one.name);
                named.push(Failing { object, cluster: one.cluster, message: one.message });
            }
        }
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        let summary = Summary {
            since: sum.since,
            failed: count(sum.failed),
            recovered: count(sum.recovered),
            lapsed: count(sum.lapsed),
            drifted: count(sum.drifted),
            others: count(sum.others),
            failing: count(sum.failing),
            named,
        };
        let event = summary.told(of, &alert.namespace, name, now);
        let key = Digest::of(format!("summary/{name}/{now}").as_bytes());
        Ok(tx.add_message(alert.uid, &json!(event), key.as_bytes(), now).await?)
    }
}
