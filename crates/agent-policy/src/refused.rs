//! A refusal: the rule, why, and how a person in the cluster can allow it after all.

use std::fmt;

use crate::{CONFIG_MAP, CONFIRMED_KEY};

/// The rule that refuses; displays as the policy's field that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The agent's own namespace and what it is installed with are not touched.
    AgentNamespace,
    /// A dispatch must name a service account.
    AccountRequired,
    /// Only some service accounts are acted as.
    AccountAllowed,
    /// No account may have rights in the agent's namespace.
    AccountRights,
    /// Kinds that are not touched.
    Kinds,
    /// Namespaces that are not touched.
    Namespaces,
    /// Workloads that can leave their container.
    Privileged,
    /// Deletions of namespaces.
    DeletedNamespaces,
    /// Deletions within an hour.
    DeletionsPerHour,
    /// Deletions at once.
    DeletionsAtOnce,
    /// Owners by which an object is deleted without anybody asking for it.
    Owners,
    /// Upgrades at all.
    Upgrades,
    /// The repository of the agent's image.
    UpgradeRepository,
    /// Images by digest only.
    UpgradeDigest,
    /// Signed images only.
    UpgradeKey,
    /// The oldest version that is taken.
    UpgradeMinimum,
    /// Versions older than the one that runs.
    UpgradeDowngrade,
    /// The agent's removal.
    Removal,
}

impl Rule {
    /// The field of the policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentNamespace => "manageAgentNamespace",
            Self::AccountRequired => "serviceAccounts.required",
            Self::AccountAllowed => "serviceAccounts.allowed",
            Self::AccountRights => "serviceAccounts.checkRights",
            Self::Kinds => "kinds",
            Self::Namespaces => "namespaces",
            Self::Privileged => "privilegedWorkloads",
            Self::DeletedNamespaces => "deletions.namespaces",
            Self::DeletionsPerHour => "deletions.perHour",
            Self::DeletionsAtOnce => "deletions.atOnce",
            Self::Owners => "deletions.byOwner",
            Self::Upgrades => "upgrades.allowed",
            Self::UpgradeRepository => "upgrades.repository",
            Self::UpgradeDigest => "upgrades.digest",
            Self::UpgradeKey => "upgrades.publicKey",
            Self::UpgradeMinimum => "upgrades.minimumVersion",
            Self::UpgradeDowngrade => "upgrades.downgrade",
            Self::Removal => "removal",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that the policy refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// By which rule.
    pub rule: Rule,
    /// What is refused, and why.
    pub why: String,
    /// The line that allows it, where a line can.
    pub confirm: Option<String>,
    /// The agent's namespace, where the policy is.
    pub namespace: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, why, confirm, namespace } = self;
        write!(f, "refused by the agent's policy in the cluster, rule `{rule}`: {why}")?;
        match confirm {
            Some(line) => write!(
                f,
                "; to allow it, add the line `{line}` to the key `{CONFIRMED_KEY}` of ConfigMap {namespace}/{CONFIG_MAP} in \
                 the cluster"
            ),
            None => Ok(()),
        }
    }
}
