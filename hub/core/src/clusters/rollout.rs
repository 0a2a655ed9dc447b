//! How agents come to run another image: the fleet's roll-out, which [`roadstead_hub_plan::roll_out`] decides; what agents
//! are told; what they say came of it. All of it is in the database: the next replica goes on where this one was.

use std::sync::Arc;

use roadstead_api::{AgentUpgrade, Cluster, ClusterAgent, ConditionStatus, ObjectMeta, reconcile_requested};
use roadstead_hub_plan::{AgentState, Pace, Seeds, Upgrade, UpgradeOrder, roll_out};
use roadstead_hub_store::{FleetAgent, Store, Tx};
use roadstead_model::{AgentOrder, ClusterUid, OrderKind, OrderState, Reason};
use serde_json::Value;

use crate::clock::Clock;
use crate::clusters::session::Session;
use crate::context::Context;
use crate::objects::{conditions, events, status};
use crate::{HubError, HubOptions};

/// The type of the condition that says how an agent stands to the image that is wanted of it.
pub(crate) const UPGRADED: &str = "Upgraded";

/// What an agent says of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeReport {
    /// The image that it was told to run.
    pub image: String,
    /// Why it stays with its own, if it does; else it is at it.
    pub failed: Option<String>,
    /// Whether that is its cluster's own policy.
    pub is_refused: bool,
}

/// A signature of an agent's image, as the operator gave it. The hub passes it on, and trusts it for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSignature {
    /// The digest that it says that it is of, as `sha256:…`.
    pub digest: String,
    /// What was signed.
    pub payload: Vec<u8>,
    /// The signature, DER.
    pub signature: Vec<u8>,
}

/// What the condition says.
struct Said {
    status: ConditionStatus,
    reason: Reason,
    message: String,
}

/// What agents are told to do with themselves.
pub struct Agents {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
}

impl Agents {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
        }
    }

    /// Decides whose turn it is to run another image, and says in each Cluster's condition how it stands.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn roll_out_agents(&self) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        if !tx.hold_rollout().await? {
            return Ok(());
        }
        let fleet = tx.fleet_agents(UPGRADED).await?;
        let agents: Vec<AgentState> = fleet.iter().map(|agent| self.agent_state(agent)).collect();
        let mut wanted: Vec<String> = agents.iter().filter_map(|agent| agent.wanted.clone()).collect();
        wanted.sort();
        wanted.dedup();
        let seeds: Seeds = tx.rollout_seeds(&wanted).await?.into_iter().collect();
        let upgrades = roll_out(&agents, &self.options.pace, &seeds, now);
        for (agent, upgrade) in agents.iter().zip(&upgrades) {
            let (Some(wanted), cluster) = (&agent.wanted, agent.cluster) else { continue };
            let run = OrderKind::Run(wanted.clone());
            match upgrade {
                Upgrade::Tell => {
                    tx.give_order(cluster, &run, agent.request.as_deref(), now).await?;
                    tracing::info!(
                        cluster = agent.name,
                        image = wanted,
                        "telling the agent to run another image"
                    );
                }
                Upgrade::GiveUp(why) => {
                    // One that was not even sent stays as it is: the agent gets it when it comes back.
                    tx.note_order(cluster, &run, &OrderState::Failed(why.clone())).await?;
                }
                _ => {}
            }
        }
        tx.commit().await?;
        for ((agent, upgrade), known) in agents.iter().zip(&upgrades).zip(&fleet) {
            let said = said(agent, upgrade);
            if !says(&known.condition, said.as_ref()) {
                self.say_upgrade(agent.cluster, said.as_ref()).await?;
            }
        }
        Ok(())
    }

    fn agent_state(&self, agent: &FleetAgent) -> AgentState {
        // What the API took is readable; what an older version stored means its defaults.
        let spec: ClusterAgent = serde_json::from_value(agent.spec.clone()).unwrap_or_default();
        let wanted = spec.image.or_else(|| self.options.agent_image.clone());
        let order = agent.order.as_ref().and_then(|order| match &order.kind {
            OrderKind::Remove => None,
            OrderKind::Run(image) => Some(UpgradeOrder {
                image: image.clone(),
                request: order.request.clone(),
                at: order.given,
                is_refused: matches!(order.state, OrderState::Refused(_)),
                failed: match &order.state {
                    OrderState::Failed(why) | OrderState::Refused(why) => Some(why.clone()),
                    OrderState::Told | OrderState::UnderWay => None,
                },
            }),
        });
        AgentState {
            cluster: agent.cluster,
            name: agent.name.clone(),
            running: agent.image.clone(),
            wanted: wanted.filter(|_| agent.joined && !spec.hosted),
            by_hand: spec.upgrade == Some(AgentUpgrade::Manual),
            connected: agent.connected,
            request: requested(&agent.annotations),
            order,
        }
    }

    async fn say_upgrade(&self, cluster: ClusterUid, said: Option<&Said>) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(cluster.into()).await? else { return Ok(()) };
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| match said {
            None => status.conditions.retain(|condition| condition.type_ != UPGRADED),
            Some(Said { status: is, reason, message }) => {
                conditions::set(&mut status.conditions, UPGRADED, *is, *reason, message, generation, now);
            }
        })
        .await?;
        if let Some(Said { reason, message, .. }) = said
            && matches!(reason, Reason::UpgradeFailed | Reason::UpgradeRefused | Reason::Upgrading)
        {
            let type_ = if *reason == Reason::Upgrading { "Normal" } else { "Warning" };
            events::note(&mut tx, &stored, type_, reason.as_str(), message, now).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// What the agent is to be told that this session has not been sent yet, if anything.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn take_order(&self, session: &Session) -> Result<Option<AgentOrder>, HubError> {
        Ok(self.store.take_order(session.cluster, session.id).await?)
    }

    /// The signatures that the operator gave for an image.
    #[must_use]
    pub fn signatures_of(&self, image: &str) -> Vec<ImageSignature> {
        let all = self.options.agent_signatures.iter();
        all.filter(|one| image.split_once('@').is_some_and(|(_, digest)| digest == one.digest))
            .cloned()
            .collect()
    }

    /// How an agent's upgrades go.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.options.pace
    }

    /// Records what an agent says of an upgrade.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn upgrade_reported(&self, session: &Session, report: &UpgradeReport) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let is_news = note_report(&mut tx, session.cluster, report).await?;
        tx.commit().await?;
        if !is_news {
            return Ok(());
        }
        match &report.failed {
            None => {
                tracing::info!(
                    cluster = session.name,
                    image = report.image,
                    "the agent is changing its image"
                );
            }
            Some(why) => {
                tracing::warn!(
                    cluster = session.name,
                    image = report.image,
                    why,
                    "the agent keeps its image"
                );
            }
        }
        // The condition follows at once, not only when it is processed next.
        self.roll_out_agents().await
    }

    /// Records that an agent did not take an order: it is of a version that does not know such.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn order_refused(
        &self,
        session: &Session,
        order: &OrderKind,
        message: &str,
    ) -> Result<(), HubError> {
        let why = format!(
            "the agent's version cannot do that ({message}): apply the agent's manifests by hand, as printed by `roadstead \
             cluster join {}`",
            session.name
        );
        match order {
            OrderKind::Run(image) => {
                let report = UpgradeReport { image: image.clone(), failed: Some(why), is_refused: false };
                self.upgrade_reported(session, &report).await
            }
            OrderKind::Remove => self.removal_reported(session, Some(&why)).await,
        }
    }
}

/// Records what an agent says of an upgrade. False where it is not, or no longer, asked of it, or is known already.
pub(crate) async fn note_report(
    tx: &mut Tx,
    cluster: ClusterUid,
    report: &UpgradeReport,
) -> Result<bool, HubError> {
    let state = match &report.failed {
        None => OrderState::UnderWay,
        Some(why) if report.is_refused => OrderState::Refused(conditions::shortened(why)),
        Some(why) => OrderState::Failed(conditions::shortened(why)),
    };
    Ok(tx.note_order(cluster, &OrderKind::Run(report.image.clone()), &state).await?)
}

/// The value of the annotation that asks for another try.
fn requested(annotations: &Value) -> Option<String> {
    let annotations = serde_json::from_value(annotations.clone()).unwrap_or_default();
    reconcile_requested(&ObjectMeta { annotations, ..ObjectMeta::default() })
}

/// What the condition is to say; none where there is nothing to be said.
fn said(agent: &AgentState, upgrade: &Upgrade) -> Option<Said> {
    let (name, wanted) = (&agent.name, agent.wanted.as_deref()?);
    let running = agent.running.as_deref().unwrap_or("an image that it does not know");
    let ask = format!(
        "kubectl annotate cluster {name} --overwrite reconcile.fluxcd.io/requestedAt=\"$(date +%s)\""
    );
    let not_yet = |reason, message| Some(Said { status: ConditionStatus::False, reason, message });
    match upgrade {
        Upgrade::NotWanted => None,
        Upgrade::UpToDate => Some(Said {
            status: ConditionStatus::True,
            reason: Reason::UpToDate,
            message: format!("the agent runs {wanted}"),
        }),
        Upgrade::NotPossible => not_yet(
            Reason::UpgradeByHand,
            format!(
                "the agent should run {wanted}, but does not report its image: it is too old for that, or not run by its \
                 Deployment. Change its image by hand"
            ),
        ),
        Upgrade::Tell | Upgrade::UnderWay => {
            not_yet(Reason::Upgrading, format!("the agent was told to replace {running} by {wanted}"))
        }
        Upgrade::GiveUp(why) | Upgrade::Failed(why) => not_yet(
            Reason::UpgradeFailed,
            format!(
                "the agent keeps {running}; once more agents fail than --agent-upgrade-max-failures allows, no further \
                 agent is told to run {wanted}: {why}. Choose another image, or request another try: {ask}"
            ),
        ),
        Upgrade::Refused(why) => not_yet(
            Reason::UpgradeRefused,
            format!(
                "the agent keeps {running}: {why}. After a change in the cluster, request it again: {ask}"
            ),
        ),
        Upgrade::ByHand => not_yet(
            Reason::UpgradeByHand,
            format!(
                "the agent runs {running}; spec.agent.upgrade is Manual, so it runs {wanted} only on request: {ask}"
            ),
        ),
        Upgrade::Waits(why) => not_yet(
            Reason::UpgradePending,
            format!("the agent runs {running} and will be upgraded to {wanted}: {why}"),
        ),
    }
}

/// Whether a condition, as it is stored, says that.
fn says(condition: &Value, said: Option<&Said>) -> bool {
    match said {
        None => condition.is_null(),
        Some(Said { status, reason, message }) => {
            condition["status"] == serde_json::json!(status)
                && condition["reason"] == reason.as_str()
                && condition["message"] == conditions::shortened(message)
        }
    }
}
