//! Signing in to the dashboard and out of it: where people are sent, what providers send them back with, and the cookies.
//!
//! These paths are open, since nobody there has said yet who it is. What providers say is shown as text and nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use roadstead_body::JSON;
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::{Answered, SignInRefused, Signed, SignedIn};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::request::{self, Query};
use crate::{Api, cookie, dashboard, origin, status};

/// Bytes of a request with a token.
const MAX_TOKEN: usize = 20 * 1024;
/// So long such a request may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct WithToken {
    token: String,
}

/// What is asked of here needs the database, and says so at once where that is away.
async fn unless_away(api: &Api, answer: impl Future<Output = Response>) -> Response {
    tokio::select! {
        biased;
        why = api.hub.database().lost() => {
            status::response(&HubError::Unavailable(status::away(why)), None)
        }
        response = answer => response,
    }
}

/// `GET /fleet/v1/sign-in`: where people sign in, and who it is that has done so.
pub(crate) async fn offered(State(api): State<Api>, request: Request) -> Response {
    let offered = json!({
        "providers": api.hub.sign_in.offered(),
        "tokenIsForEmergencies": api.hub.sign_in.is_token_for_emergencies(),
    });
    let cookie = cookie::session(request.method(), request.uri(), request.headers());
    let Some(cookie) = cookie else { return Json(offered).into_response() };
    unless_away(&api, async {
        match api.hub.sign_in.authenticate(cookie).await {
            Ok(Signed::In(who)) => {
                let mut offered = offered;
                offered["user"] = who.username.into();
                Json(offered).into_response()
            }
            Ok(Signed::Out) => {
                let mut response = Json(offered).into_response();
                append(&mut response, cookie::unset(cookie::SESSION));
                response
            }
            Err(error) => status::response(&error, None),
        }
    })
    .await
}

/// `GET /fleet/v1/sign-in/start`: sends a browser to a provider.
pub(crate) async fn start(State(api): State<Api>, request: Request) -> Response {
    let query = match Query::parse(request.uri()) {
        Ok(query) => query,
        Err(error) => return status::response(&error, None),
    };
    match api.hub.sign_in.begin(query.get("provider"), query.get("to")).await {
        Ok(begun) => {
            let mut response = sent_to(&begun.location);
            append(&mut response, cookie::set(cookie::SIGN_IN, &begun.cookie, begun.lasts, false));
            response
        }
        Err(error) => refused(&error),
    }
}

/// `GET /fleet/v1/sign-in/callback`: where a provider sends a browser back to.
pub(crate) async fn back(State(api): State<Api>, request: Request) -> Response {
    let query = match Query::parse(request.uri()) {
        Ok(query) => query,
        Err(error) => return status::response(&error, None),
    };
    let answered = Answered {
        state: query.get("state"),
        code: query.get("code"),
        issuer: query.get("iss"),
        error: query.get("error"),
        description: query.get("error_description"),
    };
    let origin = origin::of(request.extensions());
    let kept = cookie::value(request.headers(), cookie::SIGN_IN);
    unless_away(&api, async {
        let mut response = match api.hub.sign_in.complete(&answered, kept, &origin).await {
            Ok(signed_in) => {
                let mut response = sent_to(&signed_in.page);
                append(&mut response, session(&signed_in));
                response
            }
            Err(error) => refused(&error),
        };
        append(&mut response, cookie::unset(cookie::SIGN_IN));
        response
    })
    .await
}

/// `POST /fleet/v1/sign-in/token`: a session for a token that somebody has.
pub(crate) async fn with_token(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // No other page may sign somebody in as somebody else.
    if !cookie::may_write(&parts.uri, &parts.headers) {
        return status::response(&not_by_dashboard(), None);
    }
    if request::media_type(&parts.headers) != JSON {
        let error = HubError::UnsupportedMediaType(format!("a request with a token must be {JSON}"));
        return status::response(&error, None);
    }
    let origin = origin::of(&parts.extensions);
    unless_away(&api, async {
        let late = || HubError::Timeout("the request's body did not arrive in time".to_owned());
        let sent = tokio::time::timeout(PATIENCE, api.bodies.read_anonymous(body, MAX_TOKEN)).await;
        let sent = match sent.map_err(|_| late()).and_then(|sent| sent) {
            Ok(sent) => sent,
            Err(error) => return status::response(&error, None),
        };
        // What is wrong with it may be the token.
        let Ok(WithToken { token }) = serde_json::from_slice(&sent.bytes) else {
            let error = HubError::BadRequest("want an object with the field token, a text".to_owned());
            return status::response(&error, None);
        };
        match api.hub.sign_in.with_token(&token, &origin).await {
            Ok(signed_in) => {
                let answer = Json(json!({ "user": signed_in.username }));
                let mut response = (StatusCode::CREATED, answer).into_response();
                append(&mut response, session(&signed_in));
                response
            }
            Err(SignInRefused::Hub(error)) => status::response(&error, None),
            Err(error @ SignInRefused::NotForEmergencies) => {
                status::response(&HubError::Forbidden(error.to_string()), None)
            }
            Err(error) => status::response(&HubError::Internal(error.to_string()), None),
        }
    })
    .await
}

/// `POST /fleet/v1/sign-in/end`: signs somebody out, and says where that is done at the provider, too.
pub(crate) async fn end(State(api): State<Api>, request: Request) -> Response {
    if !cookie::may_write(request.uri(), request.headers()) {
        return status::response(&not_by_dashboard(), None);
    }
    let origin = origin::of(request.extensions());
    let kept = cookie::value(request.headers(), cookie::SESSION);
    unless_away(&api, async {
        let ended = match kept {
            Some(kept) => api.hub.sign_in.end_session(kept, &origin).await,
            None => Ok(None),
        };
        match ended {
            Ok(location) => {
                let mut response =
                    Json(json!({ "location": location.map_or(Value::Null, Value::from) })).into_response();
                append(&mut response, cookie::unset(cookie::SESSION));
                response
            }
            Err(error) => status::response(&error, None),
        }
    })
    .await
}

/// Who asks by the cookie of a session; none where there is none that counts, or it has ended.
pub(crate) async fn by_cookie(
    api: &Api,
    (method, uri): (&Method, &axum::http::Uri),
    headers: &axum::http::HeaderMap,
) -> Result<Option<roadstead_hub_core::identity::Identity>, HubError> {
    let Some(cookie) = cookie::session(method, uri, headers) else { return Ok(None) };
    match Arc::clone(&api.hub.sign_in).authenticate(cookie).await? {
        Signed::In(who) => Ok(Some(*who)),
        Signed::Out => Ok(None),
    }
}

fn not_by_dashboard() -> HubError {
    HubError::BadRequest(
        "this is for the hub's own dashboard: another page, or a program, may not do it".to_owned(),
    )
}

fn session(signed_in: &SignedIn) -> Option<HeaderValue> {
    // The browser is who it is for.
    cookie::set(cookie::SESSION, signed_in.cookie.expose(), signed_in.lasts, true)
}

fn append(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Sends a browser elsewhere, and tells that place nothing of where it comes from.
fn sent_to(location: &str) -> Response {
    let Ok(location) = HeaderValue::try_from(location) else {
        return status::response(&HubError::Internal("an address is not text of a header".to_owned()), None);
    };
    let headers =
        [(header::LOCATION, location), (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// A page that says why somebody was not signed in, and nothing else.
fn refused(error: &SignInRefused) -> Response {
    let code = match error {
        SignInRefused::NoProvider => StatusCode::NOT_FOUND,
        SignInRefused::Unknown => StatusCode::BAD_REQUEST,
        SignInRefused::Provider(_) | SignInRefused::NotTaken(_) | SignInRefused::NotForEmergencies => {
            StatusCode::FORBIDDEN
        }
        SignInRefused::Away(_) => StatusCode::BAD_GATEWAY,
        SignInRefused::Hub(error) => return status::response(error, None),
    };
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Not signed in</title>\n\
         <h1>Not signed in</h1>\n<p>{}.</p>\n<p><a href=\"{}\">Back to the dashboard</a></p>\n</html>\n",
        escaped(&error.to_string()),
        dashboard::HOME
    );
    dashboard::guarded((code, Html(page)).into_response(), dashboard::PLACEHOLDER_POLICY)
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_is_no_markup() {
        assert_eq!(escaped("<b onclick=\"a('&')\">"), "&lt;b onclick=&quot;a(&#39;&amp;&#39;)&quot;&gt;");
    }
}
