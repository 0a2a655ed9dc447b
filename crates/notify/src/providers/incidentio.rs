//! `incident.io`: an alert that a failure fires and that the object's next news resolves.

use serde_json::json;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of a title.
const TITLE: usize = 500;
/// Bytes of the message.
const MESSAGE: usize = 40_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let mut metadata = event.metadata.clone();
    for (key, value) in [
        ("severity", event.severity.as_str()),
        ("reason", &event.reason),
        ("reportingController", &event.reporting_controller),
    ] {
        metadata.insert(key.to_owned(), value.to_owned());
    }
    let alert = json!({
        "title": text::cut(&format!("{}: {}", event.object(), event.reason), TITLE),
        "status": if event.is_error() { "firing" } else { "resolved" },
        "deduplication_key": event.unique_uid(),
        "description": text::cut_bytes(&event.message, MESSAGE),
        "metadata": metadata,
    });
    let bearer = format!("Bearer {}", token.expose());
    Ok(Request::json(target.url()?, &alert).credential("Authorization", bearer))
}
