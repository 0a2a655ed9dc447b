//! The labels of what is counted, each with the few values that it has.

use prometheus_client::encoding::EncodeLabelSet;
use roadstead_meters::label;

/// What is of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfQueue {
    pub(crate) queue: &'static str,
}

/// What is of a kind of object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfKind {
    pub(crate) kind: &'static str,
}

/// A stage of what is done for objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfStage {
    pub(crate) kind: &'static str,
    pub(crate) stage: &'static str,
}

/// How fetches of sources of a kind ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfFetch {
    pub(crate) kind: &'static str,
    pub(crate) result: &'static str,
}

label! {
    /// What came of asking for a build.
    pub(crate) enum Build of "result" {
        /// A worker made it.
        Made = "made",
        /// It was there.
        Cached = "cached",
        /// It cannot be made.
        Failed = "failed",
        /// More has to be read first.
        Incomplete = "incomplete",
        /// Others were before it.
        Busy = "busy",
        /// A quota let no more of its namespace run.
        Waits = "waits",
    }
}

label! {
    /// Why an agent's session ended.
    pub enum SessionEnd of "reason" {
        /// The agent said so: it stops.
        Agent = "agent",
        /// The connection is gone.
        Connection = "connection",
        /// Nothing was heard of the agent, or it took nothing, for too long.
        Silence = "silence",
        /// A newer session, or another agent, is in its place.
        Replaced = "replaced",
        /// Its certificate has expired.
        Certificate = "certificate",
        /// This replica stops, or cannot serve it now.
        Hub = "hub",
        /// The agent said what is not to be said.
        Refused = "refused",
    }
}

label! {
    /// What came of an attempt to send an event, or of an event.
    pub(crate) enum Delivered of "result" {
        /// It arrived.
        Sent = "sent",
        /// It is tried again.
        Again = "again",
        /// It would not be taken the next time either.
        Failed = "failed",
        /// It was not taken in time.
        GivenUp = "given_up",
    }
}

label! {
    /// What became of an event that Flux reported in a cluster.
    pub(super) enum Relayed of "result" {
        /// It is sorted to Alerts.
        Kept = "kept",
        /// There was no room for it.
        LeftOut = "left_out",
    }
}

label! {
    /// Which way something goes over the link.
    pub enum Direction of "direction" {
        /// From agents.
        Received = "received",
        /// To agents.
        Sent = "sent",
    }
}

label! {
    /// What a request to the API does.
    pub enum RequestVerb of "verb" {
        /// GET and HEAD.
        Read = "read",
        /// A watch.
        Watch = "watch",
        /// POST.
        Create = "create",
        /// PUT and PATCH.
        Update = "update",
        /// DELETE.
        Delete = "delete",
        /// All else.
        Other = "other",
    }
}

label! {
    /// A stream of the audit log.
    pub(crate) enum StreamKind of "stream" {
        /// To a file, or standard output.
        Written = "file",
        /// To a collector.
        Sent = "collector",
    }
}
