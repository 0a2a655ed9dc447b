//! `googlechat`: a card.

use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of the message: a message has 32 KB at most.
const MESSAGE: usize = 4_000;
/// Characters of what stands beside it.
const FACT: usize = 400;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let message = text::html(&event.message, MESSAGE);
    let message =
        if event.is_error() { format!("<font color=\"#ff0000\">{message}</font>") } else { message };
    let mut sections = vec![json!({
        "header": "",
        "widgets": [{ "textParagraph": { "text": message }, "keyValue": null }],
    })];
    let widgets: Vec<Value> = facts(event)
        .map(|(key, value)| {
            json!({ "textParagraph": null, "keyValue": {
                "topLabel": text::html(key, FACT), "content": text::html(value, FACT), "contentMultiline": false,
                "bottomLabel": null, "icon": null,
            }})
        })
        .collect();
    if !widgets.is_empty() {
        sections.push(json!({ "header": "", "widgets": widgets }));
    }
    let header = json!({
        "title": event.object(), "subtitle": event.reporting_controller, "imageUrl": null, "imageStyle": null,
    });
    Ok(Request::json(target.url()?, &json!({ "cards": [{ "header": header, "sections": sections }] })))
}
