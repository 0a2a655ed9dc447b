//! `sentry`: a failure as an event, other news as a transaction, each in an envelope.

use roadstead_model::Digest;
use serde_json::{Value, json};

use crate::event::Event;
use crate::request::{Method, Request};
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of the message.
const MESSAGE: usize = 8_000;
/// Characters of a tag's value.
const TAG: usize = 200;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    const WANTED: &str = "a DSN, as https://KEY@HOST/PROJECT";
    let dsn = target.url().map_err(|_| Unsendable::Address(WANTED))?;
    let key = dsn.username().to_owned();
    let (before, project) = dsn.path().rsplit_once('/').ok_or(Unsendable::Address(WANTED))?;
    if key.is_empty() || project.is_empty() {
        return Err(Unsendable::Address(WANTED));
    }
    let mut url = dsn.clone();
    url.set_path(&format!("{before}/api/{project}/envelope/"));
    url.set_query(None);
    // These fail for URLs without a host only.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let told = serde_json::to_vec(event).unwrap_or_default();
    // The same event has the same id, so that a repeat does not make a second one.
    let id = Digest::of(&told).hex()[..32].to_owned();
    let (type_, payload) =
        if event.is_error() { ("event", error(event, &id)) } else { ("transaction", done(event, &id)) };
    let payload = with_environment(payload, &target.channel);
    let head = json!({ "event_id": id, "sent_at": event.timestamp });
    let body = format!("{head}\n{}\n{payload}\n", json!({ "type": type_ }));
    let auth = format!("Sentry sentry_version=7, sentry_client=roadstead/1, sentry_key={key}");
    let headers = vec![("Content-Type".to_owned(), "application/x-sentry-envelope".into())];
    let request = Request {
        method: Method::Post,
        url: String::from(url).into(),
        headers,
        body: body.into_bytes(),
        shows_credentials: false,
    };
    Ok(request.credential("X-Sentry-Auth", auth))
}

fn name(event: &Event) -> String {
    let object = &event.involved_object;
    text::cut(&format!("{}: {}/{}", object.kind, object.namespace, object.name), TAG)
}

fn with_environment(mut payload: Value, environment: &str) -> Value {
    if !environment.is_empty() {
        payload["environment"] = environment.into();
    }
    payload
}

fn error(event: &Event, id: &str) -> Value {
    let mut told = json!({
        "event_id": id, "timestamp": event.timestamp, "platform": "other", "level": "error",
        "server_name": event.reporting_controller, "transaction": name(event),
        "message": { "formatted": text::cut(&event.message, MESSAGE) },
        "contexts": { "metadata": event.metadata },
    });
    // One issue there for each incident; else it groups as it thinks best.
    if let Some(incident) = &event.incident {
        told["fingerprint"] = json!([incident.id]);
    }
    told
}

fn done(event: &Event, id: &str) -> Value {
    let object = &event.involved_object;
    let mut tags: serde_json::Map<String, Value> =
        super::facts(event).map(|(key, value)| (text::cut(key, 32), text::cut(value, TAG).into())).collect();
    let own = [
        ("flux_involved_object_kind", &object.kind),
        ("flux_involved_object_name", &object.name),
        ("flux_involved_object_namespace", &object.namespace),
        ("flux_reason", &event.reason),
        ("flux_reporting_controller", &event.reporting_controller),
        ("flux_reporting_instance", &event.reporting_instance),
    ];
    tags.extend(own.map(|(key, value)| (key.to_owned(), text::cut(value, TAG).into())));
    let digest = Digest::of(format!("{id}/trace").as_bytes()).hex();
    let (trace, root, span) = (&digest[..32], &digest[32..48], &digest[48..64]);
    let at = &event.timestamp;
    json!({
        "event_id": id, "type": "transaction", "platform": "other", "transaction": name(event),
        "server_name": event.reporting_controller, "start_timestamp": at, "timestamp": at, "tags": tags,
        "contexts": { "trace": { "trace_id": trace, "span_id": root, "op": event.reason } },
        "spans": [{
            "trace_id": trace, "span_id": span, "parent_span_id": root, "op": event.reason,
            "description": text::cut(&event.message, MESSAGE), "start_timestamp": at, "timestamp": at,
        }],
    })
}
