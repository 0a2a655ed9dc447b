//! How a cluster goes: with `deletionPolicy: Prune` its Cluster stays until what Kustomizations own there is pruned; by
//! `Abandon`, also where that is set later, it goes at once and everything stays. With `agent.removal: Remove` the agent is
//! told to remove itself after that; by `Leave`, also where that is set later, it is left as it is.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AgentRemoval, AnyApplier, Cluster, ClusterDeletionPolicy, ConditionStatus};
use roadstead_hub_store::{Stored, Tx};
use roadstead_model::{ClusterUid, OrderKind, OrderState, Reason};

use crate::HubError;
use crate::clusters::Agents;
use crate::clusters::session::Session;
use crate::objects::{conditions, events, status, triggers};

/// The type of the condition that says what a deletion waits for.
const RETIRED: &str = "Retired";

/// Kustomizations that a message names.
const NAMED: usize = 5;

/// How often it is looked whether all is pruned.
const RECHECK: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(3600);
/// So long is an agent waited for that is to remove itself and is not connected.
const ABSENT: Duration = Duration::from_secs(30);

/// How it stands with an agent that is to remove itself.
enum Removal {
    /// Nothing is to be waited for any more; for people: why.
    Over(Option<&'static str>),
    /// It is to be told.
    Tell,
    /// It is waited for.
    Waits(Reason, String),
}

impl Agents {
    /// A step of a Cluster's deletion. Says when the next pass is due.
    pub(crate) async fn retire(&self, stored: &Stored, cluster: &Cluster) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        if !stored.finalizers().any(|finalizer| finalizer == triggers::FINALIZER) {
            return Ok(now + REST);
        }
        let waits = match cluster.spec.deletion_policy {
            Some(ClusterDeletionPolicy::Prune) => self.still_pruned(stored.uid.into()).await?,
            Some(ClusterDeletionPolicy::Abandon) | None => Vec::new(),
        };
        let removal = self.removal(stored, cluster).await?;
        let mut tx = self.store.begin().await?;
        let Some(mut present) = tx.get_by_uid(stored.uid).await? else { return Ok(now + REST) };
        if present.generation != stored.generation {
            return Ok(now);
        }
        let (reason, message) = if waits.is_empty() {
            match removal {
                Removal::Over(left) => {
                    let agent = left.unwrap_or("it was removed, or stays as spec.agent.removal says");
                    if let Some(why) = left {
                        events::note(&mut tx, &present, "Warning", "AgentLeft", why, now).await?;
                    }
                    triggers::let_go(&mut tx, &present, now).await?;
                    tx.commit().await?;
                    tracing::info!(cluster = stored.name, agent, "cluster retired");
                    return Ok(now + REST);
                }
                Removal::Tell => {
                    tx.give_order(stored.uid.into(), &OrderKind::Remove, None, now).await?;
                    (Reason::Progressing, "the agent is told to remove itself".to_owned())
                }
                Removal::Waits(reason, message) => (reason, message),
            }
        } else {
            (Reason::Progressing, waits_for(&waits))
        };
        status::write::<Cluster>(&mut tx, &mut present, now, |status, generation| {
            let is = ConditionStatus::False;
            conditions::set(&mut status.conditions, RETIRED, is, reason, &message, generation, now);
        })
        .await?;
        tx.commit().await?;
        Ok(now + RECHECK)
    }

    /// How it stands with the removal of a Cluster's agent.
    async fn removal(&self, stored: &Stored, cluster: &Cluster) -> Result<Removal, HubError> {
        let uid = stored.uid.into();
        let told = cluster.spec.agent.as_ref().and_then(|agent| agent.removal);
        let (Some(AgentRemoval::Remove), Some(session)) = (told, self.store.session(uid).await?) else {
            return Ok(Removal::Over(None));
        };
        let order = self.store.order(uid).await?.filter(|order| order.kind == OrderKind::Remove);
        let is_gone = session.disconnected.is_some_and(|at| self.clock.now() >= at + ABSENT);
        Ok(match order {
            None if is_gone => Removal::Over(Some(
                "the agent is not connected and stays installed: delete its namespace, ClusterRole and \
                 ClusterRoleBindings in the cluster by hand",
            )),
            None => Removal::Tell,
            Some(order) => match order.state {
                OrderState::UnderWay => Removal::Over(None),
                OrderState::Told if is_gone => Removal::Over(Some(if order.sent {
                    "the agent was told to remove itself and has not connected since: check whether its namespace is gone"
                } else {
                    "the agent disconnected before it was told to remove itself, and stays installed"
                })),
                OrderState::Told => {
                    let message = "waiting for the agent to begin its removal. To delete the Cluster and keep the agent, \
                                   set spec.agent.removal to Leave";
                    Removal::Waits(Reason::Progressing, message.to_owned())
                }
                OrderState::Failed(why) | OrderState::Refused(why) => Removal::Waits(
                    Reason::RemovalFailed,
                    format!(
                        "{why}. To delete the Cluster and keep the agent, set spec.agent.removal to Leave"
                    ),
                ),
            },
        })
    }

    /// Records what an agent says of its own removal: that it has begun, or why it cannot.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn removal_reported(&self, session: &Session, failed: Option<&str>) -> Result<(), HubError> {
        let state = match failed {
            None => OrderState::UnderWay,
            Some(why) => OrderState::Failed(conditions::shortened(why)),
        };
        let mut tx = self.store.begin().await?;
        if !tx.note_order(session.cluster, &OrderKind::Remove, &state).await? {
            // Nobody asked for it, or it is known.
            return Ok(());
        }
        look_again(&mut tx, session.cluster).await?;
        tx.commit().await?;
        tracing::info!(cluster = session.name, failed, "the agent removes itself");
        Ok(())
    }

    /// The Kustomizations that are still to be pruned from a cluster.
    async fn still_pruned(&self, cluster: ClusterUid) -> Result<Vec<String>, HubError> {
        let mut names = Vec::new();
        for owner in self.store.appliers_with_inventory(cluster).await? {
            let Some(stored) = self.store.get_by_uid(owner.into()).await? else { continue };
            let spec = stored.decode::<AnyApplier>()?.spec;
            if stored.deletion_timestamp.is_some() || (spec.prune && !spec.suspend) {
                names.push(format!("{}/{}", stored.namespace, stored.name));
            }
        }
        Ok(names)
    }
}

async fn look_again(tx: &mut Tx, cluster: ClusterUid) -> Result<(), HubError> {
    Ok(tx.enqueue(roadstead_model::Queue::Cluster, &[cluster.into()]).await?)
}

fn waits_for(kustomizations: &[String]) -> String {
    let mut names = kustomizations[..kustomizations.len().min(NAMED)].join(", ");
    if kustomizations.len() > NAMED {
        names = format!("{names} and {} more", kustomizations.len() - NAMED);
    }
    format!(
        "waiting for these Kustomizations to be pruned: {names}. If the cluster is gone for good, set spec.deletionPolicy \
         to Abandon"
    )
}
