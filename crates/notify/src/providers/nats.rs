//! `nats`: a message of a subject. The server does not speak HTTP: it is said here what is published, and who does it says how.

use super::Next;
use crate::event::Event;
use crate::target::{Target, Unsendable};

/// What is published on a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The subject.
    pub subject: String,
    /// Headers, where the server knows them.
    pub headers: Vec<(&'static str, String)>,
    /// The message.
    pub body: Vec<u8>,
}

pub(super) fn publication(target: &Target, event: &Event) -> Result<Next, Unsendable> {
    let subject = target.needed_channel()?.to_owned();
    // Exposed to see whether there is one.
    if target.address.expose().trim().is_empty() {
        return Err(Unsendable::Missing("no address is set, neither in the spec nor in its Secret"));
    }
    let mut headers = Vec::with_capacity(2);
    if !target.delivery.is_empty() {
        // A stream takes one of these once, and so takes no repeat.
        headers.push(("Nats-Msg-Id", target.delivery.clone()));
    }
    if target.is_repeat {
        headers.push(("X-Roadstead-Repeat", "true".to_owned()));
    }
    // Texts, numbers and maps with texts as keys always have a JSON form.
    let body = serde_json::to_vec(event).unwrap_or_default();
    Ok(Next::Publish(Publication { subject, headers, body }))
}
