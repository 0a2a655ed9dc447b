//! How agents come on board: join tokens for administrators, enrolment for agents.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use roadstead_body::JSON;
use roadstead_deploy::NAMESPACE;
use roadstead_hub_core::clusters::Enrolment;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::{Address, HubError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::bodies::{Held, MAX_SMALL};
use crate::{Api, origin, request, status};

/// Bytes of an enrolment: a token, a uid, and a certificate request of at most a few KiB.
const MAX_ENROLMENT: usize = 16 * 1024;
/// So long an enrolment may take to come; agents send it at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Enrolments that are being read at once. Whoever begins one more ends the one that has been at it for longest, so that
/// those who never end theirs keep nobody out.
const MOST_READ: usize = 64;
/// Enrolments that are being worked on at once. One more is told to come back; none waits.
const MOST_WORKED_ON: usize = 32;

/// Enrolments that are under way.
pub(crate) struct Enrolments {
    reading: Mutex<VecDeque<(u64, CancellationToken)>>,
    next: AtomicU64,
    work: Semaphore,
}

impl Default for Enrolments {
    fn default() -> Self {
        Self { reading: Mutex::default(), next: AtomicU64::new(0), work: Semaphore::new(MOST_WORKED_ON) }
    }
}

/// The place of an enrolment that is being read.
struct Reading<'a> {
    all: &'a Enrolments,
    id: u64,
    cut: CancellationToken,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.all.lock().retain(|(id, _)| *id != self.id);
    }
}

impl Enrolments {
    /// A panic elsewhere leaves the list whole.
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, CancellationToken)>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Reading<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        let mut reading = self.lock();
        if reading.len() >= MOST_READ
            && let Some((_, oldest)) = reading.pop_front()
        {
            oldest.cancel();
        }
        reading.push_back((id, cut.clone()));
        drop(reading);
        Reading { all: self, id, cut }
    }
}

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
    match enrolled(&api, &parts, body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => status::response(&error, None),
    }
}

async fn enrolled(api: &Api, parts: &Parts, body: Body) -> Result<Value, HubError> {
    let origin = origin::of(&parts.extensions);
    if !matches!(request::media_type(&parts.headers).as_str(), "" | JSON) {
        return Err(HubError::UnsupportedMediaType(format!("an enrolment request must be {JSON}")));
    }
    let sent = {
        let reading = api.enrolments.begin();
        let late = || HubError::Timeout("the request's body did not arrive in time".to_owned());
        tokio::select! {
            sent = tokio::time::timeout(PATIENCE, api.bodies.read_anonymous(body, MAX_ENROLMENT)) =>
                sent.map_err(|_| late())??,
            () = reading.cut.cancelled() => return Err(late()),
        }
    };
    // Texts of the few fields are all that is made of it: less than a thread's time, and no more memory than its bytes. The
    // error names a field at most, never the token.
    let request: EnrolRequest = serde_json::from_slice(&sent.bytes)
        .map_err(|error| HubError::BadRequest(format!("the enrolment request: {error}")))?;
    // Before anything that costs: those who make tokens up wait for nothing, and nobody waits for them.
    api.hub.enrolments.check_join_token(&request.token, &origin)?;
    let in_doubt = api.hub.enrolments.enter_unchecked(&request.token).await?;
    let Ok(_place) = api.enrolments.work.try_acquire() else {
        return Err(HubError::TooMany(
            "Too many requests, please try again later: other agents are enrolling".to_owned(),
        ));
    };
    let EnrolRequest { token, csr, kube_system_uid } = &request;
    let enrolment = Enrolment { token, csr_pem: csr, kube_system_uid, origin };
    let enrolled = tokio::select! {
        biased;
        why = api.hub.database().lost() => return Err(HubError::Unavailable(status::away(why))),
        enrolled = api.hub.enrolments.enrol(&enrolment) => enrolled?,
    };
    drop(in_doubt);
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
    let Held { value: sent, _memory } = request::sent(&api.bodies, headers, body, MAX_SMALL).await?;
    let body = sent.value;
    let ttl = request::seconds(&body["ttlSeconds"], "ttlSeconds")?;
    let invitation = api.hub.enrolments.create_join_token(who, &address.name, ttl).await?;
    Ok(Json(invitation.secret(NAMESPACE)).into_response())
}
