//! The condition ArtifactOutdated: a source is known to hold something else than its artifact has, and that could not be had or stored. It is
//! gone with the next artifact. (Flux has it for the time of storing, too. That is over soon, and a hub writes nothing for it.)

use jiff::Timestamp;
use roadstead_api::{AnySourceStatus, Artifact, Condition, ConditionStatus};
use roadstead_model::Reason;
use roadstead_sources::{Fetched, Learned};
use serde_json::Value;

use crate::objects::conditions;
use crate::sources::charts::OBSERVED_NAME;
use crate::sources::pass::FetchJob;

/// The type of the condition.
pub(super) const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
/// What it says where the same revision would come with other artifacts in it.
const OTHERS_INCLUDED: &str = "included artifacts differ from last observed includes";

/// What a pass that failed knows of the artifact that is there.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// What the source holds, as far as the pass came.
    holds: Option<Holding>,
    /// Whether something else is to be included than there was.
    includes_changed: bool,
}

/// What a source was found to hold, and in which words it is told where that is not the artifact.
#[derive(Debug, Clone)]
struct Holding {
    learned: Learned,
    reason: Reason,
    message: String,
}

impl Known {
    /// What is known after a fetch that learned this, or even received it.
    pub(super) fn of(job: &FetchJob, learned: Option<Learned>, fetched: Option<&Fetched>) -> Self {
        let holds = learned.and_then(|learned| {
            let (reason, message) = super::kind(job.seen.kind)?.newer(&job.seen, &learned, fetched);
            Some(Holding { learned, reason, message })
        });
        Self { holds, includes_changed: job.includes_changed }
    }

    /// Writes it into a status.
    pub(super) fn write(&self, status: &mut AnySourceStatus, generation: i64, now: Timestamp) {
        let name = status.more.get(OBSERVED_NAME).and_then(Value::as_str);
        let conditions = &mut status.source.conditions;
        let said = conditions::is_true(conditions, ARTIFACT_OUTDATED, generation);
        let told = match (&status.source.artifact, &self.holds) {
            (None, _) => None,
            (Some(artifact), Some(holding)) if !is_in(artifact, name, &holding.learned) => {
                Some((holding.reason, holding.message.as_str()))
            }
            // It has not come so far as to know better. (What another spec asked for says nothing of this one.)
            (Some(_), None) if said => return,
            (Some(_), _) if self.includes_changed => Some((Reason::IncludeChange, OTHERS_INCLUDED)),
            (Some(_), _) => None,
        };
        match told {
            Some((reason, message)) => {
                let (type_, true_) = (ARTIFACT_OUTDATED, ConditionStatus::True);
                conditions::set(conditions, type_, true_, reason, message, generation, now);
            }
            None => is_over(conditions),
        }
    }
}

/// Whether an artifact, which is of the chart `name` where it is of one, is what was learned.
fn is_in(artifact: &Artifact, name: Option<&str>, learned: &Learned) -> bool {
    let is_called_so = learned.chart.as_deref().is_none_or(|chart| name == Some(chart));
    is_called_so && artifact.revision.parse().is_ok_and(|revision| learned.revision == revision)
}

/// The artifact is what the source holds.
pub(super) fn is_over(conditions: &mut Vec<Condition>) {
    conditions.retain(|condition| condition.type_ != ARTIFACT_OUTDATED);
}

#[cfg(test)]
mod tests {
    use roadstead_api::Time;

    use super::*;

    const FIRST: &str = "main@sha1:1111111111111111111111111111111111111111";
    const SECOND: &str = "main@sha1:2222222222222222222222222222222222222222";

    fn status(revision: &str) -> AnySourceStatus {
        let mut status = AnySourceStatus::default();
        status.source.artifact = Some(Artifact {
            digest: String::new(),
            path: String::new(),
            url: String::new(),
            revision: revision.to_owned(),
            last_update_time: Time(Timestamp::UNIX_EPOCH),
            size: None,
            metadata: std::collections::BTreeMap::new(),
        });
        status
    }

    fn known(revision: Option<(&str, Option<&str>)>, includes_changed: bool) -> Known {
        let holds = revision.map(|(revision, chart)| Holding {
            learned: Learned { revision: revision.parse().unwrap(), chart: chart.map(str::to_owned) },
            reason: Reason::NewRevision,
            message: format!("new upstream revision '{revision}'"),
        });
        Known { holds, includes_changed }
    }

    /// Writes it at a generation, and gives the condition's reason, message and generation.
    fn written(known: &Known, status: &mut AnySourceStatus, generation: i64) -> Option<String> {
        known.write(status, generation, Timestamp::UNIX_EPOCH);
        let found = conditions::find(&status.source.conditions, ARTIFACT_OUTDATED)?;
        assert_eq!(found.status, ConditionStatus::True, "where it is not so, there is no condition");
        let generation = found.observed_generation.unwrap_or_default();
        Some(format!("{}: {} @{generation}", found.reason, found.message))
    }

    #[test]
    fn what_is_newer_than_the_artifact_is_told_until_it_is_known_not_to_be() {
        let mut status = status(FIRST);
        assert_eq!(written(&known(Some((FIRST, None)), false), &mut status, 1), None, "it is the artifact");
        let told = format!("NewRevision: new upstream revision '{SECOND}' @1");
        assert_eq!(written(&known(Some((SECOND, None)), false), &mut status, 1), Some(told.clone()));
        // A pass that learned nothing does not know better, unless it is over another spec.
        assert_eq!(written(&known(None, false), &mut status, 1), Some(told));
        assert_eq!(written(&known(None, false), &mut status, 2), None);
        written(&known(Some((SECOND, None)), false), &mut status, 2);
        assert_eq!(written(&known(Some((FIRST, None)), false), &mut status, 2), None, "it points back");
    }

    #[test]
    fn what_is_in_no_artifact_makes_none_outdated() {
        let mut status = AnySourceStatus::default();
        assert_eq!(written(&known(Some((SECOND, None)), true), &mut status, 1), None);
    }

    #[test]
    fn other_includes_are_told_where_the_revision_is_the_same() {
        let mut status = status(FIRST);
        let told = format!("IncludeChange: {OTHERS_INCLUDED} @1");
        assert_eq!(written(&known(None, true), &mut status, 1), Some(told.clone()));
        assert_eq!(written(&known(Some((FIRST, None)), true), &mut status, 1), Some(told));
        let told = format!("NewRevision: new upstream revision '{SECOND}' @1");
        assert_eq!(written(&known(Some((SECOND, None)), true), &mut status, 1), Some(told.clone()));
        assert_eq!(written(&known(None, true), &mut status, 1), Some(told), "it is still there");
    }

    #[test]
    fn another_chart_of_the_same_version_is_another_one() {
        let mut status = status("1.2.3");
        status.more.insert(OBSERVED_NAME.to_owned(), "app".into());
        let mut is_told = |chart: &str, version: &str| {
            written(&known(Some((version, Some(chart))), false), &mut status, 1).is_some()
        };
        assert!(!is_told("app", "1.2.3"));
        assert!(is_told("other", "1.2.3"));
        assert!(is_told("app", "1.2.4"));
    }

    #[test]
    fn the_form_of_older_versions_is_the_same_revision() {
        let mut status = status(&FIRST.replace("@sha1:", "/"));
        assert_eq!(written(&known(Some((FIRST, None)), false), &mut status, 1), None);
    }
}
