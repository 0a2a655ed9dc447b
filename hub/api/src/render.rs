//! The forms in which a client wants objects: whole, as a table, or their metadata only.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, http::HeaderName};
use jiff::Timestamp;
use roadstead_hub_core::Address;
use serde_json::{Value, json};

use crate::request::Query;

/// How objects are to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// As `kubectl get` prints them, each row with this much of its object.
    Table(Include),
    /// Metadata only.
    Metadata,
}

/// What a table's row has of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Form {
    /// From the `Accept` header, whose first known entry counts.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Self {
        let include = match query.get("includeObject") {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        };
        for entry in accepted(headers) {
            if entry.parameter("g") == Some("meta.k8s.io") && entry.parameter("v") == Some("v1") {
                match entry.parameter("as") {
                    Some("Table") => return Self::Table(include),
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Self::Metadata,
                    _ => continue,
                }
            }
            if entry.parameter("as").is_none() && entry.is_json() {
                return Self::Whole;
            }
        }
        Self::Whole
    }

    /// One object.
    pub(crate) fn object(self, address: &Address, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata_only(&object),
            Self::Table(include) => {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let rows = [row(address, &object, include, now)];
                table(address, &rows, &json!({ "resourceVersion": version }))
            }
        }
    }

    /// One object of a stream; the headings of a table are only wanted once.
    pub(crate) fn event(self, address: &Address, object: Value, now: Timestamp, first: bool) -> Value {
        let mut shown = self.object(address, object, now);
        if let (Self::Table(_), false) = (self, first) {
            shown["columnDefinitions"] = json!([]);
        }
        shown
    }

    /// An item of a list.
    pub(crate) fn item(self, address: &Address, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata_only(&object),
            Self::Table(include) => row(address, &object, include, now),
        }
    }

    /// A list without its items, and the field that they come in.
    pub(crate) fn list_head(self, address: &Address, metadata: &Value) -> (Value, &'static str) {
        let kind = address.kind.get();
        match self {
            Self::Table(_) => {
                let mut table = table(address, &[], metadata);
                table.as_object_mut().map(|fields| fields.remove("rows"));
                (table, "rows")
            }
            Self::Metadata => {
                let kind = "PartialObjectMetadataList";
                (json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata }), "items")
            }
            Self::Whole => {
                let (kind, version) = (format!("{}List", kind.kind), address.version.api_version());
                (json!({ "kind": kind, "apiVersion": version, "metadata": metadata }), "items")
            }
        }
    }

    /// Under which name changes in this form are kept for further watchers; none where they are not, since they are
    /// wanted by few or hold times.
    pub(crate) fn shared_name(self) -> Option<&'static str> {
        match self {
            Self::Whole => Some("whole"),
            Self::Metadata => Some("metadata"),
            Self::Table(_) => None,
        }
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn row(address: &Address, object: &Value, include: Include, now: Timestamp) -> Value {
    let cells: Vec<Value> =
        address.kind.get().columns.iter().map(|column| column.cell(object, now)).collect();
    match include {
        Include::None => json!({ "cells": cells }),
        Include::Metadata => json!({ "cells": cells, "object": metadata_only(object) }),
        Include::Object => json!({ "cells": cells, "object": object }),
    }
}

fn table(address: &Address, rows: &[Value], metadata: &Value) -> Value {
    let headings: Vec<Value> = address
        .kind
        .get()
        .columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.type_, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": headings, "rows": rows,
    })
}

/// An entry of an `Accept` header.
pub(crate) struct Accepted<'a>(&'a str);

impl Accepted<'_> {
    /// The value of a parameter, as `v2` of `v`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.0.split(';').skip(1).find_map(|part| {
            let (key, value) = part.split_once('=')?;
            (key.trim() == name).then_some(value.trim())
        })
    }

    /// The type, without parameters.
    pub(crate) fn media_type(&self) -> &str {
        self.0.split(';').next().unwrap_or_default().trim()
    }

    fn is_json(&self) -> bool {
        matches!(self.media_type(), "application/json" | "application/*" | "*/*")
    }
}

/// The entries of the `Accept` headers, in their order.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = Accepted<'_>> {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|entry| Accepted(entry.trim()))
}

/// A response with warnings, which kubectl prints.
pub(crate) fn with_warnings(code: StatusCode, body: &Value, warnings: &[String]) -> Response {
    let mut response = (code, Json(body)).into_response();
    warn(&mut response, warnings);
    response
}

/// Adds warnings to an answer.
pub(crate) fn warn(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let text: String = warning
            .chars()
            .map(|c| match c {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                c if c.is_ascii() && !c.is_control() => c.to_string(),
                _ => "?".to_owned(),
            })
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(HeaderName::from_static("warning"), value);
        }
    }
}
