//! Fleet views: read models that span clusters. Each shows of the appliers, sources and Events those that whoever asks may list,
//! and of the Clusters those that they may get; whoever may see none of them is refused.

use std::collections::BTreeMap;

use roadstead_api::{Cluster, KindId, Time};
use roadstead_hub_store::{ConnectionTimes, Filter, FleetAttempt, Part, Stored};
use roadstead_model::{
    Action, AttemptFilter, ChangeSet, ClusterUid, GoDuration, InventoryFilter, InventoryKey, ObjectResult,
    Trigger, Visible,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::identity::Identity;
use crate::objects::conditions::READY;
use crate::schemas::ObjectResultSchema;
use crate::views::lists::ObjectName;
use crate::views::{Views, known_applier_kind, visible};

/// What one page of a view holds at most.
pub const MAX_ITEMS: i64 = 500;
/// Clusters that one request may name.
pub const MAX_NAMES: usize = 100;

/// An object that an applier owns on a cluster.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryItem {
    /// The Cluster's name; empty where the Cluster is gone.
    pub cluster: String,
    /// API group; empty for the core group.
    pub group: String,
    /// The version that it was applied in.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty where it is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The applier that owns it; its fields are empty where it is gone.
    pub applier: ObjectName,
    /// Announced, and not yet seen applied.
    pub intended: bool,
    /// Its labels, as they were applied last.
    pub labels: BTreeMap<String, String>,
    /// Its health as it was told last, as `Current` or `InProgress: Available: 1/2`; none where it was applied and its
    /// health was not waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
}

/// A cluster with what is on it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterItem {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether its agent is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyState>,
    /// Version of its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Version of its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// How many appliers there are for it, by the status of their Ready conditions (suspended ones under `Suspended`).
    pub appliers: BTreeMap<String, i64>,
    /// Why appliers for it are not Ready, the most frequent reason first.
    pub failing: Vec<FailureCount>,
    /// How many objects are owned there.
    pub objects: i64,
    /// Whether its agent is connected; none where none ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionState>,
}

/// How many appliers are not Ready for the same reason.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FailureCount {
    /// The reason.
    pub reason: String,
    /// How many.
    pub count: i64,
    /// Since when the first of them is so.
    pub since: String,
}

/// Whether an agent is connected.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectionState {
    /// Whether it is.
    pub connected: bool,
    /// Since when it is, or is not.
    #[schemars(with = "String")]
    pub since: Time,
}

/// What a Ready condition says.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReadyState {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for programs.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// Since when.
    pub since: String,
}

/// An attempt at reconciling an applier.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptItem {
    /// The applier.
    pub applier: ObjectName,
    /// The Cluster; empty where there was none.
    pub cluster: String,
    /// Counts the applier's attempts.
    pub attempt: i64,
    /// What led to it, as in the history of one applier. None of one that an older version made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub trigger: Option<Trigger>,
    /// Who changed or deleted it, asked for it, or confirmed its deletions, as the audit log has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The source's revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// When it began.
    #[schemars(with = "String")]
    pub started: Time,
    /// How long it took, as `1.5s`; none while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub took: Option<GoDuration>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub message: String,
    /// How many objects were created, configured, recreated, adopted, unchanged, deleted, skipped.
    pub counts: BTreeMap<String, usize>,
    /// The objects that were changed; at most 100.
    #[schemars(with = "Vec<ObjectResultSchema>")]
    pub changed: ChangeSet,
}

/// A page of a view.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct FleetPage<T> {
    /// What was found.
    pub items: Vec<T>,
    /// To be given back as `continue` for the next page; none where this is the last.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Objects that an attempt names.
const MAX_CHANGED: usize = 100;

pub(super) fn ready_state(object: &Value) -> Option<ReadyState> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == READY).map(ready_of)
}

/// What a Ready condition says.
pub(crate) fn ready_of(condition: &Value) -> ReadyState {
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    ReadyState {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        since: text("lastTransitionTime"),
    }
}

/// How many objects of the hub are in the same state.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCount {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for Clusters.
    pub namespace: String,
    /// The Cluster that they are for, by name; empty for sources.
    pub cluster: String,
    /// The Ready condition's status; empty where it was not processed yet.
    pub ready: String,
    /// Its reason.
    pub reason: String,
    /// Whether they are suspended.
    pub suspended: bool,
    /// How many.
    pub count: i64,
    /// Since when the first of them is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

impl From<roadstead_hub_store::HealthCount> for HealthCount {
    fn from(row: roadstead_hub_store::HealthCount) -> Self {
        let roadstead_hub_store::HealthCount {
            kind,
            namespace,
            cluster,
            ready,
            reason,
            suspended,
            count,
            since,
        } = row;
        Self { kind, namespace, cluster, ready, reason, suspended, count, since }
    }
}

impl Views {
    /// A page of owned objects; the next begins behind the key.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. [`HubError::NotFound`] where the filter's kind of applier is not one. Where the database fails.
    pub async fn inventory(
        &self,
        who: &Identity,
        filter: &InventoryFilter,
        after: Option<&InventoryKey>,
        limit: i64,
    ) -> Result<(Vec<InventoryItem>, Option<InventoryKey>), HubError> {
        let visible = visible::appliers(who, &filter.applier_namespace)?;
        known_applier_kind(&filter.applier_kind)?;
        let limit = limit.clamp(1, MAX_ITEMS);
        let mut found = self.store.search_inventory(filter, visible.as_ref(), after, limit + 1).await?;
        let full = i64::try_from(found.len()).unwrap_or(i64::MAX) > limit;
        if full {
            found.pop();
        }
        let next = found.last().filter(|_| full).map(|last| last.key.clone());
        let items = found.into_iter().map(|owned| InventoryItem {
            cluster: owned.cluster,
            group: owned.object.group,
            version: owned.object.version,
            kind: owned.object.kind,
            namespace: owned.object.namespace,
            name: owned.object.name,
            applier: owned.applier.map_or_else(ObjectName::nothing, ObjectName::from),
            intended: owned.intended,
            labels: owned.labels,
            health: owned.health,
        });
        Ok((items.collect(), next))
    }

    /// How many objects of the hub are in which state.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. Where the database fails.
    pub async fn health(&self, who: &Identity) -> Result<Vec<HealthCount>, HubError> {
        let visible = visible::everything(who)?;
        Ok(self.store.health_counts(visible.as_ref()).await?.into_iter().map(HealthCount::from).collect())
    }

    /// All clusters with what is on them, by name; or those of these names. Of those that `who` may see, with what they may see there.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. Too many names. Where the database fails.
    pub async fn clusters(
        &self,
        who: &Identity,
        names: Option<&[String]>,
    ) -> Result<Vec<ClusterItem>, HubError> {
        let seen = visible::clusters(who);
        if seen.as_ref().is_some_and(Vec::is_empty) {
            who.authorize("list", KindId::Cluster.get(), "", "", "")?;
        }
        // Whoever sees a cluster and no applier is told that there is nothing on it.
        let visible = match visible::appliers(who, "") {
            Err(HubError::Forbidden(_)) => Some(Visible::default()),
            visible => visible?,
        };
        let found = self.found_clusters(names, seen.as_deref()).await?;
        let is_part = names.is_some() || seen.is_some();
        let uids: Option<Vec<_>> = is_part.then(|| found.iter().map(|stored| stored.uid.0).collect());
        let objects = self.store.object_counts(uids.as_deref(), visible.as_ref()).await?;
        let objects: BTreeMap<ClusterUid, i64> = objects.into_iter().collect();
        let connections: BTreeMap<ClusterUid, ConnectionTimes> =
            self.store.connections(uids.as_deref()).await?.into_iter().collect();
        let counts = if is_part {
            let names: Vec<String> = found.iter().map(|stored| stored.name.clone()).collect();
            self.store.health_counts_of(&names, visible.as_ref()).await?
        } else {
            self.store.health_counts(visible.as_ref()).await?
        };
        let mut loads = loads(counts);
        let mut items = Vec::with_capacity(found.len());
        for stored in found {
            let cluster: Cluster = stored.decode()?;
            let status = cluster.status.unwrap_or_default();
            let load = loads.remove(&stored.name).unwrap_or_default();
            items.push(ClusterItem {
                labels: stored.labels(),
                ready: ready_state(&stored.object),
                kubernetes_version: status.kubernetes_version,
                agent_version: status.agent_version,
                appliers: load.states,
                failing: load.failing,
                objects: objects.get(&stored.uid.into()).copied().unwrap_or_default(),
                connection: connections.get(&stored.uid.into()).map(|times| ConnectionState {
                    connected: times.disconnected.is_none(),
                    since: Time(times.disconnected.unwrap_or(times.connected)),
                }),
                name: stored.name,
            });
        }
        Ok(items)
    }

    /// The Clusters of these names, or all, by name; where it is said which are seen, of those.
    async fn found_clusters(
        &self,
        names: Option<&[String]>,
        seen: Option<&[String]>,
    ) -> Result<Vec<Stored>, HubError> {
        let is_seen = |name: &String| seen.is_none_or(|seen| seen.contains(name));
        let mut found = Vec::new();
        match names {
            Some(names) if names.len() > MAX_NAMES => {
                return Err(HubError::BadRequest(format!("names: at most {MAX_NAMES} at once")));
            }
            Some(names) => {
                for name in names.iter().filter(|name| is_seen(name)) {
                    found.extend(self.store.get(KindId::Cluster, "", name).await?);
                }
            }
            None => {
                let each = |stored: Stored| {
                    if is_seen(&stored.name) {
                        found.push(stored);
                    }
                };
                let all = Filter::default();
                self.store.list_each(KindId::Cluster, &all, Part::default(), i64::MAX, each).await?;
            }
        }
        Ok(found)
    }

    /// A page of attempts, the newest first.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. [`HubError::NotFound`] where the filter's kind of applier is not one. Where the database fails.
    pub async fn attempts(
        &self,
        who: &Identity,
        filter: &AttemptFilter,
        limit: i64,
    ) -> Result<Vec<AttemptItem>, HubError> {
        let visible = visible::appliers(who, &filter.applier_namespace)?;
        known_applier_kind(&filter.applier_kind)?;
        let found = self.store.attempts(filter, visible.as_ref(), limit.clamp(1, MAX_ITEMS)).await?;
        Ok(found.into_iter().map(attempt_item).collect())
    }
}

/// What is on a cluster.
#[derive(Default)]
struct Load {
    states: BTreeMap<String, i64>,
    failing: Vec<FailureCount>,
}

fn loads(counts: Vec<roadstead_hub_store::HealthCount>) -> BTreeMap<String, Load> {
    let mut loads: BTreeMap<String, Load> = BTreeMap::new();
    for count in counts.into_iter().filter(|count| KindId::named(&count.kind).is_some_and(KindId::is_applier))
    {
        let load = loads.entry(count.cluster).or_default();
        if count.ready == "False" && !count.suspended {
            let since = count.since.unwrap_or_default();
            match load.failing.iter_mut().find(|known| known.reason == count.reason) {
                Some(known) => {
                    known.count += count.count;
                    known.since = since.min(std::mem::take(&mut known.since));
                }
                None => load.failing.push(FailureCount { reason: count.reason, count: count.count, since }),
            }
        }
        let state = if count.suspended { "Suspended".to_owned() } else { unknown(count.ready) };
        *load.states.entry(state).or_default() += count.count;
    }
    for load in loads.values_mut() {
        load.failing.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    }
    loads
}

fn unknown(ready: String) -> String {
    if ready.is_empty() { "Unknown".to_owned() } else { ready }
}

fn attempt_item(attempt: FleetAttempt) -> AttemptItem {
    let mut counts = BTreeMap::new();
    for result in &attempt.change_set {
        *counts.entry(result.action.as_str().to_owned()).or_default() += 1;
    }
    let changed = |result: &ObjectResult| !matches!(result.action, Action::Unchanged | Action::Skipped);
    AttemptItem {
        changed: attempt.change_set.into_iter().filter(changed).take(MAX_CHANGED).collect(),
        applier: attempt.applier.into(),
        cluster: attempt.cluster,
        attempt: attempt.attempt,
        trigger: attempt.trigger,
        actor: attempt.actor,
        revision: attempt.revision,
        started: Time(attempt.started),
        took: attempt
            .finished
            .and_then(|at| at.duration_since(attempt.started).try_into().ok().map(GoDuration)),
        reason: attempt.reason,
        message: attempt.message,
        counts,
    }
}
