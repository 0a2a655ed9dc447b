//! ClusterRoles that are put together from others, by labels.
//!
//! kube-controller-manager writes the rules of those that a role selects into it, again and again until nothing changes
//! any more. Here the same is found at once: the rules of an aggregated role are those of all roles that are not aggregated
//! and can be reached from it by selectors. A cycle of aggregated roles adds nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use roadstead_api::rbac::{LabelSelector, PolicyRule};

use crate::policy::{ClusterRole, Pieces};

/// Comparisons of a role's labels with a selector, for all aggregated roles together. What is beyond is left out.
const MOST_COMPARISONS: usize = 1_000_000;
/// Selected roles that are gone through to find what all aggregated roles are made of. What is beyond is left out.
const MOST_PARTS: usize = 1_000_000;

/// What each aggregated role is made of, in the order in which Kubernetes puts it together.
#[derive(Debug, Default)]
pub(crate) struct Parts(HashMap<String, Vec<Arc<[PolicyRule]>>>);

impl Parts {
    pub(crate) fn of(&self, name: &str) -> Pieces<'_> {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The rules of these pieces, each once.
pub(crate) fn each_once(pieces: Pieces<'_>) -> impl Iterator<Item = &PolicyRule> {
    let mut seen = HashSet::new();
    let rules = pieces.iter().flat_map(|piece| piece.iter());
    rules.filter(move |rule| {
        seen.insert((
            &rule.verbs,
            &rule.api_groups,
            &rule.resources,
            &rule.resource_names,
            &rule.non_resource_urls,
        ))
    })
}

/// Finds out what all aggregated roles are made of.
pub(crate) fn resolve(roles: &BTreeMap<String, ClusterRole>) -> Parts {
    let mut by_label: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
    for (name, role) in roles {
        for (key, value) in &role.labels {
            by_label.entry((key, value)).or_default().push(name);
        }
    }
    let mut left = MOST_COMPARISONS;
    let mut selected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, role) in roles {
        let Some(selectors) = &role.selectors else { continue };
        let mut found = Vec::new();
        let mut once = BTreeSet::new();
        for selector in selectors {
            for other in matching(selector, roles, &by_label, &mut left) {
                if other != name && once.insert(other) {
                    found.push(other);
                }
            }
        }
        selected.insert(name, found);
    }
    let mut room = MOST_PARTS;
    let parts = selected.keys().map(|name| ((*name).to_owned(), reached(name, roles, &selected, &mut room)));
    Parts(parts.collect())
}

/// The names of the roles that a selector selects, in their order.
fn matching<'a>(
    selector: &LabelSelector,
    roles: &'a BTreeMap<String, ClusterRole>,
    by_label: &HashMap<(&str, &str), Vec<&'a str>>,
    left: &mut usize,
) -> Vec<&'a str> {
    let mut matches = |name: &'a str| {
        let cost = 1 + selector.match_labels.len() + selector.match_expressions.len();
        *left = left.saturating_sub(cost);
        *left > 0 && roles.get(name).is_some_and(|role| selector.selects(&role.labels))
    };
    match selector.match_labels.iter().next() {
        // Only those that have one of the labels at all are compared.
        Some((key, value)) => {
            let candidates = by_label.get(&(key.as_str(), value.as_str())).into_iter().flatten();
            candidates.copied().filter(|name| matches(name)).collect()
        }
        None => roles.keys().map(String::as_str).filter(|name| matches(name)).collect(),
    }
}

/// The rules of the roles that can be reached from one.
fn reached<'a>(
    from: &'a str,
    roles: &BTreeMap<String, ClusterRole>,
    selected: &BTreeMap<&'a str, Vec<&'a str>>,
    room: &mut usize,
) -> Vec<Arc<[PolicyRule]>> {
    let mut seen = HashSet::from([from]);
    let mut found = Vec::new();
    let mut open: Vec<&'a str> = Vec::new();
    // The first of those that a role selects comes first.
    let mut through = |name: &str, open: &mut Vec<&'a str>| {
        let selected = selected.get(name).map_or(&[][..], Vec::as_slice);
        let some = selected.len().min(*room);
        *room -= some;
        open.extend(selected.iter().take(some).rev());
    };
    through(from, &mut open);
    while let Some(name) = open.pop() {
        if !seen.insert(name) {
            continue;
        }
        match roles.get(name) {
            Some(role) if role.selectors.is_some() => through(name, &mut open),
            Some(role) if !role.rules.is_empty() => found.push(Arc::clone(&role.rules)),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use roadstead_api::KindId;
    use serde_json::{Value, json};

    use crate::{Change, Policy};

    fn policy(roles: &[(&str, Value)]) -> Policy {
        let mut policy = Policy::default();
        let changes = roles.iter().map(|(name, object)| Change::Put {
            kind: KindId::ClusterRole,
            namespace: "",
            name,
            object,
        });
        assert_eq!(policy.apply(changes), []);
        policy
    }

    fn leaf(labels: &Value, verb: &str) -> Value {
        json!({ "metadata": { "labels": labels },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }] })
    }

    fn aggregated(labels: &Value, selectors: &Value) -> Value {
        json!({ "metadata": { "labels": labels }, "aggregationRule": { "clusterRoleSelectors": selectors },
            "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["stored-last-time"] }] })
    }

    fn verbs(policy: &Policy, name: &str) -> Vec<String> {
        policy.aggregated(name).unwrap().into_iter().flat_map(|rule| rule.verbs).collect()
    }

    #[test]
    fn selectors_choose_roles() {
        let roles = |selectors: Value| {
            policy(&[
                ("all", aggregated(&json!({ "to": "none" }), &selectors)),
                ("a", leaf(&json!({ "to": "view", "tier": "1" }), "a")),
                ("b", leaf(&json!({ "to": "view", "tier": "2" }), "b")),
                ("c", leaf(&json!({ "to": "edit" }), "c")),
                ("c2", leaf(&json!({ "to": "edit" }), "c")),
                ("d", leaf(&json!({}), "d")),
            ])
        };
        let expression = |operator: &str, values: Value| json!([{ "matchExpressions": [{ "key": "to", "operator": operator, "values": values }] }]);
        for (selectors, want) in [
            (json!([{ "matchLabels": { "to": "view" } }]), vec!["a", "b"]),
            (json!([{ "matchLabels": { "to": "view", "tier": "2" } }]), vec!["b"]),
            (
                json!([{ "matchLabels": { "to": "edit" } }, { "matchLabels": { "to": "view" } }]),
                vec!["c", "a", "b"],
            ),
            (expression("In", json!(["edit", "x"])), vec!["c"]),
            (expression("NotIn", json!(["edit"])), vec!["a", "b", "d"]),
            (expression("Exists", json!([])), vec!["a", "b", "c"]),
            (expression("DoesNotExist", json!([])), vec!["d"]),
            (expression("Gt", json!(["1"])), vec![]),
            (expression("NotIn", json!([])), vec![]),
            (json!([{}]), vec!["a", "b", "c", "d"]),
            (json!([]), vec![]),
        ] {
            assert_eq!(verbs(&roles(selectors.clone()), "all"), want, "{selectors}");
        }
    }

    #[test]
    fn aggregated_roles_of_aggregated_roles_and_in_cycles() {
        let to = |label: &str| json!([{ "matchLabels": { "to": label } }]);
        let policy = policy(&[
            ("admin", aggregated(&json!({ "to": "nobody" }), &to("admin"))),
            ("edit", aggregated(&json!({ "to": "admin" }), &to("edit"))),
            (
                "view",
                aggregated(
                    &json!({ "to": "edit" }),
                    &json!([
                { "matchLabels": { "to": "view" } }, { "matchLabels": { "to": "admin" } }]),
                ),
            ),
            ("leaf", leaf(&json!({ "to": "view" }), "get")),
            ("extra", leaf(&json!({ "to": "admin" }), "list")),
        ]);
        assert_eq!(verbs(&policy, "admin"), ["get", "list"]);
        assert_eq!(verbs(&policy, "view"), ["get", "list"]);
        assert_eq!(verbs(&policy, "edit"), ["get", "list"]);
        assert!(policy.aggregated("leaf").is_none());
    }

    /// A thousand roles that each select all: a million pairs would be kept, and compared again with each change.
    #[test]
    fn roles_that_all_select_all_are_bounded() {
        let everything = aggregated(&json!({ "a": "b" }), &json!([{}]));
        let names: Vec<String> = (0..1_000).map(|number| format!("r{number}")).collect();
        let plain = leaf(&json!({}), "get");
        let mut roles: Vec<(&str, Value)> =
            names.iter().map(|name| (name.as_str(), everything.clone())).collect();
        roles.push(("plain", plain));
        let policy = policy(&roles);
        let parts: usize = names.iter().map(|name| policy.aggregated(name).unwrap().len()).sum();
        assert!(parts <= 1_000, "{parts}");
    }

    #[test]
    fn what_is_stored_is_out_of_date_until_it_is_what_the_role_is_made_of() {
        let mut role = aggregated(&json!({}), &json!([{ "matchLabels": { "a": "b" } }]));
        let parts =
            [("part", leaf(&json!({ "a": "b" }), "get")), ("other", leaf(&json!({ "a": "b" }), "list"))];
        let all = |role: &Value| policy(&[("role", role.clone()), parts[0].clone(), parts[1].clone()]);
        let before = all(&role);
        assert_eq!(before.out_of_date(), ["role"]);
        role["rules"] = serde_json::to_value(before.aggregated("role").unwrap()).unwrap();
        let after = all(&role);
        assert!(after.out_of_date().is_empty());
        // What is stored to be shown takes no room from what counts.
        assert_eq!(after.size(), before.size());
        // A part that is gone, and one that says something else.
        assert_eq!(policy(&[("role", role.clone()), parts[0].clone()]).out_of_date().len(), 1);
        let changed = policy(&[("role", role), parts[0].clone(), ("other", leaf(&json!({ "a": "b" }), "*"))]);
        assert_eq!(changed.out_of_date().len(), 1);
    }
}
