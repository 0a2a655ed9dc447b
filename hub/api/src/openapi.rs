//! OpenAPI v3: one document per group and version, made from the kinds' schemas; and v2, made from those.
//!
//! kubectl explains fields by it, and finds in it that the server checks fields itself (`fieldValidation`).

mod v2;

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use roadstead_api::schema::{metadata_schema, schema};
use roadstead_api::{Kind, Version};
use roadstead_model::Digest;
use serde_json::{Map, Value, json};

use crate::discovery::{groups, kinds, versions};
use crate::paid::shared;
use crate::questions::questions;
use crate::render::accepted;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The paths that [`Documents`] are at.
pub(crate) fn paths() -> Vec<String> {
    let mut paths: Vec<String> = ["/openapi/v2", "/openapi/v3"].map(str::to_owned).into();
    paths.extend(served().map(|(group, version)| format!("/openapi/v3/{}", prefix(group, version))));
    paths
}

/// Every group and version, the core group's first.
fn served() -> impl Iterator<Item = (&'static str, &'static str)> {
    let core = versions("").into_iter().map(|version| ("", version));
    let named = groups()
        .into_iter()
        .flat_map(|group| versions(group).into_iter().map(move |version| (group, version)));
    core.chain(named)
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// All documents, made once.
pub(crate) struct Documents {
    by_path: BTreeMap<String, Bytes>,
    v2: Bytes,
    v2_protobuf: Bytes,
}

impl Documents {
    pub(crate) fn new() -> Self {
        let mut by_path = BTreeMap::new();
        let mut paths = Map::new();
        for (group, version) in served() {
            let prefix = prefix(group, version);
            let document = document(group, version, &prefix);
            let hash = Digest::of(document.to_string().as_bytes()).hex();
            let url = format!("/openapi/v3/{prefix}?hash={hash}");
            paths.insert(prefix.clone(), json!({ "serverRelativeURL": url }));
            by_path.insert(format!("/openapi/v3/{prefix}"), document);
        }
        let v2 = v2::document(by_path.values());
        by_path.insert("/openapi/v3".to_owned(), json!({ "paths": paths }));
        let bytes = |document: &Value| Bytes::from(document.to_string());
        Self {
            v2_protobuf: v2::protobuf(&v2).into(),
            v2: bytes(&v2),
            by_path: by_path.iter().map(|(path, document)| (path.clone(), bytes(document))).collect(),
        }
    }

    #[cfg(test)]
    fn v2(&self) -> Value {
        serde_json::from_slice(&self.v2).unwrap()
    }

    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        if path == "/openapi/v2" {
            if !accepted(headers).any(|entry| v2::ASKED.contains(&entry.media_type())) {
                return Some(written(&self.v2, "application/json"));
            }
            return Some(written(&self.v2_protobuf, v2::PROTOBUF));
        }
        Some(written(self.by_path.get(path)?, "application/json"))
    }
}

/// An answer of bytes that were written once.
pub(crate) fn written(bytes: &Bytes, form: &'static str) -> Response {
    let mut response = shared(bytes);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    response
}

fn document(group: &str, version: &str, prefix: &str) -> Value {
    let mut schemas = Map::new();
    schemas.insert(OBJECT_META.to_owned(), metadata_schema().clone());
    schemas.insert(LIST_META.to_owned(), list_meta());
    schemas
        .insert(STATUS.to_owned(), json!({ "type": "object", "description": "The outcome of a request." }));
    let options = json!({ "type": "object", "description": "How an object is to be deleted." });
    schemas.insert(DELETE_OPTIONS.to_owned(), options);
    let mut paths = Map::new();
    for (kind, version) in kinds(group, version) {
        let named = Named::of(kind, version);
        let name = named.component();
        schemas.insert(name.clone(), whole(schema(kind, version).clone(), named));
        schemas.insert(format!("{name}List"), list(named, &name));
        add_paths(&mut paths, kind, named, prefix);
    }
    for question in questions(group, version) {
        let named = Named { group, version, kind: question.kind, builtin: true };
        let name = named.component();
        schemas.insert(name.clone(), whole(question.schema(), named));
        let post = operation(named, "post", &name, &writing(), Some(json_body(&name)));
        let place = if question.namespaced { "namespaces/{namespace}/" } else { "" };
        paths.insert(format!("/{prefix}/{place}{}", question.plural), json!({ "post": post }));
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Roadstead", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// A kind in one of its versions.
#[derive(Clone, Copy)]
struct Named<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// It is one of Kubernetes' own.
    builtin: bool,
}

impl<'a> Named<'a> {
    fn of(kind: &'a Kind, version: &'a Version) -> Self {
        Self { group: version.group, version: version.name, kind: kind.kind, builtin: kind.builtin }
    }

    /// The component's name: the group's labels reversed, the version, the kind.
    fn component(&self) -> String {
        let Self { group, version, kind, .. } = self;
        if self.builtin {
            // As Kubernetes calls them.
            let group = group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
            return format!("io.k8s.api.{group}.{version}.{kind}");
        }
        let reversed: Vec<&str> = group.split('.').rev().collect();
        format!("{}.{version}.{kind}", reversed.join("."))
    }

    fn gvk(&self, suffix: &str) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": format!("{}{suffix}", self.kind) })
    }
}

fn whole(mut schema: Value, named: Named<'_>) -> Value {
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.", "default": {},
        "allOf": [{ "$ref": format!("#/components/schemas/{OBJECT_META}") }],
    });
    schema["x-kubernetes-group-version-kind"] = json!([named.gvk("")]);
    schema
}

fn list(named: Named<'_>, item: &str) -> Value {
    let kind = named.kind;
    json!({
        "type": "object", "description": format!("{kind}List is a list of {kind}."), "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string", "description": "The versioned schema of this representation." },
            "kind": { "type": "string", "description": "The kind of the list." },
            "metadata": {
                "description": "Standard list metadata.", "default": {},
                "allOf": [{ "$ref": format!("#/components/schemas/{LIST_META}") }],
            },
            "items": {
                "type": "array", "description": "The objects.",
                "items": { "default": {}, "allOf": [{ "$ref": format!("#/components/schemas/{item}") }] },
            },
        },
        "x-kubernetes-group-version-kind": [named.gvk("List")],
    })
}

fn list_meta() -> Value {
    json!({
        "type": "object", "description": "ListMeta describes a list.",
        "properties": {
            "continue": { "type": "string", "description": "Where the next page begins." },
            "remainingItemCount": { "type": "integer", "format": "int64", "description": "How many are left." },
            "resourceVersion": { "type": "string", "description": "The version that the list shows." },
            "selfLink": { "type": "string", "description": "Deprecated and never set." },
        },
    })
}

fn parameter(name: &str, place: &str, type_: &str) -> Value {
    json!({ "name": name, "in": place, "required": place == "path", "schema": { "type": type_, "uniqueItems": true } })
}

fn query(names: &[(&str, &str)]) -> Vec<Value> {
    names.iter().map(|(name, type_)| parameter(name, "query", type_)).collect()
}

/// An operation on a kind.
fn operation(
    named: Named<'_>,
    action: &str,
    answer: &str,
    parameters: &[Value],
    body: Option<Value>,
) -> Value {
    let id_group: String = named.group.split('.').map(capital).collect();
    let version_name = capital(named.version);
    let mut operation = json!({
        "operationId": format!("{action}{id_group}{version_name}{}", named.kind),
        "parameters": parameters,
        "responses": {
            "200": { "description": "OK", "content": { "application/json": {
                "schema": { "$ref": format!("#/components/schemas/{answer}") } } } },
            "401": { "description": "Unauthorized" },
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": named.gvk(""),
    });
    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn json_body(component: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{component}") });
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

/// What a write may say besides.
fn writing() -> Vec<Value> {
    query(&[
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("pretty", "string"),
    ])
}

fn add_paths(paths: &mut Map<String, Value>, kind: &Kind, named: Named<'_>, prefix: &str) {
    let name = named.component();
    let list = format!("{name}List");
    let write = writing();
    let read = query(&[
        ("allowWatchBookmarks", "boolean"),
        ("continue", "string"),
        ("fieldSelector", "string"),
        ("labelSelector", "string"),
        ("limit", "integer"),
        ("resourceVersion", "string"),
        ("resourceVersionMatch", "string"),
        ("sendInitialEvents", "boolean"),
        ("timeoutSeconds", "integer"),
        ("watch", "boolean"),
    ]);
    let mut patches =
        vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    // kubectl sends a strategic merge patch wherever it finds it named here.
    if kind.builtin {
        patches.push("application/strategic-merge-patch+json");
    }
    let patches: Map<String, Value> = patches
        .into_iter()
        .map(|form| (form.to_owned(), json!({ "schema": { "type": "object" } })))
        .collect();
    let patch_body = json!({ "required": true, "content": patches });
    let place = if kind.namespaced() {
        format!("namespaces/{{namespace}}/{}", kind.plural)
    } else {
        kind.plural.to_owned()
    };
    let mut in_path = Vec::new();
    if kind.namespaced() {
        in_path.push(parameter("namespace", "path", "string"));
        paths.insert(
            format!("/{prefix}/{}", kind.plural),
            json!({ "get": operation(named, "list", &list, &read, None) }),
        );
    }
    paths.insert(
        format!("/{prefix}/{place}"),
        json!({
            "parameters": in_path,
            "get": operation(named, "list", &list, &read, None),
            "post": operation(named, "post", &name, &write, Some(json_body(&name))),
            "delete": operation(named, "deletecollection", &list, &read, None),
        }),
    );
    in_path.push(parameter("name", "path", "string"));
    let put = || operation(named, "put", &name, &write, Some(json_body(&name)));
    let mut for_patch = write.clone();
    for_patch.push(parameter("force", "query", "boolean"));
    let patch = || operation(named, "patch", &name, &for_patch, Some(patch_body.clone()));
    let get = || operation(named, "get", &name, &[], None);
    paths.insert(
        format!("/{prefix}/{place}/{{name}}"),
        json!({
            "parameters": in_path, "get": get(), "put": put(), "patch": patch(),
            "delete": operation(named, "delete", STATUS, &query(&[("dryRun", "string")]), None),
        }),
    );
    if kind.status {
        paths.insert(
            format!("/{prefix}/{place}/{{name}}/status"),
            json!({ "parameters": in_path, "get": get(), "put": put(), "patch": patch() }),
        );
    }
}
