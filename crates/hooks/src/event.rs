//! Which event a call tells.

use roadstead_api::ReceiverType;

use crate::Call;

/// The header that says it.
fn header(type_: ReceiverType) -> Option<&'static str> {
    match type_ {
        ReceiverType::Github => Some("x-github-event"),
        ReceiverType::Gitlab => Some("x-gitlab-event"),
        ReceiverType::Bitbucket => Some("x-event-key"),
        ReceiverType::Cdevents => Some("ce-type"),
        _ => None,
    }
}

/// The event of a call, where callers of this type name one.
#[must_use]
pub fn event<'a>(type_: ReceiverType, call: &Call<'a>) -> Option<&'a str> {
    header(type_).map(|name| call.header(name).unwrap_or_default())
}

/// Whether a Receiver that lists these events acts on a call: on all where it lists none, or where callers name none.
#[must_use]
pub fn is_listened_to(type_: ReceiverType, events: &[String], call: &Call<'_>) -> bool {
    let Some(event) = event(type_, call) else { return true };
    events.is_empty() || events.iter().any(|listed| listed.to_lowercase() == event.to_lowercase())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn events_are_compared_in_any_case_where_there_are_any() {
        let mut headers = HeaderMap::new();
        headers.insert("x-github-event", "Push".parse().unwrap());
        let call = Call { headers: &headers, body: b"" };
        let listens = |type_, events: &[&str]| {
            let events: Vec<String> = events.iter().map(|event| (*event).to_owned()).collect();
            is_listened_to(type_, &events, &call)
        };
        assert!(listens(ReceiverType::Github, &[]));
        assert!(listens(ReceiverType::Github, &["ping", "PUSH"]));
        assert!(!listens(ReceiverType::Github, &["ping", "pushed"]));
        // It says no event of GitLab's.
        assert!(!listens(ReceiverType::Gitlab, &["push"]));
        assert!(listens(ReceiverType::Generic, &["push"]));
        assert_eq!(event(ReceiverType::Github, &call), Some("Push"));
        assert_eq!(event(ReceiverType::Gitlab, &call), Some(""));
        assert_eq!(event(ReceiverType::Nexus, &call), None);
    }
}
