//! The guard: how much a reconciliation deletes without a person's confirmation.
//!
//! Who carries a dispatch out counts what would go before it deletes anything. Beyond the bounds the deletions wait, and the digest of
//! what would go is what a person confirms: just these objects, and no others.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Digest, Hasher, ObjectRef};

/// The share of an inventory that may go, in percent, where nobody says otherwise.
pub const DEFAULT_MAX_PERCENT: u8 = 50;

/// Of an inventory of fewer objects any share may go, but not everything.
const COUNTED_FROM: usize = 10;

/// The length of the suffix that kustomize gives to the names of generated ConfigMaps and Secrets, and what it is made of.
const SUFFIX: usize = 10;
const SUFFIX_CHARS: &str = "2456789bcdfghkmt";

/// Digits of a digest that people are shown, and the fewest that they may give.
pub const SHORT_DIGEST: usize = 16;

/// Objects that a hold names.
pub const MAX_HELD_NAMED: usize = 50;

/// What waits where a reconciliation would delete more than it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GuardMode {
    /// Its deletions.
    #[default]
    Deletions,
    /// All of it: nothing is applied either.
    Stop,
}

/// The bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    /// What waits.
    #[serde(default)]
    pub mode: GuardMode,
    /// The share of an inventory of ten objects or more that may go, in percent.
    pub max_percent: u8,
    /// How many objects may go at once; none: as many as the share allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_deletions: Option<u32>,
    /// Somebody asked for it in a spec: an agent that does not know it is not sent the dispatch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The digests of those deletions that a person has confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Digest>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            mode: GuardMode::default(),
            max_percent: DEFAULT_MAX_PERCENT,
            max_deletions: None,
            required: false,
            confirmed: Vec::new(),
        }
    }
}

/// An object that would be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingDeletion {
    /// The object.
    pub object: ObjectRef,
    /// Its uid: another one of that name is not what was confirmed.
    pub uid: String,
    /// What is lost with it that nobody applies again, for people; none where nothing is.
    pub risk: Option<String>,
}

/// Deletions that wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Of the objects that would go, with their uids.
    pub digest: Digest,
    /// Why, for people.
    pub why: String,
    /// The first of them.
    pub objects: Vec<ObjectRef>,
    /// How many there are.
    pub total: usize,
}

impl Guard {
    /// Both: of each bound the stricter one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let max_deletions = match (self.max_deletions, other.max_deletions) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        let mut confirmed = self.confirmed;
        confirmed.extend(other.confirmed);
        Self {
            mode: self.mode.max(other.mode),
            max_percent: self.max_percent.min(other.max_percent),
            max_deletions,
            required: self.required || other.required,
            confirmed,
        }
    }

    /// Whether deleting these has to wait. `owned` is the inventory so far, `keep` what is wanted of it, and what is new.
    #[must_use]
    pub fn holds(
        &self,
        owned: &[ObjectRef],
        keep: &[ObjectRef],
        deletions: &[PendingDeletion],
    ) -> Option<Held> {
        let kept: BTreeSet<&ObjectRef> = keep.iter().collect();
        let stems: BTreeSet<_> = keep.iter().filter_map(stem).collect();
        let is_replaced =
            |one: &&PendingDeletion| stem(&one.object).is_some_and(|stem| stems.contains(&stem));
        let replaced = deletions.iter().filter(is_replaced).count();
        let goes = deletions.len() - replaced;
        let stays = owned.iter().any(|object| kept.contains(object)) || replaced > 0;
        // The only object may get another name.
        let is_all = !stays && goes > 0 && (keep.is_empty() || owned.len() > 1);
        let why = self.exceeded(goes, owned.len(), is_all);
        let risks =
            deletions.iter().filter_map(|one| one.risk.as_ref().map(|risk| format!("{} {risk}", one.object)));
        let mut why: Vec<String> = why.into_iter().collect();
        why.extend(some(risks, 3));
        if why.is_empty() {
            return None;
        }
        let digest = digest_of(deletions);
        (!self.confirmed.contains(&digest)).then(|| Held {
            digest,
            why: why.join("; "),
            objects: deletions.iter().take(MAX_HELD_NAMED).map(|one| one.object.clone()).collect(),
            total: deletions.len(),
        })
    }

    /// Which bound `goes` objects of `owned` are beyond.
    #[must_use]
    pub fn exceeded(&self, goes: usize, owned: usize, is_all: bool) -> Option<String> {
        let share = goes.saturating_mul(100) > owned.saturating_mul(usize::from(self.max_percent));
        if is_all {
            let objects = if goes == 1 { "1 object".to_owned() } else { format!("{goes} objects") };
            return Some(format!("everything that it owns would be deleted ({objects})"));
        }
        if owned >= COUNTED_FROM && share {
            let most = self.max_percent;
            return Some(format!("{goes} of {owned} objects would be deleted, more than {most} percent"));
        }
        let most = self.max_deletions.filter(|most| goes > usize::try_from(*most).unwrap_or(usize::MAX))?;
        Some(format!("{goes} of {owned} objects would be deleted, more than {most}"))
    }
}

/// The digest of objects that would go, in any order.
#[must_use]
pub fn digest_of(deletions: &[PendingDeletion]) -> Digest {
    let mut lines: Vec<_> = deletions.iter().map(|one| (&one.object, one.uid.as_str())).collect();
    lines.sort_unstable();
    let mut hasher = Hasher::default();
    for (ObjectRef { group, version: _, kind, namespace, name }, uid) in lines {
        for text in [group, kind, namespace, name, uid] {
            // No name has a line feed in it, so that no two lists are the same bytes.
            hasher.update(text.as_bytes());
            hasher.update(b"\n");
        }
    }
    hasher.finish()
}

/// One digest for several.
#[must_use]
pub fn digest_of_all(parts: &[Digest]) -> Digest {
    match parts {
        [only] => *only,
        parts => {
            let mut hasher = Hasher::default();
            parts.iter().for_each(|part| hasher.update(part.as_bytes()));
            hasher.finish()
        }
    }
}

/// The first of these, and how many more there are.
fn some(all: impl Iterator<Item = String>, named: usize) -> Vec<String> {
    let all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(named);
    let mut some: Vec<String> = all.into_iter().take(named).collect();
    if more > 0 {
        some.push(format!("and {more} more"));
    }
    some
}

/// What a generated object is without the suffix that changes with its content: what takes its place has the same.
fn stem(object: &ObjectRef) -> Option<(&str, &str, &str, &str)> {
    if !object.group.is_empty() || !matches!(object.kind.as_str(), "ConfigMap" | "Secret") {
        return None;
    }
    let (name, suffix) = object.name.rsplit_once('-')?;
    let is_suffix = suffix.len() == SUFFIX && suffix.chars().all(|c| SUFFIX_CHARS.contains(c));
    is_suffix.then_some((&object.group, &object.kind, &object.namespace, name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Guard, GuardMode, PendingDeletion, digest_of};
    use crate::{Digest, ObjectRef};

    fn object(kind: &str, name: &str) -> ObjectRef {
        ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        }
    }

    fn maps(numbers: std::ops::Range<usize>) -> Vec<ObjectRef> {
        numbers.map(|number| object("ConfigMap", &format!("m{number}"))).collect()
    }

    fn deletions(objects: &[ObjectRef]) -> Vec<PendingDeletion> {
        let one = |object: &ObjectRef| PendingDeletion {
            object: object.clone(),
            uid: object.name.clone(),
            risk: None,
        };
        objects.iter().map(one).collect()
    }

    fn why(guard: &Guard, owned: &[ObjectRef], keep: &[ObjectRef]) -> Option<String> {
        let stale: Vec<ObjectRef> = owned.iter().filter(|object| !keep.contains(object)).cloned().collect();
        guard.holds(owned, keep, &deletions(&stale)).map(|held| held.why)
    }

    #[test]
    fn more_than_half_of_ten_or_more() {
        let guard = Guard::default();
        assert_eq!(why(&guard, &maps(0..10), &maps(5..10)), None, "half of them");
        assert_eq!(
            why(&guard, &maps(0..10), &maps(6..10)).as_deref(),
            Some("6 of 10 objects would be deleted, more than 50 percent")
        );
        assert_eq!(why(&guard, &maps(0..9), &maps(8..9)), None, "a small inventory");
    }

    #[test]
    fn everything_but_a_single_object_under_another_name() {
        let guard = Guard::default();
        let all = "everything that it owns would be deleted (3 objects)";
        assert_eq!(why(&guard, &maps(0..3), &[]).as_deref(), Some(all), "an empty build");
        assert_eq!(why(&guard, &maps(0..3), &maps(3..6)).as_deref(), Some(all), "another path");
        assert!(why(&guard, &maps(0..1), &[]).is_some());
        assert_eq!(why(&guard, &maps(0..1), &maps(1..2)), None, "a rename");
        assert_eq!(why(&guard, &[], &[]), None);
        // What is gone already, or says that it stays, is not deleted.
        assert_eq!(guard.holds(&maps(0..3), &[], &[]), None);
    }

    #[test]
    fn what_is_generated_again_takes_the_place_of_what_was() {
        let guard = Guard::default();
        let (old, new) = (object("ConfigMap", "env-2m4t6k8b9c"), object("ConfigMap", "env-9c8b6k4t2m"));
        let two = [old.clone(), object("Secret", "key-2m4t6k8b9c")];
        let keep = [new.clone(), object("Secret", "key-tttttttttt")];
        assert_eq!(why(&guard, &two, &keep), None);
        // Another kind, and a name that only looks alike.
        assert!(why(&guard, &two, &[object("Secret", "env-9c8b6k4t2m")]).is_some());
        assert!(why(&guard, &[old.clone(), old], &[object("ConfigMap", "env-production")]).is_some());
    }

    #[test]
    fn a_peril_holds_whatever_the_count() {
        let guard = Guard::default();
        let (owned, keep) = (maps(0..20), maps(1..20));
        let mut one = deletions(&owned[..1]);
        assert_eq!(guard.holds(&owned, &keep, &one), None);
        one[0].risk = Some("is a bound volume".to_owned());
        let held = guard.holds(&owned, &keep, &one).expect("held");
        assert_eq!(held.why, "ConfigMap/apps/m0 is a bound volume");
        let confirmed = Guard { confirmed: vec![held.digest], ..Guard::default() };
        assert_eq!(confirmed.holds(&owned, &keep, &one), None);
        one[0].uid = "another".to_owned();
        assert!(confirmed.holds(&owned, &keep, &one).is_some(), "another object of that name");
    }

    #[test]
    fn the_stricter_wins() {
        let strict =
            Guard { mode: GuardMode::Stop, max_percent: 90, max_deletions: Some(3), ..Guard::default() };
        let both = Guard { max_deletions: Some(7), ..Guard::default() }.and(strict);
        assert_eq!((both.mode, both.max_percent, both.max_deletions), (GuardMode::Stop, 50, Some(3)));
        assert_eq!(
            why(&both, &maps(0..100), &maps(4..100)).as_deref(),
            Some("4 of 100 objects would be deleted, more than 3")
        );
        let none = Guard { max_percent: 0, ..Guard::default() };
        assert!(why(&none, &maps(0..100), &maps(1..100)).is_some());
    }

    /// A repository of preview environments, over a month: environments come and go, and their generated objects change.
    #[test]
    fn a_month_of_preview_environments_never_waits() {
        let environment = |number: usize, build: usize| {
            let mut objects: Vec<ObjectRef> =
                (0..7).map(|index| object("Service", &format!("preview-{number}-{index}"))).collect();
            let suffix: String =
                format!("{build:010}").chars().map(|digit| SUFFIX_OF[digit as usize - 48]).collect();
            objects.push(object("ConfigMap", &format!("preview-{number}-env-{suffix}")));
            objects
        };
        let base: Vec<ObjectRef> =
            (0..8).map(|number| object("Service", &format!("base-{number}"))).collect();
        let (mut open, mut opened, mut random) = (Vec::new(), 0, 1_u64);
        let mut owned = base.clone();
        for commit in 0..2_000 {
            // Numerical Recipes' generator: the same month each time.
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match (random >> 16) % 4 {
                0 if !open.is_empty() => {
                    open.remove((random >> 32) as usize % open.len());
                }
                1 if open.len() < 12 => {
                    opened += 1;
                    open.push(opened);
                }
                _ => {}
            }
            let environments = open.iter().flat_map(|number| environment(*number, commit));
            let keep: Vec<ObjectRef> = base.iter().cloned().chain(environments).collect();
            assert_eq!(why(&Guard::default(), &owned, &keep), None, "commit {commit}: {open:?}");
            owned = keep;
        }
        assert!(opened > 100, "{opened}");
    }

    const SUFFIX_OF: [char; 10] = ['2', '4', '5', '6', '7', '8', '9', 'b', 'c', 'd'];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn a_digest_is_of_the_set(mut names in proptest::collection::btree_set("[a-z]{1,4}", 0..8), other in "[A-Z]") {
            let set: Vec<ObjectRef> = names.iter().map(|name| object("ConfigMap", name)).collect();
            let mut turned = deletions(&set);
            turned.reverse();
            prop_assert_eq!(digest_of(&deletions(&set)), digest_of(&turned));
            names.insert(other);
            let more: Vec<ObjectRef> = names.iter().map(|name| object("ConfigMap", name)).collect();
            prop_assert_ne!(digest_of(&deletions(&set)), digest_of(&deletions(&more)));
        }

        /// What was confirmed goes; nothing else does by that.
        #[test]
        fn nothing_beyond_the_bounds_goes_unconfirmed(owned in 0_usize..60, kept in 0_usize..60, percent in 0_u8..=100) {
            let kept = kept.min(owned);
            let guard = Guard { max_percent: percent, ..Guard::default() };
            let (inventory, keep) = (maps(0..owned), maps(0..kept));
            let goes = deletions(&inventory[kept..]);
            let held = guard.holds(&inventory, &keep, &goes);
            let beyond = owned >= 10 && goes.len() * 100 > owned * usize::from(percent) || kept == 0 && owned > 0;
            prop_assert_eq!(held.is_some(), beyond);
            if let Some(held) = held {
                let wrong = Guard { confirmed: vec![Digest::of(b"another")], ..guard.clone() };
                prop_assert!(wrong.holds(&inventory, &keep, &goes).is_some());
                let confirmed = Guard { confirmed: vec![held.digest], ..guard };
                prop_assert!(confirmed.holds(&inventory, &keep, &goes).is_none());
            }
        }
    }
}
