//! `lark`: a card. The service answers 200 to what it does not take, and says so in its answer.

use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Bytes of the message: a card has 30 KB at most.
const MESSAGE: usize = 10_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let (sign, template) = if event.is_error() { ("🚨", "red") } else { ("💫", "turquoise") };
    let mut content = format!("**{}**\n", text::markdown(&event.message, MESSAGE));
    for (key, value) in facts(event) {
        content.push_str(&format!("{}: {}\n", text::markdown(key, 100), text::markdown(value, 300)));
    }
    let card = json!({
        "config": { "wide_screen_mode": true },
        "header": {
            "title": { "tag": "plain_text", "content": format!("{sign} {}", event.object()) },
            "template": template,
        },
        "elements": [{ "tag": "div", "text": { "tag": "lark_md", "content": content } }],
    });
    Ok(Request::json(target.url()?, &json!({ "msg_type": "interactive", "card": card })))
}

pub(super) fn refused(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let code = answer["code"].as_i64().filter(|code| *code != 0)?;
    Some(format!("code {code}"))
}
