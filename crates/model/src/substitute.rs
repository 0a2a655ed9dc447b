//! Where the variables of a group's objects come from: Flux's `postBuild`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Which variables the agent substitutes in a group, and how. It holds no values of Secrets: a dispatch is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Substitute {
    /// Substitute even if there are no variables at all.
    #[serde(default, skip_serializing_if = "is_false")]
    pub always: bool,
    /// Treat variables that are not set as empty instead of failing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lenient: bool,
    /// The namespace of the cluster in which the agent looks up what the hub does not have.
    pub namespace: String,
    /// Variables that win over all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// ConfigMaps and Secrets that hold variables; a later one wins over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<VariablesFrom>,
}

/// A ConfigMap or a Secret that holds variables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VariablesFrom {
    /// Its kind.
    pub kind: VariablesKind,
    /// Its name.
    pub name: String,
    /// Whether it may be absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// Where the hub has it: its uid and resource version there. Then its values come with the dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_hub: Option<String>,
}

/// A kind that holds variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VariablesKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret: its values are marked wherever they go.
    Secret,
}

impl VariablesKind {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

impl fmt::Display for VariablesKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The variables in a ConfigMap or Secret of the hub. They are sent with a dispatch and never stored. Values do not print.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenVariables {
    /// The kind of the object.
    pub kind: VariablesKind,
    /// Its name.
    pub name: String,
    /// The variables.
    pub values: BTreeMap<String, Zeroizing<String>>,
}

impl fmt::Debug for GivenVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, values } = self;
        f.debug_struct("GivenVariables")
            .field("kind", kind)
            .field("name", name)
            .field("values", &values.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// A ConfigMap or Secret whose variables an agent found in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundVariables {
    /// Its kind.
    pub kind: VariablesKind,
    /// Its name.
    pub name: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_false(value: &bool) -> bool {
    !*value
}
