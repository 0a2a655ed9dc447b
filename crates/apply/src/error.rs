//! What can go wrong, to which object, and what the apiserver said.

use std::fmt;

use roadstead_kstatus::Health;
use roadstead_model::{ObjectRef, Stage};

/// How many objects an error names; further ones are counted.
pub const MAX_NAMED: usize = 10;

/// Why a step did not go through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The set of objects is not one that can be applied; nothing was asked of the cluster.
    #[error("the build cannot be applied: {0}")]
    Input(#[from] InputError),
    /// Objects that the apiserver refused, or that could not be brought to it.
    #[error("{}", Failures(causes, *total))]
    Objects {
        /// The stage that failed.
        stage: Stage,
        /// The first [`MAX_NAMED`] causes.
        causes: Vec<Cause>,
        /// How many objects there are.
        total: usize,
    },
    /// Objects that are not healthy.
    #[error("{}", Sick(unhealthy, *total, *timed_out))]
    NotHealthy {
        /// What they were waited for: the end, or definitions that the next objects need while applying.
        stage: Stage,
        /// The first of each health, [`MAX_NAMED`] at most, failed ones first.
        unhealthy: Vec<Unhealthy>,
        /// How many there are.
        total: usize,
        /// Whether time ran out; else an object failed for good.
        timed_out: bool,
    },
    /// The caller cancelled the run.
    #[error("{} was cancelled", stage_name(*stage))]
    Cancelled {
        /// The stage that was under way.
        stage: Stage,
    },
    /// The deadline passed before all was done.
    #[error("{} did not finish in time", stage_name(*stage))]
    DeadlineExceeded {
        /// The stage that was under way.
        stage: Stage,
    },
}

impl Error {
    /// The stage that failed; [`Stage::failure`] gives the condition's reason.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self {
            Self::Input(_) => Stage::Validate,
            Self::Objects { stage, .. }
            | Self::NotHealthy { stage, .. }
            | Self::Cancelled { stage }
            | Self::DeadlineExceeded { stage } => *stage,
        }
    }

    /// The failures of a stage, by their causes.
    pub(crate) fn objects(stage: Stage, mut failures: Vec<ObjectFailure>) -> Self {
        let total = failures.len();
        // Found out by a dry-run, and yet not the objects' fault: who applies them lacks the right, or a way.
        let is_of_access = failures.iter().all(|failure| failure.kind.is_of_access());
        let stage = if stage == Stage::Validate && is_of_access { Stage::Apply } else { stage };
        failures.sort_by(|a, b| a.object.cmp(&b.object));
        Self::Objects { stage, causes: Cause::of(failures), total }
    }

    /// Objects that are not healthy, by what is said of them; the most important ones come first.
    pub(crate) fn not_healthy<'a>(
        stage: Stage,
        objects: impl Iterator<Item = (&'a ObjectRef, &'a Health)>,
        timed_out: bool,
    ) -> Self {
        let (unhealthy, total) = Unhealthy::of(objects);
        Self::NotHealthy { stage, unhealthy, total, timed_out }
    }
}

/// Why a set of objects cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// More objects than an inventory may hold.
    #[error("it has {count} objects, more than the limit of {limit}")]
    TooManyObjects {
        /// How many there are.
        count: usize,
        /// How many are taken.
        limit: usize,
    },
    /// An object is larger than etcd would hold.
    #[error("{object} has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The object, as far as it could be read.
        object: String,
        /// Its size as JSON.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// Something is not an object, or lacks what every object has.
    #[error("object {position} ({object}): {problem}")]
    Malformed {
        /// Its place in the build, from 1.
        position: usize,
        /// What could be read of its kind and name.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// The same object stands in the build twice.
    #[error("{0} occurs more than once")]
    Duplicate(ObjectRef),
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The apiserver (or an admission webhook) refused the object.
    Invalid,
    /// A field that cannot be changed would have changed; `force` would recreate the object.
    Immutable,
    /// The identity in use may not do that.
    Forbidden,
    /// The cluster serves no such kind.
    UnknownKind,
    /// Something that the object needs is not there, as its namespace.
    NotFound,
    /// Someone else changed it at the same moment, again and again.
    Conflict,
    /// The apiserver could not be reached, or did not answer usefully, within the time given.
    Unavailable,
    /// Anything else that the apiserver answered.
    Other,
}

impl FailureKind {
    /// Whether the object itself was never judged.
    fn is_of_access(self) -> bool {
        matches!(self, Self::Forbidden | Self::Unavailable)
    }
}

/// What was said of an object, without its name, which the apiserver repeats in quotes.
fn without_name(message: &str, object: &ObjectRef) -> String {
    message.replace(&format!("\"{}\"", object.name), "\"\"")
}

/// The first of each group of items that have a key in common, [`MAX_NAMED`] groups at most, in their order, with how many more
/// there are in each. Of other groups nothing is kept: there may be thousands.
fn first_of_each<K: PartialEq, T>(items: impl Iterator<Item = (K, T)>) -> Vec<(T, usize)> {
    let mut groups: Vec<(K, T, usize)> = Vec::new();
    for (key, item) in items {
        let is_full = groups.len() == MAX_NAMED;
        match groups.iter_mut().find(|(of, ..)| *of == key) {
            Some((.., others)) => *others += 1,
            None if is_full => {}
            None => groups.push((key, item, 0)),
        }
    }
    groups.into_iter().map(|(_, first, others)| (first, others)).collect()
}

/// One object's failure. Displays as `Service/dev/backend is invalid: spec.type: Unsupported value: "Ingress"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFailure {
    /// The object.
    pub object: ObjectRef,
    /// What kind of failure.
    pub kind: FailureKind,
    /// What was said; without the values of a Secret.
    pub message: String,
}

impl fmt::Display for ObjectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, kind, message } = self;
        match kind {
            FailureKind::Invalid => write!(f, "{object} is invalid: {message}"),
            FailureKind::Immutable => write!(
                f,
                "{object} has an immutable field that would change: {message} (annotate it with \
                 kustomize.toolkit.fluxcd.io/force: enabled to have it recreated)"
            ),
            FailureKind::Forbidden => write!(f, "{object} is forbidden: {message}"),
            FailureKind::UnknownKind => write!(f, "{object}: no matches for kind: {message}"),
            FailureKind::Unavailable => write!(f, "{object}: the apiserver is not available: {message}"),
            FailureKind::NotFound | FailureKind::Conflict | FailureKind::Other => {
                write!(f, "{object}: {message}")
            }
        }
    }
}

/// Why objects failed, all of which the apiserver told the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The first of them.
    pub first: ObjectFailure,
    /// How many more there are.
    pub others: usize,
}

impl Cause {
    /// The first [`MAX_NAMED`] causes of failures, in their order.
    fn of(failures: Vec<ObjectFailure>) -> Vec<Self> {
        let failures = failures
            .into_iter()
            .map(|failure| ((failure.kind, without_name(&failure.message, &failure.object)), failure));
        first_of_each(failures).into_iter().map(|(first, others)| Self { first, others }).collect()
    }
}

/// An object that is not healthy, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    /// The object.
    pub object: ObjectRef,
    /// Its health when it was last seen.
    pub health: Health,
    /// How many more objects have the same.
    pub others: usize,
}

impl Unhealthy {
    /// The first of each health, and how many objects there are.
    fn of<'a>(objects: impl Iterator<Item = (&'a ObjectRef, &'a Health)>) -> (Vec<Self>, usize) {
        let mut total = 0;
        let objects = objects.inspect(|_| total += 1).map(|(object, health)| {
            ((health.status, without_name(&health.message, object)), (object, health))
        });
        let first = |((object, health), others): ((&ObjectRef, &Health), usize)| Self {
            object: object.clone(),
            health: health.clone(),
            others,
        };
        let unhealthy = first_of_each(objects).into_iter().map(first).collect();
        (unhealthy, total)
    }
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} status: '{}'", self.object, self.health.status)?;
        if !self.health.message.is_empty() {
            write!(f, " ({})", self.health.message)?;
        }
        the_same(f, self.others)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        the_same(f, self.others)
    }
}

/// Says that what stands before holds for more objects.
fn the_same(f: &mut fmt::Formatter<'_>, others: usize) -> fmt::Result {
    match others {
        0 => Ok(()),
        1 => f.write_str(" (the same for 1 more object)"),
        _ => write!(f, " (the same for {others} more objects)"),
    }
}

struct Failures<'a>(&'a [Cause], usize);

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: usize = self.0.iter().map(|cause| 1 + cause.others).sum();
        list(f, self.0, self.1.saturating_sub(told))
    }
}

struct Sick<'a>(&'a [Unhealthy], usize, bool);

impl fmt::Display for Sick<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.2 { "timed out waiting for: " } else { "failed: " })?;
        let told: usize = self.0.iter().map(|sick| 1 + sick.others).sum();
        list(f, self.0, self.1.saturating_sub(told))
    }
}

/// `a; b; and 3 more`.
fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, shown: &[T], more: usize) -> fmt::Result {
    for (index, item) in shown.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
    }
    if more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
}

/// The stage as a sentence's subject.
fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Finish => "finishing",
        Stage::Validate => "validation",
        Stage::Apply => "applying",
        Stage::Prune => "pruning",
        Stage::Wait => "waiting for health",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: &str, name: &str, message: &str) -> ObjectFailure {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "dev".to_owned(),
            name: name.to_owned(),
        };
        ObjectFailure { object, kind: FailureKind::Forbidden, message: message.to_owned() }
    }

    #[test]
    fn what_many_objects_have_in_common_is_said_once() {
        let refused = |kind: &str, name: &str| {
            failure(
                kind,
                name,
                &format!("User \"x\" cannot patch resource \"{name}\" in the namespace \"dev\""),
            )
        };
        let names: Vec<String> = (0..40).map(|number| format!("settings-{number:02}")).collect();
        let mut failures: Vec<_> = names.iter().map(|name| refused("ConfigMap", name)).collect();
        failures.push(failure("Service", "web", "no"));
        let error = Error::objects(Stage::Apply, failures);
        assert_eq!(
            error.to_string(),
            "ConfigMap/dev/settings-00 is forbidden: User \"x\" cannot patch resource \"settings-00\" in the namespace \
             \"dev\" (the same for 39 more objects); Service/dev/web is forbidden: no"
        );
    }

    #[test]
    fn causes_beyond_the_bound_are_counted_by_their_objects() {
        let failures = (0..30)
            .map(|number| failure("ConfigMap", &format!("c-{number:02}"), &format!("reason {}", number / 2)));
        let text = Error::objects(Stage::Apply, failures.collect()).to_string();
        assert!(
            text.starts_with("ConfigMap/dev/c-00 is forbidden: reason 0 (the same for 1 more object); "),
            "{text}"
        );
        assert!(text.ends_with("reason 9 (the same for 1 more object); and 10 more"), "{text}");
    }

    #[test]
    fn objects_of_the_same_health_are_said_once() {
        let deployments: Vec<ObjectRef> =
            (0..40).map(|number| failure("Deployment", &format!("web-{number:02}"), "").object).collect();
        let missing = failure("ConfigMap", "a", "").object;
        let absent = Health::not_found();
        let under_way = Health::in_progress("Available: 0/1");
        let objects =
            std::iter::once((&missing, &absent)).chain(deployments.iter().map(|object| (object, &under_way)));
        let error = Error::not_healthy(Stage::Wait, objects, true);
        assert!(matches!(error, Error::NotHealthy { total: 41, .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "timed out waiting for: ConfigMap/dev/a status: 'NotFound' (not found); Deployment/dev/web-00 status: \
             'InProgress' (Available: 0/1) (the same for 39 more objects)"
        );
    }

    #[test]
    fn one_invalid_object_beyond_the_bound_makes_it_a_failure_of_validation() {
        let mut failures: Vec<_> = (0..30)
            .map(|number| failure("ConfigMap", &format!("c-{number:02}"), &format!("{number}")))
            .collect();
        failures.push(ObjectFailure { kind: FailureKind::Invalid, ..failure("Service", "web", "no") });
        assert_eq!(Error::objects(Stage::Validate, failures.clone()).stage(), Stage::Validate);
        failures.pop();
        assert_eq!(Error::objects(Stage::Validate, failures).stage(), Stage::Apply);
    }
}
