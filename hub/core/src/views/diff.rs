//! What differs between two builds of one applier, for people.
//!
//! The builds are compared as they are stored, before the agent substitutes variables. Values of Secret objects, and all values of a
//! build that was rendered with Secrets, are shown as keyed hashes: a value has the same hash each time in the same field of the
//! same namespace of the hub, and cannot be guessed without the hub's key.

mod compare;
mod job;

use std::time::Duration;

use roadstead_api::Time;
use roadstead_hub_store::ComparableBuild;
use roadstead_model::Attempt;
use roadstead_worker::{Job, JobLimits};
use schemars::JsonSchema;
use serde::Serialize;

use crate::HubError;
use crate::delivery::applier::{Applier, applier};
use crate::identity::Identity;
use crate::quarantine::not_built;
use crate::views::Views;
use compare::{Change, ChangedField, ChangedObject, Difference, ObjectId, Shown};
use job::NotCompared;
pub(crate) use job::{DIFF_JOB, diff_job};

/// Bytes of what a worker answers, as JSON: what it lists is bounded to a part of that, before quotes and escapes.
const MAX_ANSWER: u64 = 8 << 20;
/// CPU time of one comparison.
const CPU: Duration = Duration::from_secs(20);
/// How long it may take on a machine that has other work: whoever asked waits.
const WALL: Duration = Duration::from_secs(60);

/// Two builds and what differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildDiff {
    /// The older one.
    pub from: DiffedBuild,
    /// The newer one.
    pub to: DiffedBuild,
    /// The objects that differ.
    pub objects: Vec<DiffedObject>,
    /// Objects that are the same in both.
    pub unchanged: usize,
    /// Objects that differ and are not listed, since they are too many.
    pub objects_left_out: usize,
    /// Fields that differ and are not listed, since they are too many.
    pub fields_left_out: usize,
}

/// A build that was compared.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffedBuild {
    /// The newest attempt that it was built for.
    #[schemars(with = "i64")]
    pub attempt: Attempt,
    /// The source's revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// When that attempt began.
    #[schemars(with = "String")]
    pub started: Time,
}

/// An object that differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffedObject {
    /// Its kind.
    pub kind: String,
    /// Its API group; empty for the core's.
    pub group: String,
    /// Its namespace as the build has it; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    /// The fields that differ.
    pub fields: Vec<DiffedField>,
}

/// A field that differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffedField {
    /// Where it is: `.spec.containers[name=web].image`.
    pub path: String,
    /// Its value in the older build, as JSON; absent where that does not have it. Of a secret value `hmac:` and a keyed hash; of a long
    /// one the beginning, and `…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its value in the newer build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Views {
    /// What differs between two builds of an applier. Each is named by an attempt's number or by a revision; by default `to` is the
    /// newest, and `from` the newest before it that is another.
    ///
    /// # Errors
    /// Where there is no such applier, or `who` may not read it; where there is no such build, or it is not stored any more.
    pub async fn diff(
        &self,
        who: &Identity,
        kind: &str,
        namespace: &str,
        name: &str,
        (from, to): (&str, &str),
    ) -> Result<BuildDiff, HubError> {
        let stored = self.applier(who, kind, namespace, name).await?;
        let builds = self.store.comparable_builds(stored.uid.into()).await?;
        let full = format!("{} \"{name}\"", stored.kind.get().qualified());
        let missing = |which: &str| HubError::NotFound { what: format!("{which} of {full}") };
        let to = match to {
            "" => builds.first().ok_or_else(|| missing("a build"))?,
            to => named(&builds, to).ok_or_else(|| missing(&format!("a build at {to}")))?,
        };
        let from = match from {
            "" => builds
                .iter()
                .find(|one| one.attempt.0 < to.attempt.0 && one.groups != to.groups)
                .ok_or_else(|| missing("an earlier build that is another"))?,
            from => named(&builds, from).ok_or_else(|| missing(&format!("a build at {from}")))?,
        };
        let _place = self.comparisons.acquire().await;
        let renders_secrets = applier(stored.kind).is_none_or(Applier::renders_secrets);
        let found = self.compare(from, to, renders_secrets).await?;
        let shown = |object: ChangedObject| self.shown(namespace, object);
        let Difference { objects, objects_left_out, fields_left_out, unchanged } = found;
        let objects = objects.into_iter().map(shown).collect();
        Ok(BuildDiff {
            from: diffed(from),
            to: diffed(to),
            objects,
            unchanged,
            objects_left_out,
            fields_left_out,
        })
    }

    async fn compare(
        &self,
        from: &ComparableBuild,
        to: &ComparableBuild,
        renders_secrets: bool,
    ) -> Result<Difference, HubError> {
        let (older, newer) = (from.groups.clone(), to.groups.clone());
        for (build, groups) in [(from, &older), (to, &newer)] {
            for group in groups {
                if !self.store.has_blob(*group).await? {
                    return Err(HubError::Gone(format!(
                        "the build of attempt {} is not stored any more: the newest two of an applier are kept, others for a day after they were used last, and those that were made of decrypted inputs not at all",
                        build.attempt.0
                    )));
                }
            }
        }
        let all_secret = renders_secrets && (from.by_secrets || to.by_secrets);
        let blobs: Vec<_> = older.iter().chain(&newer).copied().collect();
        let order = job::Order { older, newer, all_secret };
        let input = serde_json::to_vec(&order)
            .map_err(|error| HubError::Internal(format!("a comparison cannot be serialized: {error}")))?;
        let limits = JobLimits { cpu: CPU, wall: WALL, output: MAX_ANSWER, ..JobLimits::default() };
        let job = Job { kind: DIFF_JOB, input, affinity: None, limits };
        // Its memory is set aside until it is read.
        let (answer, _room) = match self.builds.run_on_blobs(job, &blobs).await? {
            Ok(answered) => answered,
            Err(ended) => {
                return Err(HubError::Unavailable(format!(
                    "the builds were not compared: {}",
                    not_built(&ended)
                )));
            }
        };
        let answer: job::Answer = serde_json::from_slice(&answer)
            .map_err(|error| HubError::Internal(format!("a worker answered with something else: {error}")))?;
        answer.map_err(|why| match why {
            NotCompared::TooLarge(why) => HubError::TooLarge(why),
            NotCompared::Other(why) => HubError::Unavailable(format!("the builds were not compared: {why}")),
        })
    }

    fn shown(&self, tenant: &str, object: ChangedObject) -> DiffedObject {
        let ChangedObject { id, change, fields } = object;
        let fields = fields.into_iter().map(|ChangedField { path, from, to }| {
            let value = |value: Shown| self.shown_value(tenant, &id, &path, value);
            DiffedField { from: from.map(value), to: to.map(value), path: path.clone() }
        });
        let fields = fields.collect();
        let change = match change {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => "changed",
        };
        let ObjectId { kind, group, namespace, name } = id;
        DiffedObject { kind, group, namespace, name, change, fields }
    }

    fn shown_value(&self, tenant: &str, id: &ObjectId, path: &str, value: Shown) -> String {
        match value {
            Shown::Value(value) => value.to_string(),
            Shown::Beginning(text) => format!("{text}…"),
            Shown::Secret(digest) => {
                let ObjectId { kind, group, namespace, name } = id;
                let of = [tenant, group, kind, namespace, name, path, &digest.hex()];
                format!("hmac:{}", self.store.keyed_hash(&of))
            }
        }
    }
}

fn diffed(build: &ComparableBuild) -> DiffedBuild {
    DiffedBuild { attempt: build.attempt, revision: build.revision.clone(), started: Time(build.started) }
}

/// The newest build of that attempt or revision.
fn named<'a>(builds: &'a [ComparableBuild], which: &str) -> Option<&'a ComparableBuild> {
    let attempt: Option<i64> = which.parse().ok();
    builds.iter().find(|build| {
        let revision = build.revision.as_deref().unwrap_or_default();
        Some(build.attempt.0) == attempt || revision == which || revision.ends_with(&format!(":{which}"))
    })
}
