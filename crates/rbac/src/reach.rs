//! Where a user may do something: for lists that show each user the part that is theirs.

use std::ops::ControlFlow;

use crate::matching::rule_allows_some;
use crate::policy::Policy;
use crate::{Attributes, Resource, User};

/// Where a user may do something with a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Everywhere.
    All,
    /// In these namespaces, by name.
    Namespaces(Vec<String>),
}

/// With which objects of the cluster scope a user may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// With all of them.
    All,
    /// With those of these names, which need not exist.
    Names(Vec<String>),
}

impl Policy {
    /// In which namespaces a user may do this with all objects of the resource that `asked` names; its namespace and its name do
    /// not count. What a rule allows with some objects only, by their names, is not a right to a namespace.
    #[must_use]
    pub fn reach(&self, user: User<'_>, asked: Resource<'_>) -> Reach {
        let may = |namespace: &str| {
            self.allows(user, &Attributes::Resource(Resource { namespace, name: "", ..asked }))
        };
        if may("") {
            return Reach::All;
        }
        let bound = self.namespaces_of(user).into_iter();
        Reach::Namespaces(bound.filter(|name| may(name)).map(str::to_owned).collect())
    }

    /// With which objects of the cluster scope a user may do this, of the resource that `asked` names.
    #[must_use]
    pub fn named(&self, user: User<'_>, asked: Resource<'_>) -> Named {
        let asked = Resource { namespace: "", name: "", ..asked };
        if self.allows(user, &Attributes::Resource(asked)) {
            return Named::All;
        }
        let mut names = Vec::new();
        self.visit::<()>(user, "", |found| {
            for rule in found.iter().flat_map(|(_, pieces)| pieces.iter()).flat_map(|piece| piece.iter()) {
                if rule_allows_some(rule, &asked) {
                    names.extend(rule.resource_names.iter().cloned());
                }
            }
            ControlFlow::Continue(())
        });
        names.sort_unstable();
        names.dedup();
        Named::Names(names)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::KindId;
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::tests::filled;

    const CLUSTERS: Resource<'static> =
        Resource { verb: "get", group: "x", resource: "clusters", subresource: "", namespace: "", name: "" };
    const PODS: Resource<'static> =
        Resource { verb: "list", group: "", resource: "pods", subresource: "", namespace: "", name: "" };

    fn policy() -> Policy {
        let role = |rules: Value| json!({ "rules": rules });
        let pods = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }]);
        let one =
            json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"], "resourceNames": ["a"] }]);
        let clusters = json!([
            { "apiGroups": ["x"], "resources": ["clusters"], "verbs": ["get"], "resourceNames": ["edge-2", "edge-1"] },
            { "apiGroups": ["x"], "resources": ["clusters"], "verbs": ["use"], "resourceNames": ["edge-3"] },
            { "apiGroups": ["y"], "resources": ["clusters"], "verbs": ["get"], "resourceNames": ["edge-4"] },
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["edge-1"] },
        ]);
        let binding = |kind: &str, role: &str, user: &str| json!({ "roleRef": { "kind": kind, "name": role }, "subjects": [{ "kind": "User", "name": user }] });
        let objects = [
            (KindId::ClusterRole, "", "pods", role(pods)),
            (KindId::ClusterRole, "", "one", role(one)),
            (KindId::ClusterRole, "", "clusters", role(clusters)),
            (KindId::RoleBinding, "b", "jane", binding("ClusterRole", "pods", "jane")),
            (KindId::RoleBinding, "a", "jane", binding("ClusterRole", "pods", "jane")),
            (KindId::RoleBinding, "c", "jane", binding("ClusterRole", "one", "jane")),
            (KindId::RoleBinding, "d", "jane", binding("ClusterRole", "clusters", "jane")),
            (KindId::RoleBinding, "e", "ada", binding("ClusterRole", "pods", "ada")),
            (KindId::ClusterRoleBinding, "", "ada", binding("ClusterRole", "pods", "ada")),
            (KindId::ClusterRoleBinding, "", "joe", binding("ClusterRole", "clusters", "joe")),
        ];
        filled(&objects)
    }

    #[test]
    fn namespaces_in_which_somebody_may_list_all() {
        let policy = policy();
        let of = |name| policy.reach(User { name, groups: &[] }, PODS);
        assert_eq!(of("jane"), Reach::Namespaces(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(of("ada"), Reach::All);
        assert_eq!(of("joe"), Reach::Namespaces(Vec::new()));
        let masters = [crate::MASTERS.to_owned()];
        assert_eq!(policy.reach(User { name: "joe", groups: &masters }, PODS), Reach::All);
    }

    #[test]
    fn names_of_what_somebody_may_get() {
        let policy = policy();
        let of = |name| policy.named(User { name, groups: &[] }, CLUSTERS);
        assert_eq!(of("joe"), Named::Names(vec!["edge-1".to_owned(), "edge-2".to_owned()]));
        // A binding in a namespace says nothing of what is in none.
        assert_eq!(of("jane"), Named::Names(Vec::new()));
        let masters = [crate::MASTERS.to_owned()];
        assert_eq!(policy.named(User { name: "jane", groups: &masters }, CLUSTERS), Named::All);
    }
}
