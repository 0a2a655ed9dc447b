//! The decision itself. What may hold an attempt are gates, in one list and in the order in which a user should hear of what is
//! wrong: who may deploy, dependencies that form a cycle, the cluster, the source, a restored database that has an older spec than the
//! cluster was given; and, once an attempt is due, dependencies that are not Ready, and an agent that is away.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{AttemptKind, ClusterUid, Digest, Reason, Revision};

use crate::pace;
use crate::schedule::{has_happened, jittered, spread};
use crate::{
    AgentLink, AttemptState, Attempted, Decision, Dependency, DependencyState, Situation, Source, Target,
    Tended,
};

/// How soon a condition that someone else must mend is checked again when nothing wakes us before.
const RECHECK: Duration = Duration::from_secs(30);
/// An agent whose hub restarts is back within this; what is Ready does not blink because of it.
const RECONNECT: Duration = Duration::from_secs(15);

/// An agent that comes back says within this what it tends; what it does not say is applied again, over as long a time.
const RECLAIM: Duration = Duration::from_secs(30);

/// The source's revision and its artifact.
type Wanted<'a> = (&'a Revision, Digest);

/// Something that may hold an attempt.
struct Gate {
    /// When it is asked.
    asked: Asked,
    /// Why it holds an attempt; none where it does not.
    holds: fn(&Situation) -> Option<Hold>,
}

/// When a gate is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// At each pass.
    Always,
    /// Once an attempt is due: that a dependency fails while none is due says nothing about what was applied.
    Due,
    /// Before something is dispatched to the chosen cluster: what is on another one goes before.
    Dispatch,
}

/// Why an attempt is held.
struct Hold {
    reason: Reason,
    message: String,
    /// Whether it waits for something that has its own conditions and is expected to come.
    waits: bool,
}

impl Hold {
    fn new(reason: Reason, message: impl Into<String>) -> Option<Self> {
        Some(Self { reason, message: message.into(), waits: false })
    }

    fn waiting(reason: Reason, message: impl Into<String>) -> Option<Self> {
        Some(Self { reason, message: message.into(), waits: true })
    }
}

/// All gates, in the order in which they are asked.
const GATES: &[Gate] = &[
    Gate { asked: Asked::Always, holds: unsupported },
    Gate { asked: Asked::Always, holds: denied },
    Gate { asked: Asked::Always, holds: cycle },
    Gate { asked: Asked::Always, holds: no_cluster },
    Gate { asked: Asked::Always, holds: no_artifact },
    Gate { asked: Asked::Always, holds: older_than_applied },
    Gate { asked: Asked::Due, holds: dependencies },
    Gate { asked: Asked::Dispatch, holds: agent_away },
];

/// The first gate of these that holds an attempt.
fn held(situation: &Situation, asked: Asked, now: Timestamp) -> Option<Decision> {
    let Hold { reason, message, waits } =
        GATES.iter().filter(|gate| gate.asked == asked).find_map(|gate| (gate.holds)(situation))?;
    Some(Decision::Hold { reason, message, until: now + RECHECK, waits })
}

fn unsupported(situation: &Situation) -> Option<Hold> {
    Hold::new(Reason::BuildFailed, situation.unsupported.clone()?)
}

fn denied(situation: &Situation) -> Option<Hold> {
    let denial = situation.denials.first()?;
    Hold::new(denial.reason, denial.message.clone())
}

fn cycle(situation: &Situation) -> Option<Hold> {
    let cycle = situation.cycle.as_ref()?.join(" -> ");
    let message = format!("dependsOn forms a cycle: {cycle}; remove one of these dependencies");
    Hold::new(Reason::DependencyNotReady, message)
}

fn no_cluster(situation: &Situation) -> Option<Hold> {
    match &situation.target {
        Target::NotFound(why) => Hold::new(Reason::ClusterNotFound, why.clone()),
        Target::Leaving { name, .. } => {
            let message = format!("cluster '{name}' is being deleted: choose another one");
            Hold::new(Reason::ClusterNotFound, message)
        }
        Target::Cluster { .. } => None,
    }
}

fn no_artifact(situation: &Situation) -> Option<Hold> {
    match &situation.source {
        Source::NotFound(why) | Source::NoArtifact(why) => Hold::waiting(Reason::ArtifactFailed, why.clone()),
        Source::Unusable(why) => Hold::new(Reason::ArtifactFailed, why.clone()),
        Source::Fetching(what) => Hold::waiting(Reason::Progressing, what.clone()),
        Source::Artifact { .. } => None,
    }
}

fn older_than_applied(situation: &Situation) -> Option<Hold> {
    Hold::new(Reason::DatabaseRestored, situation.older_than_applied.clone()?)
}

fn dependencies(situation: &Situation) -> Option<Hold> {
    let Source::Artifact { revision, .. } = &situation.source else { return None };
    Hold::waiting(Reason::DependencyNotReady, waits_for(&situation.dependencies, revision)?)
}

fn agent_away(situation: &Situation) -> Option<Hold> {
    let Target::Cluster { name, agent, .. } = &situation.target else { return None };
    let message = match agent {
        AgentLink::Connected => return None,
        AgentLink::Blind(why) => format!(
            "the API server of cluster {name} does not answer its agent; this is reconciled once it does: {why}"
        ),
        AgentLink::Lost(_) | AgentLink::Never => format!(
            "the agent of cluster {name} is not connected; this is reconciled once it is. See its conditions: kubectl describe cluster {name}"
        ),
    };
    Hold::waiting(Reason::ClusterUnreachable, message)
}

/// What to do next with this applier, at `now`.
#[must_use]
pub fn decide(situation: &Situation, now: Timestamp) -> Decision {
    if situation.deleting {
        return decide_deletion(situation, now);
    }
    if situation.suspended {
        return Decision::Suspend;
    }
    if let Target::Leaving { uid, .. } = &situation.target
        && let Some(decision) = leave(situation, *uid, now)
    {
        return decision;
    }
    if let Some(decision) = held(situation, Asked::Always, now) {
        return decision;
    }
    let (Target::Cluster { uid: cluster, agent, .. }, Source::Artifact { revision, digest: artifact }) =
        (&situation.target, &situation.source)
    else {
        // The gates hold what has none of these.
        return Decision::Idle { until: now + RECHECK };
    };
    let (cluster, wanted) = (*cluster, (revision, *artifact));
    if let Some(open) =
        situation.last.as_ref().and_then(|last| still_wanted(last, situation, cluster, wanted))
    {
        return wait_for(open, now);
    }
    let (due, news) = when_due(situation, cluster, wanted, now);
    if now < due {
        // What may not be deployed any more, or lacks something, is told within an interval also where nothing has to be looked at.
        return Decision::Idle { until: due.min(now + jittered(situation.interval, situation.uid)) };
    }
    if let Some(free) = situation.paced(cluster, wanted, now)
        && now < free
    {
        return match situation.last.as_ref().and_then(Attempted::deadline) {
            Some(deadline) if deadline <= now => wait_for(deadline, now),
            Some(deadline) => Decision::Pace { until: free.min(deadline) },
            None => Decision::Pace { until: free },
        };
    }
    if let Some(decision) = held(situation, Asked::Due, now) {
        return decision;
    }
    // One that moved prunes the old cluster first.
    if let Some(decision) = leave_other_clusters(situation, cluster, now) {
        return decision;
    }
    if let AgentLink::Lost(at) = agent
        && has_happened(*at, now)
        && now < *at + RECONNECT
    {
        return Decision::Idle { until: *at + RECONNECT };
    }
    if let Some(decision) = held(situation, Asked::Dispatch, now) {
        return decision;
    }
    Decision::Reconcile { cluster, revision: revision.clone(), artifact: *artifact, news }
}

/// When the next reconciliation is due, and whether there is something new about it.
fn when_due(
    situation: &Situation,
    cluster: ClusterUid,
    wanted: Wanted<'_>,
    now: Timestamp,
) -> (Timestamp, bool) {
    let at_once = (now, true);
    let Some(last) = &situation.last else { return at_once };
    // What was held since may have changed on the cluster meanwhile, and Ready is to say what is so now.
    if situation.held || situation.handed || !is_current(last, situation, cluster, wanted) {
        return at_once;
    }
    let AttemptState::Finished { at, succeeded } = last.state else { return at_once };
    if !succeeded && situation.confirmed {
        return at_once;
    }
    // What was read is to be rendered by.
    if last.kind == AttemptKind::Read && succeeded {
        return at_once;
    }
    let (since, period, failed) = match situation.late {
        Some(since) => (since, situation.retry_interval, true),
        None if succeeded => return (next_look(situation, at, now), false),
        None => (at, situation.retry_interval, true),
    };
    // A clock that was put back holds nothing up.
    let due = if has_happened(since, now) { since + jittered(period, situation.uid) } else { now };
    (due, failed)
}

/// When the cluster is to be looked at again that was known at `at` to have what was applied.
fn next_look(situation: &Situation, at: Timestamp, now: Timestamp) -> Timestamp {
    let Situation { interval, full_interval, uid, tended, .. } = situation;
    if !has_happened(at, now) {
        return now;
    }
    match *tended {
        Tended::Unknown => at + jittered(*interval, *uid),
        Tended::Now => at + jittered(*full_interval.max(interval), *uid),
        Tended::Until(until) if has_happened(until, now) => at.max(until) + jittered(*interval, *uid),
        Tended::Until(_) => at + jittered(*interval, *uid),
        Tended::Unclaimed(since) if since > at && has_happened(since, now) => {
            let soon = since + RECLAIM + spread(RECLAIM, *uid);
            soon.min(since + jittered(*interval, *uid))
        }
        Tended::Unclaimed(_) => at + jittered(*interval, *uid),
    }
}

/// Whether `last` was an attempt at what is wanted now.
fn is_current(last: &Attempted, situation: &Situation, cluster: ClusterUid, wanted: Wanted<'_>) -> bool {
    has_same_inputs(last, cluster, wanted)
        && last.generation == situation.generation
        && last.request == situation.request
}

/// Whether `last` was an attempt at the same revision, on the same cluster, with the same inputs; spec and request aside.
fn has_same_inputs(last: &Attempted, cluster: ClusterUid, wanted: Wanted<'_>) -> bool {
    last.kind != AttemptKind::Delete
        && !last.outdated
        && !last.is_past
        && last.cluster == Some(cluster)
        && (last.revision.as_ref(), last.artifact) == (Some(wanted.0), Some(wanted.1))
}

impl Attempted {
    /// When it is given up, while it is under way.
    fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            AttemptState::Open { deadline } => Some(deadline),
            AttemptState::Finished { .. } => None,
        }
    }
}

impl Situation {
    /// When the next attempt may begin, where all that is new is that somebody asks for one.
    fn paced(&self, cluster: ClusterUid, wanted: Wanted<'_>, now: Timestamp) -> Option<Timestamp> {
        let last = self.repeated(cluster, wanted)?;
        let asks = last.generation != self.generation || last.request != self.request;
        let begun = self.asked_for.iter().copied().filter(|began| has_happened(*began, now));
        if asks { pace::next(&begun.collect::<Vec<_>>()) } else { None }
    }

    /// Whether all that is new about an attempt on this cluster is that somebody asks for one, and nothing is changed for it.
    #[must_use]
    pub fn is_only_requested(&self, cluster: ClusterUid) -> bool {
        let Source::Artifact { revision, digest } = &self.source else { return false };
        self.repeated(cluster, (revision, *digest))
            .is_some_and(|last| last.generation == self.generation && last.request != self.request)
    }

    /// The newest attempt, where the next one would have the same inputs, and only its spec or request can be new.
    fn repeated(&self, cluster: ClusterUid, wanted: Wanted<'_>) -> Option<&Attempted> {
        let is_same = |last: &&Attempted| has_same_inputs(last, cluster, wanted);
        self.last.as_ref().filter(|_| !self.confirmed && !self.handed).filter(is_same)
    }

    /// Whether the newest attempt was one at what is wanted now, on this cluster.
    #[must_use]
    pub fn is_last_current(&self, cluster: ClusterUid) -> bool {
        match (&self.last, &self.source) {
            (Some(last), Source::Artifact { revision, digest }) => {
                is_current(last, self, cluster, (revision, *digest))
            }
            _ => false,
        }
    }
}

/// The deadline of an open attempt that is worth waiting for: one at what is wanted now, or a deletion on a cluster
/// that was left. One at anything else is superseded by the next.
fn still_wanted(
    last: &Attempted,
    situation: &Situation,
    cluster: ClusterUid,
    wanted: Wanted<'_>,
) -> Option<Timestamp> {
    let deadline = last.deadline()?;
    let leaves = last.kind == AttemptKind::Delete && last.cluster.is_some_and(|old| old != cluster);
    (leaves || is_current(last, situation, cluster, wanted)).then_some(deadline)
}

fn wait_for(deadline: Timestamp, now: Timestamp) -> Decision {
    if now < deadline {
        return Decision::Idle { until: deadline };
    }
    Decision::GiveUp {
        message: "the cluster's agent sent no result before the timeout; it is tried again".to_owned(),
    }
}

fn leave_other_clusters(situation: &Situation, stays: ClusterUid, now: Timestamp) -> Option<Decision> {
    if !situation.prune {
        return None;
    }
    let left = situation.owns_on.iter().find(|owned| owned.exists && owned.cluster != stays)?;
    Some(delete_from(situation, left.cluster, now))
}

/// Prunes what is on a cluster that is being deleted; nothing where all is done that is to be done.
fn leave(situation: &Situation, cluster: ClusterUid, now: Timestamp) -> Option<Decision> {
    if let Some(Attempted { kind: AttemptKind::Delete, state: AttemptState::Open { deadline }, .. }) =
        situation.last
    {
        return Some(wait_for(deadline, now));
    }
    let owns = situation.owns_on.iter().any(|owned| owned.exists && owned.cluster == cluster);
    (situation.prune && owns).then(|| delete_from(situation, cluster, now))
}

fn decide_deletion(situation: &Situation, now: Timestamp) -> Decision {
    let orphaned = if situation.suspended {
        Some("it was suspended, so its objects stay")
    } else if !situation.prune {
        Some("spec.prune is false, so its objects stay")
    } else {
        None
    };
    if let Some(why) = orphaned {
        let orphaned = (!situation.owns_on.is_empty()).then(|| why.to_owned());
        return Decision::Release { orphaned };
    }
    if let Some(Attempted { kind: AttemptKind::Delete, state: AttemptState::Open { deadline }, .. }) =
        situation.last
    {
        return wait_for(deadline, now);
    }
    match situation.owns_on.iter().find(|owned| owned.exists) {
        Some(owned) => delete_from(situation, owned.cluster, now),
        None if situation.owns_on.is_empty() => Decision::Release { orphaned: None },
        None => Decision::Release {
            orphaned: Some("their cluster was deleted from the hub, so its objects stay".to_owned()),
        },
    }
}

/// Deletes, unless the last try at that failed a moment ago.
fn delete_from(situation: &Situation, cluster: ClusterUid, now: Timestamp) -> Decision {
    if let Some(Attempted {
        kind: AttemptKind::Delete, cluster: Some(tried), state, generation, request, ..
    }) = &situation.last
        && let AttemptState::Finished { at, succeeded: false } = state
        && *tried == cluster
        && *generation == situation.generation
        && *request == situation.request
    {
        let due = *at + situation.retry_interval.min(RECHECK);
        if has_happened(*at, now) && now < due && !situation.confirmed {
            return Decision::Idle { until: due };
        }
    }
    Decision::Delete { cluster }
}

/// What the first dependency that is not there yet lacks.
fn waits_for(dependencies: &[Dependency], revision: &Revision) -> Option<String> {
    dependencies.iter().find_map(|dependency| {
        let name = &dependency.name;
        match &dependency.state {
            DependencyState::Missing => Some(format!("dependency '{name}' not found")),
            DependencyState::NotReady => Some(format!("dependency '{name}' is not ready")),
            DependencyState::NotReadyBy(why) => Some(format!("dependency '{name}' is not ready {why}")),
            DependencyState::Ready => None,
            DependencyState::ReadyAt(Some(applied)) if applied == revision => None,
            DependencyState::ReadyAt(_) => Some(format!(
                "dependency '{name}' has not applied revision {revision} of the shared source yet"
            )),
        }
    })
}
