//! What is under way right now, object by object: kept in memory by the replica that hears it, never in the resource
//! table, whose watchers want states and not steps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use roadstead_model::{Attempt, DispatchKey, KustomizationUid, ObjectRef, ObjectResult, Stage};
use schemars::JsonSchema;
use serde::Serialize;

use crate::views::ObjectResultSchema;
use crate::{Hub, Session};

/// Reconciliations that are followed at once; of more, nothing is kept, and they end all the same.
const MAX_FOLLOWED: usize = 10_000;
/// Objects of one that are kept.
const MAX_OBJECTS: usize = 20_000;

/// A reconciliation that is under way.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Which attempt.
    #[schemars(with = "i64")]
    pub attempt: Attempt,
    /// The cluster's name.
    pub cluster: String,
    /// The stage that it is in.
    #[schemars(with = "String")]
    pub stage: Stage,
    /// What was done so far, in the order in which it happened.
    #[schemars(with = "Vec<ObjectResultSchema>")]
    pub results: Vec<ObjectResult>,
    /// The health of what is waited for, by object.
    pub health: BTreeMap<String, String>,
}

/// All that is under way and heard of here.
#[derive(Default)]
pub(crate) struct Followed(Mutex<HashMap<KustomizationUid, Progress>>);

impl Followed {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<KustomizationUid, Progress>) -> T) -> T {
        // Entries are whole at any time: a panic elsewhere does not spoil them.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows this dispatch no longer, and gives the health that was told of it.
    pub(crate) fn take(&self, key: &DispatchKey) -> BTreeMap<String, String> {
        self.with(|followed| {
            if followed.get(&key.kustomization).is_none_or(|progress| progress.attempt > key.attempt) {
                return BTreeMap::new();
            }
            let gone = followed.remove(&key.kustomization);
            gone.filter(|gone| gone.attempt == key.attempt).map(|gone| gone.health).unwrap_or_default()
        })
    }
}

impl Hub {
    /// Notes what an agent told of a dispatch that is under way.
    pub fn note_progress(
        &self,
        session: &Session,
        key: &DispatchKey,
        stage: Stage,
        results: &[ObjectResult],
        health: impl Iterator<Item = (ObjectRef, String)>,
    ) {
        self.followed.with(|followed| {
            if followed.len() >= MAX_FOLLOWED && !followed.contains_key(&key.kustomization) {
                return;
            }
            let fresh = || Progress {
                attempt: key.attempt,
                cluster: session.name.clone(),
                stage,
                results: Vec::new(),
                health: BTreeMap::new(),
            };
            let progress = followed.entry(key.kustomization).or_insert_with(fresh);
            if progress.attempt > key.attempt {
                return;
            }
            if progress.attempt < key.attempt {
                *progress = fresh();
            }
            progress.stage = progress.stage.max(stage);
            let room = MAX_OBJECTS.saturating_sub(progress.results.len());
            progress.results.extend(results.iter().take(room).cloned());
            for (object, text) in health {
                if progress.health.len() < MAX_OBJECTS {
                    progress.health.insert(object.to_string(), text);
                }
            }
        });
    }

    /// What is under way for this Kustomization, as far as this replica hears of it.
    #[must_use]
    pub fn progress(&self, kustomization: KustomizationUid) -> Option<Progress> {
        self.followed.with(|followed| followed.get(&kustomization).cloned())
    }
}
