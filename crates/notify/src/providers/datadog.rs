//! `datadog`: an event.

use serde_json::json;

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of the text.
const MESSAGE: usize = 4_000;
/// Characters of a tag.
const TAG: usize = 200;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let object = &event.involved_object;
    let tag = |key: &str, value: &str| text::cut(&format!("{key}:{value}").to_lowercase(), TAG);
    let mut tags = vec![
        tag("flux_reporting_controller", &event.reporting_controller),
        tag("flux_reason", &event.reason),
        tag("kube_kind", &object.kind),
        tag("kube_name", &object.name),
        tag("kube_namespace", &object.namespace),
    ];
    tags.extend(facts(event).map(|(key, value)| tag(key, value)));
    let title = format!("Events from the {} {}/{}", object.kind, object.name, object.namespace);
    let mut told = json!({
        "title": title,
        "text": text::cut(&event.message, MESSAGE),
        "tags": tags,
        "source_type_name": "fluxcd",
        "date_happened": event.time().as_second(),
        "alert_type": if event.is_resolved() { "success" } else { event.severity.as_str() },
    });
    if let Some(incident) = &event.incident {
        told["aggregation_key"] = incident.id.as_str().into();
    }
    Ok(Request::json(target.at("/api/v1/events")?, &told).credential("DD-API-KEY", token.clone()))
}
