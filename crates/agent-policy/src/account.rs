//! Service accounts: which may be acted as, and what rights one may not have.

use serde::Deserialize;

/// A service account of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// Whether the apiserver would take it for a service account. Another text behind `system:serviceaccount:` is a plain
    /// user's name to it.
    pub(crate) fn is_well_formed(&self) -> bool {
        is_dns(&self.namespace, 63, false) && is_dns(&self.name, 253, true)
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn is_dns(text: &str, max: usize, dots: bool) -> bool {
    !text.is_empty()
        && text.len() <= max
        && text
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || (dots && c == b'.'))
}

/// What an account may do in one namespace: `status` of a SelfSubjectRulesReview.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rights {
    /// Rules about resources.
    pub resource_rules: Vec<ResourceRule>,
    /// Not all rules are listed.
    pub incomplete: bool,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRule {
    /// As `get`; `*` for all.
    pub verbs: Vec<String>,
    /// As `apps`; empty for the core group, `*` for all.
    pub api_groups: Vec<String>,
    /// As `deployments` or `pods/exec`; `*` for all.
    pub resources: Vec<String>,
}

/// Cluster-scoped resources that may be written by an account that has no rights in the agent's namespace: by none of them the
/// account can come by such rights. `namespaces` are not here: who may change one may delete the agent's.
const HARMLESS: [(&str, &str); 4] = [
    ("storage.k8s.io", "storageclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("networking.k8s.io", "ingressclasses"),
    ("snapshot.storage.k8s.io", "volumesnapshotclasses"),
];

impl Rights {
    /// The first right that counts, for a message; none where there is none. What everyone may (ask about oneself) and
    /// reading of what is not a credential do not count.
    pub(crate) fn first_that_counts(&self) -> Option<String> {
        for rule in &self.resource_rules {
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    if let Some(verb) = rule.verbs.iter().find(|verb| counts(verb, group, resource)) {
                        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                        return Some(format!("{verb} {resource}{group}"));
                    }
                }
            }
        }
        self.incomplete.then(|| "rights that the apiserver cannot list".to_owned())
    }
}

fn counts(verb: &str, group: &str, resource: &str) -> bool {
    match verb {
        "get" | "list" | "watch" => reads_credentials(group, resource),
        "create" if group == "authorization.k8s.io" || group == "authentication.k8s.io" => resource == "*",
        "create" if group.is_empty() && resource == "namespaces" => false,
        _ => !HARMLESS.contains(&(group, resource)),
    }
}

/// Secrets, and the subresources by which a GET is a way into a container, a node or a Service.
fn reads_credentials(group: &str, resource: &str) -> bool {
    let core = group.is_empty() || group == "*";
    let ways_in = ["/exec", "/attach", "/portforward", "/proxy"];
    core && (resource == "*"
        || resource == "secrets"
        || resource == "*/*"
        || ways_in.iter().any(|way| resource.ends_with(way)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Account, Rights};

    fn rights(rules: &serde_json::Value) -> Rights {
        serde_json::from_value(json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false}))
            .expect("rights")
    }

    #[test]
    fn what_everyone_may_is_no_right_in_the_namespace() {
        let all = rights(&json!([
            {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
             "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
            {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
            {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["nodes", "pods", "configmaps"]},
            {"verbs": ["create"], "apiGroups": [""], "resources": ["namespaces"]},
            {"verbs": ["*"], "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"]},
        ]));
        assert_eq!(all.first_that_counts(), None);
    }

    #[test]
    fn what_leads_to_the_policy_or_to_the_agents_credentials_counts() {
        for (verb, group, resource) in [
            ("*", "*", "*"),
            ("get", "", "secrets"),
            ("get", "*", "*"),
            ("list", "", "*"),
            ("get", "", "pods/exec"),
            ("get", "", "nodes/proxy"),
            ("update", "", "configmaps"),
            ("patch", "apps", "deployments"),
            ("create", "", "pods"),
            ("create", "", "serviceaccounts/token"),
            ("impersonate", "", "serviceaccounts"),
            ("delete", "", "namespaces"),
            ("bind", "rbac.authorization.k8s.io", "roles"),
            ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
            ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            ("create", "example.com", "widgets"),
            ("create", "authorization.k8s.io", "*"),
        ] {
            let rule =
                json!([{"verbs": ["watch", verb], "apiGroups": [group], "resources": ["pods", resource]}]);
            let found = rights(&rule).first_that_counts();
            assert!(found.is_some(), "{verb} {resource} of {group}");
        }
        let incomplete = Rights { incomplete: true, ..Rights::default() };
        assert!(incomplete.first_that_counts().is_some());
    }

    #[test]
    fn a_name_that_is_no_accounts_is_not_well_formed() {
        let account = |namespace: &str, name: &str| {
            Account { namespace: namespace.to_owned(), name: name.to_owned() }.is_well_formed()
        };
        assert!(account("apps", "deployer.v1"));
        for (namespace, name) in [("", "a"), ("a", ""), ("a", "b:c"), ("a:b", "c"), ("A", "b"), ("a.b", "c")]
        {
            assert!(!account(namespace, name), "{namespace} {name}");
        }
    }
}
