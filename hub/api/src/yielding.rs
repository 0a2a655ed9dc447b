//! Requests whose bodies come slowly: they give their turn back while they wait for their clients.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use roadstead_hub_core::HubError;

use crate::fair::{Asker, Turn, Turns};

/// A request's turn, for as long as it has one; with the value it ends.
#[derive(Clone)]
pub(crate) struct Slot(Arc<Mutex<Option<Turn>>>);

impl Slot {
    pub(crate) fn new(turn: Turn) -> Self {
        Self(Arc::new(Mutex::new(Some(turn))))
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn>> {
        // A turn is there or not: a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the turn back, if there is one.
    pub(crate) fn end(&self) {
        let turn = self.turn().take();
        drop(turn);
    }
}

/// A body whose request has no turn while a part of it is waited for, and has one again at its end.
pub(crate) struct Yielding {
    body: Body,
    slot: Slot,
    turns: Arc<Turns>,
    asker: Asker,
    taking: Option<BoxFuture<'static, Result<Turn, HubError>>>,
}

impl Yielding {
    pub(crate) fn new(body: Body, slot: Slot, turns: Arc<Turns>, asker: Asker) -> Self {
        Self { body, slot, turns, asker, taking: None }
    }
}

impl HttpBody for Yielding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(taking) = &mut this.taking {
                let taken = ready!(taking.as_mut().poll(context));
                this.taking = None;
                return Poll::Ready(match taken {
                    Ok(turn) => {
                        *this.slot.turn() = Some(turn);
                        None
                    }
                    Err(_) => Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::ResourceBusy)))),
                });
            }
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Pending => {
                    this.slot.end();
                    return Poll::Pending;
                }
                Poll::Ready(None) if this.slot.turn().is_none() => {
                    let (turns, asker) = (Arc::clone(&this.turns), this.asker.clone());
                    this.taking = Some(Box::pin(async move { turns.take(&asker).await }));
                }
                ready @ Poll::Ready(_) => return ready,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.taking.is_none() && self.slot.turn().is_some()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
