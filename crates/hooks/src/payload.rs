//! What the body of a call says, once the call was proven.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::ReceiverType;
use serde::Deserialize;
use serde_json::Value;

use crate::Call;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// What of a body is JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<'a> {
    /// This is, or says that it is.
    Json(Cow<'a, [u8]>),
    /// Nothing: the body is of another type.
    Nothing,
}

/// Why a body is not what callers of this type send. It repeats nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPayload {
    /// Of another media type.
    #[error("the body is of a media type that callers of this type do not send")]
    MediaType,
    /// A form without the field that holds the payload.
    #[error("the form has no field named payload")]
    NoPayload,
    /// It is not JSON, which is all by which such a call is known.
    #[error("the body is not JSON")]
    Json,
    /// It is not a message of Pub/Sub.
    #[error("the body is not a message of Pub/Sub with data in base64")]
    PubSub,
    /// It is JSON, and no `CDEvent`.
    #[error("the body is not a CDEvent of version 0.4 and of the type that its header says")]
    CdEvent,
}

/// Whether the body of a call of this type is read whatever the Receiver asks for: that it can be is all that says that it comes from
/// whom it should.
#[must_use]
pub fn is_always_read(type_: ReceiverType) -> bool {
    use ReceiverType as T;
    matches!(type_, T::Gcr | T::Dockerhub | T::Quay | T::Acr | T::Cdevents)
}

/// What of the body is to be read as JSON.
///
/// # Errors
/// [`BadPayload`] where callers of this type do not send such.
pub fn payload<'a>(type_: ReceiverType, call: &Call<'a>) -> Result<Payload<'a>, BadPayload> {
    let media_type = call.media_type();
    match type_ {
        ReceiverType::Github => match media_type.as_str() {
            JSON => Ok(Payload::Json(call.body.into())),
            FORM => form(call.body),
            _ => Err(BadPayload::MediaType),
        },
        ReceiverType::Gcr => pushed(call.body),
        ReceiverType::Dockerhub | ReceiverType::Quay | ReceiverType::Acr | ReceiverType::Cdevents => {
            Ok(Payload::Json(call.body.into()))
        }
        _ if media_type == JSON || media_type.ends_with("+json") => Ok(Payload::Json(call.body.into())),
        _ => Ok(Payload::Nothing),
    }
}

fn form(body: &[u8]) -> Result<Payload<'_>, BadPayload> {
    let mut fields = url::form_urlencoded::parse(body);
    let found = fields.find(|(name, _)| name == "payload").ok_or(BadPayload::NoPayload)?;
    Ok(Payload::Json(match found.1 {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }))
}

/// What Pub/Sub pushes: all else that stands in it is passed over.
#[derive(Deserialize)]
struct Push<'a> {
    #[serde(borrow)]
    message: Message<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

fn pushed(body: &[u8]) -> Result<Payload<'_>, BadPayload> {
    let push: Push<'_> = serde_json::from_slice(body).map_err(|_| BadPayload::PubSub)?;
    let data = STANDARD.decode(push.message.data.as_bytes()).map_err(|_| BadPayload::PubSub)?;
    Ok(Payload::Json(data.into()))
}

/// Checks that what was read is an event of CD Events 0.4: what all of them have, and that its type is the one of the header.
///
/// # Errors
/// [`BadPayload::CdEvent`].
pub fn is_cd_event(call: &Call<'_>, event: &Value) -> Result<(), BadPayload> {
    let text = |field: &str| event["context"][field].as_str().filter(|text| !text.is_empty());
    let has = |field: &&str| text(field).is_some();
    let type_ = text("type").unwrap_or_default();
    let named: Vec<&str> = type_.split('.').collect();
    let is_typed = named.len() >= 6
        && named.starts_with(&["dev", "cdevents"])
        && named[2..].iter().all(|part| !part.is_empty());
    let version = text("version").unwrap_or_default();
    let subject = &event["subject"];
    let is_right = ["id", "source", "timestamp"].iter().all(has)
        && is_typed
        && (version == "0.4" || version.starts_with("0.4."))
        && subject["id"].as_str().is_some_and(|id| !id.is_empty())
        && subject["content"].is_object()
        && call.header("ce-type").is_none_or(|header| header == type_);
    if is_right { Ok(()) } else { Err(BadPayload::CdEvent) }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::json;

    use super::*;

    fn read(type_: ReceiverType, media_type: &str, body: &[u8]) -> Result<Option<String>, BadPayload> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", media_type.parse().unwrap());
        let found = payload(type_, &Call { headers: &headers, body })?;
        Ok(match found {
            Payload::Json(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Payload::Nothing => None,
        })
    }

    #[test]
    fn github_sends_json_or_a_form() {
        let github = |media_type, body: &[u8]| read(ReceiverType::Github, media_type, body);
        let json = Ok(Some(r#"{"a": "b&c"}"#.to_owned()));
        assert_eq!(github("application/json; charset=utf-8", br#"{"a": "b&c"}"#), json);
        assert_eq!(github(FORM, b"x=1&payload=%7B%22a%22%3A+%22b%26c%22%7D&payload=no"), json);
        assert_eq!(github(FORM, b"x=1"), Err(BadPayload::NoPayload));
        assert_eq!(github("text/plain", b"{}"), Err(BadPayload::MediaType));
        assert_eq!(github("", b"{}"), Err(BadPayload::MediaType));
    }

    #[test]
    fn others_say_whether_it_is_json() {
        let generic = |media_type| read(ReceiverType::GenericHmac, media_type, b"{}");
        assert_eq!(generic("Application/JSON"), Ok(Some("{}".to_owned())));
        assert_eq!(generic("application/cloudevents+json"), Ok(Some("{}".to_owned())));
        assert_eq!(generic("text/plain"), Ok(None));
        assert_eq!(read(ReceiverType::Quay, "text/plain", b"{}"), Ok(Some("{}".to_owned())));
    }

    #[test]
    fn what_pub_sub_pushes_is_unpacked() {
        let body = |data: Value| {
            json!({ "subscription": [[]], "message": { "data": data, "messageId": 1 } }).to_string()
        };
        let gcr = |body: String| read(ReceiverType::Gcr, JSON, body.as_bytes());
        let data = STANDARD.encode(r#"{"action":"INSERT","tag":"a/b:c"}"#);
        assert_eq!(gcr(body(json!(data))), Ok(Some(r#"{"action":"INSERT","tag":"a/b:c"}"#.to_owned())));
        for wrong in
            [body(json!("no base64!")), body(json!(1)), "{}".to_owned(), String::new(), "[".repeat(100_000)]
        {
            assert_eq!(gcr(wrong), Err(BadPayload::PubSub));
        }
    }

    #[test]
    fn an_event_of_cd_events_has_what_all_of_them_have() {
        let event = json!({
            "context": { "version": "0.4.1", "id": "1", "source": "/ci", "timestamp": "2026-01-01T00:00:00Z",
                         "type": "dev.cdevents.artifact.published.0.2.0" },
            "subject": { "id": "pkg:oci/app", "source": "/ci", "content": {} },
        });
        let mut headers = HeaderMap::new();
        let check = |headers: &HeaderMap, event: &Value| is_cd_event(&Call { headers, body: b"" }, event);
        assert_eq!(check(&headers, &event), Ok(()));
        headers.insert("ce-type", "dev.cdevents.artifact.published.0.2.0".parse().unwrap());
        assert_eq!(check(&headers, &event), Ok(()));
        for (pointer, value) in [
            ("/context/version", json!("0.3.0")),
            ("/context/version", json!("0.40")),
            ("/context/id", json!("")),
            ("/context/source", json!(null)),
            ("/context/timestamp", json!(7)),
            ("/context/type", json!("dev.cdevents.artifact")),
            ("/context/type", json!("dev.cdevents.artifact.deleted.0.2.0")),
            ("/subject/id", json!(null)),
            ("/subject/content", json!([])),
        ] {
            let mut wrong = event.clone();
            *wrong.pointer_mut(pointer).unwrap() = value;
            assert_eq!(check(&headers, &wrong), Err(BadPayload::CdEvent), "{pointer}");
        }
        for wrong in [json!(null), json!([]), json!({ "context": "x" })] {
            assert_eq!(check(&headers, &wrong), Err(BadPayload::CdEvent));
        }
    }
}
