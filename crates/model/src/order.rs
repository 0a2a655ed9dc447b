//! What the hub asks an agent to do with itself.

use jiff::Timestamp;

/// What an agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderKind {
    /// To put this image in its place.
    Run(String),
    /// To remove itself.
    Remove,
}

/// Where an order stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderState {
    /// The agent is to be told, or was and has not answered.
    Told,
    /// The agent is at it.
    UnderWay,
    /// It failed; why.
    Failed(String),
    /// The cluster's own policy does not allow it; why.
    Refused(String),
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOrder {
    /// What it is to do.
    pub kind: OrderKind,
    /// The value of the annotation that asked for it, if one did.
    pub request: Option<String>,
    /// When it was given.
    pub given: Timestamp,
    /// Whether an agent was sent it.
    pub sent: bool,
    /// Where it stands.
    pub state: OrderState,
}
