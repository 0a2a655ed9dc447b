//! The last attempts of one applier, and what is under way.

use std::collections::BTreeMap;

use roadstead_api::Time;
use roadstead_hub_store::Reconciliation;
use roadstead_model::{
    Action, ApplierUid, Attempt, AttemptKind, ChangeSet, Generation, GoDuration, Reason, StepTiming, Trigger,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::HubError;
use crate::clusters::Progress;
use crate::identity::Identity;
use crate::schemas::{ObjectResultSchema, StepTimingSchema};
use crate::views::Views;

/// Attempts that a view shows.
const SHOWN: i64 = 20;

/// What of an applier's attempts is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReconciliationsOptions {
    /// How many attempts; none: as many as there are shown at most.
    pub limit: Option<i64>,
    /// Only those before this one.
    pub before: Option<i64>,
    /// Change sets without what was unchanged, of which there may be thousands.
    pub changed_only: bool,
}

/// What became of an applier's last attempts, and what is under way.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reconciliations {
    /// What an agent is doing right now, as far as this replica hears of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Progress>,
    /// The newest first.
    pub items: Vec<ReconciliationView>,
}

/// One attempt.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReconciliationView {
    /// Which.
    #[schemars(with = "i64")]
    pub attempt: Attempt,
    /// The spec's generation.
    #[schemars(with = "i64")]
    pub generation: Generation,
    /// What led to it: `Spec`, `Request`, `Revision`, `Inputs`, `Cluster`, `Handover`, `Confirmation`, `Retry`, `Release`, `Interval`,
    /// `Drift` or `Deletion`. None of one that an older version made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub trigger: Option<Trigger>,
    /// Who changed or deleted it, asked for it, or confirmed its deletions, as the audit log has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The source's revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The build's digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// It deleted what was owned and applied nothing.
    pub deletes: bool,
    /// When it began.
    #[schemars(with = "String")]
    pub started: Time,
    /// How long it took; none while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub took: Option<GoDuration>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub reason: Option<Reason>,
    /// The same for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub message: String,
    /// How many objects were created, configured, recreated, adopted, unchanged, deleted, skipped, drifted, handed over, taken over.
    pub counts: BTreeMap<String, usize>,
    /// What it did to which object.
    #[schemars(with = "Vec<ObjectResultSchema>")]
    pub change_set: ChangeSet,
    /// The health of what was waited for as it was told last, by object (`Kind/namespace/name`): kstatus' word, a colon and
    /// why. Of the newest attempt that waited only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default)]
    pub health: BTreeMap<String, String>,
    /// How long each stage of each step took.
    #[schemars(with = "Vec<StepTimingSchema>")]
    pub timings: Vec<StepTiming>,
}

impl Views {
    /// The last attempts of an applier with their change sets, and what is under way.
    ///
    /// # Errors
    /// Where there is no such kind of applier or no such object of it, or `who` may not read it.
    pub async fn reconciliations(
        &self,
        who: &Identity,
        kind: &str,
        namespace: &str,
        name: &str,
        options: ReconciliationsOptions,
    ) -> Result<Reconciliations, HubError> {
        let uid = ApplierUid::from(self.applier(who, kind, namespace, name).await?.uid);
        let shown = options.limit.map_or(SHOWN, |limit| limit.clamp(1, SHOWN));
        let history = self.store.history(uid, options.before, shown).await?;
        let mut told = false;
        let items: Vec<ReconciliationView> = history
            .into_iter()
            .map(|mut history| {
                let Reconciliation { attempt, inputs, finished, .. } = history.reconciliation;
                let mut counts = BTreeMap::new();
                for result in &history.change_set {
                    *counts.entry(result.action.as_str().to_owned()).or_default() += 1;
                }
                if options.changed_only {
                    history.change_set.retain(|result| result.action != Action::Unchanged);
                }
                if told {
                    history.health.clear();
                }
                told |= !history.health.is_empty();
                ReconciliationView {
                    attempt,
                    generation: inputs.generation,
                    trigger: inputs.trigger,
                    actor: history.actor,
                    revision: inputs.revision.map(|revision| revision.to_string()),
                    build: inputs.build.map(|digest| digest.to_string()),
                    deletes: inputs.kind == AttemptKind::Delete,
                    started: Time(inputs.started),
                    took: finished.and_then(|(at, _)| {
                        at.duration_since(inputs.started).try_into().ok().map(GoDuration)
                    }),
                    reason: finished.map(|(_, reason)| reason),
                    message: history.message,
                    counts,
                    change_set: history.change_set,
                    health: history.health,
                    timings: history.timings,
                }
            })
            .collect();
        // What is told late of an attempt that has ended is not news.
        let open = |attempt| items.iter().any(|item| item.attempt == attempt && item.reason.is_none());
        let under_way = self.sessions.progress(uid).filter(|progress| open(progress.attempt));
        Ok(Reconciliations { under_way, items })
    }
}
