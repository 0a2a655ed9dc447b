//! What a server said it can do, kept from one look to the next.
//!
//! In version 2 of Git's protocol a server first says what it can do, and each request stands for itself: whoever knows
//! what it said may go on from there. So a look at a repository that has not changed is one request instead of two.
//! Where the server is not what it was (updated, replaced, moved), the look begins anew and greets it.

use std::sync::{Arc, Mutex, PoisonError};

use super::desk::{Answer, Body};
use super::wire::Ask;

/// What one server said it can do, for one repository and reference. Clones share it. Empty until a look went well.
#[derive(Debug, Clone, Default)]
pub struct KnownServer(Arc<Mutex<Option<Greeted>>>);

/// A greeting's answer, and what was asked next.
#[derive(Debug)]
pub(super) struct Greeted {
    heading: String,
    body: Vec<u8>,
    next: Ask,
}

impl KnownServer {
    /// The most that it keeps, in bytes. What servers say in version 2 has some hundreds.
    pub const MOST: usize = 2 << 10;

    /// What it knows, which is for one look: who finds that it still holds gives it back.
    pub(super) fn take(&self) -> Option<Greeted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn keep(&self, greeted: Greeted) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(greeted);
    }
}

impl Greeted {
    /// Of a greeting's answer and what followed from it, where the next look can begin with that.
    pub(super) fn new(answer: &Answer, next: &Ask) -> Option<Self> {
        let (Body::Memory(body), Ask::UploadPack { version: Some(2), body: asked, .. }) =
            (&answer.body, next)
        else {
            return None;
        };
        let size = answer.heading.len() + body.len() + asked.len();
        (size <= KnownServer::MOST).then(|| Self {
            heading: answer.heading.clone(),
            body: body.clone(),
            next: next.clone(),
        })
    }

    /// The answer, and what to ask.
    pub(super) fn again(self) -> (Answer, Ask) {
        (Answer { heading: self.heading, body: Body::Memory(self.body) }, self.next)
    }
}
