//! A server's capability advertisement, kept from one fetch to the next.
//!
//! In version 2 of Git's protocol a server first advertises what it can do, and each request stands for itself: a client that
//! knows the advertisement may go on from there. So a fetch of a repository that has not changed is one request instead of
//! two. Where the server answers as if it were another one (updated, replaced, moved), the fetch starts over and asks for it.

use super::wire::Ask;
use crate::attempt::{Answer, Body};

/// The most that is kept of one, in bytes. Advertisements of version 2 have some hundreds.
const MOST: usize = 2 << 10;

/// The answer to the first request, and what was asked next.
#[derive(Debug)]
pub(super) struct Advertisement {
    heading: String,
    body: Vec<u8>,
    next: Ask,
}

impl Advertisement {
    /// From the answer to the first request and what was asked next; none where the next fetch cannot start with that.
    pub(super) fn new(answer: &Answer, next: &Ask) -> Option<Self> {
        let (Body::Memory(body), Ask::UploadPack { version: Some(2), body: asked, .. }) =
            (&answer.body, next)
        else {
            return None;
        };
        let size = answer.heading.len() + body.len() + asked.len();
        (size <= MOST).then(|| Self {
            heading: answer.heading.clone(),
            body: body.clone(),
            next: next.clone(),
        })
    }

    /// Whether a server that was asked again says the same of itself.
    pub(super) fn is_still(&self, answer: &Answer) -> bool {
        matches!(&answer.body, Body::Memory(body) if *body == self.body) && answer.heading == self.heading
    }

    /// What to ask next.
    pub(super) fn into_next(self) -> Ask {
        self.next
    }

    /// The answer, and what to ask next.
    pub(super) fn into_parts(self) -> (Answer, Ask) {
        (Answer { heading: self.heading, body: Body::Memory(self.body) }, self.next)
    }
}
