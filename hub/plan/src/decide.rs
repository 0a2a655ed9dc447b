//! The decision itself. The checks are in the order in which a user should hear of what is wrong: who may deploy,
//! dependencies that form a cycle, the cluster, the source; and, once an attempt is due, dependencies that are not Ready,
//! and an agent that is away.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{AttemptKind, ClusterUid, Digest, Reason, Revision};

use crate::schedule::jittered;
use crate::{
    AgentLink, AttemptState, Attempted, Decision, Dependency, DependencyState, Situation, Source, Target,
};

/// How soon a condition that someone else must mend is checked again when nothing wakes us before.
const RECHECK: Duration = Duration::from_secs(30);
/// An agent whose hub restarts is back within this; what is Ready does not blink because of it.
const RECONNECT: Duration = Duration::from_secs(15);

/// The source's revision and its artifact.
type Wanted<'a> = (&'a Revision, Digest);

/// What to do next with this Kustomization, at `now`.
#[must_use]
pub fn decide(situation: &Situation, now: Timestamp) -> Decision {
    if situation.deleting {
        return decide_deletion(situation, now);
    }
    if situation.suspended {
        return Decision::Suspend;
    }
    let hold = |reason, message| Decision::Hold { reason, message, until: now + RECHECK, waits: false };
    let wait = |reason, message| Decision::Hold { reason, message, until: now + RECHECK, waits: true };
    if let Target::Leaving { uid, .. } = &situation.target
        && let Some(decision) = leave(situation, *uid, now)
    {
        return decision;
    }
    if let Some(message) = &situation.unsupported {
        return hold(Reason::BuildFailed, message.clone());
    }
    if let Some(gate) = situation.gates.first() {
        return hold(gate.reason, gate.message.clone());
    }
    if let Some(cycle) = &situation.cycle {
        return hold(
            Reason::DependencyNotReady,
            format!("dependsOn forms a cycle: {}; remove one of these dependencies", cycle.join(" -> ")),
        );
    }
    let (cluster, name, agent) = match &situation.target {
        Target::NotFound(why) => return hold(Reason::ClusterNotFound, why.clone()),
        Target::Leaving { name, .. } => {
            let message = format!("cluster '{name}' is being deleted: choose another one");
            return hold(Reason::ClusterNotFound, message);
        }
        Target::Cluster { uid, name, agent } => (*uid, name, *agent),
    };
    let (revision, artifact) = match &situation.source {
        Source::NoArtifact(why) => return wait(Reason::ArtifactFailed, why.clone()),
        Source::Artifact { revision, digest } => (revision, *digest),
    };
    let wanted = (revision, artifact);
    if let Some(open) =
        situation.last.as_ref().and_then(|last| still_wanted(last, situation, cluster, wanted))
    {
        return wait_for(open, now);
    }
    // What follows are stages of a reconciliation: a dependency that fails, or an agent that is away, while none is due
    // says nothing about what was applied.
    let (due, news) = when_due(situation, cluster, wanted, now);
    if now < due {
        return Decision::Idle { until: due };
    }
    if let Some(message) = waits_for(&situation.dependencies, revision) {
        return wait(Reason::DependencyNotReady, message);
    }
    // A Kustomization that moved prunes the old cluster first.
    if let Some(decision) = leave_other_clusters(situation, cluster, now) {
        return decision;
    }
    if let AgentLink::Lost(at) = agent
        && now < at + RECONNECT
    {
        return Decision::Idle { until: at + RECONNECT };
    }
    if agent != AgentLink::Connected {
        let message = format!(
            "the agent of cluster {name} is not connected; this is reconciled once it is. See its conditions: kubectl describe cluster {name}"
        );
        return wait(Reason::ClusterUnreachable, message);
    }
    Decision::Reconcile { cluster, revision: revision.clone(), artifact, news }
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
    if situation.held || !is_current(last, situation, cluster, wanted) {
        return at_once;
    }
    let AttemptState::Finished { at, succeeded } = last.state else { return at_once };
    // What was read is to be rendered by.
    if last.kind == AttemptKind::Read && succeeded {
        return at_once;
    }
    let (since, period, failed) = match situation.late {
        Some(since) => (since, situation.retry_interval, true),
        None if succeeded => (at, situation.interval, false),
        None => (at, situation.retry_interval, true),
    };
    (since + jittered(period, situation.uid), failed)
}

/// Whether `last` was an attempt at what is wanted now.
fn is_current(last: &Attempted, situation: &Situation, cluster: ClusterUid, wanted: Wanted<'_>) -> bool {
    last.kind != AttemptKind::Delete
        && !last.outdated
        && last.generation == situation.generation
        && last.cluster == Some(cluster)
        && (last.revision.as_ref(), last.artifact) == (Some(wanted.0), Some(wanted.1))
        && last.request == situation.request
}

impl Situation {
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
    let AttemptState::Open { deadline } = last.state else { return None };
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
        if now < due {
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
            DependencyState::Ready => None,
            DependencyState::ReadyAt(Some(applied)) if applied == revision => None,
            DependencyState::ReadyAt(_) => Some(format!(
                "dependency '{name}' has not applied revision {revision} of the shared source yet"
            )),
        }
    })
}
