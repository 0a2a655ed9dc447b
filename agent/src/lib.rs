//! Roadstead's agent: the process in (or beside) a workload cluster that holds the only write access to it.
//!
//! It dials out to the hub over mTLS ([`link`]), takes dispatches ([`runner`]), carries them out with the apply engine
//! ([`cluster`]), and tells what happened through an [`outbox`] that outlives every connection. Between dispatches it watches what it
//! applied, corrects what others change (`tend`), and tells how what it waited for is (`health`). What it must keep lies
//! in Secrets of its own namespace ([`home`], `keep`), never on a disk. It puts another version in its place ([`upgrade`]), and
//! removes itself ([`removal`]), when told. [`app`] puts the parts together.

mod apiserver;
pub mod app;
pub mod backoff;
pub mod builds;
pub mod cluster;
mod coalesce;
pub mod deployment;
pub mod enrol;
mod health;
pub mod home;
pub mod identity;
mod inputs;
pub mod join;
mod keep;
pub mod keys;
pub mod lease;
pub mod link;
mod memory;
mod metrics;
pub mod outbox;
mod port;
pub mod proxy;
pub mod ready;
mod relay;
pub mod removal;
pub mod runner;
mod state;
mod tend;
mod until;
pub mod upgrade;
pub mod warden;
mod watching;

/// This agent's version, as it tells the hub.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
