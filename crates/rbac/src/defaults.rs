//! The ClusterRoles that every hub has, as Kubernetes has its own, and how those that are there already are brought up to date.

use roadstead_api::rbac::{GROUP, PolicyRule};
use roadstead_api::{KINDS, Kind, KindId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::MASTERS;
use crate::cover::covers;

/// The annotation by which an object is left as it is: `"false"`.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// The role to read by which keys tokens of service accounts are verified, and where that is said.
const ISSUER_DISCOVERY: &str = "system:service-account-issuer-discovery";
const ISSUER_PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
];

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// Rules over kinds of the registry, one for each API group, over their subresources too where they are named.
fn rules(verbs: &[&str], kinds: impl Fn(&Kind) -> bool, subresources: &[&str]) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for kind in KINDS.iter().filter(|kind| kinds(kind)) {
        for version in kind.versions {
            if !groups.iter().any(|(group, _)| *group == version.group) {
                groups.push((version.group, Vec::new()));
            }
            let Some((_, resources)) = groups.iter_mut().find(|(group, _)| *group == version.group) else {
                continue;
            };
            if !resources.iter().any(|resource| resource == kind.plural) {
                resources.push(kind.plural.to_owned());
                let subresources = subresources.iter().filter(|name| has(kind, name));
                resources.extend(subresources.map(|name| format!("{}/{name}", kind.plural)));
            }
        }
    }
    let rules = groups
        .into_iter()
        .map(|(group, resources)| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs }));
    rules.collect()
}

/// Whether a kind has a subresource.
fn has(kind: &Kind, subresource: &str) -> bool {
    match subresource {
        "status" => kind.status,
        "confirm" => kind.id.is_applier(),
        "artifact" => kind.id == KindId::ExternalArtifact,
        _ => false,
    }
}

/// What belongs to a tenant: what is fetched, built, delivered and told.
fn is_tenants(kind: &Kind) -> bool {
    kind.namespaced()
        && !kind.group().is_empty()
        && kind.group() != GROUP
        && !matches!(kind.id, KindId::ManagementCluster | KindId::ReferenceGrant)
}

/// The ReferenceGrants of a namespace: they give rights, and those are for its admins to give.
fn reference_grants(verbs: &[&str]) -> Vec<Value> {
    rules(verbs, |kind| kind.id == KindId::ReferenceGrant, &[])
}

fn role(name: &str, labels: &[&str], rules: &[Value]) -> (KindId, String, Value) {
    (KindId::ClusterRole, name.to_owned(), json!({ "metadata": metadata(name, labels), "rules": rules }))
}

fn aggregated(name: &str, labels: &[&str]) -> (KindId, String, Value) {
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
    let mut selected = Map::new();
    selected.insert(label, "true".into());
    let rule = json!({ "clusterRoleSelectors": [{ "matchLabels": selected }] });
    let object = json!({ "metadata": metadata(name, labels), "aggregationRule": rule });
    (KindId::ClusterRole, name.to_owned(), object)
}

fn metadata(name: &str, to: &[&str]) -> Value {
    let mut labels = Map::new();
    labels.insert(BOOTSTRAPPING.to_owned(), "rbac-defaults".into());
    for to in to {
        labels.insert(format!("rbac.authorization.k8s.io/aggregate-to-{to}"), "true".into());
    }
    json!({ "name": name, "labels": labels, "annotations": { AUTOUPDATE: "true" } })
}

/// All objects that every hub has: kind, name, object. Those that others stand on come first.
#[must_use]
pub fn built_in() -> Vec<(KindId, String, Value)> {
    let everything = [rule(&["*"], "*", &["*"]), json!({ "nonResourceURLs": ["*"], "verbs": ["*"] })];
    vec![
        role("cluster-admin", &[], &everything),
        bound("cluster-admin", MASTERS),
        aggregated("admin", &[]),
        aggregated("edit", &["admin"]),
        aggregated("view", &["edit"]),
        role("system:aggregate-to-admin", &["admin"], &admin()),
        role("system:aggregate-to-edit", &["edit"], &edit()),
        role("system:aggregate-to-view", &["view"], &view()),
        role("fleet-admin", &[], &fleet_admin()),
        role("cluster-operator", &[], &cluster_operator()),
        role("system:auth-delegator", &[], &auth_delegator()),
        role(ISSUER_DISCOVERY, &[], &[json!({ "nonResourceURLs": ISSUER_PATHS, "verbs": ["get"] })]),
        bound(ISSUER_DISCOVERY, "system:serviceaccounts"),
    ]
}

/// Asking whom a token stands for, and what somebody may do.
fn auth_delegator() -> Vec<Value> {
    vec![
        rule(&["create"], "authentication.k8s.io", &["tokenreviews"]),
        rule(&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
    ]
}

/// A binding of the role of that name, under the same name, to a group.
fn bound(name: &str, group: &str) -> (KindId, String, Value) {
    let subjects = json!([{ "kind": "Group", "apiGroup": GROUP, "name": group }]);
    let reference = json!({ "apiGroup": GROUP, "kind": "ClusterRole", "name": name });
    let object = json!({ "metadata": metadata(name, &[]), "roleRef": reference, "subjects": subjects });
    (KindId::ClusterRoleBinding, name.to_owned(), object)
}

/// Reading all of a namespace but its Secrets, and who may do what in it.
fn view() -> Vec<Value> {
    let mut all = rules(READ, is_tenants, &["status"]);
    all.extend(reference_grants(READ));
    all.extend(rules(READ, |kind| kind.id == KindId::ResourceQuota, &["status"]));
    all.push(rule(READ, "", &["configmaps", "events", "namespaces", "serviceaccounts"]));
    all.push(rule(READ, "events.k8s.io", &["events"]));
    all
}

/// Writing all of a namespace but who may do what in it.
fn edit() -> Vec<Value> {
    let mut all = rules(WRITE, is_tenants, &["confirm", "artifact"]);
    all.push(rule(WRITE, "", &["configmaps", "events", "secrets", "serviceaccounts"]));
    all.push(rule(WRITE, "events.k8s.io", &["events"]));
    all.push(rule(READ, "", &["secrets"]));
    all.push(rule(&["create"], "", &["serviceaccounts/token"]));
    all.push(rule(&["impersonate"], "", &["serviceaccounts"]));
    all
}

/// Saying who may do what in a namespace.
fn admin() -> Vec<Value> {
    let mut all = reference_grants(WRITE);
    all.push(rule(ALL, GROUP, &["rolebindings", "roles"]));
    all.push(rule(&["create"], "authorization.k8s.io", &["localsubjectaccessreviews"]));
    all
}

/// Everything but to grant more than this, to be somebody else, and the hub's own tokens and audit log.
fn fleet_admin() -> Vec<Value> {
    let fleet = KindId::Cluster.get().group();
    let mut all = rules(ALL, |kind| kind.group() != GROUP, &["status", "confirm", "artifact"]);
    all.push(rule(ALL, GROUP, &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]));
    all.push(rule(&["create"], fleet, &["clusters/jointoken"]));
    all.push(rule(&["use"], fleet, &["clusters"]));
    all.extend(rules(&["delegate"], |kind| kind.id.is_applier(), &[]));
    all.push(rule(&["create"], "", &["serviceaccounts/token"]));
    let reviews = ["localsubjectaccessreviews", "subjectaccessreviews"];
    all.push(rule(&["create"], "authorization.k8s.io", &reviews));
    all
}

/// The clusters of the fleet, and reading what is delivered to them.
fn cluster_operator() -> Vec<Value> {
    let fleet = KindId::Cluster.get().group();
    let mut all = rules(READ, is_tenants, &["status"]);
    all.extend(rules(ALL, |kind| kind.group() == fleet && kind.id != KindId::ReferenceGrant, &["status"]));
    all.extend(reference_grants(READ));
    all.push(rule(&["create"], fleet, &["clusters/jointoken"]));
    all.push(rule(&["use"], fleet, &["clusters"]));
    all.push(rule(READ, "", &["events", "namespaces"]));
    all.push(rule(READ, "events.k8s.io", &["events"]));
    all
}

/// What an object that is there becomes, so that it has all that a built-in one has: labels, annotations, rules, selectors and
/// subjects that it lacks are added, and nothing is taken from it. None where it has all, where it is annotated to be left alone,
/// and where it binds another role.
#[must_use]
pub fn reconciled(kind: KindId, existing: &Value, expected: &Value) -> Option<Value> {
    if existing["metadata"]["annotations"][AUTOUPDATE] == "false"
        || (!expected["roleRef"].is_null() && existing["roleRef"]["name"] != expected["roleRef"]["name"])
    {
        return None;
    }
    let mut object = existing.clone();
    for field in ["labels", "annotations"] {
        let Some(wanted) = expected["metadata"][field].as_object() else { continue };
        let present = &mut object["metadata"][field];
        if !present.is_object() {
            *present = json!({});
        }
        for (key, value) in wanted {
            if present[key].is_null() {
                present[key] = value.clone();
            }
        }
    }
    if kind == KindId::ClusterRole {
        add_rules(&mut object, expected);
        add_missing(&mut object, expected, "/aggregationRule/clusterRoleSelectors", |one, other| {
            one == other
        });
        if expected["aggregationRule"].is_null()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("aggregationRule");
        }
    } else {
        add_missing(&mut object, expected, "/subjects", |one, other| {
            ["kind", "name", "namespace"].iter().all(|field| one[field] == other[field])
        });
    }
    (object != *existing).then_some(object)
}

/// Adds the rules of which something is not held yet.
fn add_rules(object: &mut Value, expected: &Value) {
    let read = |rules: &Value| Vec::<PolicyRule>::deserialize(rules).unwrap_or_default();
    let present = read(&object["rules"]);
    for rule in expected["rules"].as_array().into_iter().flatten() {
        let Ok(wanted) = PolicyRule::deserialize(rule) else { continue };
        if covers(&present, [&wanted]).is_ok_and(|missing| missing.is_empty()) {
            continue;
        }
        match object["rules"].as_array_mut() {
            Some(rules) => rules.push(rule.clone()),
            None => object["rules"] = json!([rule]),
        }
    }
}

/// Adds the entries of a list that are not in it.
fn add_missing(object: &mut Value, expected: &Value, pointer: &str, same: impl Fn(&Value, &Value) -> bool) {
    let Some(wanted) = expected.pointer(pointer).and_then(Value::as_array) else { return };
    let present = object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let lacking = wanted.iter().filter(|entry| !present.iter().any(|own| same(own, entry)));
    let all: Vec<Value> = present.iter().chain(lacking).cloned().collect();
    if all.len() == present.len() {
        return;
    }
    match pointer.strip_prefix('/').and_then(|path| path.split_once('/')) {
        Some((outer, inner)) => object[outer][inner] = all.into(),
        None => object[pointer.trim_start_matches('/')] = all.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Change, Policy, Resource, User};

    /// A hub's own roles, each bound to a user of its name: `NAME` everywhere, `NAME-apps` in the namespace `apps`.
    fn policy() -> Policy {
        let objects = built_in();
        let mut policy = Policy::default();
        for (kind, name, object) in &objects {
            let errors = policy.apply([Change::Put { kind: *kind, namespace: "", name, object }]);
            assert_eq!(errors, []);
            if *kind != KindId::ClusterRole {
                continue;
            }
            let binding = |user: &str| {
                json!({ "roleRef": { "kind": "ClusterRole", "name": name },
                    "subjects": [{ "kind": "User", "name": user }] })
            };
            let (everywhere, apps) = (binding(name), binding(&format!("{name}-apps")));
            let bound = format!("bound-{name}");
            let kind = KindId::ClusterRoleBinding;
            policy.apply([Change::Put { kind, namespace: "", name: &bound, object: &everywhere }]);
            let kind = KindId::RoleBinding;
            policy.apply([Change::Put { kind, namespace: "apps", name: &bound, object: &apps }]);
        }
        policy
    }

    #[test]
    fn who_may_do_what_by_the_built_in_roles() {
        let policy = policy();
        let may = |user: &str, verb: &str, what: &str, namespace: &str| {
            let (resource, group) = what.split_once('.').unwrap_or((what, ""));
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let asked = Resource { verb, group, resource, subresource, namespace, name: "" };
            policy.allows(User { name: user, groups: &[] }, &Attributes::Resource(asked))
        };
        const KS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";
        const CONFIRM: &str = "kustomizations/confirm.kustomize.toolkit.fluxcd.io";
        const CLUSTERS: &str = "clusters.fleet.roadstead.dev";
        const ROLES: &str = "roles.rbac.authorization.k8s.io";
        for (user, verb, what, namespace, want) in [
            ("view-apps", "list", KS, "apps", true),
            ("view-apps", "list", KS, "", false),
            ("view-apps", "list", KS, "other", false),
            ("view-apps", "create", KS, "apps", false),
            ("view-apps", "get", "secrets", "apps", false),
            ("view-apps", "get", ROLES, "apps", false),
            ("view", "list", KS, "", true),
            ("edit-apps", "get", "secrets", "apps", true),
            ("edit-apps", "create", CONFIRM, "apps", true),
            ("edit-apps", "create", "serviceaccounts/token", "apps", true),
            ("edit-apps", "get", ROLES, "apps", false),
            ("edit-apps", "update", "kustomizations/status.kustomize.toolkit.fluxcd.io", "apps", false),
            ("admin-apps", "create", ROLES, "apps", true),
            ("admin-apps", "escalate", ROLES, "apps", false),
            ("admin-apps", "patch", KS, "apps", true),
            ("admin-apps", "delegate", KS, "apps", false),
            ("fleet-admin", "delegate", KS, "apps", true),
            ("admin-apps", "get", CLUSTERS, "", false),
            ("admin", "create", "clusterroles.rbac.authorization.k8s.io", "", false),
            ("cluster-operator", "create", "clusters/jointoken.fleet.roadstead.dev", "", true),
            ("cluster-operator", "delete", CLUSTERS, "", true),
            ("cluster-operator", "list", KS, "", true),
            ("cluster-operator", "patch", KS, "apps", false),
            ("cluster-operator", "get", "secrets", "apps", false),
            ("fleet-admin", "delete", KS, "apps", true),
            ("fleet-admin", "use", CLUSTERS, "", true),
            ("fleet-admin", "escalate", ROLES, "", false),
            ("fleet-admin", "impersonate", "users", "", false),
            ("cluster-admin", "impersonate", "users", "", true),
        ] {
            assert_eq!(may(user, verb, what, namespace), want, "{user} {verb} {what} {namespace}");
        }
        let path = Attributes::Path { verb: "get", path: "/fleet/v1/audit" };
        assert!(policy.allows(User { name: "cluster-admin", groups: &[] }, &path));
        assert!(!policy.allows(User { name: "fleet-admin", groups: &[] }, &path));
        assert!(!policy.allows(User { name: "cluster-admin-apps", groups: &[] }, &path));
    }

    #[test]
    fn what_is_lacking_is_added_and_nothing_is_taken() {
        for (kind, name, object) in built_in() {
            assert_eq!(reconciled(kind, &object, &object), None, "{name}");
        }
        let (kind, _, expected) = role("x", &["view"], &[rule(&["get"], "", &["pods", "secrets"])]);
        let own = rule(&["list"], "", &["nodes"]);
        let existing =
            json!({ "metadata": { "labels": { "a": "b" } }, "rules": [own], "aggregationRule": {} });
        let object = reconciled(kind, &existing, &expected).unwrap();
        assert_eq!(object["rules"], json!([own, expected["rules"][0]]));
        assert_eq!(object["metadata"]["labels"]["a"], "b");
        assert_eq!(object["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"], "true");
        assert!(object.get("aggregationRule").is_none());
        assert_eq!(reconciled(kind, &object, &expected), None);
        let mut left_alone = existing.clone();
        left_alone["metadata"]["annotations"] = json!({ AUTOUPDATE: "false" });
        assert_eq!(reconciled(kind, &left_alone, &expected), None);

        let (kind, _, expected) = built_in().swap_remove(1);
        let mut existing = expected.clone();
        existing["subjects"] = json!([{ "kind": "User", "name": "jane" }]);
        let object = reconciled(kind, &existing, &expected).unwrap();
        assert_eq!(object["subjects"].as_array().map(Vec::len), Some(2));
        existing["roleRef"]["name"] = "other".into();
        assert_eq!(reconciled(kind, &existing, &expected), None);
    }
}
