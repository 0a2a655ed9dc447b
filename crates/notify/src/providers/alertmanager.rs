//! `alertmanager`: an alert that fires. Its end is left to the server's `resolve_timeout`, but that of an incident is told.

use std::collections::BTreeMap;

use serde_json::json;

use crate::event::{Event, Level};
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of the message.
const MESSAGE: usize = 10_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let object = &event.involved_object;
    let mut labels: BTreeMap<String, String> = event
        .metadata
        .iter()
        .filter(|(key, _)| *key != "summary")
        .map(|(key, value)| (label(key), value.clone()))
        .collect();
    let own = [
        ("alertname", format!("Flux{}{}", object.kind, event.reason)),
        // Alerts are known by their labels, so the end of one has those of its beginning.
        ("severity", if event.is_resolved() { Level::Error } else { event.severity }.as_str().to_owned()),
        ("reason", event.reason.clone()),
        ("kind", object.kind.clone()),
        ("name", object.name.clone()),
        ("namespace", object.namespace.clone()),
        ("reportingcontroller", event.reporting_controller.clone()),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    let mut annotations = BTreeMap::from([("message", text::cut(&event.message, MESSAGE))]);
    if let Some(summary) = event.metadata.get("summary") {
        annotations.insert("summary", summary.clone());
    }
    let began = event.incident.as_ref().map_or(&event.timestamp, |incident| &incident.opened_at);
    let mut alert = json!({
        "status": "firing", "labels": labels, "annotations": annotations, "startsAt": began,
    });
    if event.is_resolved() {
        alert["status"] = "resolved".into();
        alert["endsAt"] = event.timestamp.as_str().into();
    } else if let Some(incident) = &event.incident {
        // Or the server takes it to be over before it is told again.
        alert["endsAt"] = incident.expires_at.as_str().into();
    }
    Ok(Request::json(target.url()?, &json!([alert])).authorized(target.authorization()))
}

/// A label's name has letters, digits and underscores only: one with others would have the whole alert refused.
fn label(key: &str) -> String {
    let fit: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if fit.starts_with(|c: char| c.is_ascii_digit()) { format!("_{fit}") } else { fit }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn labels_have_names_that_are_taken() {
        for (key, name) in [("app-version", "app_version"), ("a.b/c", "a_b_c"), ("9", "_9"), ("ok_1", "ok_1")]
        {
            assert_eq!(label(key), name);
        }
    }
}
