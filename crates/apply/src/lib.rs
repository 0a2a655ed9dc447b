//! The server-side apply engine: order, validate, diff, apply, prune, wait for health.
//!
//! It works on one cluster through a [`kube::Client`] and knows neither hub nor agent: who owns the objects is a uid,
//! and what it owned before is a list of references that the caller keeps. A reconciliation is
//!
//! 1. [`Engine::prepare`]: check and normalise the objects, settle their scope, order them into stages. Nothing is
//!    written; [`Prepared::objects`] is what is about to be owned, for the caller to store ahead.
//! 2. [`Engine::apply`]: stage by stage, dry-run the whole stage, then write what differs.
//! 3. [`Engine::prune`]: delete what was owned before and is no longer wanted. [`Engine::delete_all`] is the same for
//!    an owner that goes away.
//! 4. [`Engine::wait`]: watch until everything is healthy.
//!
//! Every step takes a [`Run`] (deadline, cancellation, who is told) and gives back what it did also when it failed.
//! Dropping a step's future stops it at once; cancelling its token stops it before the next request.
//!
//! Between reconciliations [`Engine::watch_owned`] tells how what was applied stands, by its metadata alone; an engine [with a
//! ledger](Engine::with_ledger) asks nothing about an object of which it tells that it stands as it was applied. What a wait has
//! found healthy is followed by [`Engine::watch_whole`], and [judged](judge) as the wait would.
//!
//! Values of Secrets, and of manifests marked [`Manifest::sensitive`], appear in no error, event, log or `Debug`.

mod answer;
mod compare;
mod deletions;
mod difference;
mod directives;
mod discovery;
mod engine;
mod error;
mod failure;
pub mod flux;
mod footprint;
mod gate;
mod health;
mod ignore;
mod keyed;
mod ledger;
mod manifest;
mod order;
mod owned;
mod pointer;
mod prepare;
mod prune;
mod run;
mod side_by_side;
mod stage;
mod takeover;
mod transport;
mod volumes;
mod wait;
mod watch;

pub use engine::{Engine, Options};
pub use error::{Cause, Error, FailureKind, InputError, MAX_NAMED, ObjectFailure, Unhealthy};
pub use footprint::{Footprint, Standing};
pub use gate::{Gate, Verdict};
pub use health::{HealthRules, HealthRulesError, MAX_HEALTH_EXPRS};
pub use ignore::{IgnoreError, IgnoreRules, MAX_IGNORE_PATHS, MAX_IGNORE_RULES, MAX_IGNORE_TEXT};
pub use keyed::HashKey;
pub use ledger::{Applied, AsApplied, Difference, Ledger};
pub use manifest::{MAX_OBJECT_BYTES, Manifest};
pub use owned::{Scope, Sight};
pub use prepare::{Desired, Prepared};
pub use run::{Event, Outcome, Run, Sink};
pub use wait::{Waited, judge};

/// The field manager that owns what the engine writes.
pub const FIELD_MANAGER: &str = "roadstead";

/// The label that every owned object bears; its value is the uid of the owner (a Kustomization).
pub const OWNER_LABEL: &str = "fleet.roadstead.dev/owner";
