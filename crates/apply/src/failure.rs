//! From what the apiserver said to a message that people understand and that tells no secret.

use roadstead_model::ObjectRef;

use crate::error::{FailureKind, ObjectFailure};
use crate::transport::{Refusal, Status};

/// How much of the apiserver's message is kept, in bytes.
const MAX_MESSAGE: usize = 1024;

/// What `refusal` means for `object`. Where the object is `sensitive`, only what cannot hold a value is repeated.
pub(crate) fn explain(object: &ObjectRef, refusal: &Refusal, sensitive: bool) -> ObjectFailure {
    let (kind, mut message) = match refusal {
        Refusal::Unreachable(what) | Refusal::TooLarge(what) => (FailureKind::Unavailable, what.clone()),
        Refusal::Status(status) if sensitive => (classify(status), discreet(status)),
        Refusal::Status(status) => (classify(status), spoken(object, status)),
    };
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    ObjectFailure { object: object.clone(), kind, message }
}

/// Whether a field refused to change: the API has no code of its own for that.
fn is_immutable(status: &Status) -> bool {
    let says = |text: &str| {
        let text = text.to_lowercase();
        [
            "is immutable",
            "immutable field",
            "updates to statefulset spec for fields other than",
            "may not change once set",
        ]
        .iter()
        .any(|phrase| text.contains(phrase))
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    matches!(status.code, 409 | 422 | 403 | 400 | 500)
        && (says(&status.message) || causes.into_iter().any(|cause| says(&cause.message)))
}

fn classify(status: &Status) -> FailureKind {
    if is_immutable(status) {
        return FailureKind::Immutable;
    }
    match status.code {
        // An admission webhook says no with 403 or a code of its own choice.
        _ if status.message.contains("denied the request")
            || status.message.contains(" denied request: ") =>
        {
            FailureKind::Invalid
        }
        400 | 422 => FailureKind::Invalid,
        500 if is_typed_patch(status) => FailureKind::Invalid,
        401 | 403 => FailureKind::Forbidden,
        404 => FailureKind::NotFound,
        409 => FailureKind::Conflict,
        429 | 502..=504 => FailureKind::Unavailable,
        _ => FailureKind::Other,
    }
}

fn is_typed_patch(status: &Status) -> bool {
    status.message.starts_with("failed to create typed patch object")
}

/// The message without what the object's own name in front of it says already.
fn spoken(object: &ObjectRef, status: &Status) -> String {
    let message = status.message.trim();
    // `Service "backend" is invalid: …`, `deployments.apps "backend" is forbidden: …`
    let quoted = format!("\"{}\" ", object.name);
    let rest = message
        .split_once(quoted.as_str())
        .filter(|(before, _)| !before.contains(' ') || before.ends_with(' '));
    let rest = rest.map_or(message, |(_, rest)| rest);
    let rest =
        ["is invalid: ", "is forbidden: "].iter().find_map(|lead| rest.strip_prefix(lead)).unwrap_or(message);
    // `failed to create typed patch object (dev/backend; apps/v1, Kind=Deployment): .spec.x: field not declared …`
    let rest =
        if is_typed_patch(status) { rest.split_once("): ").map_or(rest, |(_, rest)| rest) } else { rest };
    if rest.is_empty() { format!("HTTP status {} {}", status.code, status.reason) } else { rest.to_owned() }
}

/// What can be told of a Secret's refusal: which fields and why, never a text that may hold a value.
fn discreet(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: Vec<String> = causes
        .filter(|cause| !cause.field.is_empty())
        .take(10)
        .map(|cause| format!("{}: {}", cause.field, cause.reason))
        .collect();
    let what =
        if fields.is_empty() { format!("{} ({})", status.reason, status.code) } else { fields.join(", ") };
    match status.code {
        // These two come from authorisation and from the path, before the object's content is looked at; an
        // admission policy or webhook answers 403 too, in its own words.
        403 if status.message.contains("is forbidden: User \"") => status.message.clone(),
        404 => status.message.clone(),
        _ => format!("{what} (the apiserver's message is withheld, it may hold the object's values)"),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_model::ObjectRef;

    use super::explain;
    use crate::transport::{Cause, Details, Refusal, Status};

    fn object(group: &str, kind: &str, name: &str) -> ObjectRef {
        ObjectRef {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "dev".to_owned(),
            name: name.to_owned(),
        }
    }

    fn status(code: u16, reason: &str, message: &str) -> Status {
        Status { code, reason: reason.to_owned(), message: message.to_owned(), details: None }
    }

    fn said(object: &ObjectRef, status: Status, sensitive: bool) -> String {
        explain(object, &Refusal::Status(Box::new(status)), sensitive).to_string()
    }

    #[test]
    fn the_object_is_named_once() {
        let service = object("", "Service", "backend");
        let invalid = status(
            422,
            "Invalid",
            r#"Service "backend" is invalid: spec.type: Unsupported value: "Ingress""#,
        );
        assert_eq!(
            said(&service, invalid, false),
            r#"Service/dev/backend is invalid: spec.type: Unsupported value: "Ingress""#
        );
        let forbidden = status(403, "Forbidden", r#"services "backend" is forbidden: User "x" cannot patch"#);
        assert_eq!(
            said(&service, forbidden, false),
            r#"Service/dev/backend is forbidden: User "x" cannot patch"#
        );
        let missing = status(404, "NotFound", r#"namespaces "dev" not found"#);
        assert_eq!(said(&service, missing, false), r#"Service/dev/backend: namespaces "dev" not found"#);
        let typed = status(
            500,
            "",
            "failed to create typed patch object (dev/backend; /v1, Kind=Service): .spec.x: field not declared in schema",
        );
        assert_eq!(
            said(&service, typed, false),
            "Service/dev/backend is invalid: .spec.x: field not declared in schema"
        );
    }

    #[test]
    fn an_immutable_field_is_told_from_other_refusals() {
        let job = object("batch", "Job", "migrate");
        let text = said(
            &job,
            status(
                422,
                "Invalid",
                r#"Job.batch "migrate" is invalid: spec.template: Invalid value: {}: field is immutable"#,
            ),
            false,
        );
        assert!(
            text.starts_with("Job/dev/migrate has an immutable field that would change: spec.template"),
            "{text}"
        );
    }

    #[test]
    fn a_secrets_values_are_not_repeated() {
        let secret = object("", "Secret", "s");
        let mut refused =
            status(422, "Invalid", r#"Secret "s" is invalid: data[k]: Invalid value: "hunter2""#);
        refused.details = Some(Details {
            causes: vec![Cause {
                reason: "FieldValueInvalid".to_owned(),
                message: r#"Invalid value: "hunter2""#.to_owned(),
                field: "data[k]".to_owned(),
            }],
            ..Details::default()
        });
        let text = said(&secret, refused, true);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.starts_with("Secret/dev/s is invalid: data[k]: FieldValueInvalid"), "{text}");
        for code in [400, 403, 409, 500] {
            let text = said(
                &secret,
                status(code, "X", r#"admission webhook "w" denied the request: hunter2"#),
                true,
            );
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
