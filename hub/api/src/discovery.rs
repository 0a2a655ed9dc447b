//! What is served: discovery in its old and its aggregated form, and the version.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use roadstead_api::{KINDS, Kind, KindId, Version};
use serde_json::{Value, json};

use crate::questions::{AUTHENTICATION, QUESTIONS, questions};
use crate::render::accepted;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Where definitions of further kinds would be. There are none, and discovery does not speak of them; kubectl asks all the same
/// before it creates an object of a kind that cannot be patched (a SubjectAccessReview, say), to know who checks its fields.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Every (group, version) that is served, stored kinds first.
fn served() -> impl Iterator<Item = (&'static str, &'static str)> {
    let stored = KINDS.iter().flat_map(|kind| kind.versions).map(|version| (version.group, version.name));
    stored.chain(QUESTIONS.iter().map(|question| (question.group, question.version)))
}

/// The paths that [`answer`] knows.
pub(crate) fn paths() -> Vec<String> {
    let mut paths: Vec<String> =
        ["/version", "/api", "/apis", "/api/v1", DEFINITIONS].map(str::to_owned).into();
    for group in groups() {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions(group).into_iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths
}

/// The answer to a discovery path; none where it is no such path.
pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Option<Response> {
    let body = match path {
        "/version" => version(),
        "/api" if aggregated(headers) => return Some(aggregated_response(&[""])),
        "/apis" if aggregated(headers) => return Some(aggregated_response(&groups())),
        "/api" => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        }),
        "/apis" => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups().into_iter().map(group).collect::<Vec<_>>(),
        }),
        "/api/v1" => resources("", "v1")?,
        DEFINITIONS => json!({
            "kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {}, "items": [],
        }),
        _ => {
            let mut segments = path.strip_prefix("/apis/")?.split('/');
            let name = segments.next().filter(|name| groups().contains(name))?;
            match (segments.next(), segments.next()) {
                (None, _) => group(name),
                (Some(version), None) => resources(name, version)?,
                _ => return None,
            }
        }
    };
    Some(Json(body).into_response())
}

fn version() -> Value {
    let text = env!("CARGO_PKG_VERSION");
    // Clients compare these with Kubernetes' versions: the conventions that the API follows.
    json!({
        "major": "1", "minor": "35", "gitVersion": format!("v1.35.0+roadstead.{text}"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// All groups but the core group, in the registry's order.
pub(crate) fn groups() -> Vec<&'static str> {
    let mut groups = Vec::new();
    for (group, _) in served() {
        if !group.is_empty() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// The versions of a group, the preferred one first.
pub(crate) fn versions(group: &str) -> Vec<&'static str> {
    let mut versions = Vec::new();
    for (_, version) in served().filter(|(of, _)| *of == group) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    versions
}

/// The kinds of a group that have this version.
pub(crate) fn kinds(group: &str, version: &str) -> Vec<(&'static Kind, &'static Version)> {
    KINDS.iter().filter_map(|kind| Some((*kind, kind.version(group, version)?))).collect()
}

fn group(name: &str) -> Value {
    let versions: Vec<Value> = versions(name)
        .into_iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name, "preferredVersion": versions[0], "versions": versions,
    })
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let kinds = kinds(group, version);
    if !versions(group).contains(&version) {
        return None;
    }
    let mut list = Vec::new();
    for question in questions(group, version) {
        list.push(json!({
            "name": question.plural, "singularName": question.singular, "namespaced": question.namespaced, "kind": question.kind,
            "verbs": ["create"],
        }));
    }
    for (kind, version) in &kinds {
        list.push(json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced(), "kind": kind.kind,
            "verbs": VERBS, "shortNames": kind.short_names, "categories": kind.categories,
        }));
        if kind.id.is_applier() {
            list.push(json!({
                "name": format!("{}/confirm", kind.plural), "singularName": "", "namespaced": kind.namespaced(),
                "kind": kind.kind, "group": version.group, "version": version.name, "verbs": ["create"],
            }));
        }
        if kind.status {
            list.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced(),
                "kind": kind.kind, "group": version.group, "version": version.name, "verbs": STATUS_VERBS,
            }));
        }
    }
    if group.is_empty() {
        list.push(json!({
            "name": "serviceaccounts/token", "singularName": "", "namespaced": true, "kind": "TokenRequest",
            "group": AUTHENTICATION, "version": "v1", "verbs": ["create"],
        }));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list }),
    )
}

fn aggregated(headers: &HeaderMap) -> bool {
    accepted(headers).any(|entry| {
        entry.parameter("g") == Some("apidiscovery.k8s.io")
            && entry.parameter("v") == Some("v2")
            && entry.parameter("as") == Some("APIGroupDiscoveryList")
    })
}

fn aggregated_response(groups: &[&str]) -> Response {
    let items: Vec<Value> = groups.iter().map(|group| aggregated_group(group)).collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let mut response = Json(body).into_response();
    let media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

fn aggregated_group(group: &str) -> Value {
    let versions: Vec<Value> = versions(group)
        .into_iter()
        .map(|version| {
            let stored =
                kinds(group, version).into_iter().map(|(kind, version)| aggregated_kind(kind, version));
            let asked = questions(group, version).map(|question| {
                json!({
                    "resource": question.plural, "singularResource": question.singular,
                    "scope": if question.namespaced { "Namespaced" } else { "Cluster" },
                    "responseKind": { "group": group, "version": version, "kind": question.kind },
                    "verbs": ["create"],
                })
            });
            let resources: Vec<Value> = stored.chain(asked).collect();
            json!({ "version": version, "freshness": "Current", "resources": resources })
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn aggregated_kind(kind: &Kind, version: &Version) -> Value {
    let response_kind = json!({ "group": version.group, "version": version.name, "kind": kind.kind });
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response_kind,
        "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": VERBS,
        "shortNames": kind.short_names, "categories": kind.categories,
    });
    if kind.id == KindId::ServiceAccount {
        let response_kind = json!({ "group": AUTHENTICATION, "version": "v1", "kind": "TokenRequest" });
        resource["subresources"] =
            json!([{ "subresource": "token", "responseKind": response_kind, "verbs": ["create"] }]);
    }
    if kind.status {
        let mut subresources =
            vec![json!({ "subresource": "status", "responseKind": response_kind, "verbs": STATUS_VERBS })];
        if kind.id.is_applier() {
            let confirm =
                json!({ "subresource": "confirm", "responseKind": response_kind, "verbs": ["create"] });
            subresources.push(confirm);
        }
        resource["subresources"] = subresources.into();
    }
    resource
}
