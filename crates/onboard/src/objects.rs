//! Where the objects of an installation are.

use serde_json::Value;

/// An object that is none of those that are installed.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not an object of an installation")]
pub struct Unplaced(String);

/// The kinds of an installation: group and version, kind, path of the group, resource.
const KINDS: [(&str, &str, &str, &str); 8] = [
    ("v1", "Namespace", "api/v1", "namespaces"),
    ("v1", "ServiceAccount", "api/v1", "serviceaccounts"),
    ("v1", "Secret", "api/v1", "secrets"),
    (RBAC, "Role", RBAC_PATH, "roles"),
    (RBAC, "RoleBinding", RBAC_PATH, "rolebindings"),
    (RBAC, "ClusterRole", RBAC_PATH, "clusterroles"),
    (RBAC, "ClusterRoleBinding", RBAC_PATH, "clusterrolebindings"),
    ("apps/v1", "Deployment", "apis/apps/v1", "deployments"),
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_PATH: &str = "apis/rbac.authorization.k8s.io/v1";

/// As messages name it: `Role roadstead-system/roadstead-agent`.
pub(crate) fn shown(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Whether it can stand in a path as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b':');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

/// The path of the object.
pub(crate) fn place(object: &Value) -> Result<String, Unplaced> {
    let unplaced = || Unplaced(shown(object));
    let (_, _, group, resource) = KINDS
        .iter()
        .find(|(version, kind, ..)| object["apiVersion"] == *version && object["kind"] == *kind)
        .ok_or_else(unplaced)?;
    let name = |value: &Value| value.as_str().filter(|name| is_plain(name)).map(str::to_owned);
    let metadata = &object["metadata"];
    let own = name(&metadata["name"]).ok_or_else(unplaced)?;
    if metadata["namespace"].is_null() {
        return Ok(format!("/{group}/{resource}/{own}"));
    }
    let namespace = name(&metadata["namespace"]).ok_or_else(unplaced)?;
    Ok(format!("/{group}/namespaces/{namespace}/{resource}/{own}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::place;

    #[test]
    fn where_objects_are() {
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "a", "namespace": "b" } });
        assert_eq!(place(&role).unwrap(), "/apis/rbac.authorization.k8s.io/v1/namespaces/b/roles/a");
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
        assert_eq!(place(&namespace).unwrap(), "/api/v1/namespaces/a");
        for bad in [
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "../a", "namespace": "b" } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a?x", "namespace": "b" } }),
        ] {
            assert!(place(&bad).is_err(), "{bad}");
        }
    }
}
