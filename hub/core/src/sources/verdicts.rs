//! What the conditions of a source say of a fetch, as Flux has them (specification of sources, section 1): what is wrong stands in a condition
//! of its own, which is gone where it is not wrong any more, and Ready sums them up.

use jiff::Timestamp;
use roadstead_api::{Condition, ConditionStatus, KindId, SourceStatus};
use roadstead_model::Reason;

use crate::objects::conditions::{self, READY, RECONCILING, STALLED, SUSPENDED};
use crate::objects::status::News;
use crate::sources::outdated::{self, Known};
use crate::sources::{includes, limits};

/// The type of the condition that says what artifact there is, and by its generation which spec it was made from. It stays as it is where a
/// later fetch fails.
pub(super) const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// The type of the condition that says whether what is fetched is signed as it is asked for. Absent where nothing is asked.
pub(super) const SOURCE_VERIFIED: &str = "SourceVerified";
/// The types of the conditions that are True while a source cannot be received, while a chart cannot be made, and while what was received
/// cannot be stored.
const FETCH_FAILED: &str = "FetchFailed";
const BUILD_FAILED: &str = "BuildFailed";
const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";

/// What can be wrong.
const TROUBLES: [&str; 4] =
    [FETCH_FAILED, BUILD_FAILED, STORAGE_OPERATION_FAILED, includes::INCLUDE_UNAVAILABLE];
/// Reasons for which what is fetched does not count as signed.
const UNVERIFIED: [Reason; 6] = [
    Reason::VerificationError,
    Reason::ChartVerificationError,
    Reason::InvalidVerificationMode,
    Reason::InvalidGitObject,
    Reason::InvalidTagSignature,
    Reason::InvalidCommitSignature,
];
/// Reasons for which a chart that came could not be made into an artifact.
const OF_BUILDING: [Reason; 5] = [
    Reason::ChartPackageError,
    Reason::ChartVerificationError,
    Reason::DependencyBuildError,
    Reason::MetadataPatchError,
    Reason::ValuesFilesError,
];
/// Why a source is not Ready.
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Nothing changes before somebody changes the spec, or what it refers to.
    is_stalled: bool,
    /// It is of what is included.
    of_include: bool,
    /// What is known of the artifact that is there.
    pub(super) known: Known,
}

impl From<(Reason, String)> for Failure {
    fn from((reason, message): (Reason, String)) -> Self {
        Self { is_stalled: reason.is_of_the_spec(), ..Self::retried(reason, message) }
    }
}

impl Failure {
    /// One after which it is tried again.
    pub(super) fn retried(reason: Reason, message: String) -> Self {
        let (of_include, known) = (includes::is_reason(reason), Known::default());
        Self { reason, message, is_stalled: false, of_include, known }
    }

    /// The same, after which it is tried again or not.
    pub(super) fn stalled(self, is_stalled: bool) -> Self {
        Self { is_stalled, ..self }
    }

    /// The same of what is included.
    pub(super) fn of_include(self) -> Self {
        Self { of_include: true, ..self }
    }

    /// The same, where this is known of the artifact.
    pub(super) fn knowing(self, known: Known) -> Self {
        Self { known, ..self }
    }

    /// The condition that says so besides Ready; none where that is the one about signatures.
    fn trouble(&self, kind: KindId) -> Option<&'static str> {
        if self.of_include {
            return Some(includes::INCLUDE_UNAVAILABLE);
        }
        match self.reason {
            Reason::StorageOperationFailed => Some(STORAGE_OPERATION_FAILED),
            reason if kind == KindId::HelmChart && OF_BUILDING.contains(&reason) => Some(BUILD_FAILED),
            reason if UNVERIFIED.contains(&reason) => None,
            _ => Some(FETCH_FAILED),
        }
    }

    /// Writes it into a status. The artifact stays, and what is said of it.
    pub(super) fn write(&self, status: &mut SourceStatus, kind: KindId, generation: i64, now: Timestamp) {
        let Self { reason, message, is_stalled, .. } = self;
        let conditions = &mut status.conditions;
        limits::is_over(conditions);
        let trouble = self.trouble(kind);
        conditions.retain(|condition| !TROUBLES.contains(&condition.type_.as_str()));
        let of_signatures = UNVERIFIED.contains(reason).then_some((SOURCE_VERIFIED, ConditionStatus::False));
        let wrong = trouble.map(|type_| (type_, ConditionStatus::True));
        for (type_, verdict) in wrong.into_iter().chain(of_signatures) {
            conditions::set(conditions, type_, verdict, *reason, message, generation, now);
        }
        let outlook =
            if *is_stalled { (STALLED, *reason) } else { (RECONCILING, Reason::ProgressingWithRetry) };
        conditions::set_not_ready(conditions, (*reason, message), outlook, generation, now);
        if *is_stalled {
            status.observed_generation = Some(generation);
        }
    }
}

/// Writes into a status that there is an artifact of the spec as it is.
pub(super) fn write_success(
    status: &mut SourceStatus,
    (reason, message): (Reason, &str),
    generation: i64,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    limits::is_over(conditions);
    outdated::is_over(conditions);
    let over = |condition: &Condition| {
        let type_ = condition.type_.as_str();
        TROUBLES.contains(&type_) || [SUSPENDED, STALLED, RECONCILING].contains(&type_)
    };
    conditions.retain(|condition| !over(condition));
    for type_ in [READY, ARTIFACT_IN_STORAGE] {
        conditions::set(conditions, type_, ConditionStatus::True, reason, message, generation, now);
    }
    status.observed_generation = Some(generation);
}

/// Ready goes on to say what it said, of a spec that is not acted on: as in Flux, so that whoever waits for this generation does not.
pub(super) fn observe_ready(conditions: &mut [Condition], generation: i64) {
    for condition in conditions.iter_mut().filter(|condition| condition.type_ == READY) {
        condition.observed_generation = Some(generation);
    }
}

/// What is to be said of a fetch before it begins, where it is not like the ones before: the first one, or the first of another spec. None of
/// those that only look whether anything is new, so that they cost no write and what depends on the source does not stall.
pub(super) fn progress(conditions: &[Condition], generation: i64) -> Option<String> {
    match conditions::ready(conditions) {
        None => Some("building artifact".to_owned()),
        Some(ready) if ready.status == ConditionStatus::Unknown => Some("building artifact".to_owned()),
        Some(ready) => {
            let before = ready.observed_generation.filter(|before| *before != generation)?;
            Some(format!("processing object: new generation {before} -> {generation}"))
        }
    }
}

/// Says it.
pub(super) fn write_progress(status: &mut SourceStatus, generation: i64, now: Timestamp) {
    let conditions = &mut status.conditions;
    let Some(message) = progress(conditions, generation) else { return };
    let (reason, is_known) =
        (Reason::Progressing, |ready: &Condition| ready.status != ConditionStatus::Unknown);
    if !conditions::ready(conditions).is_some_and(is_known) {
        conditions::set(conditions, READY, ConditionStatus::Unknown, reason, &message, generation, now);
    }
    conditions.retain(|condition| condition.type_ != STALLED);
    conditions::set(conditions, RECONCILING, ConditionStatus::True, reason, &message, generation, now);
}

/// The reason and the message of the artifact that is there.
pub(super) fn in_storage(conditions: &[Condition]) -> Option<(Reason, String)> {
    let condition = conditions::find(conditions, ARTIFACT_IN_STORAGE)?;
    Some((Reason::parse(&condition.reason)?, condition.message.clone()))
}

/// In which words it is told that a source is Ready, as Flux does: that there is another artifact, or that it failed before and does not any
/// more; nothing where it went on. None of one that is not Ready, which says so itself. `told`: what the artifact is, where Ready says
/// something else.
pub(super) fn news(before: &SourceStatus, after: &SourceStatus, told: Option<String>) -> Option<News> {
    let ready = conditions::ready(&after.conditions).filter(|ready| ready.status == ConditionStatus::True)?;
    let digest = |status: &SourceStatus| status.artifact.as_ref().map(|artifact| artifact.digest.clone());
    let message = || told.unwrap_or_else(|| ready.message.clone());
    if digest(before) != digest(after) {
        // Of a chart it is said how it was made.
        let reason = Reason::parse(&ready.reason).filter(|reason| *reason != Reason::Succeeded);
        return Some(News::Ready(reason.unwrap_or(Reason::NewArtifact), message()));
    }
    let failed = |ready: &Condition| ready.status == ConditionStatus::False;
    Some(if conditions::ready(&before.conditions).is_some_and(failed) {
        News::Ready(Reason::Succeeded, message())
    } else {
        News::Nothing
    })
}

/// Says whose signatures were verified, or nothing where none were asked for.
pub(super) fn note_verdict(
    conditions: &mut Vec<Condition>,
    told: Option<&str>,
    generation: i64,
    now: Timestamp,
) {
    let Some(told) = told else { return conditions.retain(|condition| condition.type_ != SOURCE_VERIFIED) };
    let (true_, reason) = (ConditionStatus::True, Reason::Succeeded);
    conditions::set(conditions, SOURCE_VERIFIED, true_, reason, told, generation, now);
}

#[cfg(test)]
mod tests {
    use roadstead_api::{Artifact, Time};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const OF_GIT: KindId = KindId::GitRepository;

    fn shown(status: &SourceStatus) -> Vec<String> {
        let line = |one: &Condition| {
            let is = if one.status == ConditionStatus::True { "" } else { "not " };
            format!("{is}{} {} @{}", one.type_, one.reason, one.observed_generation.unwrap_or_default())
        };
        let mut all: Vec<String> = status.conditions.iter().map(line).collect();
        all.sort_unstable();
        all
    }

    fn failure(reason: Reason) -> Failure {
        Failure::from((reason, "why".to_owned()))
    }

    fn artifact(digest: &str) -> Artifact {
        Artifact {
            digest: digest.to_owned(),
            path: String::new(),
            url: String::new(),
            revision: "main@sha1:1".to_owned(),
            last_update_time: Time(NOW),
            size: None,
            metadata: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_wrong_stands_in_its_own_condition_and_goes_with_the_next_success() {
        let mut status = SourceStatus::default();
        failure(Reason::AuthenticationFailed).write(&mut status, OF_GIT, 1, NOW);
        let all = ["FetchFailed AuthenticationFailed @1", "Reconciling ProgressingWithRetry @1"];
        assert_eq!(shown(&status), [all[0], all[1], "not Ready AuthenticationFailed @1"]);
        assert_eq!(status.observed_generation, None, "it is tried again");
        failure(Reason::NoArtifact).write(&mut status, OF_GIT, 2, NOW);
        assert!(
            shown(&status).contains(&"IncludeUnavailable NoArtifact @2".to_owned()),
            "{:?}",
            shown(&status)
        );
        assert!(!shown(&status).iter().any(|one| one.starts_with("FetchFailed")), "{:?}", shown(&status));
        write_success(&mut status, (Reason::Succeeded, "stored"), 2, NOW);
        assert_eq!(shown(&status), ["ArtifactInStorage Succeeded @2", "Ready Succeeded @2"]);
        assert_eq!(status.observed_generation, Some(2));
    }

    #[test]
    fn what_only_another_spec_mends_is_stalled_and_observed() {
        let mut status = SourceStatus::default();
        write_success(&mut status, (Reason::Succeeded, "stored"), 1, NOW);
        failure(Reason::URLInvalid).stalled(true).write(&mut status, OF_GIT, 2, NOW);
        let all = ["ArtifactInStorage Succeeded @1", "FetchFailed URLInvalid @2", "Stalled URLInvalid @2"];
        assert_eq!(shown(&status), [all[0], all[1], all[2], "not Ready URLInvalid @2"]);
        assert_eq!(status.observed_generation, Some(2));
    }

    #[test]
    fn a_signature_that_does_not_count_has_a_condition_of_its_own() {
        let mut status = SourceStatus::default();
        failure(Reason::InvalidCommitSignature).write(&mut status, OF_GIT, 1, NOW);
        assert!(shown(&status).contains(&"not SourceVerified InvalidCommitSignature @1".to_owned()));
        assert!(!shown(&status).iter().any(|one| one.starts_with("FetchFailed")), "{:?}", shown(&status));
        let mut status = SourceStatus::default();
        failure(Reason::ChartVerificationError).write(&mut status, KindId::HelmChart, 1, NOW);
        assert!(shown(&status).contains(&"BuildFailed ChartVerificationError @1".to_owned()));
    }

    #[test]
    fn only_a_first_fetch_and_one_of_another_spec_say_that_they_are_under_way() {
        let mut status = SourceStatus::default();
        write_progress(&mut status, 1, NOW);
        assert_eq!(shown(&status), ["Reconciling Progressing @1", "not Ready Progressing @1"]);
        write_success(&mut status, (Reason::Succeeded, "stored"), 1, NOW);
        assert_eq!(progress(&status.conditions, 1), None);
        write_progress(&mut status, 2, NOW);
        let all = ["ArtifactInStorage Succeeded @1", "Ready Succeeded @1", "Reconciling Progressing @2"];
        assert_eq!(shown(&status), all, "Ready stays, so that nothing stalls");
    }

    #[test]
    fn a_new_artifact_and_a_recovery_are_told_and_going_on_is_not() {
        let of = |digest: &str| {
            let mut status = SourceStatus { artifact: Some(artifact(digest)), ..SourceStatus::default() };
            write_success(&mut status, (Reason::Succeeded, "stored"), 1, NOW);
            status
        };
        let told = |before: &SourceStatus, after: &SourceStatus| {
            news(before, after, Some("for commit".to_owned())).map(|news| match news {
                News::Nothing => String::new(),
                News::Waiting => panic!("no source waits"),
                News::Ready(reason, message) => format!("{reason:?} {message}"),
            })
        };
        let (one, other) = (of("one"), of("other"));
        assert_eq!(told(&one, &other).as_deref(), Some("NewArtifact for commit"));
        assert_eq!(told(&one, &one).as_deref(), Some(""));
        let mut failed = one.clone();
        failure(Reason::GitOperationFailed).write(&mut failed, OF_GIT, 1, NOW);
        assert_eq!(told(&failed, &one).as_deref(), Some("Succeeded for commit"));
        assert_eq!(told(&one, &failed), None, "Ready says so itself");
    }
}
