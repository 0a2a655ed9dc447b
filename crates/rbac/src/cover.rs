//! Whether rules hold all that other rules grant: who writes a role may put into it only what they may do themselves.
//!
//! As Kubernetes does it, what is to be granted is broken down into single rights (one group, resource, verb and name), each
//! of which one rule of the owner must hold. The combinations of one rule alone can be a billion, so the steps are counted,
//! and who asks for more than [`MOST_STEPS`] is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use roadstead_api::rbac::PolicyRule;

use crate::matching::url_covers;
use crate::{quoted, quoted_list};

/// What a comparison may cost, in operations on words.
const MOST_STEPS: usize = 20_000_000;
/// So many rights that are missing are named.
const MOST_MISSING: usize = 100;

/// The comparison would take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rules grant too many combinations of groups, resources, verbs and names to compare them: grant fewer by one role"
)]
pub struct TooComplex;

/// Rights that are not held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// By group, resource and name: the verbs.
    resources: BTreeMap<(String, String, Option<String>), Vec<String>>,
    /// By path: the verb.
    paths: BTreeSet<(String, String)>,
    count: usize,
}

impl Missing {
    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// As kube-apiserver lists them, in a line for each resource and path.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut lines = BTreeSet::new();
        for ((group, resource, name), verbs) in &self.resources {
            let names = name.iter().map(|name| format!(", ResourceNames:[{}]", quoted(name)));
            lines.insert(format!(
                "{{APIGroups:[{}], Resources:[{}]{}, Verbs:{}}}",
                quoted(group),
                quoted(resource),
                names.collect::<String>(),
                quoted_list(verbs.iter().map(String::as_str)),
            ));
        }
        for (path, verb) in &self.paths {
            lines.insert(format!("{{NonResourceURLs:[{}], Verbs:[{}]}}", quoted(path), quoted(verb)));
        }
        let mut lines: Vec<String> = lines.into_iter().collect();
        if self.count > MOST_MISSING {
            lines.push(format!("and {} more", self.count - MOST_MISSING));
        }
        lines.join("\n")
    }

    fn resource(&mut self, group: &str, resource: &str, verb: &str, name: Option<&str>) {
        self.count += 1;
        if self.count <= MOST_MISSING {
            let key = (group.to_owned(), resource.to_owned(), name.map(str::to_owned));
            self.resources.entry(key).or_default().push(verb.to_owned());
        }
    }

    fn path(&mut self, path: &str, verb: &str) {
        self.count += 1;
        if self.count <= MOST_MISSING {
            self.paths.insert((path.to_owned(), verb.to_owned()));
        }
    }
}

/// What of `wanted` no rule of `owner` holds.
///
/// # Errors
/// [`TooComplex`] where comparing them would take too long.
pub fn covers<'a, 'b>(
    owner: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: impl IntoIterator<Item = &'b PolicyRule>,
) -> Result<Missing, TooComplex> {
    let mut owner = Owner::new(owner);
    let mut missing = Missing::default();
    for rule in wanted {
        owner.resources(rule, &mut missing)?;
        owner.paths(rule, &mut missing)?;
    }
    Ok(missing)
}

/// By a text of a rule: the numbers of the rules that hold it.
type Index<'a> = HashMap<&'a str, Vec<u32>>;
/// A set of rules, a bit for each.
type Bits = Vec<u64>;

/// Rules that are held, by what is in them.
struct Owner<'a> {
    verbs: Index<'a>,
    groups: Index<'a>,
    resources: Index<'a>,
    names: Index<'a>,
    /// The rules that are not about some names only.
    unnamed: Bits,
    urls: Vec<(&'a str, u32)>,
    words: usize,
    left: usize,
}

impl<'a> Owner<'a> {
    fn new(rules: impl IntoIterator<Item = &'a PolicyRule>) -> Self {
        let mut owner = Self {
            verbs: Index::new(),
            groups: Index::new(),
            resources: Index::new(),
            names: Index::new(),
            unnamed: Bits::new(),
            urls: Vec::new(),
            words: 0,
            left: MOST_STEPS,
        };
        for (number, rule) in (0_u32..).zip(rules) {
            let add = |index: &mut Index<'a>, texts: &'a [String]| {
                for text in texts {
                    index.entry(text).or_default().push(number);
                }
            };
            add(&mut owner.verbs, &rule.verbs);
            add(&mut owner.groups, &rule.api_groups);
            add(&mut owner.resources, &rule.resources);
            add(&mut owner.names, &rule.resource_names);
            owner.urls.extend(rule.non_resource_urls.iter().map(|url| (url.as_str(), number)));
            owner.words = place(number).0 + 1;
            owner.unnamed.resize(owner.words, 0);
            if rule.resource_names.is_empty() {
                set(&mut owner.unnamed, number);
            }
        }
        owner
    }

    /// Pays for steps.
    fn pay(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.left = self.left.checked_sub(steps).ok_or(TooComplex)?;
        Ok(())
    }

    /// The rules that hold any of these texts.
    fn holders(&mut self, index: impl Fn(&Self) -> &Index<'a>, texts: &[&str]) -> Result<Bits, TooComplex> {
        let cost = texts.iter().map(|text| index(self).get(text).map_or(1, Vec::len)).sum::<usize>();
        self.pay(cost + self.words)?;
        let mut bits = vec![0; self.words];
        for number in texts.iter().filter_map(|text| index(self).get(text)).flatten() {
            set(&mut bits, *number);
        }
        Ok(bits)
    }

    fn resources(&mut self, rule: &PolicyRule, missing: &mut Missing) -> Result<(), TooComplex> {
        for group in &rule.api_groups {
            let groups = self.holders(|owner| &owner.groups, &["*", group])?;
            for resource in &rule.resources {
                let mut forms = vec!["*", resource.as_str()];
                let every = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
                forms.extend(every.as_deref());
                let mut both = self.holders(|owner| &owner.resources, &forms)?;
                intersect(&mut both, &groups);
                for verb in &rule.verbs {
                    let mut all = self.holders(|owner| &owner.verbs, &["*", verb])?;
                    intersect(&mut all, &both);
                    self.names(&all, rule, (group, resource, verb), missing)?;
                }
            }
        }
        Ok(())
    }

    /// Of the rules that hold a verb of a resource, one must hold it for each name.
    fn names(
        &mut self,
        holders: &Bits,
        rule: &PolicyRule,
        (group, resource, verb): (&str, &str, &str),
        missing: &mut Missing,
    ) -> Result<(), TooComplex> {
        self.pay(self.words)?;
        if meet(holders, &self.unnamed) {
            return Ok(());
        }
        if rule.resource_names.is_empty() {
            missing.resource(group, resource, verb, None);
        }
        for name in &rule.resource_names {
            let cost = self.names.get(name.as_str()).map_or(1, Vec::len);
            self.pay(cost)?;
            let numbers = self.names.get(name.as_str()).into_iter().flatten();
            if !numbers.copied().any(|number| is_set(holders, number)) {
                missing.resource(group, resource, verb, Some(name));
            }
        }
        Ok(())
    }

    fn paths(&mut self, rule: &PolicyRule, missing: &mut Missing) -> Result<(), TooComplex> {
        for url in &rule.non_resource_urls {
            // A comparison reads at most the shorter of the two.
            self.pay(
                self.urls.iter().map(|(own, _)| 1 + own.len().min(url.len()) / 8).sum::<usize>() + self.words,
            )?;
            let mut holders = vec![0; self.words];
            for (_, number) in self.urls.iter().filter(|(own, _)| url_covers(own, url)) {
                set(&mut holders, *number);
            }
            for verb in &rule.verbs {
                let mut all = self.holders(|owner| &owner.verbs, &["*", verb])?;
                intersect(&mut all, &holders);
                // A right to a path has no name, so that a rule about names does not hold it.
                if !meet(&all, &self.unnamed) {
                    missing.path(url, verb);
                }
            }
        }
        Ok(())
    }
}

/// The word and the bit of a rule's number.
fn place(number: u32) -> (usize, u64) {
    // u32 fits usize on every platform that this is built for; were it not so, the rule would hold nothing.
    (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64))
}

fn set(bits: &mut Bits, number: u32) {
    let (word, bit) = place(number);
    if let Some(word) = bits.get_mut(word) {
        *word |= bit;
    }
}

fn is_set(bits: &Bits, number: u32) -> bool {
    let (word, bit) = place(number);
    bits.get(word).is_some_and(|word| word & bit != 0)
}

fn intersect(bits: &mut Bits, other: &Bits) {
    for (word, other) in bits.iter_mut().zip(other) {
        *word &= other;
    }
}

fn meet(one: &Bits, other: &Bits) -> bool {
    one.iter().zip(other).any(|(one, other)| one & other != 0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::{Attributes, Resource, rule_allows};

    fn texts(from: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
        vec(select(from).prop_map(str::to_owned), 0..=most)
    }

    const VERBS: &[&str] = &["get", "list", "update", "*"];
    const GROUPS: &[&str] = &["", "apps", "*"];
    const RESOURCES: &[&str] =
        &["pods", "pods/log", "*/log", "deployments", "deployments/scale", "*/scale", "*", "*/*"];
    const NAMES: &[&str] = &["a", "b"];
    const URLS: &[&str] = &["/a", "/a/b", "/a/*", "/a*", "*", "/b"];

    fn rule() -> impl Strategy<Value = PolicyRule> {
        (texts(VERBS, 3), texts(GROUPS, 2), texts(RESOURCES, 3), texts(NAMES, 2), texts(URLS, 2)).prop_map(
            |(verbs, api_groups, resources, resource_names, non_resource_urls)| PolicyRule {
                verbs,
                api_groups,
                resources,
                resource_names,
                non_resource_urls,
            },
        )
    }

    /// Kubernetes' `Covers` (component-helpers, auth/rbac/validation), written down as it is there. Returns how many rights are
    /// missing.
    fn by_the_book(owner: &[PolicyRule], wanted: &[PolicyRule]) -> usize {
        let has = |list: &[String], one: &str| list.iter().any(|entry| entry == one);
        let held = |own: &PolicyRule,
                    group: Option<&str>,
                    resource: Option<&str>,
                    verb: &str,
                    name: Option<&str>,
                    url: Option<&str>| {
            (has(&own.verbs, "*") || has(&own.verbs, verb))
                && group.is_none_or(|group| has(&own.api_groups, "*") || has(&own.api_groups, group))
                && resource.is_none_or(|resource| {
                    has(&own.resources, "*")
                        || has(&own.resources, resource)
                        || resource
                            .split_once('/')
                            .is_some_and(|(_, sub)| has(&own.resources, &format!("*/{sub}")))
                })
                && url.is_none_or(|url| {
                    own.non_resource_urls.iter().any(|own| {
                        own == url || (own.ends_with('*') && url.starts_with(own.trim_end_matches('*')))
                    })
                })
                && (own.resource_names.is_empty() || name.is_some_and(|name| has(&own.resource_names, name)))
        };
        let mut missing = 0;
        for rule in wanted {
            let names: Vec<Option<&str>> = if rule.resource_names.is_empty() {
                vec![None]
            } else {
                rule.resource_names.iter().map(|name| Some(name.as_str())).collect()
            };
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    for verb in &rule.verbs {
                        for name in &names {
                            let one = |own| held(own, Some(group), Some(resource), verb, *name, None);
                            missing += usize::from(!owner.iter().any(one));
                        }
                    }
                }
            }
            for url in &rule.non_resource_urls {
                for verb in &rule.verbs {
                    missing +=
                        usize::from(!owner.iter().any(|own| held(own, None, None, verb, None, Some(url))));
                }
            }
        }
        missing
    }

    proptest! {
        #[test]
        fn covers_is_what_kubernetes_says(owner in vec(rule(), 0..70), wanted in vec(rule(), 0..4)) {
            let missing = covers(&owner, &wanted).unwrap();
            prop_assert_eq!(missing.count, by_the_book(&owner, &wanted));
            prop_assert_eq!(missing.is_empty(), missing.lines().is_empty());
        }

        /// Whoever is allowed to grant something may do it.
        #[test]
        fn what_is_covered_was_allowed_before(owner in vec(rule(), 0..6), wanted in rule(),
            verb in select(VERBS), group in select(GROUPS), resource in select(&["pods", "deployments"][..]),
            subresource in select(&["", "log", "scale"][..]), name in select(&["", "a", "b"][..])) {
            prop_assume!(covers(&owner, [&wanted]).unwrap().is_empty());
            let asked = Attributes::Resource(Resource { verb, group, resource, subresource, name, namespace: "" });
            if rule_allows(&wanted, &asked) {
                prop_assert!(owner.iter().any(|own| rule_allows(own, &asked)), "{:?}", asked);
            }
        }
    }

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn what_is_missing_is_told_as_kubernetes_tells_it() {
        let wanted = [
            PolicyRule {
                verbs: list(&["get", "list"]),
                api_groups: list(&["apps"]),
                resources: list(&["deployments"]),
                resource_names: Vec::new(),
                non_resource_urls: Vec::new(),
            },
            PolicyRule {
                verbs: list(&["get"]),
                api_groups: list(&[""]),
                resources: list(&["secrets"]),
                resource_names: list(&["a", "b"]),
                non_resource_urls: Vec::new(),
            },
            PolicyRule {
                verbs: list(&["get"]),
                api_groups: Vec::new(),
                resources: Vec::new(),
                resource_names: Vec::new(),
                non_resource_urls: list(&["/x"]),
            },
        ];
        let lines = covers(&[], &wanted).unwrap().lines();
        let want = [
            r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
            r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}"#,
            r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
        ];
        assert_eq!(lines, want.join("\n"));
    }

    #[test]
    fn a_rule_of_a_billion_combinations_is_refused() {
        let many = |prefix: &str| (0..1_000).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let rule = PolicyRule {
            verbs: many("v"),
            api_groups: many("g"),
            resources: many("r"),
            resource_names: many("n"),
            non_resource_urls: Vec::new(),
        };
        assert_eq!(covers([&rule], [&rule]), Err(TooComplex));
        assert_eq!(covers([], [&rule]), Err(TooComplex));
        let urls = PolicyRule {
            verbs: many("v"),
            non_resource_urls: many("/"),
            ..PolicyRule {
                verbs: Vec::new(),
                api_groups: Vec::new(),
                resources: Vec::new(),
                resource_names: Vec::new(),
                non_resource_urls: Vec::new(),
            }
        };
        assert!(covers([&urls], [&urls]).unwrap().is_empty());
    }
}
