//! `pagerduty`: an incident that a failure opens and the object's next news closes, and that news as a change.

use serde_json::json;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of a summary.
const SUMMARY: usize = 1_024;
/// Bytes of the message: all has 512 KB at most.
const MESSAGE: usize = 40_000;

pub(super) fn requests(target: &Target, event: &Event) -> Result<Vec<Request>, Unsendable> {
    let (key, object) = (target.needed_channel()?, &event.involved_object);
    let reason = event.reason_in_words();
    let summary = text::cut(&format!("{reason}: {}/{}", object.kind.to_lowercase(), object.name), SUMMARY);
    let source = format!("Flux {}", event.reporting_controller);
    let details = json!({ "message": text::cut_bytes(&event.message, MESSAGE), "metadata": event.metadata });
    let enqueue = target.at("/v2/enqueue")?;
    if event.is_error() {
        let trigger = json!({
            "routing_key": key, "event_action": "trigger", "dedup_key": event.unique_uid(),
            "payload": {
                "summary": summary, "source": source, "severity": "error", "timestamp": event.timestamp,
                "component": object.name, "group": object.kind, "custom_details": details,
            },
        });
        return Ok(vec![Request::json(enqueue, &trigger)]);
    }
    let resolve = json!({ "routing_key": key, "event_action": "resolve", "dedup_key": event.unique_uid() });
    let change = json!({
        "routing_key": key,
        "payload": { "summary": summary, "source": source, "timestamp": event.timestamp, "custom_details": details },
    });
    Ok(vec![Request::json(enqueue, &resolve), Request::json(target.at("/v2/change/enqueue")?, &change)])
}
