//! Rights that do not lie in stored objects: those of the masters, of everybody whom the hub knows, and of appliers.

use std::sync::LazyLock;

use roadstead_rbac::PolicyRule;

/// What the masters may do.
pub(super) static ALL: LazyLock<Vec<PolicyRule>> =
    LazyLock::new(|| vec![resources("*", "*", &["*"]), paths("*", &["*"])]);

/// What an applier may do with what of its build goes to the hub. Which objects these are, and in which namespaces, is
/// decided before.
pub(super) static CHILDREN: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    vec![
        resources("*", "kustomize.toolkit.fluxcd.io", &["kustomizations"]),
        resources("*", "source.toolkit.fluxcd.io", &["*"]),
        resources("*", "source.extensions.fluxcd.io", &["artifactgenerators"]),
        resources("*", "notification.toolkit.fluxcd.io", &["*"]),
        resources("*", "", &["configmaps", "secrets"]),
    ]
});

/// What everyone with a token may do: ask about itself, of which nothing is stored, and read what is served.
pub(super) static OWN: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let served = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/livez/*",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/readyz/*",
        "/version",
    ];
    // Of each of these everybody sees what they may see.
    let views = [
        "/fleet/v1/openapi.json",
        "/fleet/v1/clusters",
        "/fleet/v1/health",
        "/fleet/v1/appliers",
        "/fleet/v1/appliers/*",
        "/fleet/v1/kustomizations",
        "/fleet/v1/sources",
        "/fleet/v1/sources/*",
        "/fleet/v1/events",
        "/fleet/v1/inventory",
        "/fleet/v1/namespaces/*",
        "/fleet/v1/reconciliations",
        "/fleet/v1/drift",
        "/fleet/v1/drift/objects",
        "/fleet/v1/deliveries",
        "/fleet/v1/incidents",
        "/fleet/v1/silences",
        "/fleet/v1/changes",
    ];
    vec![
        resources("create", "authentication.k8s.io", &["selfsubjectreviews"]),
        resources("create", "authorization.k8s.io", &reviews),
        paths("get", &served),
        paths("get", &views),
    ]
});

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn resources(verb: &str, group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(&[verb]),
        api_groups: texts(&[group]),
        resources: texts(resources),
        resource_names: Vec::new(),
        non_resource_urls: Vec::new(),
    }
}

fn paths(verb: &str, paths: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(&[verb]),
        api_groups: Vec::new(),
        resources: Vec::new(),
        resource_names: Vec::new(),
        non_resource_urls: texts(paths),
    }
}
