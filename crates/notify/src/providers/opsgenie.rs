//! `opsgenie`: an alert, named by what it is about, so that a repeat is counted there and is not a second one. That of an incident is closed
//! when that is over.

use roadstead_model::Digest;
use serde_json::json;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of an alert's message.
const TITLE: usize = 130;
/// Characters of its description.
const DESCRIPTION: usize = 15_000;
/// Characters of its details together.
const DETAILS: usize = 8_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let object = &event.involved_object;
    let about = event.incident.as_ref().map_or_else(|| event.unique_path(), |incident| incident.id.clone());
    let alias = Digest::of(format!("{}/{about}/{}", target.uid, event.reason).as_bytes()).hex();
    let credential = format!("GenieKey {}", token.expose());
    if event.is_resolved() {
        let mut close = target.url()?;
        let unfit = Unsendable::Address("a URL below which alerts are");
        close.path_segments_mut().map_err(|()| unfit)?.pop_if_empty().extend([alias.as_str(), "close"]);
        close.query_pairs_mut().append_pair("identifierType", "alias");
        let note = json!({ "note": text::cut(&event.message, DESCRIPTION) });
        return Ok(Request::json(close, &note).credential("Authorization", credential));
    }
    let (mut details, mut left) = (serde_json::Map::new(), DETAILS);
    details.insert("severity".to_owned(), event.severity.as_str().into());
    for (key, value) in event.facts() {
        let Some(rest) = left.checked_sub(key.len() + value.len()) else { continue };
        left = rest;
        details.insert(key.to_owned(), value.into());
    }
    let alert = json!({
        "message": text::cut(&format!("{}/{}", object.kind, object.name), TITLE),
        "description": text::cut(&event.message, DESCRIPTION),
        "alias": alias,
        "details": details,
    });
    Ok(Request::json(target.url()?, &alert).credential("Authorization", credential))
}
