//! The event in Markdown, as it is posted where people read that.

use super::facts;
use crate::event::Event;
use crate::text;

/// Bytes of the message: Zulip takes 10,000 characters in all.
const MESSAGE: usize = 6_000;

pub(super) fn post(event: &Event) -> String {
    let sign = if event.is_error() { "⚠️" } else { "ℹ️" };
    let message = text::markdown(&event.message, MESSAGE);
    let mut post = format!("## Flux Status\n\n{sign} {}\n\n{message}\n", text::markdown(&event.path(), 600));
    let told: Vec<_> = facts(event).filter(|(key, _)| *key != "change_request").collect();
    if !told.is_empty() {
        post.push_str("\nMetadata:\n");
    }
    for (key, value) in told {
        post.push_str(&format!("* `{}`: {}\n", key.replace('`', "'"), text::markdown(value, 100)));
    }
    post
}
