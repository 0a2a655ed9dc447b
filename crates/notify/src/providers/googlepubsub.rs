//! `googlepubsub`: a message of a topic of Google's Pub/Sub.
//!
//! The address is the project and the channel the topic. The message is the event; its attributes, by which subscriptions select, are the
//! event's metadata and, before it, what the Secret has as `headers`, which are Flux's attributes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use url::Url;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Where the service is.
const SERVICE: &str = "https://pubsub.googleapis.com/v1/projects";
/// Attributes that a message may have; bytes of the name of one, and of its value.
const ATTRIBUTES: usize = 100;
const NAME: usize = 256;
const VALUE: usize = 1_024;
/// What names of the service's own begin with.
const RESERVED: &str = "goog";
/// Characters of a topic's name.
const TOPIC: std::ops::RangeInclusive<usize> = 3..=255;
const PROJECT: usize = 100;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let token = target.bearer_token()?;
    let project = target.address.expose().trim();
    if project.is_empty() {
        return Err(Unsendable::Missing("no address is set, neither in the spec nor in its Secret"));
    }
    // `example.com:` stands before names of projects that belong to a domain.
    let is_project = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
    if project.len() > PROJECT || !project.chars().all(is_project) || !project.contains(char::is_alphanumeric)
    {
        return Err(Unsendable::Address("the id of a project of Google Cloud"));
    }
    let topic = target.needed_channel()?;
    if !is_topic(topic) {
        return Err(Unsendable::Missing(
            "spec.channel is not the name of a topic: want 3 to 255 letters, digits and -_.~+, with a letter first and not goog",
        ));
    }
    let url = Url::parse(&format!("{SERVICE}/{project}/topics/{topic}:publish"));
    let url = url.map_err(|_| Unsendable::Address("the id of a project of Google Cloud"))?;
    // Texts, numbers and maps with texts as keys always have a JSON form.
    let data = STANDARD.encode(serde_json::to_vec(event).unwrap_or_default());
    let body = json!({ "messages": [{ "data": data, "attributes": attributes(target, event) }] });
    // What stands in the body of the Secret is for the service, as the token is.
    Ok(Request::json(url, &body).credential("Authorization", format!("Bearer {token}")))
}

fn is_topic(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.~+".contains(c);
    TOPIC.contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(fine)
        && !name.starts_with(RESERVED)
}

/// As many as a message may have. What the service would refuse the whole message for is left out, or cut.
fn attributes(target: &Target, event: &Event) -> BTreeMap<String, String> {
    // Exposed to be sent.
    let own = target.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
    let of_event = event.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut attributes = BTreeMap::new();
    for (name, value) in own.chain(of_event) {
        let is_name = !name.is_empty() && name.len() <= NAME && !name.starts_with(RESERVED);
        if !is_name || value.is_empty() || attributes.contains_key(name) {
            continue;
        }
        if attributes.len() == ATTRIBUTES {
            break;
        }
        attributes.insert(name.to_owned(), text::cut_bytes(value, VALUE));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use roadstead_model::Secret;

    use super::*;

    fn event() -> Event {
        serde_json::from_str(
            r#"{"involvedObject":{"apiVersion":"v1","kind":"K","name":"n","namespace":"s","uid":"u"},"severity":"info",
            "timestamp":"2026-08-07T10:00:00Z","message":"m","reason":"R","reportingController":"c",
            "metadata":{"env":"of the event","cluster":"edge-1","google":"x","":"x","empty":""}}"#,
        )
        .unwrap()
    }

    fn target(project: &str, topic: &str) -> Target {
        Target { address: project.into(), channel: topic.to_owned(), is_identity: true, ..Target::default() }
    }

    #[test]
    fn attributes_are_the_secrets_and_the_events_as_far_as_the_service_takes_them() {
        let mut target = target("project", "topic");
        target.headers = vec![("env".to_owned(), Secret::from("of the Secret"))];
        let mut event = event();
        let found = attributes(&target, &event);
        let expected = [("cluster", "edge-1"), ("env", "of the Secret")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
        for index in 0..200 {
            event.metadata.insert(format!("key-{index}"), "𝒳".repeat(1_000));
        }
        let found = attributes(&target, &event);
        assert_eq!(found.len(), ATTRIBUTES);
        assert!(found.values().all(|value| !value.is_empty() && value.len() <= VALUE));
    }

    #[test]
    fn what_is_no_project_and_no_topic_leads_nowhere_else() {
        for (project, topic) in [
            ("", "topic"),
            ("..", "topic"),
            ("a/b", "topic"),
            ("a?b", "topic"),
            ("A", "topic"),
            ("project", ""),
            ("project", "ab"),
            ("project", "../x"),
            ("project", "a/b"),
            ("project", "1topic"),
            ("project", "google"),
            ("project", "topic:delete"),
        ] {
            assert!(request(&target(project, topic), &event()).is_err(), "{project} {topic}");
        }
        let request = request(&target("example.com:project", "a.topic+1"), &event()).unwrap();
        let path = "https://pubsub.googleapis.com/v1/projects/example.com:project/topics/a.topic+1:publish";
        assert_eq!(request.url.expose(), path);
    }
}
