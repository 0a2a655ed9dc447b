//! `msteams`: a MessageCard for the connectors of old, an adaptive card for workflows.

use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Bytes of the message: a card has 28 KB at most, and JSON may double what is in it.
const MESSAGE: usize = 8_000;
/// Bytes of a fact.
const FACT: usize = 200;
/// The hosts of connectors.
const CONNECTORS: &str = ".webhook.office.com";

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let url = target.url()?;
    let is_connector = url.host_str().is_some_and(|host| host.ends_with(CONNECTORS));
    let card = if is_connector { message_card(event) } else { adaptive_card(event) };
    Ok(Request::json(url, &card))
}

fn short(fact: &str) -> String {
    text::markdown(fact, FACT)
}

fn message_card(event: &Event) -> Value {
    let facts: Vec<Value> =
        facts(event).map(|(name, value)| json!({ "name": short(name), "value": short(value) })).collect();
    json!({
        "@type": "MessageCard",
        "@context": "http://schema.org/extensions",
        "themeColor": if event.is_error() { "FF0000" } else { "0076D7" },
        "summary": event.object(),
        "sections": [{
            "activityTitle": text::markdown(&event.message, MESSAGE),
            "activitySubtitle": event.object(),
            "facts": facts,
        }],
    })
}

fn adaptive_card(event: &Event) -> Value {
    let facts: Vec<Value> =
        facts(event).map(|(title, value)| json!({ "title": short(title), "value": short(value) })).collect();
    let mut message =
        json!({ "type": "TextBlock", "text": text::markdown(&event.message, MESSAGE), "wrap": true });
    if event.is_error() {
        message["color"] = "attention".into();
    }
    let mut items = vec![
        json!({ "type": "TextBlock", "text": event.object(), "size": "large", "weight": "bolder", "wrap": true }),
        message,
    ];
    if !facts.is_empty() {
        items.push(json!({ "type": "FactSet", "facts": facts }));
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": { "width": "Full" },
                "body": [{ "type": "Container", "items": items }],
            },
        }],
    })
}
