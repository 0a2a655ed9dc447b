//! What Kubernetes' authentication API answers without storing anything: tokens of service accounts, and who asks.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use roadstead_hub_core::{Address, HubError, Identity};
use serde_json::{Value, json};

use crate::{Api, request};

/// `apiVersion` of both.
const API_VERSION: &str = "authentication.k8s.io/v1";
/// Where who asks is told.
pub(crate) const SELF_SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The body is of this kind, or does not say.
fn expect_kind(body: &Value, kind: &str) -> Result<(), HubError> {
    for (field, want) in [("apiVersion", API_VERSION), ("kind", kind)] {
        if !body[field].is_null() && body[field] != want {
            return Err(HubError::BadRequest(format!(
                "{field} in the body is {}, and {want} is wanted",
                body[field]
            )));
        }
    }
    Ok(())
}

/// `POST …/serviceaccounts/NAME/token`
pub(crate) async fn token_request(
    api: &Api,
    who: &Identity,
    address: &Address,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    let body = request::sent(headers, body).await?.value;
    expect_kind(&body, "TokenRequest")?;
    let spec = &body["spec"];
    for field in ["audiences", "boundObjectRef"] {
        let given = !spec[field].is_null() && spec[field].as_array().is_none_or(|list| !list.is_empty());
        if given {
            return Err(HubError::BadRequest(format!(
                "spec.{field} is not supported: a token is for this hub, and ends with its service account"
            )));
        }
    }
    let lasts = request::seconds(&spec["expirationSeconds"], "spec.expirationSeconds")?;
    let made = api.hub.create_account_token(who, address, lasts).await?;
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": API_VERSION,
        "metadata": { "name": address.name, "namespace": address.namespace },
        "spec": { "audiences": [], "expirationSeconds": spec["expirationSeconds"].as_u64().unwrap_or(3600), "boundObjectRef": null },
        "status": {
            "token": made.token.expose(),
            "expirationTimestamp": made.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// `POST` to [`SELF_SUBJECT_REVIEWS`]: whom the token stands for.
pub(crate) async fn self_subject(
    who: &Identity,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    let body = request::sent_or_nothing(headers, body).await?.map(|sent| sent.value).unwrap_or_default();
    expect_kind(&body, "SelfSubjectReview")?;
    let answer = json!({
        "kind": "SelfSubjectReview", "apiVersion": API_VERSION, "metadata": {},
        "status": { "userInfo": { "username": who.username, "groups": who.groups } },
    });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}
