//! `/hook/DIGEST`, where Receivers are called: by anybody, so little is done before a call is proven.
//!
//! In this order: whether the address has called too often, whether the path is a Receiver's, whether that takes calls, whether the
//! body comes and is not too long, whether the call is proven, whether the Receiver was called too often, whether it listens to
//! the event. Only then anything of the body is parsed. What is answered says which of these it was, and nothing else; why is
//! in the log and in the audit log.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use roadstead_body::{BodyError, JSON, decode_within};
use roadstead_hooks::Call;
use roadstead_hub_core::hooks::{Called, NotTaken};
use roadstead_hub_core::{Hub, HubError};
use roadstead_listener::{Net, Pace, Paces};
use roadstead_model::ResourceUid;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::bodies::{Bodies, Held, Sent};
use crate::serve::Peer;
use crate::{origin, status, traces};

/// Calls of one address. What calls for many repositories at once, as a proxy before the hub does for all, has a burst.
const OF_ADDRESS: Pace = Pace { at_once: 200, then: Duration::from_millis(50) };
/// Proven calls of one Receiver: what they ask for is done once, however many of them come meanwhile.
const OF_RECEIVER: Pace = Pace { at_once: 60, then: Duration::from_secs(1) };
/// So long a body may take: callers wait no longer for an answer.
const BODY: Duration = Duration::from_secs(10);
/// Bodies of one Receiver that are read at once: whoever lets some stand still locks no other Receiver's callers out.
const READ_AT_ONCE: usize = 4;
/// Calls that look something up, or are acted on, at once.
const WORKED_ON: usize = 16;
/// Seconds after which a call that was too many may come again.
const AGAIN: HeaderValue = HeaderValue::from_static("10");

/// What all calls share.
#[derive(Clone)]
struct Hooks(Arc<Inner>);

struct Inner {
    hub: Hub,
    bodies: Bodies,
    addresses: Paces<Net>,
    receivers: Paces<ResourceUid>,
    reading: Mutex<HashMap<ResourceUid, usize>>,
    work: Semaphore,
}

/// The place of a call whose body is being read.
struct Reading<'a>(&'a Inner, ResourceUid);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match reading.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(reading.remove(&self.1)),
        }
    }
}

/// The path of a Receiver.
pub(crate) const PATH: &str = "/hook/{digest}";

/// Where Receivers are called.
pub(crate) fn routes(hub: &Hub, bodies: &Bodies) -> Router {
    let inner = Inner {
        hub: hub.clone(),
        bodies: bodies.clone(),
        addresses: Paces::new(OF_ADDRESS),
        receivers: Paces::new(OF_RECEIVER),
        reading: Mutex::default(),
        work: Semaphore::new(WORKED_ON),
    };
    Router::new().route(PATH, any(receive)).with_state(Hooks(Arc::new(inner)))
}

async fn receive(State(hooks): State<Hooks>, request: Request) -> Response {
    let code = tokio::select! {
        biased;
        _ = hooks.0.hub.database().lost() => StatusCode::SERVICE_UNAVAILABLE,
        code = hooks.0.answer(request) => code,
    };
    let mut response = (code, code.canonical_reason().unwrap_or_default()).into_response();
    if matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, AGAIN);
    }
    response
}

impl Inner {
    async fn answer(self: &Arc<Self>, request: Request) -> StatusCode {
        // Without one, which no listener of ours lets come, all count as one.
        let unknown = Peer(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let peer = request.extensions().get::<Peer>().copied().unwrap_or(unknown);
        if self.addresses.next(Net::of(peer.0)).is_none() {
            return StatusCode::TOO_MANY_REQUESTS;
        }
        // The path is compared with all that is asked for, as in Flux.
        if request.uri().query().is_some() {
            return StatusCode::NOT_FOUND;
        }
        let (parts, body) = request.into_parts();
        let called = {
            let Ok(_place) = self.work.try_acquire() else { return StatusCode::TOO_MANY_REQUESTS };
            match self.hub.hooks.called(parts.uri.path()).await {
                Ok(Some(called)) => called.asked_from(origin::of(&parts.extensions)),
                Ok(None) => return StatusCode::NOT_FOUND,
                Err(error) => return failed(&error),
            }
        };
        if !called.is_ready() {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        match self.body(&called, body).await {
            Ok(sent) => self.taken(called, &parts, sent).await,
            Err(code) => code,
        }
    }

    async fn body(&self, called: &Called, body: Body) -> Result<Sent, StatusCode> {
        let _reading = self.begin_reading(called.uid()).ok_or(StatusCode::TOO_MANY_REQUESTS)?;
        match tokio::time::timeout(BODY, self.bodies.read_call(body)).await {
            Ok(sent) => sent.map_err(|error| failed(&error)),
            Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
        }
    }

    fn begin_reading(&self, receiver: ResourceUid) -> Option<Reading<'_>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let count = reading.entry(receiver).or_default();
        if *count >= READ_AT_ONCE {
            return None;
        }
        *count += 1;
        Some(Reading(self, receiver))
    }

    /// What comes of a call that is all there.
    async fn taken(self: &Arc<Self>, called: Called, parts: &Parts, sent: Sent) -> StatusCode {
        let Ok(_place) = self.work.try_acquire() else { return StatusCode::TOO_MANY_REQUESTS };
        let call = Call { headers: &parts.headers, body: &sent.bytes };
        let proven = match self.hub.hooks.prove(&called, &call).await {
            Ok(proven) => proven,
            Err(why) => return refused(&why),
        };
        if self.receivers.next(called.uid()).is_none() {
            return StatusCode::TOO_MANY_REQUESTS;
        }
        if !called.listens_to(&call) {
            return StatusCode::OK;
        }
        let (req, memory) = match self.read(&called, &call).await {
            Ok(read) => read,
            Err(code) => return code,
        };
        drop(sent);
        let running = Arc::clone(self);
        // Only now: whoever cannot prove a call adds to no trace.
        let trace = traces::parent(&parts.headers);
        // A caller that leaves has been heard.
        let acted = tokio::spawn(async move {
            let acted = running.hub.hooks.act(called, proven, req);
            let (acted, _) = roadstead_trace::pass("webhook", trace, acted).await;
            drop(memory);
            acted
        });
        match acted.await {
            Ok(Ok(acted)) if acted.in_full => StatusCode::OK,
            Ok(Err(error)) => failed(&error),
            Ok(Ok(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What filters see of the body, with the memory that it takes.
    async fn read(&self, called: &Called, call: &Call<'_>) -> Result<(Value, Box<dyn Send>), StatusCode> {
        let refuse = |why: NotTaken| {
            self.hub.hooks.note_refusal(called, &why);
            refused(&why)
        };
        let Some(bytes) = called.payload(call).map_err(refuse)? else { return Ok((json!({}), Box::new(()))) };
        let held = self.bodies.hold_of_call(bytes.into_owned()).map_err(|error| failed(&error))?;
        let decode = |bytes: &[u8], memory: usize| -> Result<Value, BodyError> {
            Ok(decode_within(JSON, bytes, memory)?.value)
        };
        let read = self.bodies.decode(held, decode).await.map_err(|error| match error {
            // As Flux has it: it says that it is JSON, and is not.
            HubError::BadRequest(_) | HubError::UnsupportedMediaType(_) => {
                called.unreadable().map_or(StatusCode::INTERNAL_SERVER_ERROR, refuse)
            }
            error => failed(&error),
        })?;
        called.check(call, &read.value).map_err(refuse)?;
        let Held { value, _memory } = read;
        Ok((value, Box::new(_memory)))
    }
}

/// What a caller is told of a call that is not taken.
fn refused(why: &NotTaken) -> StatusCode {
    match why {
        NotTaken::Hub(error) => failed(error),
        NotTaken::NotProven(_) | NotTaken::Payload(_) | NotTaken::Issuer { .. } => StatusCode::BAD_REQUEST,
    }
}

/// What a caller is told of what failed here. What is the hub's own fault is logged on the way.
fn failed(error: &HubError) -> StatusCode {
    status::status(error, None).0
}
