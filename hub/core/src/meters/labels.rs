//! The labels of what is counted, each with the few values that it has.

use prometheus_client::encoding::EncodeLabelSet;
use roadstead_meters::Label;

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

/// What came of asking for a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// A worker made it.
    Made,
    /// It was there.
    Cached,
    /// It cannot be made.
    Failed,
    /// More has to be read first.
    Incomplete,
    /// Others were before it.
    Busy,
}

impl Label for Build {
    const NAME: &'static str = "result";
    const VALUES: &'static [&'static str] = &["made", "cached", "failed", "incomplete", "busy"];

    fn index(self) -> usize {
        self as usize
    }
}

/// Why an agent's session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The agent said so: it stops.
    Agent,
    /// The connection is gone.
    Connection,
    /// Nothing was heard of the agent, or it took nothing, for too long.
    Silence,
    /// A newer session, or another agent, is in its place.
    Replaced,
    /// Its certificate has expired.
    Certificate,
    /// This replica stops, or cannot serve it now.
    Hub,
    /// The agent said what is not to be said.
    Refused,
}

impl Label for SessionEnd {
    const NAME: &'static str = "reason";
    const VALUES: &'static [&'static str] =
        &["agent", "connection", "silence", "replaced", "certificate", "hub", "refused"];

    fn index(self) -> usize {
        self as usize
    }
}

/// Which way something goes over the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From agents.
    Received,
    /// To agents.
    Sent,
}

impl Label for Direction {
    const NAME: &'static str = "direction";
    const VALUES: &'static [&'static str] = &["received", "sent"];

    fn index(self) -> usize {
        self as usize
    }
}

/// What a request to the API does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestVerb {
    /// GET and HEAD.
    Read,
    /// A watch.
    Watch,
    /// POST.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE.
    Delete,
    /// All else.
    Other,
}

impl Label for RequestVerb {
    const NAME: &'static str = "verb";
    const VALUES: &'static [&'static str] = &["read", "watch", "create", "update", "delete", "other"];

    fn index(self) -> usize {
        self as usize
    }
}
