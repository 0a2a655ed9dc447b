//! `matrix`: a message to a room. What it is put to is named by the event, so that a repeat does not make a second message.

use serde_json::json;

use super::facts;
use crate::event::Event;
use crate::request::{Method, Request};
use crate::target::{Target, Unsendable};
use crate::text;

/// Bytes of the message: an event has 64 KiB at most.
const MESSAGE: usize = 24_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let told = serde_json::to_vec(event).unwrap_or_default();
    let transaction = text::sha1(&told);
    let mut url = target.at("")?;
    url.path_segments_mut().map_err(|()| Unsendable::Address("that of a server"))?.extend([
        "_matrix",
        "client",
        "r0",
        "rooms",
        target.needed_channel()?,
        "send",
        "m.room.message",
        &transaction,
    ]);
    let sign = if event.is_error() { "🚨" } else { "💫" };
    let mut body =
        format!("{sign} {}\n{}", event.object(), text::cut_bytes(&text::calm(&event.message), MESSAGE));
    for (key, value) in facts(event) {
        let (key, value) = (text::cut(&text::calm(key), 100), text::cut(&text::calm(value), 200));
        body.push_str(&format!("\n- {key}: {value}"));
    }
    let request = Request::json(url, &json!({ "msgtype": "m.text", "body": body }));
    let bearer = format!("Bearer {}", token.expose());
    Ok(Request { method: Method::Put, ..request.credential("Authorization", bearer) })
}
