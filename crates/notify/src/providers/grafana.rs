//! `grafana`: an annotation.

use serde_json::json;

use super::facts;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};
use crate::text;

/// Characters of a tag, which the database there has room for.
const TAG: usize = 100;

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let object = &event.involved_object;
    let pair = |key: &str, value: &str| {
        let (key, value) = (key.replace(':', "|"), value.replace(':', "|"));
        text::cut(&format!("{key}: {value}"), TAG)
    };
    let mut tags = vec!["flux".to_owned(), event.reporting_controller.clone()];
    tags.extend(facts(event).map(|(key, value)| pair(key, value)));
    tags.push(pair("kind", &object.kind));
    tags.push(pair("name", &object.name));
    tags.push(pair("namespace", &object.namespace));
    // In milliseconds: what Flux sends, `when` in seconds, is passed over there.
    let annotation = json!({ "time": event.time().as_millisecond(), "text": event.object(), "tags": tags });
    Ok(Request::json(target.url()?, &annotation).authorized(target.authorization()))
}
