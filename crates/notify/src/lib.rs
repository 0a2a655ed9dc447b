//! Events, the Alerts that they are for, and what is sent of them to each type of Provider.
//!
//! All of it is pure: [`Selector`] decides whether an Alert is for an event, [`Event::told_by`] merges what the Alert adds to it,
//! [`begin`] makes the HTTP requests that tell it, or asks what is there first, of which [`heard`] makes them, and [`refused`] reads from
//! an answer whether it was taken. Each type of
//! Provider is a file in `providers`. Failures that have one [`Cause`] are one [`Incident`]; what was not sent
//! one by one is a [`Summary`]; how far a commit has come in an environment is a [`Rollout`]. What users and objects wrote is escaped for the place that it goes to, and cut at what that takes.

mod alert;
mod cause;
mod event;
mod incident;
mod providers;
mod repository;
mod request;
mod retry;
mod rollout;
mod summary;
mod target;
mod text;
mod together;

pub use alert::{BadPattern, Labels, Listened, Selector, listens_to};
pub use cause::Cause;
pub use event::{Event, Involved, Level, OWN_PREFIX, QUALIFIED, STATUSES_AND_COMMENTS};
pub use incident::{ClosingReason, Incident, IncidentFacts, Lapsed, MOST_NAMED, Pace, Stage, Step};
pub use providers::{
    Next, Publication, Question, Takes, begin, heard, is_git, makes_statuses, refused, takes, thread,
};
pub use request::{Method, Request};
pub use retry::{after, backoff};
pub use rollout::{
    Applied, Counts, NO_ENVIRONMENT, Rollout, RolloutFacts, RolloutKey, RolloutNews, RolloutStep, Rollouts,
    ToldRollout, Verdict, gather, next, successor,
};
pub use summary::{Failing, SumOf, Summary};
pub use target::{Target, Unsendable};
pub use together::{Another, Common, Together};
