//! `zulip`: a message to a topic of a channel.

use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::post::post;
use crate::event::Event;
use crate::request::{Method, Request};
use crate::target::{Target, Unsendable};

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let needs = Unsendable::Missing("spec.channel is to be CHANNEL/TOPIC");
    let (channel, topic) = target.needed_channel()?.split_once('/').ok_or(needs.clone())?;
    if channel.is_empty() || topic.is_empty() {
        return Err(needs);
    }
    if target.password.is_none() || target.username.is_empty() {
        return Err(Unsendable::Missing(
            "the Secret of spec.secretRef has to have `username` and `password`",
        ));
    }
    let content = post(event);
    let body = Serializer::new(String::new())
        .extend_pairs([("type", "stream"), ("to", channel), ("topic", topic), ("content", &content)])
        .finish();
    let basic = Target { token: None, ..target.clone() }.authorization();
    let request = Request {
        method: Method::Post,
        url: String::from(target.at("/api/v1/messages")?).into(),
        headers: vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".into())],
        body: body.into_bytes(),
        shows_credentials: false,
    };
    Ok(request.authorized(basic))
}

pub(super) fn refused(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    (answer["result"] == "error").then(|| "it says that this is an error".to_owned())
}
