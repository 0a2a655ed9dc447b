//! `webex`: a message in Markdown to a room.

use serde_json::json;

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Bytes of the message: all has 7,439 at most.
const MESSAGE: usize = 4_500;
/// Bytes of what stands beside it.
const FACTS: usize = 2_000;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.needed_token()?;
    let sign = if event.is_error() { "💣" } else { "✅" };
    let object = text::markdown(&event.object(), 600);
    let mut said = format!("{sign} **{object}**\n\n{}\n", text::markdown(&event.message, MESSAGE));
    let mut left = FACTS;
    for (key, value) in facts(event) {
        let line = format!("\n> **{}**: {}\n", text::markdown(key, 200), text::markdown(value, 400));
        let Some(rest) = left.checked_sub(line.len()) else { break };
        left = rest;
        said.push_str(&line);
    }
    let message = json!({ "roomId": target.needed_channel()?, "markdown": said });
    let bearer = format!("Bearer {}", token.expose());
    Ok(Request::json(target.url()?, &message).credential("Authorization", bearer))
}
