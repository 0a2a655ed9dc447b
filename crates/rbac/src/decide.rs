//! Decisions: which of a user's bindings allows a request, and what all of them together allow.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

use roadstead_api::rbac::{PolicyRule, RoleRef, Subject};

use crate::matching::rule_allows;
use crate::policy::{Binding, Bindings, Pieces, Policy};
use crate::{Attributes, User, quoted};

/// Of bindings to roles that do not exist so many are named.
const MOST_ERRORS: usize = 10;
/// So many rules are listed for a user in a namespace.
const MOST_RULES: usize = 20_000;

/// Whether something is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is.
    pub allowed: bool,
    /// By which binding; where it is not allowed, which roles of the user's bindings do not exist. May be empty.
    pub reason: String,
}

/// All that a user may do in a namespace, cluster-wide rights included.
#[derive(Debug)]
pub struct UserRules<'a> {
    /// The rules of all roles that the user is bound to, each role once.
    pub rules: Vec<&'a PolicyRule>,
    /// Why rules may be missing, as the API says it; empty where none are.
    pub error: String,
    /// Whether there are more rules than are listed.
    pub incomplete: bool,
}

/// Where a rule comes from: the binding, with its name and namespace, and which of its subjects the user is.
pub(crate) struct Source<'a> {
    name: &'a str,
    namespace: &'a str,
    binding: &'a Binding,
    subject: usize,
}

impl Policy {
    /// Whether a user may do this, and by which binding.
    #[must_use]
    pub fn authorize(&self, user: User<'_>, asked: &Attributes<'_>) -> Decision {
        if user.is_master() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut errors = Vec::new();
        let allowed = self.visit(user, namespace_of(asked), |found| match found {
            Ok((source, pieces)) if allows(pieces, asked) => ControlFlow::Break(source.describe()),
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                errors.push(error);
                ControlFlow::Continue(())
            }
        });
        match allowed {
            Some(source) => Decision { allowed: true, reason: format!("RBAC: allowed by {source}") },
            None if errors.is_empty() => Decision { allowed: false, reason: String::new() },
            None => Decision { allowed: false, reason: format!("RBAC: {}", joined(errors)) },
        }
    }

    /// Whether a user may do this.
    #[must_use]
    pub fn allows(&self, user: User<'_>, asked: &Attributes<'_>) -> bool {
        user.is_master()
            || self
                .visit(user, namespace_of(asked), |found| match found {
                    Ok((_, pieces)) if allows(pieces, asked) => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                })
                .is_some()
    }

    /// All that a user may do in a namespace. Masters may do everything, and their bindings alone are told here.
    #[must_use]
    pub fn rules_for(&self, user: User<'_>, namespace: &str) -> UserRules<'_> {
        let (mut rules, mut errors, mut incomplete) = (Vec::new(), Vec::new(), false);
        self.visit(user, namespace, |found| {
            match found {
                Ok((_, pieces)) => {
                    let found = pieces.iter().flat_map(|piece| piece.iter());
                    rules.extend(found.take(MOST_RULES + 1 - rules.len()));
                }
                Err(error) => errors.push(error),
            }
            incomplete = rules.len() > MOST_RULES;
            if incomplete { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        rules.truncate(MOST_RULES);
        UserRules { rules, error: if errors.is_empty() { String::new() } else { joined(errors) }, incomplete }
    }

    /// Goes through the roles that a user is bound to, those of the cluster first, until `each` breaks off. A role that several
    /// bindings name is given once: what it does not allow by the first it does not allow by the next. That keeps a decision
    /// linear in what is stored, however many bindings name a large role.
    pub(crate) fn visit<'a, B>(
        &'a self,
        user: User<'_>,
        namespace: &str,
        mut each: impl FnMut(Result<(&Source<'_>, Pieces<'a>), String>) -> ControlFlow<B>,
    ) -> Option<B> {
        let mut seen: HashSet<(bool, &str, &str)> = HashSet::new();
        let local = (!namespace.is_empty()).then(|| self.bindings(namespace)).flatten();
        let scopes: [(&str, Option<&'a Bindings>); 2] =
            [("", Some(self.cluster_bindings())), (namespace, local)];
        for (namespace, bindings) in scopes {
            let Some(bindings) = bindings else { continue };
            for (name, subject) in bindings.of(user) {
                let Some(binding) = bindings.get(name) else { continue };
                let role: &RoleRef = &binding.role;
                // Validation refuses a ClusterRoleBinding to a Role; were there one, it would not name a Role of this namespace.
                let local = !namespace.is_empty() && role.kind == "Role";
                if !seen.insert((local, &role.kind, &role.name)) {
                    continue;
                }
                let found = match self.rules_of(role, namespace) {
                    Ok(pieces) => each(Ok((&Source { name, namespace, binding, subject }, pieces))),
                    Err(error) => each(Err(error)),
                };
                if let ControlFlow::Break(answer) = found {
                    return Some(answer);
                }
            }
        }
        None
    }
}

fn namespace_of<'a>(asked: &Attributes<'a>) -> &'a str {
    match asked {
        Attributes::Resource(asked) => asked.namespace,
        Attributes::Path { .. } => "",
    }
}

fn allows(pieces: Pieces<'_>, asked: &Attributes<'_>) -> bool {
    pieces.iter().any(|piece| piece.iter().any(|rule| rule_allows(rule, asked)))
}

/// Errors as Kubernetes writes several: each once, in brackets where they are more than one.
fn joined(errors: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    let mut distinct: Vec<String> = errors.into_iter().filter(|error| seen.insert(error.clone())).collect();
    let more = distinct.len().saturating_sub(MOST_ERRORS);
    if more > 0 {
        distinct.truncate(MOST_ERRORS);
        distinct.push(format!("and {more} more"));
    }
    match &distinct[..] {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl Source<'_> {
    /// In kube-apiserver's words.
    fn describe(&self) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.to_owned())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let RoleRef { kind: role_kind, name: role, .. } = &self.binding.role;
        let subject = self.binding.subjects.get(self.subject).map(|subject| self.subject(subject));
        format!("{kind} {} of {role_kind} {} to {}", quoted(&name), quoted(role), subject.unwrap_or_default())
    }

    fn subject(&self, subject: &Subject) -> String {
        let name = match subject.kind.as_str() {
            "ServiceAccount" => {
                let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
                format!("{}/{}", subject.name, own.unwrap_or(self.namespace))
            }
            _ => subject.name.clone(),
        };
        format!("{} {}", subject.kind, quoted(&name))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use roadstead_api::KindId;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Resource};

    pub(crate) fn filled(objects: &[(KindId, &str, &str, Value)]) -> Policy {
        let mut policy = Policy::default();
        let changes = objects.iter().map(|(kind, namespace, name, object)| Change::Put {
            kind: *kind,
            namespace,
            name,
            object,
        });
        assert_eq!(policy.apply(changes), []);
        policy
    }

    fn role(verb: &str) -> Value {
        json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }] })
    }

    fn binding(kind: &str, role: &str, subjects: &Value) -> Value {
        json!({ "roleRef": { "kind": kind, "name": role }, "subjects": subjects })
    }

    fn asked<'a>(verb: &'a str, namespace: &'a str) -> Attributes<'a> {
        Attributes::Resource(Resource { verb, resource: "pods", namespace, ..Resource::default() })
    }

    fn standard() -> Policy {
        filled(&[
            (KindId::Role, "a", "reader", role("get")),
            (KindId::ClusterRole, "", "writer", role("update")),
            (KindId::ClusterRole, "", "lister", role("list")),
            (
                KindId::RoleBinding,
                "a",
                "1",
                binding(
                    "Role",
                    "reader",
                    &json!([
                { "kind": "User", "name": "joe" }, { "kind": "Group", "name": "devs" },
                { "kind": "ServiceAccount", "name": "robot" }]),
                ),
            ),
            (
                KindId::RoleBinding,
                "a",
                "2",
                binding("ClusterRole", "writer", &json!([{ "kind": "Group", "name": "devs" }])),
            ),
            (
                KindId::RoleBinding,
                "a",
                "3",
                binding("Role", "gone", &json!([{ "kind": "Group", "name": "devs" }])),
            ),
            (
                KindId::ClusterRoleBinding,
                "",
                "4",
                binding(
                    "ClusterRole",
                    "lister",
                    &json!([
                { "kind": "ServiceAccount", "name": "robot", "namespace": "a" },
                { "kind": "ServiceAccount", "name": "robot" }]),
                ),
            ),
            (
                KindId::ClusterRoleBinding,
                "",
                "5",
                binding("ClusterRole", "gone", &json!([{ "kind": "Group", "name": "devs" }])),
            ),
        ])
    }

    #[test]
    fn reasons_are_those_of_kubernetes() {
        let policy = standard();
        let devs = ["devs".to_owned()];
        let ask = |name, groups, verb, namespace| {
            let decision = policy.authorize(User { name, groups }, &asked(verb, namespace));
            assert_eq!(decision.allowed, policy.allows(User { name, groups }, &asked(verb, namespace)));
            (decision.allowed, decision.reason)
        };
        let yes = |reason: &str| (true, format!("RBAC: allowed by {reason}"));
        assert_eq!(ask("joe", &[], "get", "a"), yes(r#"RoleBinding "1/a" of Role "reader" to User "joe""#));
        assert_eq!(ask("joe", &[], "get", "b"), (false, String::new()));
        assert_eq!(ask("joe", &[], "get", ""), (false, String::new()));
        assert_eq!(ask("x", &devs, "get", "a"), yes(r#"RoleBinding "1/a" of Role "reader" to Group "devs""#));
        assert_eq!(
            ask("x", &devs, "update", "a"),
            yes(r#"RoleBinding "2/a" of ClusterRole "writer" to Group "devs""#)
        );
        let robot = "system:serviceaccount:a:robot";
        assert_eq!(
            ask(robot, &[], "get", "a"),
            yes(r#"RoleBinding "1/a" of Role "reader" to ServiceAccount "robot/a""#)
        );
        let lists = yes(r#"ClusterRoleBinding "4" of ClusterRole "lister" to ServiceAccount "robot/a""#);
        assert_eq!(ask(robot, &[], "list", "b"), lists);
        assert_eq!(ask(robot, &[], "list", ""), lists);
        assert_eq!(ask("system:serviceaccount:b:robot", &[], "list", "b"), (false, String::new()));
        let gone = r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#;
        assert_eq!(ask("x", &devs, "delete", "a"), (false, gone.to_owned()));
        let gone = r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
        assert_eq!(ask("x", &devs, "delete", ""), (false, gone.to_owned()));
        assert_eq!(ask("x", &["system:masters".to_owned()], "delete", ""), (true, String::new()));
    }

    #[test]
    fn rules_of_a_user_are_listed_once_for_each_role() {
        let policy = standard();
        let devs = ["devs".to_owned()];
        let rules = policy.rules_for(User { name: "joe", groups: &devs }, "a");
        let verbs: Vec<&str> = rules.rules.iter().flat_map(|rule| &rule.verbs).map(String::as_str).collect();
        assert_eq!(verbs, ["get", "update"]);
        assert!(rules.error.contains("not found") && !rules.incomplete);
        assert!(policy.rules_for(User { name: "joe", groups: &devs }, "b").rules.is_empty());
    }

    /// Bindings of a tenant's own to one large role do not multiply its size.
    #[test]
    fn many_bindings_to_one_large_role_cost_it_once() {
        let rules: Vec<Value> = (0..2_000)
            .map(|n| json!({ "apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get"] }))
            .collect();
        let mut objects = vec![(KindId::ClusterRole, "", "large".to_owned(), json!({ "rules": rules }))];
        let to_all = binding("ClusterRole", "large", &json!([{ "kind": "Group", "name": "all" }]));
        objects.extend((0..2_000).map(|n| (KindId::RoleBinding, "a", format!("b{n}"), to_all.clone())));
        let mut policy = Policy::default();
        policy.apply(objects.iter().map(|(kind, namespace, name, object)| Change::Put {
            kind: *kind,
            namespace,
            name,
            object,
        }));
        let groups = ["all".to_owned()];
        let mut compared = 0;
        policy.visit(User { name: "x", groups: &groups }, "a", |found| {
            compared += found.map_or(0, |(_, pieces)| pieces.iter().map(|piece| piece.len()).sum::<usize>());
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(compared, 2_000);
    }
}
