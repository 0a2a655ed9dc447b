//! What may be written into roles and bindings: nobody grants what they may not do themselves, unless they hold the verb
//! `escalate` on the role or `bind` on the role that is bound.

use roadstead_api::KindId;
use roadstead_api::rbac::{GROUP, PolicyRule, RoleRef};
use serde::Deserialize;
use serde_json::Value;

use crate::cover::{TooComplex, covers};
use crate::policy::Policy;
use crate::{Attributes, Resource, User, quoted, quoted_list};

/// A write of an object.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty for those of the cluster scope.
    pub namespace: &'a str,
    /// The name in the request's path; empty for a `create`, which has none there.
    pub name: &'a str,
    /// The object as it is to be, in `rbac.authorization.k8s.io/v1`.
    pub object: &'a Value,
    /// The object as it is; none where it is new.
    pub before: Option<&'a Value>,
    /// What the writer may do besides what is stored.
    pub held: &'a [PolicyRule],
}

/// Why an object may not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It grants what the writer may not do.
    #[error("{0}")]
    Escalation(String),
    /// It binds a role that does not exist, so that nobody can tell what it would grant.
    #[error("{0}")]
    RoleNotFound(String),
    /// What it grants cannot be compared with what the writer may do.
    #[error(transparent)]
    TooComplex(#[from] TooComplex),
    /// It is not what its kind says.
    #[error("read the rules: {0}")]
    Malformed(String),
}

/// The parts of a role that count here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Granting {
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
}

impl Policy {
    /// Whether a user may write an object of RBAC's kinds like this. Objects of other kinds grant nothing.
    ///
    /// # Errors
    /// Where the user may not.
    pub fn check_grant(&self, user: User<'_>, write: &Write<'_>) -> Result<(), GrantError> {
        if user.is_master() {
            return Ok(());
        }
        match write.kind {
            KindId::Role | KindId::ClusterRole => self.check_role(user, write),
            KindId::RoleBinding | KindId::ClusterRoleBinding => self.check_binding(user, write),
            _ => Ok(()),
        }
    }

    fn check_role(&self, user: User<'_>, write: &Write<'_>) -> Result<(), GrantError> {
        let escalate = Resource {
            verb: "escalate",
            group: GROUP,
            resource: if write.kind == KindId::Role { "roles" } else { "clusterroles" },
            namespace: write.namespace,
            name: write.name,
            ..Resource::default()
        };
        if self.allows(user, &Attributes::Resource(escalate)) || changes_ownership_only(write) {
            return Ok(());
        }
        let granted = Granting::deserialize(write.object).map_err(|error| malformed(&error))?;
        self.confirm(user, write, write.namespace, &granted.rules.unwrap_or_default())?;
        let gathers = |object: &Value| {
            object["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
        };
        // What selects others can gather anything, and what selected them may be kept from becoming less.
        if write.kind == KindId::ClusterRole
            && (gathers(write.object) || write.before.is_some_and(gathers))
            && self.confirm(user, write, "", &everything()).is_err()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(GrantError::Escalation(why.to_owned()));
        }
        Ok(())
    }

    fn check_binding(&self, user: User<'_>, write: &Write<'_>) -> Result<(), GrantError> {
        if changes_ownership_only(write) {
            return Ok(());
        }
        let role = RoleRef::deserialize(&write.object["roleRef"]).map_err(|error| malformed(&error))?;
        let bind = Resource {
            verb: "bind",
            group: GROUP,
            resource: if role.kind == "Role" { "roles" } else { "clusterroles" },
            namespace: write.namespace,
            name: &role.name,
            ..Resource::default()
        };
        if self.allows(user, &Attributes::Resource(bind)) {
            return Ok(());
        }
        let pieces = self.rules_of(&role, write.namespace).map_err(GrantError::RoleNotFound)?;
        self.confirm(user, write, write.namespace, pieces.iter().flat_map(|piece| piece.iter()))
    }

    /// Whether a user may do all that these rules allow, in a namespace or everywhere.
    fn confirm<'a>(
        &self,
        user: User<'_>,
        write: &Write<'_>,
        namespace: &str,
        rules: impl IntoIterator<Item = &'a PolicyRule>,
    ) -> Result<(), GrantError> {
        let own = self.rules_for(user, namespace);
        let missing = covers(own.rules.into_iter().chain(write.held), rules)?;
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(user.name),
            quoted_list(user.groups.iter().map(String::as_str)),
            missing.lines(),
        );
        if !own.error.is_empty() {
            why.push_str("; resolution errors: [");
            why.push_str(&own.error);
            why.push(']');
        }
        Err(GrantError::Escalation(why))
    }
}

fn malformed(error: &serde_json::Error) -> GrantError {
    GrantError::Malformed(error.to_string())
}

/// What is only done so that an object can be deleted with its owner grants nothing.
fn changes_ownership_only(write: &Write<'_>) -> bool {
    const IGNORED: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "resourceVersion"];
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !IGNORED.contains(&key.as_str()));
        }
        object
    };
    write.before.is_some_and(|before| bare(before) == bare(write.object))
}

/// All that there is to grant.
fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    let none = || PolicyRule {
        verbs: all(),
        api_groups: Vec::new(),
        resources: Vec::new(),
        resource_names: Vec::new(),
        non_resource_urls: Vec::new(),
    };
    [
        PolicyRule { api_groups: all(), resources: all(), ..none() },
        PolicyRule { non_resource_urls: all(), ..none() },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Change;

    /// Jane may read pods and write roles in `a`, may bind ClusterRole `free` there, and may write any role with `escalate`
    /// named `hers`.
    fn policy() -> Policy {
        let rule = |group: &str, resource: &str, verbs: &[&str], names: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names });
        let role = json!({ "rules": [
            rule("", "pods", &["get", "list"], &[]),
            rule(GROUP, "clusterroles", &["bind"], &["free"]),
            rule(GROUP, "roles", &["escalate"], &["hers"]),
        ] });
        let subjects = json!([{ "kind": "User", "name": "jane" }]);
        let binding = json!({ "roleRef": { "kind": "Role", "name": "janes" }, "subjects": subjects });
        let free = json!({ "rules": [rule("*", "*", &["*"], &[])] });
        let small = json!({ "rules": [rule("", "pods", &["get"], &["x"])] });
        let mut policy = Policy::default();
        let put = |kind, namespace, name, object| Change::Put { kind, namespace, name, object };
        let errors = policy.apply([
            put(KindId::Role, "a", "janes", &role),
            put(KindId::RoleBinding, "a", "janes", &binding),
            put(KindId::ClusterRole, "", "free", &free),
            put(KindId::ClusterRole, "", "all", &free),
            put(KindId::ClusterRole, "", "small", &small),
        ]);
        assert_eq!(errors, []);
        policy
    }

    fn jane() -> User<'static> {
        User { name: "jane", groups: &[] }
    }

    #[test]
    fn roles_hold_at_most_what_their_author_may_do() {
        let policy = policy();
        let role =
            |verb: &str| json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }] });
        let (get, delete) = (role("get"), role("delete"));
        let write = |namespace, name, object| Write {
            kind: KindId::Role,
            namespace,
            name,
            object,
            before: None,
            held: &[],
        };
        assert_eq!(policy.check_grant(jane(), &write("a", "", &get)), Ok(()));
        let refused = policy.check_grant(jane(), &write("a", "", &delete)).unwrap_err().to_string();
        assert_eq!(
            refused,
            "user \"jane\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}"
        );
        assert!(policy.check_grant(jane(), &write("b", "", &get)).is_err());
        assert_eq!(policy.check_grant(jane(), &write("a", "hers", &delete)), Ok(()));
        let masters = ["system:masters".to_owned()];
        let master = User { name: "x", groups: &masters };
        assert_eq!(policy.check_grant(master, &write("b", "", &delete)), Ok(()));
        // Only its owners change: the role stays what it was.
        let mut owned = delete.clone();
        owned["metadata"] = json!({ "ownerReferences": [{ "name": "x" }] });
        let before = json!({ "metadata": {}, "rules": delete["rules"] });
        let change = Write { before: Some(&before), ..write("a", "", &owned) };
        assert_eq!(policy.check_grant(jane(), &change), Ok(()));
        let change = Write { before: Some(&get), ..write("a", "", &delete) };
        assert!(policy.check_grant(jane(), &change).is_err());
    }

    #[test]
    fn what_is_held_besides_what_is_stored_counts() {
        let policy = policy();
        let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["delete"] });
        let (object, held) = (json!({ "rules": [rule] }), [PolicyRule::deserialize(&rule).unwrap()]);
        let write = Write {
            kind: KindId::Role,
            namespace: "b",
            name: "",
            object: &object,
            before: None,
            held: &held,
        };
        assert_eq!(policy.check_grant(jane(), &write), Ok(()));
        assert!(policy.check_grant(jane(), &Write { held: &[], ..write }).is_err());
    }

    #[test]
    fn bindings_give_at_most_what_their_author_may_do_or_bind() {
        let policy = policy();
        let binding =
            |role: &str| json!({ "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role } });
        let check = |kind, namespace, role| {
            let object = binding(role);
            let write = Write { kind, namespace, name: "", object: &object, before: None, held: &[] };
            policy.check_grant(jane(), &write)
        };
        assert_eq!(check(KindId::RoleBinding, "a", "small"), Ok(()));
        assert_eq!(check(KindId::RoleBinding, "a", "free"), Ok(()));
        assert!(matches!(check(KindId::RoleBinding, "a", "all"), Err(GrantError::Escalation(_))));
        assert!(matches!(check(KindId::RoleBinding, "b", "free"), Err(GrantError::Escalation(_))));
        assert!(matches!(check(KindId::ClusterRoleBinding, "", "small"), Err(GrantError::Escalation(_))));
        let missing = check(KindId::RoleBinding, "a", "none").unwrap_err();
        assert_eq!(missing.to_string(), r#"clusterrole.rbac.authorization.k8s.io "none" not found"#);
    }

    #[test]
    fn aggregation_is_for_those_who_may_do_everything() {
        let policy = policy();
        let object =
            json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
        let plain = json!({ "rules": [] });
        let write = |object, before| Write {
            kind: KindId::ClusterRole,
            namespace: "",
            name: "x",
            object,
            before,
            held: &[],
        };
        for write in [write(&object, None), write(&object, Some(&plain)), write(&plain, Some(&object))] {
            let refused = policy.check_grant(jane(), &write).unwrap_err().to_string();
            assert_eq!(refused, "must have cluster-admin privileges to use the aggregationRule");
        }
        assert_eq!(policy.check_grant(jane(), &write(&plain, Some(&plain))), Ok(()));
    }
}
