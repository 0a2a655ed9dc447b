//! How agents come on board: join tokens for administrators, enrolment for agents.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use roadstead_deploy::NAMESPACE;
use roadstead_hub_core::{Address, Enrolment, HubError, Identity};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Api, request, status};

/// What an agent sends. The join token is all that says who it is; the certificate request holds its public key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnrolRequest {
    token: String,
    csr: String,
    kube_system_uid: String,
}

/// `POST /fleet/v1/enrol`: without a bearer token, since the join token is in the body.
pub(crate) async fn enrol(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match enrolled(&api, &parts.headers, body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => status::response(&error, None),
    }
}

async fn enrolled(api: &Api, headers: &HeaderMap, body: Body) -> Result<Value, HubError> {
    let body = request::sent(headers, body).await?.value;
    // The error names a field at most, never the token.
    let request: EnrolRequest = serde_json::from_value(body)
        .map_err(|error| HubError::BadRequest(format!("the enrolment request: {error}")))?;
    let enrolment =
        Enrolment { token: &request.token, csr_pem: &request.csr, kube_system_uid: &request.kube_system_uid };
    let enrolled = api.hub.enrol(&enrolment).await?;
    Ok(json!({
        "certificate": enrolled.certificate_pem,
        "ca": enrolled.ca_pem,
        "link": enrolled.link,
        "clusterUid": enrolled.cluster.to_string(),
        "clusterName": enrolled.name,
    }))
}

/// `POST …/clusters/NAME/jointoken`: answers the Secret from which an agent joins.
pub(crate) async fn join_token(
    api: &Api,
    who: &Identity,
    address: &Address,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    who.authorize("create", address.kind.get(), "jointoken", "", &address.name)?;
    let body = request::sent(headers, body).await?.value;
    let ttl = request::seconds(&body["ttlSeconds"], "ttlSeconds")?;
    let invitation = api.hub.create_join_token(&address.name, ttl).await?;
    Ok(Json(invitation.secret(NAMESPACE)).into_response())
}
