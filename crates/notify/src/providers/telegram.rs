//! `telegram`: a message of a bot. Its token is part of the URL.

use serde_json::{Value, json};

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of the message: all has 4,096 at most.
const MESSAGE: usize = 2_600;
/// Characters of what stands beside it.
const FACTS: usize = 900;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-');
    // Anything else would lead to another path.
    if !token.expose().chars().all(is_token) {
        return Err(Unsendable::Missing("the Secret's `token` is not that of a bot"));
    }
    let (chat, thread) = match target.needed_channel()?.rsplit_once(':') {
        Some((chat, thread)) => {
            let thread = thread.parse::<i64>();
            (
                chat,
                Some(thread.map_err(|_| Unsendable::Missing("spec.channel is to be CHAT or CHAT:THREAD"))?),
            )
        }
        None => (target.channel.as_str(), None),
    };
    let sign = if event.is_error() { "🚨" } else { "💫" };
    let object = format!(
        "{}/{}/{}",
        event.involved_object.kind.to_lowercase(),
        event.involved_object.name,
        event.involved_object.namespace
    );
    let mut said =
        format!("{sign} *{}*\n{}", text::telegram(&object, 540), text::telegram(&event.message, MESSAGE));
    let mut left = FACTS;
    for (key, value) in facts(event) {
        let line = format!("\n\\- *{}*: {}", text::telegram(key, 100), text::telegram(value, 300));
        let Some(rest) = left.checked_sub(line.chars().count()) else { break };
        left = rest;
        said.push_str(&line);
    }
    let mut message = json!({ "chat_id": chat, "text": said, "parse_mode": "MarkdownV2" });
    if let Some(thread) = thread {
        message["message_thread_id"] = thread.into();
    }
    let request =
        Request::json(format!("https://api.telegram.org/bot{}/sendMessage", token.expose()), &message);
    Ok(Request { shows_credentials: true, ..request })
}

pub(super) fn refused(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let code = answer["error_code"].as_i64().unwrap_or_default();
    (answer["ok"] == false).then(|| format!("code {code}"))
}
