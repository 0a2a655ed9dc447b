//! What a cluster lets its agent do, whatever the hub says: the policy of the agent's own namespace, and its evaluation.
//!
//! Pure: the agent reads the ConfigMap, asks the apiserver for an account's rights and keeps the count of deletions; here it
//! is decided what they mean. Deny by default: what is not understood is refused, a malformed policy refuses everything.

mod account;
mod confirm;
mod deletions;
mod document;
mod image;
mod object;
mod pattern;
mod policy;
mod refused;
mod signature;
mod workload;

pub use account::{Account, ResourceRule, Rights};
pub use deletions::Deletions;
pub use image::{Image, Running};
pub use object::{Action, Object};
pub use policy::{Malformed, Policy};
pub use refused::{Refused, Rule};
pub use signature::Signature;

/// The ConfigMap in the agent's namespace that holds the policy.
pub const CONFIG_MAP: &str = "roadstead-agent-policy";

/// Its key with the policy, as YAML.
pub const POLICY_KEY: &str = "policy.yaml";

/// Its key with what is allowed in spite of the policy, one line each.
pub const CONFIRMED_KEY: &str = "confirmed";

#[cfg(test)]
mod tests;
