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
    #[error("{}", Failures(failures, *total))]
    Objects {
        /// The stage that failed.
        stage: Stage,
        /// The first [`MAX_NAMED`] of them.
        failures: Vec<ObjectFailure>,
        /// How many there are.
        total: usize,
    },
    /// Objects that are not healthy.
    #[error("{}", Sick(unhealthy, *total, *timed_out))]
    NotHealthy {
        /// What they were waited for: the end, or definitions that the next objects need while applying.
        stage: Stage,
        /// The first [`MAX_NAMED`] of them, failed ones first.
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
    #[error("{} did not end within the time given", stage_name(*stage))]
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
            // Found out by a dry-run, and yet not the objects' fault: who applies them lacks the right, or a way.
            Self::Objects { stage: Stage::Validate, failures, .. }
                if failures.iter().all(|failure| failure.kind.is_of_access()) =>
            {
                Stage::Apply
            }
            Self::Objects { stage, .. }
            | Self::NotHealthy { stage, .. }
            | Self::Cancelled { stage }
            | Self::DeadlineExceeded { stage } => *stage,
        }
    }

    /// The failures of a stage, the first [`MAX_NAMED`] of them named.
    pub(crate) fn objects(stage: Stage, mut failures: Vec<ObjectFailure>) -> Self {
        let total = failures.len();
        failures.sort_by(|a, b| a.object.cmp(&b.object));
        failures.truncate(MAX_NAMED);
        Self::Objects { stage, failures, total }
    }
}

/// Why a set of objects cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// More objects than an inventory may hold.
    #[error("it holds {count} objects, at most {limit} are taken")]
    TooManyObjects {
        /// How many there are.
        count: usize,
        /// How many are taken.
        limit: usize,
    },
    /// An object is larger than etcd would hold.
    #[error("{object} has {bytes} bytes, at most {limit} are taken")]
    TooLarge {
        /// The object, as far as it could be read.
        object: String,
        /// Its size as JSON.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// Something is no object, or lacks what every object has.
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
    #[error("{0} stands in it more than once")]
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

/// An object that is not healthy, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    /// The object.
    pub object: ObjectRef,
    /// Its health when it was last seen.
    pub health: Health,
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} status: '{}'", self.object, self.health.status)?;
        if self.health.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.health.message) }
    }
}

struct Failures<'a>(&'a [ObjectFailure], usize);

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0, self.1)
    }
}

struct Sick<'a>(&'a [Unhealthy], usize, bool);

impl fmt::Display for Sick<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.2 { "timed out waiting for: " } else { "failed: " })?;
        list(f, self.0, self.1)
    }
}

/// `a; b; and 3 more`.
fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, shown: &[T], total: usize) -> fmt::Result {
    for (index, item) in shown.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
    }
    if total > shown.len() { write!(f, "; and {} more", total - shown.len()) } else { Ok(()) }
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
