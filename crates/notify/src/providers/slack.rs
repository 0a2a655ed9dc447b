//! `slack`: an attachment, by a webhook or the Web API. Discord and Rocket.Chat take the same shape. By the Web API what is told of one incident is one
//! thread.

use serde_json::{Value, json};

use super::{FACT, facts};
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// The Web API, which says in its answer whether it took the message.
const WEB_API: &str = "https://slack.com/api/chat.postMessage";
/// Characters of the message.
const MESSAGE: usize = 8_000;
/// Characters that a notification on a telephone shows.
const FALLBACK: usize = 300;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let mut message = attachment(event, MESSAGE, ["good", "danger"]);
    let fallback = format!("{}: {}", event.object(), text::first_line(&event.message));
    message["attachments"][0]["fallback"] = text::slack(&fallback, FALLBACK).into();
    message["channel"] = target.channel.as_str().into();
    message["username"] = username(target, event).into();
    if let Some(thread) = target.thread.as_deref().filter(|_| is_web_api(target)) {
        message["thread_ts"] = thread.into();
        // Whoever saw it begin is to see that it is over, or gets worse.
        message["reply_broadcast"] = true.into();
    }
    Ok(Request::json(target.url()?, &message).authorized(bearer(target)))
}

fn bearer(target: &Target) -> Option<roadstead_model::Secret> {
    let with_token = Target { password: None, ..target.clone() };
    with_token.authorization()
}

pub(super) fn username<'a>(target: &'a Target, event: &'a Event) -> &'a str {
    if target.username.is_empty() { &event.reporting_controller } else { &target.username }
}

/// What the family has in common: one attachment.
pub(super) fn attachment(event: &Event, limit: usize, [good, bad]: [&str; 2]) -> Value {
    let fields: Vec<Value> = facts(event)
        .map(|(key, value)| json!({ "title": text::slack(key, FACT), "value": text::slack(value, FACT), "short": false }))
        .collect();
    json!({
        "channel": "", "username": "", "icon_url": "", "icon_emoji": "",
        "attachments": [{
            "color": if event.is_error() { bad } else { good },
            "author_name": event.object(),
            "text": text::slack(&event.message, limit),
            "mrkdwn_in": ["text"],
            "fields": fields,
        }],
    })
}

fn is_web_api(target: &Target) -> bool {
    target.address.expose().trim() == WEB_API
}

/// The thread that begins with a message, as the answer to it says.
pub(super) fn thread(target: &Target, body: &[u8]) -> Option<String> {
    /// The longest name of one: seconds and a number.
    const LONGEST: usize = 32;
    let answer = serde_json::from_slice::<Value>(body).ok().filter(|_| is_web_api(target))?;
    let thread = answer["ts"].as_str()?;
    let fits = thread.len() <= LONGEST && thread.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    fits.then(|| thread.to_owned())
}

pub(super) fn refused(target: &Target, body: &[u8]) -> Option<String> {
    if !is_web_api(target) {
        return None;
    }
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return Some("its answer is not JSON".to_owned());
    };
    // Its codes are words like channel_not_found.
    let is_code =
        |code: &&str| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let code = answer["error"].as_str().filter(is_code).unwrap_or("it says that it is not ok");
    (answer["ok"] != true).then(|| code.to_owned())
}
