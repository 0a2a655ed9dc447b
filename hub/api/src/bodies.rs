//! Requests' bodies: read and decoded inside memory that is set aside for them, off the threads that serve requests.
//!
//! A body costs twice: as bytes while it comes in, and as values once it is decoded. Bytes are reserved as they come, so
//! that whoever only says that much will come reserves nothing; values before they are made.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use roadstead_body::BodyError;
use roadstead_budget::{Exhausted, MemoryBudget, Pool, PoolName, Reservation, show_size};
use roadstead_hub_core::HubError;

/// As kube-apiserver has it.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;
/// Of requests that say a few texts: reviews, tokens, options of deletions.
pub(crate) const MAX_SMALL: usize = 64 * 1024;
/// What is first reserved for a body's bytes.
const FIRST: usize = 4 * 1024;
/// How many copies of a decoded body handlers hold at once: the body, the object that is made of it, and what is compared or
/// written. An estimate.
const HANDLING: u64 = 3;
/// Calls of Receivers have this part of the memory for bodies.
const CALLS_SHARE: u64 = 4;
/// So long a body waits until there is memory to decode it in.
const PATIENCE: Duration = Duration::from_secs(5);

/// The memory for bodies.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    sent: Pool,
    decoded: Pool,
    unauthenticated: Pool,
    /// Of what is sent, what calls of Receivers may take: those that are to be proven by their bodies come from anybody who knows a
    /// path.
    calls: Pool,
    answers: Pool,
}

/// A long answer's memory, which grows while the answer is written.
#[derive(Debug)]
pub(crate) struct Answer {
    held: Result<Reservation, Exhausted>,
    length: usize,
}

impl Answer {
    /// Holds `more` bytes more. False where there is no memory for them: then nothing more need be written.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        self.length += more;
        if let Ok(held) = &mut self.held
            && let Err(error) = held.try_grow_to(self.length as u64)
        {
            self.held = Err(error);
        }
        self.held.is_ok()
    }

    /// Holds `less` bytes less, which have been sent.
    pub(crate) fn shrink(&mut self, less: usize) {
        self.length = self.length.saturating_sub(less);
        if let Ok(held) = &mut self.held {
            held.shrink_to(self.length as u64);
        }
    }

    /// What was written may be sent, and is held for as long as this is.
    pub(crate) fn finish(&self) -> Result<(), HubError> {
        match &self.held {
            Ok(_) => Ok(()),
            Err(Exhausted::TooLarge { .. }) => Err(HubError::TooLarge(
                "the answer would take more memory than there is for answers: ask for pages (limit)"
                    .to_owned(),
            )),
            Err(error) => Err(exhausted(error)),
        }
    }
}

/// What a body said. The memory for it is set aside until this is dropped: at the end of its request.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) value: T,
    pub(crate) _memory: Reservation,
}

/// A body's bytes.
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) _memory: Vec<Reservation>,
}

fn too_large(most: usize) -> HubError {
    HubError::TooLarge(format!("Request entity too large: limit is {most}"))
}

/// An exhausted pool as an answer: 429 where the same request may do later.
pub(crate) fn exhausted(error: &Exhausted) -> HubError {
    match error {
        Exhausted::InUse { .. } => {
            HubError::TooMany(format!("Too many requests, please try again later: {error}"))
        }
        Exhausted::TooLarge { .. } => HubError::TooLarge(error.to_string()),
    }
}

impl Bodies {
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        Self {
            calls: Pool::new("bodies of webhook calls", budget.pool(PoolName::Bodies).size() / CALLS_SHARE),
            sent: budget.pool(PoolName::Bodies).clone(),
            decoded: budget.pool(PoolName::Decoded).clone(),
            unauthenticated: budget.pool(PoolName::Unauthenticated).clone(),
            answers: budget.pool(PoolName::Blobs).clone(),
        }
    }

    /// Memory for an answer whose length is not known yet.
    pub(crate) fn answer(&self) -> Answer {
        Answer { held: self.answers.try_reserve(0), length: 0 }
    }

    /// Memory for an answer of so many bytes.
    pub(crate) fn set_aside(&self, bytes: u64) -> Result<Reservation, HubError> {
        self.answers.try_reserve(bytes).map_err(|error| exhausted(&error))
    }

    /// Reads the body of a request by somebody who has said who it is.
    pub(crate) async fn read(&self, body: Body, most: usize) -> Result<Sent, HubError> {
        read(&[&self.sent], body, most).await
    }

    /// Reads the body of a request by anybody.
    pub(crate) async fn read_anonymous(&self, body: Body, most: usize) -> Result<Sent, HubError> {
        read(&[&self.unauthenticated], body, most).await
    }

    /// Reads the body of a call of a Receiver.
    pub(crate) async fn read_call(&self, body: Body) -> Result<Sent, HubError> {
        read(&[&self.calls, &self.sent], body, MAX_BODY).await
    }

    /// Holds bytes that were made of the body of a call.
    pub(crate) fn hold_of_call(&self, bytes: Vec<u8>) -> Result<Sent, HubError> {
        let memory = reserve(&[&self.calls, &self.sent], bytes.len() as u64)?;
        Ok(Sent { bytes, _memory: memory })
    }

    /// Makes of the bytes what `decode` makes of them within the number of bytes that it is given. Bodies whose values are
    /// many are decoded again with more memory, as there is no telling before.
    pub(crate) async fn decode<T: Send + 'static>(
        &self,
        sent: Sent,
        decode: impl Fn(&[u8], usize) -> Result<T, BodyError> + Send + Sync + 'static,
    ) -> Result<Held<T>, HubError> {
        let most = usize::try_from(self.decoded.size() / HANDLING).unwrap_or(usize::MAX);
        let mut memory = (MAX_SMALL + 8 * sent.bytes.len()).min(most);
        let job = Arc::new((sent, decode));
        loop {
            let wanted = HANDLING * memory as u64;
            let reserved = match tokio::time::timeout(PATIENCE, self.decoded.reserve(wanted)).await {
                Ok(reserved) => reserved.map_err(|error| exhausted(&error))?,
                Err(_) => {
                    let (pool, size) = (self.decoded.name(), self.decoded.size());
                    return Err(exhausted(&Exhausted::InUse { pool, size }));
                }
            };
            let running = Arc::clone(&job);
            // The memory goes along: where the client leaves, decoding goes on to its end.
            let decoded = tokio::task::spawn_blocking(move || {
                let (sent, decode) = running.as_ref();
                (decode(&sent.bytes, memory), reserved)
            });
            let (decoded, reserved) =
                decoded.await.map_err(|_| HubError::Internal("the decoder of a body panicked".to_owned()))?;
            match decoded {
                Ok(value) => return Ok(Held { value, _memory: reserved }),
                Err(BodyError::Memory { .. }) if memory < most => memory = memory.saturating_mul(4).min(most),
                Err(error @ BodyError::Memory { .. }) => {
                    let share = show_size(self.decoded.size());
                    let why = format!(
                        "{error}: a third of the share for decoded bodies, {share} (see --memory-budget)"
                    );
                    return Err(HubError::TooLarge(why));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// So many bytes of each of these.
fn reserve(pools: &[&Pool], bytes: u64) -> Result<Vec<Reservation>, HubError> {
    let reserved = pools.iter().map(|pool| pool.try_reserve(bytes).map_err(|error| exhausted(&error)));
    reserved.collect()
}

async fn read(pools: &[&Pool], mut body: Body, most: usize) -> Result<Sent, HubError> {
    // A body that says beforehand that it is too large is not even begun.
    let said = body.size_hint();
    if said.lower() > most as u64 {
        return Err(too_large(most));
    }
    let first = usize::try_from(said.lower()).unwrap_or(most).min(FIRST);
    let mut memory = reserve(pools, first as u64)?;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| cut(&error))?.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > most {
            return Err(too_large(most));
        }
        if length > bytes.capacity() {
            let capacity = length.max(2 * bytes.capacity()).max(first).min(most);
            for memory in &mut memory {
                memory.try_grow_to(capacity as u64).map_err(|error| exhausted(&error))?;
            }
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Sent { bytes, _memory: memory })
}

/// Why a body did not come to its end.
pub(crate) fn cut(error: &axum::Error) -> HubError {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => {
                return HubError::Timeout("the request's body did not arrive in time".to_owned());
            }
            Some(io::ErrorKind::ResourceBusy) => {
                let why = "Too many requests, please try again later: the hub is busy";
                return HubError::TooMany(why.to_owned());
            }
            _ => {}
        }
        source = error.source();
    }
    HubError::BadRequest("the request's body was cut".to_owned())
}
