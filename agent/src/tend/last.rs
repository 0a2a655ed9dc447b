//! What an applier's objects are corrected by: its last dispatch.

use std::collections::BTreeMap;

use roadstead_model::{Dispatch, Group, HealthExpr, IgnoreRule, StepKind};

use crate::builds::Kept;

/// A dispatch whose groups were all applied, with the builds that they are made of.
#[derive(Debug)]
pub(crate) struct LastApplied {
    pub(crate) dispatch: Dispatch,
    /// About how many it has in memory, without its builds.
    pub(super) bytes: usize,
    /// They are read by their digests: here they only stay.
    _builds: Vec<Kept>,
    /// There is nothing to correct by: the agent was started again, and what this needs was not kept.
    pub(super) is_only_watched: bool,
}

impl LastApplied {
    pub(crate) fn new(dispatch: Dispatch, builds: Vec<Kept>) -> Self {
        Self { bytes: bytes(&dispatch), dispatch, _builds: builds, is_only_watched: false }
    }

    /// One of which nothing was kept to correct by.
    pub(crate) fn only_watched(dispatch: Dispatch) -> Self {
        Self { is_only_watched: true, ..Self::new(dispatch, Vec::new()) }
    }

    /// Whether it waited for health.
    pub(super) fn awaits_health(&self) -> bool {
        self.dispatch.spec.steps.iter().any(|step| matches!(step.kind, StepKind::Wait { .. }))
    }
}

/// What a dispatch takes besides the texts in it.
const OTHER_BYTES: usize = 2048;

fn bytes(dispatch: &Dispatch) -> usize {
    let Dispatch { spec, given, data_keys, .. } = dispatch;
    let given: usize = given.iter().map(|given| of_map(&given.values)).sum();
    let health: usize = spec.health.iter().map(of_health).sum();
    let groups: usize = spec.groups.iter().map(of_group).sum();
    let keys: usize = data_keys.iter().map(|given| given.key.len() + 128).sum();
    given + keys + health + groups + OTHER_BYTES
}

fn of_group(group: &Group) -> usize {
    let own = group.substitute.as_ref().map_or(0, |substitute| of_map(&substitute.variables));
    own + group.ignore.iter().map(of_rule).sum::<usize>()
}

/// Texts, each with what a map or a list takes for it.
fn of_map<V: AsRef<str>>(map: &BTreeMap<String, V>) -> usize {
    map.iter().map(|(name, value)| name.len() + value.as_ref().len() + 64).sum()
}

fn of_rule(rule: &IgnoreRule) -> usize {
    // A target is a few short texts.
    rule.paths.iter().map(|path| path.len() + 32).sum::<usize>() + OTHER_BYTES
}

fn of_health(expr: &HealthExpr) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    expr.current.len() + optional(&expr.failed) + optional(&expr.in_progress) + 256
}
