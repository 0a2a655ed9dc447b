//! What those who run the hub ask of it: its tokens, and its audit log.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use roadstead_api::KindId;
use roadstead_hub_core::identity::{Identity, TokenOrder, query_time};
use roadstead_hub_core::views::FleetPage;
use roadstead_hub_core::{Address, HubError};
use roadstead_model::{AuditFilter, AuditOutcome};
use serde_json::{Value, json};

use crate::bodies::Held;
use crate::request::{self, Query};
use crate::{Api, method_not_allowed, status};

/// Entries of a page where the request does not say.
const PAGE: u64 = 500;

/// What a path names.
pub(crate) enum Administered<'a> {
    Tokens,
    Token(&'a str),
    AccountToken { namespace: &'a str, name: &'a str, jti: &'a str },
    AccountKeys,
    Audit,
    AuditCheck,
    AuditHeads,
}

impl Administered<'_> {
    pub(crate) async fn answer(&self, api: &Api, who: &Identity, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let answer = async {
            let query = Query::parse(&parts.uri)?;
            match (self, &parts.method) {
                (Self::Tokens, &Method::GET) => {
                    let items = api.hub.identity.list_tokens(who, query.flag("serviceAccounts")).await?;
                    Ok(Json(FleetPage { items, next: None }).into_response())
                }
                (Self::Tokens, &Method::POST) => make(api, who, &parts.headers, body).await,
                (Self::Token(id), &Method::DELETE) => {
                    let username = api.hub.identity.revoke_token(who, id).await?;
                    Ok(Json(json!({ "id": id, "username": username })).into_response())
                }
                (Self::AccountToken { namespace, name, jti }, &Method::DELETE) => {
                    let account = service_account(namespace, name);
                    api.hub.identity.revoke_account_token(who, &account, jti).await?;
                    Ok(Json(json!({ "id": jti, "namespace": namespace, "name": name })).into_response())
                }
                (Self::AccountKeys, &Method::GET) => {
                    let items = api.hub.identity.list_account_keys(who).await?;
                    Ok(Json(FleetPage { items, next: None }).into_response())
                }
                (Self::AccountKeys, &Method::POST) => rotate(api, who, &parts.headers, body).await,
                (Self::Audit, &Method::GET) => audit(api, who, &query).await,
                (Self::AuditCheck, &Method::GET) => Ok(Json(api.hub.audit.check(who).await?).into_response()),
                (Self::AuditHeads, &Method::POST) => compare(api, who, &parts.headers, body).await,
                _ => Ok(method_not_allowed().await),
            }
        };
        answer.await.unwrap_or_else(|error: HubError| status::response(&error, None))
    }
}

async fn make(api: &Api, who: &Identity, headers: &HeaderMap, body: Body) -> Result<Response, HubError> {
    let Held { value: body, _memory } = request::sent_or_nothing(&api.bodies, headers, body).await?;
    let bad = |field: &str| HubError::BadRequest(format!("{field}: want text"));
    let username = match &body["username"] {
        Value::Null => String::new(),
        username => username.as_str().ok_or_else(|| bad("username"))?.to_owned(),
    };
    let groups = match &body["groups"] {
        Value::Null => Vec::new(),
        groups => serde_json::from_value(groups.clone()).map_err(|_| bad("groups"))?,
    };
    let lasts = request::seconds(&body["expirationSeconds"], "expirationSeconds")?;
    let made = api
        .hub
        .identity
        .order_token(who, TokenOrder { username, groups, lasts, ..TokenOrder::default() })
        .await?;
    let answer = json!({ "id": made.id, "token": made.token.expose(), "expires": made.expires.to_string() });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

fn service_account(namespace: &str, name: &str) -> Address {
    let (kind, namespace, name) = (KindId::ServiceAccount, namespace.to_owned(), name.to_owned());
    Address { kind, version: kind.get().storage_version(), namespace, name }
}

/// Makes a new key for tokens of service accounts.
async fn rotate(api: &Api, who: &Identity, headers: &HeaderMap, body: Body) -> Result<Response, HubError> {
    let Held { value: body, _memory } = request::sent_or_nothing(&api.bodies, headers, body).await?;
    let end_old = match &body["endOld"] {
        Value::Null => false,
        flag => {
            flag.as_bool().ok_or_else(|| HubError::BadRequest("endOld: want true or false".to_owned()))?
        }
    };
    let id = api.hub.identity.rotate_account_keys(who, end_old).await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))).into_response())
}

/// Holds lines of the stream against the log.
async fn compare(api: &Api, who: &Identity, headers: &HeaderMap, body: Body) -> Result<Response, HubError> {
    let Held { value: body, _memory } = request::sent_or_nothing(&api.bodies, headers, body).await?;
    Ok(Json(api.hub.audit.compare(who, &body).await?).into_response())
}

async fn audit(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let filter = audit_filter(query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0).unwrap_or(PAGE);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (items, next) = api.hub.audit.entries(who, &filter, limit).await?;
    Ok(Json(FleetPage { items, next: next.map(|next| next.to_string()) }).into_response())
}

/// Which entries a query asks for. What it does not know of it refuses, rather than answering more than was asked for.
fn audit_filter(query: &Query) -> Result<AuditFilter, HubError> {
    let text = |field: &str| -> Result<String, HubError> {
        let text = query.get(field);
        match text.contains('\0') {
            true => Err(HubError::BadRequest(format!("{field} holds the character NUL"))),
            false => Ok(text.to_owned()),
        }
    };
    let after = match query.get("continue") {
        "" => 0,
        text => text.parse().map_err(|_| HubError::BadRequest("continue key is not valid".to_owned()))?,
    };
    let newest_first = match query.get("order") {
        "" | "oldest" => false,
        "newest" => true,
        other => return Err(HubError::BadRequest(format!("order: {other:?}: want oldest or newest"))),
    };
    let outcome = match query.get("outcome") {
        "" => None,
        "ok" => Some(AuditOutcome::Ok),
        "refused" => Some(AuditOutcome::Refused),
        other => return Err(HubError::BadRequest(format!("outcome: {other:?}: want ok or refused"))),
    };
    Ok(AuditFilter {
        after,
        newest_first,
        since: query_time("since", query.get("since"))?,
        until: query_time("until", query.get("until"))?,
        username: text("user")?,
        verb: text("verb")?,
        kind: text("kind")?,
        namespace: text("namespace")?,
        name: text("name")?,
        outcome,
        request: text("request")?,
        administrator: query.flag("administrator"),
    })
}
