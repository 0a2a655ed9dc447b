//! Queries, headers and bodies, bounded before they are read.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use roadstead_api::{FieldError, KindId};
use roadstead_body::{Body, BodyError, Patch, decode_apply, decode_within};
use roadstead_hub_core::objects::{AtVersion, FieldValidation, ListOptions, Selector, WriteOptions};
use roadstead_hub_core::{HubError, NextPage};
use serde_json::Value;

use crate::bodies::{Bodies, Held, MAX_BODY, MAX_SMALL};

/// The parameters after `?`. Of repeated ones the first counts.
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(uri: &axum::http::Uri) -> Result<Self, HubError> {
        let bad = |error: &dyn std::fmt::Display| HubError::BadRequest(format!("read the query: {error}"));
        let pairs: axum::extract::Query<Vec<(String, String)>> =
            axum::extract::Query::try_from_uri(uri).map_err(|error| bad(&error))?;
        let mut map = BTreeMap::new();
        for (key, value) in pairs.0 {
            map.entry(key).or_insert(value);
        }
        Ok(Self(map))
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, HubError> {
        match self.get(key) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| HubError::BadRequest(format!("{key}: {text:?} must be a non-negative integer"))),
        }
    }

    /// What a list or a watch of `kind` selects, and of which version it is.
    pub(crate) fn list_options(&self, kind: KindId) -> Result<ListOptions, HubError> {
        let limit = self.number("limit")?.filter(|limit| *limit > 0);
        let after = match self.get("continue") {
            "" => None,
            text => Some(read_continue(text)?),
        };
        if after.is_some() && !matches!(self.get("resourceVersion"), "" | "0") {
            let why = "specifying resource version is not allowed when using continue";
            return Err(HubError::BadRequest(why.to_owned()));
        }
        Ok(ListOptions {
            labels: Selector::labels(self.get("labelSelector"))?,
            fields: Selector::fields(kind, self.get("fieldSelector"))?,
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            after,
            version: self.at_version(limit.is_some())?,
        })
    }

    /// `resourceVersion`; none where it is not given.
    pub(crate) fn version(&self) -> Result<Option<i64>, HubError> {
        match self.get("resourceVersion") {
            "" => Ok(None),
            text => match text.parse() {
                Ok(version) if version >= 0 => Ok(Some(version)),
                _ => Err(HubError::BadRequest(format!(
                    "Invalid value: {text:?}: resourceVersion: must be a version that the \
                                                      hub returned"
                ))),
            },
        }
    }

    fn at_version(&self, limited: bool) -> Result<AtVersion, HubError> {
        Ok(match (self.version()?, self.get("resourceVersionMatch")) {
            (None | Some(0), _) => AtVersion::Present,
            (Some(version), "Exact") => AtVersion::Exact(version),
            // From before there was a match.
            (Some(version), "") if limited => AtVersion::Exact(version),
            (Some(version), _) => AtVersion::NotOlderThan(version),
        })
    }

    /// The rules for how the parameters of lists and watches go together.
    pub(crate) fn check_versions(&self, watch: bool) -> Result<(), HubError> {
        let (matched, initial) = (self.get("resourceVersionMatch"), self.0.contains_key("sendInitialEvents"));
        let mut causes = Vec::new();
        let mut forbid = |field: &str, why: &str| causes.push(FieldError::forbidden(field, why.to_owned()));
        let field = "resourceVersionMatch";
        if !matched.is_empty() {
            if !self.get("continue").is_empty() {
                forbid(field, "resourceVersionMatch is forbidden when continue is provided");
            }
            if !watch && self.get("resourceVersion").is_empty() {
                forbid(field, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !watch && matched == "Exact" && self.get("resourceVersion") == "0" {
                forbid(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            if watch && !initial {
                forbid(
                    field,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        }
        if watch && initial && matched != "NotOlderThan" {
            forbid(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !watch && initial {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        let supported: &[&str] = if watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan"] };
        if !matched.is_empty() && !supported.contains(&matched) {
            let message =
                format!("Unsupported value: {matched:?}: supported values: {}", supported.join(", "));
            causes.push(FieldError { field: field.to_owned(), reason: "FieldValueNotSupported", message });
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(HubError::Invalid { what: "ListOptions.meta.k8s.io \"\"".to_owned(), causes })
    }

    pub(crate) fn write_options(&self, headers: &HeaderMap) -> Result<WriteOptions, HubError> {
        Ok(WriteOptions {
            manager: field_manager(self.get("fieldManager"), headers)?,
            dry_run: dry_run(self.get("dryRun"))?,
            field_validation: match self.get("fieldValidation") {
                "Ignore" => FieldValidation::Ignore,
                "" | "Warn" => FieldValidation::Warn,
                "Strict" => FieldValidation::Strict,
                other => {
                    let want = "want Ignore, Warn or Strict";
                    return Err(HubError::BadRequest(format!("fieldValidation: {other:?}: {want}")));
                }
            },
            ..WriteOptions::default()
        })
    }
}

/// As kube-apiserver has it, in bytes.
const MAX_MANAGER: usize = 128;

/// Under which name a request manages fields: the one that it says, or else its program's.
fn field_manager(said: &str, headers: &HeaderMap) -> Result<String, HubError> {
    let printable = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
    let bad = |why: String| {
        let cause =
            FieldError { field: "fieldManager".to_owned(), reason: "FieldValueInvalid", message: why };
        Err(HubError::Invalid { what: "PatchOptions.meta.k8s.io \"\"".to_owned(), causes: vec![cause] })
    };
    if said.len() > MAX_MANAGER {
        return bad(format!("Too long: may not be more than {MAX_MANAGER} bytes"));
    }
    if let Some(odd) = said.chars().find(|c| !printable(*c)) {
        return bad(format!("Invalid value: invalid character U+{:04X}", u32::from(odd)));
    }
    if !said.is_empty() {
        return Ok(said.to_owned());
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| printable(*c)) {
        if name.len() + c.len_utf8() > MAX_MANAGER {
            break;
        }
        name.push(c);
    }
    Ok(name)
}

/// A number of seconds of a body, where it is given.
pub(crate) fn seconds(value: &Value, field: &str) -> Result<Option<Duration>, HubError> {
    match value {
        Value::Null => Ok(None),
        seconds => seconds
            .as_u64()
            .map(|seconds| Some(Duration::from_secs(seconds)))
            .ok_or_else(|| HubError::BadRequest(format!("{field}: want a number of seconds"))),
    }
}

/// `dryRun`'s only value.
pub(crate) fn dry_run(text: &str) -> Result<bool, HubError> {
    match text {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(HubError::BadRequest(format!(
            "dryRun: Unsupported value: {other:?}: supported values: \"All\""
        ))),
    }
}

/// Where the next page of a list begins, as a text.
pub(crate) fn write_continue(next: &NextPage) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}/{}/{}", next.version, next.namespace, next.name))
}

fn read_continue(text: &str) -> Result<NextPage, HubError> {
    let bad = || HubError::BadRequest("continue key is not valid".to_owned());
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let mut parts = text.splitn(3, '/');
    let (Some(version), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(bad());
    };
    let version = version.parse().map_err(|_| bad())?;
    if name.is_empty() || text.contains('\0') {
        return Err(bad());
    }
    Ok(NextPage { version, namespace: namespace.to_owned(), name: name.to_owned() })
}

/// The body's media type, in lower case and without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// What is to be told of a body under this `fieldValidation`, in Kubernetes' words.
pub(crate) fn warnings(body: &Body, validation: FieldValidation) -> Result<Vec<String>, HubError> {
    let found: Vec<String> =
        body.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    match validation {
        FieldValidation::Strict if !found.is_empty() => {
            Err(HubError::BadRequest(format!("strict decoding error: {}", found.join(", "))))
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(found),
    }
}

/// The configuration of a server-side apply.
pub(crate) async fn configuration(bodies: &Bodies, body: axum::body::Body) -> Result<Held<Body>, HubError> {
    let sent = bodies.read(body, MAX_BODY).await?;
    bodies.decode(sent, decode_apply).await
}

/// The body of a patch that is not an apply.
pub(crate) async fn patch(
    bodies: &Bodies,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Held<Patch>, HubError> {
    let form = media_type(headers);
    let sent = bodies.read(body, MAX_BODY).await?;
    bodies.decode(sent, move |bytes, memory| Patch::read(&form, bytes, memory)).await
}

/// The body, which must be there, of at most `most` bytes.
pub(crate) async fn sent(
    bodies: &Bodies,
    headers: &HeaderMap,
    body: axum::body::Body,
    most: usize,
) -> Result<Held<Body>, HubError> {
    let form = media_type(headers);
    let sent = bodies.read(body, most).await?;
    bodies.decode(sent, move |bytes, memory| decode_within(&form, bytes, memory)).await
}

/// The body; null where it is empty.
pub(crate) async fn sent_or_nothing(
    bodies: &Bodies,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Held<Value>, HubError> {
    let form = media_type(headers);
    let sent = bodies.read(body, MAX_SMALL).await?;
    let decode = move |bytes: &[u8], memory: usize| match decode_within(&form, bytes, memory) {
        Ok(body) => Ok(body.value),
        Err(BodyError::Empty) => Ok(Value::Null),
        Err(error) => Err(error),
    };
    bodies.decode(sent, decode).await
}
