//! The hub's HTTP API: Kubernetes-style resources with discovery and OpenAPI, and the agents' enrolment.
//!
//! This room turns HTTP into use cases of `roadstead-hub-core` and their results into HTTP; it decides nothing else.

mod administration;
mod artifacts;
mod bodies;
mod compress;
mod connection;
mod cookie;
mod cors;
mod counted;
mod dashboard;
mod discovery;
mod fair;
mod hooks;
mod lasting;
mod list;
mod onboarding;
mod openapi;
mod options;
mod origin;
mod paid;
mod path;
mod probes;
mod published;
mod questions;
mod render;
mod request;
mod resources;
mod review;
mod routes;
mod serve;
mod sign_in;
mod status;
mod traces;
mod views;
mod watch;
mod yielding;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use futures::FutureExt as _;
use hyper::body::Body as _;
use roadstead_hub_core::identity::{ClientCertificate, Identity, Impersonation, authorize_path, entry_by};
use roadstead_hub_core::{Hub, HubError};
use roadstead_listener::Connection;
use roadstead_model::{AuditEntry, AuditOrigin};
use tokio_util::sync::CancellationToken;

use bodies::Bodies;
use connection::{Counted, Timed};
use fair::{Asker, Turns, Watches};
use lasting::Shown;
use onboarding::Enrolments;
use request::Query;
use routes::{Fleet, Place};
use views::View;
use yielding::{Slot, Yielding};

pub use connection::{callers_within, known_connections as connections_within};
pub use options::{ApiOptions, ClientCa};
pub use routes::{Route, RouteObjects, routes};
pub use serve::{serve, serve_hooks};
pub use views::document::document as fleet_document;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) hub: Hub,
    /// Ends watches when the hub drains.
    pub(crate) stop: CancellationToken,
    pub(crate) documents: Arc<openapi::Documents>,
    pub(crate) options: Arc<ApiOptions>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) bodies: Bodies,
    pub(crate) enrolments: Arc<Enrolments>,
}

/// The API over this hub; `stop` ends its watches.
pub fn router(hub: Hub, options: ApiOptions, stop: CancellationToken) -> Router {
    let api = Api {
        bodies: Bodies::new(hub.budget()),
        enrolments: Arc::default(),
        hub,
        stop,
        documents: Arc::new(openapi::Documents::new()),
        turns: Arc::new(Turns::new(options.requests, options.changes_per_user, options.waiting_per_user)),
        watches: Arc::new(Watches::new(options.watches, options.watches_per_user)),
        options: Arc::new(options),
    };
    let hooks = api.options.hooks.then(|| hooks::routes(&api.hub, &api.bodies));
    let open =
        routes::OPEN.iter().fold(Router::new(), |router, open| router.route(open.path, (open.handler)()));
    let with_token = Router::new()
        .fallback(dispatch)
        .layer(middleware::from_fn_with_state(api.clone(), closed))
        // What anybody may ask for is compressed beforehand: compressing takes memory.
        .layer(compress::layer());
    open.fallback_service(with_token.with_state(api.clone()))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(api.clone(), cors::allow))
        .with_state(api.clone())
        // Web pages have no business there.
        .merge(hooks.unwrap_or_default())
        .layer(middleware::map_response(guarded))
        .layer(middleware::from_fn(catch_panics))
        .layer(middleware::from_fn(origin::identified))
        .layer(middleware::from_fn_with_state(api.options.body_timeout, bound))
        .layer(middleware::from_fn_with_state(api.hub, counted::count))
}

/// Nothing but the paths at which Receivers are called, and whether this process is alive.
pub(crate) fn hook_router(hub: &Hub, options: &ApiOptions) -> Router {
    hooks::routes(hub, &Bodies::new(hub.budget()))
        .route("/healthz", get(alive))
        .layer(middleware::map_response(guarded))
        .layer(middleware::from_fn(catch_panics))
        .layer(middleware::from_fn(origin::identified))
        .layer(middleware::from_fn_with_state(options.body_timeout, bound))
}

/// Bounds the time that a body may take, and counts the request as its connection's until it is answered.
async fn bound(State(limit): State<Duration>, mut request: Request, next: Next) -> Response {
    // Nothing of it is asked for before it is known who sends it.
    let limit = if artifacts::is_upload(&request) { artifacts::UPLOAD_TIMEOUT.max(limit) } else { limit };
    let under_way = request.extensions().get::<Connection>().map(Connection::request);
    *request.body_mut() = match std::mem::take(request.body_mut()) {
        body if body.is_end_stream() => body,
        body => Body::new(Timed::new(body, limit)),
    };
    let connection = request.extensions().get::<Connection>().cloned();
    let response = next.run(request).await;
    if let Some(connection) = connection {
        connection::check(&connection);
    }
    match under_way {
        Some(under_way) => response.map(|body| Body::new(Counted::new(body, under_way))),
        None => response,
    }
}

/// Nothing that an answer says is kept by whoever passes it on, unless it says so itself, or taken for another kind of thing
/// than it says to be.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A panic is a bug of ours: it ends its request and nothing else.
async fn catch_panics(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(%method, path, "a handler panicked");
            status::response(&HubError::Internal("a handler panicked".to_owned()), None)
        }
    }
}

/// What is noted of a request that was refused: who wanted what. A token is never part of it.
fn refused(who: &Identity, verb: &str, request: &Request) -> AuditEntry {
    AuditEntry {
        verb: verb.to_owned(),
        kind: "Path".to_owned(),
        name: request.uri().path().to_owned(),
        ..entry_by(who)
    }
}

/// The same of a request for an object, in the words in which it is on record where it is allowed.
fn of_object(entry: AuditEntry, method: &Method, uri: &Uri) -> AuditEntry {
    let Some(Place::Objects(target)) = Place::at(uri.path().trim_end_matches('/')) else { return entry };
    let watch = Query::parse(uri).is_ok_and(|query| query.flag("watch"));
    let Some(verb) = resources::verb(&target, method.as_str(), watch) else { return entry };
    let kind = target.address.kind.get();
    let subresource = target.subresource.name();
    let slash = if subresource.is_empty() { "" } else { "/" };
    AuditEntry {
        verb: verb.name().to_owned(),
        group: kind.group().to_owned(),
        kind: format!("{}{slash}{subresource}", kind.kind),
        namespace: target.address.namespace,
        name: target.address.name,
        ..entry
    }
}

/// What a request has for a bearer token.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Everything that needs a token: answered at once also where the database goes away in the middle.
async fn closed(State(api): State<Api>, request: Request, next: Next) -> Response {
    let document = (request.method() == Method::GET)
        .then(|| token(request.headers()))
        .flatten()
        .filter(|token| api.hub.identity.was_given_out(token))
        .map(|_| (request.uri().path().trim_end_matches('/').to_owned(), request.headers().clone()));
    let lost = tokio::select! {
        biased;
        why = api.hub.database().lost() => why,
        response = authenticate(&api, request, next) => return response,
    };
    // What is the same for everybody with a token needs no database.
    document.and_then(|(path, headers)| documents(&api, &path, &headers)).map_or_else(
        || status::response(&HubError::Unavailable(status::away(lost)), None),
        |response| paid::pay(&api.bodies, response),
    )
}

/// What is served without looking anything up.
fn documents(api: &Api, path: &str, headers: &HeaderMap) -> Option<Response> {
    if !routes::is_document(path) {
        return None;
    }
    discovery::answer(path, headers).or_else(|| api.documents.answer(path, headers))
}

/// Who sends a request, and whether they have proven it: some paths are also for those who have not, where a role says so.
async fn identified(
    api: &Api,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    certificate: Option<&ClientCertificate>,
    origin: &AuditOrigin,
) -> Result<(Identity, bool), HubError> {
    // Who shows a token wants to be known by it.
    if let Some(token) = token(headers) {
        return Ok((api.hub.identity.authenticate(token).await?.asks_from(origin), true));
    }
    if let Some(who) = sign_in::by_cookie(api, (method, uri), headers).await? {
        return Ok((who.asks_from(origin), true));
    }
    if let Some(certificate) = certificate {
        let who = api.hub.identity.authenticate_certificate(certificate).await?.asks_from(origin);
        api.hub.audit.note_certificate(&who, certificate).await?;
        return Ok((who, true));
    }
    match published::anonymous(api, method, uri.path()).await? {
        Some(nobody) => Ok((nobody.asks_from(origin), false)),
        None => Err(HubError::Unauthenticated("Unauthorized".to_owned())),
    }
}

async fn authenticate(api: &Api, mut request: Request, next: Next) -> Response {
    let origin = origin::of(request.extensions());
    // Browsers show a certificate whatever page has the request sent, so from there it says nothing of who wants it.
    let by_page = [header::ORIGIN.as_str(), "sec-fetch-site", "sec-fetch-mode"];
    let certificate = request.extensions().get::<Arc<ClientCertificate>>().cloned();
    let certificate =
        certificate.filter(|_| !by_page.iter().any(|name| request.headers().contains_key(*name)));
    let head = (request.method(), request.uri(), request.headers());
    let identity = identified(api, head, certificate.as_deref(), &origin).await;
    let connection = request.extensions().get::<Connection>().cloned();
    if let (Ok((who, true)), Some(connection)) = (&identity, connection)
        && let Err(error) = connection::authenticated(&connection, who).await
    {
        return status::response(&error, None);
    }
    let (identity, is_proven) = match identity {
        Ok(known) => known,
        Err(error) => {
            let mut response = status::response(&error, None);
            if response.status() == StatusCode::UNAUTHORIZED {
                let nobody = Identity::user("system:anonymous", Vec::new()).asks_from(&origin);
                // Anybody can make paths up: one line says how often.
                let entry = AuditEntry { name: String::new(), ..refused(&nobody, "login", &request) };
                api.hub.audit.note_refusal(entry);
                let scheme = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            }
            return response;
        }
    };
    let asker = Asker::of(&identity.username, request.method());
    let slot = match api.turns.take(&asker).await {
        Ok(turn) => Slot::new(turn),
        Err(error) => return status::response(&error, None),
    };
    *request.body_mut() = match std::mem::take(request.body_mut()) {
        body if body.is_end_stream() => body,
        body => Body::new(Yielding::new(body, slot.clone(), Arc::clone(&api.turns), asker)),
    };
    if let Err(error) = api.hub.audit.note_use(&identity).await {
        return status::response(&error, None);
    }
    let shown = Shown::by(api, &request);
    let method = request.method().as_str().to_ascii_lowercase();
    let unless = refused(&identity, "impersonate", &request);
    let identity = match impersonated(api, identity, request.headers()).await {
        Ok(identity) => identity,
        Err(error) => {
            let response = status::response(&error, None);
            api.hub.audit.note_refusal(AuditEntry { detail: status::why(&response), ..unless });
            return response;
        }
    };
    if identity.impersonator.is_some()
        && let Err(error) = api.hub.audit.note_use(&identity).await
    {
        return status::response(&error, None);
    }
    let entry = refused(&identity, &method, &request);
    let asked = (request.method().clone(), request.uri().clone());
    let old_token = identity.old_token;
    request.extensions_mut().insert(identity);
    let trace = traces::of_write(&request).filter(|_| is_proven);
    let mut response = traces::traced(trace, &method, next.run(request)).await;
    if let Some(token) = old_token {
        render::warn(&mut response, &[token.warning()]);
    }
    slot.end();
    if let Some(status::DatabaseRefuses(why)) = response.extensions().get() {
        api.hub.database().request_refused(why);
    }
    if response.status() == StatusCode::FORBIDDEN {
        let entry = of_object(entry, &asked.0, &asked.1);
        api.hub.audit.note_refusal(AuditEntry { detail: status::why(&response), ..entry });
    }
    paid::pay(&api.bodies, lasting::with_its_end(api, shown, response))
}

/// Headers of one impersonation: more than anybody's groups and extra need.
const MOST_IMPERSONATED: usize = 1000;

/// Whom the request asks to be taken for (`kubectl --as`).
async fn impersonated(api: &Api, who: Identity, headers: &HeaderMap) -> Result<Identity, HubError> {
    match impersonation(headers)? {
        None => Ok(who),
        Some(wanted) => api.hub.identity.impersonate(who, wanted).await,
    }
}

/// What the headers say of that. An attribute that is not known is refused rather than left aside: what was asked for is
/// less than what the token may do.
fn impersonation(headers: &HeaderMap) -> Result<Option<Impersonation>, HubError> {
    const PREFIX: &str = "impersonate-";
    let mut wanted = Impersonation::default();
    let mut count = 0;
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix(PREFIX) else { continue };
        count += 1;
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| HubError::BadRequest(format!("{name}: must be UTF-8")))?;
        match attribute {
            "user" if wanted.user.is_empty() => value.clone_into(&mut wanted.user),
            "uid" if wanted.uid.is_empty() => value.clone_into(&mut wanted.uid),
            "group" => wanted.groups.push(value.to_owned()),
            "user" | "uid" => {
                return Err(HubError::BadRequest(format!("{name}: may be given once")));
            }
            _ => {
                let Some(key) = attribute.strip_prefix("extra-").filter(|key| !key.is_empty()) else {
                    return Err(HubError::BadRequest(format!("{name}: no such attribute of a user")));
                };
                // Names of headers have no case, and hold few characters.
                let key = percent_encoding::percent_decode_str(key).decode_utf8();
                let key = key.map_err(|_| HubError::BadRequest(format!("{name}: must be UTF-8")))?;
                wanted.extra.entry(key.into_owned()).or_default().push(value.to_owned());
            }
        }
    }
    if count > MOST_IMPERSONATED {
        return Err(HubError::BadRequest(format!("more than {MOST_IMPERSONATED} Impersonate headers")));
    }
    if count > 0 && wanted.user.is_empty() {
        let why = "groups, uid and extra cannot be impersonated without a user";
        return Err(HubError::BadRequest(why.to_owned()));
    }
    Ok((count > 0).then_some(wanted))
}

/// Everything that needs a token.
async fn dispatch(State(api): State<Api>, request: Request) -> Response {
    let Some(who) = request.extensions().get::<Identity>().cloned() else {
        return status::response(&HubError::Unauthenticated("Unauthorized".to_owned()), None);
    };
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let answer = match Place::at(&path) {
        Some(Place::Fleet(route, fleet)) => {
            if !route.methods.contains(&request.method().as_str()) {
                return method_not_allowed().await;
            }
            match fleet {
                Fleet::Administered(administered) => return administered.answer(&api, &who, request).await,
                // What of it somebody sees is decided there; whom the hub does not know sees nothing.
                Fleet::View(view) => match authorize_path(&who, "get", &path) {
                    Ok(()) => viewed(&api, &who, &view, request).await,
                    Err(error) => Err(error),
                },
            }
        }
        Some(Place::Document) => match documents(&api, &path, request.headers()) {
            Some(response) if request.method() == Method::GET => {
                authorize_path(&who, "get", &path).map(|()| response)
            }
            Some(_) => return method_not_allowed().await,
            None => return status::not_found(None),
        },
        Some(Place::Published(published)) => {
            if request.method() != Method::GET {
                return method_not_allowed().await;
            }
            let query = request.uri().query();
            published.answer(&api, &who, query).await
        }
        Some(Place::Question(question, namespace)) => {
            if request.method() != Method::POST {
                return method_not_allowed().await;
            }
            let (parts, body) = request.into_parts();
            review::answer(&api, (question, namespace), &who, &parts.headers, body).await
        }
        Some(Place::Objects(target)) => return resources::handle(&api, &who, target, request).await,
        None => return status::not_found(path::retired(&path).as_deref()),
    };
    answer.unwrap_or_else(|error| status::response(&error, None))
}

/// A view, or an artifact that is uploaded or looked for.
async fn viewed(api: &Api, who: &Identity, view: &View<'_>, request: Request) -> Result<Response, HubError> {
    if let View::Artifact { kind, namespace, name } = *view {
        let source = (kind, namespace, name);
        match *request.method() {
            Method::PUT => return artifacts::take(api, who, source, request).await,
            Method::HEAD => return artifacts::head(api, who, source, &request.into_parts().0).await,
            _ => {}
        }
    }
    let query = Query::parse(request.uri())?;
    Ok(view.answer(api, who, &query, request.headers()).await)
}

async fn alive() -> &'static str {
    "ok"
}

async fn method_not_allowed() -> Response {
    status::simple(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "this method is not allowed on this path",
    )
}
