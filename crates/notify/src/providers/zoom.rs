//! `zoom`: a message of Zoom Team Chat, by an incoming webhook.

use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Bytes of the message.
const MESSAGE: usize = 4_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let mut url = target.url()?;
    // Only in this form a message may have parts.
    if !url.query_pairs().any(|(key, _)| key == "format") {
        url.query_pairs_mut().append_pair("format", "full");
    }
    let item = |(key, value): (&str, &str)| json!({ "key": text::cut(&plain(key), 100), "value": text::cut(&plain(value), 200) });
    let items: Vec<Value> = facts(event).map(item).collect();
    let said = text::cut_bytes(&plain(&event.message), MESSAGE);
    let mut body = vec![json!({ "type": "message", "text": said })];
    if !items.is_empty() {
        body.push(json!({ "type": "fields", "items": items }));
    }
    let sub_head = json!({ "text": event.severity.as_str() });
    let head = json!({ "text": text::cut(&plain(&event.object()), 600), "sub_head": sub_head });
    let message = json!({ "content": { "head": head, "body": body } });
    Ok(Request::json(url, &message).credential("Authorization", token.expose().to_owned()))
}

/// Without what would mention somebody, as `<!NAME>` does.
fn plain(text: &str) -> String {
    // A word joiner, which nobody sees.
    text::calm(text).replace("<!", "<\u{2060}!")
}
