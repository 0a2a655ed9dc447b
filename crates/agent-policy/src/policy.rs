//! The policy as it is in force.

use std::collections::BTreeMap;

use roadstead_model::Guard;

use crate::confirm::Confirmed;
use crate::document;
use crate::pattern::Pattern;
use crate::refused::{Refused, Rule};
use crate::signature::PublicKey;
use crate::{CONFIG_MAP, CONFIRMED_KEY, POLICY_KEY};

/// Why a policy is not usable. Nothing is done then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent's policy, ConfigMap {CONFIG_MAP} in its namespace, is malformed, so everything is refused: {0}"
)]
pub struct Malformed(String);

impl Malformed {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Setting {
    Allow,
    Refuse,
}

/// What of a kind of names is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List<P> {
    /// Nothing of it, whatever else is said.
    pub(crate) never: Vec<P>,
    /// Where the preset does not allow it.
    pub(crate) allowed: Vec<P>,
    /// What the preset says of all that is in neither.
    pub(crate) preset: Preset<P>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Preset<P> {
    AllBut(Vec<P>),
    Only(Vec<P>),
}

impl<P> List<P> {
    pub(crate) fn allow(&self, is_match: impl Fn(&P) -> bool) -> bool {
        let in_preset = || match &self.preset {
            Preset::AllBut(refused) => !refused.iter().any(&is_match),
            Preset::Only(allowed) => allowed.iter().any(&is_match),
        };
        !self.never.iter().any(&is_match) && (self.allowed.iter().any(&is_match) || in_preset())
    }
}

/// What is taken as another image of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upgrades {
    pub(crate) allowed: bool,
    pub(crate) repository: Option<String>,
    pub(crate) signed_repository: Option<String>,
    pub(crate) digest: bool,
    pub(crate) key: Option<PublicKey>,
    pub(crate) minimum: Option<semver::Version>,
    pub(crate) downgrade: bool,
}

/// What a cluster lets its agent do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The agent's.
    pub(crate) namespace: String,
    pub(crate) manage_own: bool,
    pub(crate) account_required: bool,
    pub(crate) accounts: Vec<Pattern>,
    pub(crate) check_rights: bool,
    pub(crate) trusted: Vec<Pattern>,
    pub(crate) kinds: List<Pattern>,
    pub(crate) namespaces: List<String>,
    pub(crate) privileged: Setting,
    pub(crate) deletions_per_hour: Option<u32>,
    /// The bounds of what one reconciliation deletes.
    pub(crate) deletions_at_once: Option<Guard>,
    pub(crate) namespace_deletions: Setting,
    pub(crate) deletions_by_owner: Setting,
    pub(crate) drift_values: bool,
    pub(crate) upgrades: Upgrades,
    pub(crate) removal: Setting,
    pub(crate) confirmed: Confirmed,
}

impl Policy {
    /// The preset `open`, which is in force where there is no ConfigMap; `namespace` is the agent's.
    #[must_use]
    pub fn open(namespace: &str) -> Self {
        document::open(namespace)
    }

    /// Whether this is [`Self::open`], with nothing added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::open(&self.namespace)
    }

    /// The policy that the ConfigMap's `data` holds; [`Self::open`] where there is no ConfigMap.
    ///
    /// # Errors
    /// [`Malformed`], also where a key or a field is not known: what one has written is to be in force.
    pub fn from_config_map(
        namespace: &str,
        data: Option<&BTreeMap<String, String>>,
    ) -> Result<Self, Malformed> {
        let Some(data) = data else { return Ok(Self::open(namespace)) };
        if let Some(key) = data.keys().find(|key| ![POLICY_KEY, CONFIRMED_KEY].contains(&key.as_str())) {
            return Err(Malformed::new(format!("it has an unknown key `{key}`")));
        }
        let text =
            data.get(POLICY_KEY).ok_or_else(|| Malformed::new(format!("it has no key `{POLICY_KEY}`")))?;
        let confirmed = data.get(CONFIRMED_KEY).map(String::as_str).unwrap_or_default();
        let policy = document::parse(namespace, text)?;
        Ok(Self { confirmed: Confirmed::parse(confirmed)?, ..policy })
    }

    /// How many deletions there may be within an hour; none where they are not counted.
    #[must_use]
    pub fn deletions_per_hour(&self) -> Option<u32> {
        self.deletions_per_hour
    }

    /// Whether the hub is told the values of fields that others changed, beside which fields these are.
    #[must_use]
    pub fn tells_values(&self) -> bool {
        self.drift_values
    }

    /// Whether the agent removes itself when the hub says so.
    ///
    /// # Errors
    /// [`Refused`], where it does not.
    pub fn check_removal(&self) -> Result<(), Refused> {
        const LINE: &str = "removal";
        if self.removal == Setting::Allow || self.confirmed.has(LINE) {
            return Ok(());
        }
        let why = "the agent may not remove itself at its hub's request".to_owned();
        Err(self.refuse(Rule::Removal, why, Some(LINE.to_owned())))
    }

    pub(crate) fn refuse(&self, rule: Rule, why: String, confirm: Option<String>) -> Refused {
        Refused { rule, why, confirm, namespace: self.namespace.clone() }
    }
}
