//! `otel`: a span, in OTLP over HTTP as JSON. Spans of one Alert and revision are one trace.

use std::collections::BTreeMap;

use roadstead_model::Digest;
use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of a status' message.
const MESSAGE: usize = 10_000;
/// Where spans go at an address without a path.
const TRACES: &str = "/v1/traces";
/// Hex digits of a trace's id, and of a span's.
const TRACE_ID: usize = 32;
const SPAN_ID: usize = 16;
/// Codes of a span's status.
const OK: u8 = 1;
const ERROR: u8 = 2;
/// A span of something that only this process did.
const INTERNAL: u8 = 1;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let mut url = target.url()?;
    if matches!(url.path(), "" | "/") {
        url.set_path(TRACES);
    }
    let of = |key: &str| event.metadata.get(key).map(String::as_str);
    let revision = match (of("app-version"), of("oci-digest")) {
        (Some(version), Some(digest)) => format!("{version}@{digest}"),
        _ => of("revision").unwrap_or("unknown").to_owned(),
    };
    let (uid, alert) = (&target.alert_uid, &target.alert);
    let trace = Digest::of(format!("{uid}:{revision}").as_bytes()).hex();
    // The same for a repeat.
    let span = Digest::of(&serde_json::to_vec(&(uid, event)).unwrap_or_default()).hex();
    let object = &event.involved_object;
    let mut attributes = BTreeMap::from([
        ("object.uid", object.uid.as_str()),
        ("object.kind", &object.kind),
        ("object.name", &object.name),
        ("object.namespace", &object.namespace),
    ]);
    for (key, value) in facts(event) {
        attributes.entry(key).or_insert(value);
    }
    let at = event.time().as_nanosecond().to_string();
    let namespace = alert.split_once('/').map_or("", |(namespace, _)| namespace);
    let resource = BTreeMap::from([
        ("service.name", alert.as_str()),
        ("service.namespace", namespace),
        ("service.instance.id", uid),
    ]);
    let status = match event.is_error() {
        true => json!({ "code": ERROR, "message": text::cut(&event.message, MESSAGE) }),
        false => json!({ "code": OK }),
    };
    let spans = json!({
        "resourceSpans": [{
            "resource": { "attributes": listed(&resource) },
            "scopeSpans": [{
                "scope": { "name": event.reporting_controller },
                "spans": [{
                    "traceId": trace[..TRACE_ID], "spanId": span[..SPAN_ID], "kind": INTERNAL,
                    "name": format!("{}: {}/{}", object.kind, object.namespace, object.name),
                    "startTimeUnixNano": at, "endTimeUnixNano": at,
                    "attributes": listed(&attributes), "status": status,
                }],
            }],
        }],
    });
    let mut request = Request::json(url, &spans).authorized(target.authorization());
    for (name, value) in &target.headers {
        request = request.credential(name, value.clone());
    }
    Ok(request)
}

fn listed(attributes: &BTreeMap<&str, &str>) -> Vec<Value> {
    let one = |(key, value): (&&str, &&str)| json!({ "key": key, "value": { "stringValue": text::cut(value, super::FACT) } });
    attributes.iter().map(one).collect()
}
