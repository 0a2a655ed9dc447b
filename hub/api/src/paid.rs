//! Answers that wait until their clients take them: in memory that is set aside for them.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use roadstead_budget::Reservation;
use roadstead_hub_core::HubError;

use crate::bodies::Bodies;
use crate::compress::{Compressed, is_long};
use crate::status;

/// Shorter answers are covered by what their connection is charged.
const SHORT: u64 = 1024;
/// What compressing an answer takes: the compressor's tables and window. An estimate.
const COMPRESSOR: u64 = 320 * 1024;

/// Says of an answer that its bytes are kept once for all who ask for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared;

/// An answer of these bytes, which are kept once.
pub(crate) fn shared(bytes: &Bytes) -> Response {
    let mut response = bytes.clone().into_response();
    response.extensions_mut().insert(Shared);
    response
}

/// Has an answer reserve what it takes until it is sent. One that is long is compressed only where there is memory for that.
pub(crate) fn pay(bodies: &Bodies, mut response: Response) -> Response {
    let is_shared = response.extensions().get::<Shared>().is_some();
    // What has no length yet is written as it is sent, out of memory of its own.
    let length = response.body().size_hint().exact().filter(|length| *length > SHORT && !is_shared);
    let own = match length.map(|length| bodies.set_aside(length)).transpose() {
        Ok(own) => own,
        Err(HubError::TooLarge(_)) => {
            let why = "the answer would take more memory than there is for answers: ask for pages (limit)";
            return status::response(&HubError::TooLarge(why.to_owned()), None);
        }
        Err(error) => return status::response(&error, None),
    };
    let compressor = if is_long(&response) { bodies.set_aside(COMPRESSOR).ok() } else { None };
    if compressor.is_some() {
        response.extensions_mut().insert(Compressed);
    }
    if own.is_none() && compressor.is_none() {
        return response;
    }
    response.map(|body| Body::new(Paid { body, _memory: [own, compressor] }))
}

/// A body with the memory that it takes.
struct Paid {
    body: Body,
    _memory: [Option<Reservation>; 2],
}

impl HttpBody for Paid {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use roadstead_budget::{MemoryBudget, PoolName};

    use super::*;

    #[test]
    fn an_answer_holds_what_it_takes_until_it_is_gone() {
        let budget = MemoryBudget::new(128 << 20);
        let (bodies, pool) = (Bodies::new(&budget), budget.pool(PoolName::Blobs));
        let answer = |length: usize| pay(&bodies, "x".repeat(length).into_response());
        let held: Vec<_> = (0..3).map(|_| answer(3 << 20)).collect();
        assert_eq!(pool.used(), 3 * ((3 << 20) + COMPRESSOR));
        assert_eq!(answer(3 << 20).status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer(64 << 20).status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(answer(100).status(), StatusCode::OK);
        drop(held);
        assert_eq!(pool.used(), 0);
        // What is kept once costs nothing, unless it is compressed.
        let bytes = Bytes::from("x".repeat(3 << 20));
        let all: Vec<_> = (0..100).map(|_| pay(&bodies, shared(&bytes))).collect();
        assert!(all.iter().all(|answer| answer.status() == StatusCode::OK));
        let compressed =
            all.iter().filter(|answer| answer.extensions().get::<Compressed>().is_some()).count();
        assert!(compressed > 0 && compressed < 100);
        assert!(pool.used() <= compressed as u64 * COMPRESSOR);
    }
}
