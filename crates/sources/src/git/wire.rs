//! The seam between Git's protocol and the network: one side speaks the protocol (gix, with a server's bytes in its hands),
//! the other sends requests and receives answers, and neither knows the other. They are in one process or in two.
//!
//! Git's protocol over HTTP is questions and answers, of which none depends on anything but those before it. So whoever
//! speaks it need not be there while a server takes its time: it is given all answers that there are, says what it wants
//! to have asked next, and is done; with one answer more it starts over.

use serde::{Deserialize, Serialize};

use super::error::GitError;
use super::guarded::GuardedWire;
use super::intake::Intake;
use super::ssh::SshWire;
use crate::attempt::Answer;

/// The other side's network: sends requests, and keeps what is answered.
pub(super) enum Wire {
    Http(GuardedWire),
    Ssh(SshWire),
}

impl Wire {
    /// Asks, and keeps what is answered. Blocks.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, GitError> {
        match self {
            Self::Http(wire) => wire.ask(ask),
            Self::Ssh(wire) => wire.ask(ask),
        }
    }

    /// Whether the repository is elsewhere than its URL says.
    pub(super) fn was_redirected(&self) -> bool {
        match self {
            Self::Http(wire) => wire.was_redirected(),
            Self::Ssh(_) => false,
        }
    }

    /// Gives back what takes its bytes, with all that was taken.
    pub(super) fn into_intake(self) -> Intake {
        match self {
            Self::Http(wire) => wire.into_intake(),
            Self::Ssh(wire) => wire.into_intake(),
        }
    }

    /// Whether the server says what it can do on each connection, so that it is never spared.
    pub(super) fn always_greets(&self) -> bool {
        matches!(self, Self::Ssh(_))
    }
}

/// What is to be asked of the server, of the two things that can be asked by this protocol. Which server, which repository
/// of it and with which credentials is not for whoever speaks the protocol to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ask {
    /// What it can do, and in older versions of the protocol its references.
    Greeting,
    /// Its references, or a pack.
    UploadPack {
        /// Which of them.
        what: What,
        /// The version of the protocol; none for the oldest that names itself.
        version: Option<u8>,
        /// The body.
        body: Vec<u8>,
    },
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// The references.
    References,
    /// What belongs to this object, and perhaps to others of the repository.
    Pack(String),
}

impl Ask {
    /// A body has a reference's name or an object's id, and what the two sides can do.
    const MOST_BODY: usize = 16 << 10;

    /// Whether it is something that whoever speaks the protocol has to ask.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::Greeting => true,
            Self::UploadPack { body, version, what } => {
                let known = version.is_none_or(|version| version <= 2);
                let named = match what {
                    What::References => true,
                    What::Pack(id) => is_object_id(id),
                };
                body.len() <= Self::MOST_BODY && known && named
            }
        }
    }
}

/// Whether it is the id of an object: 40 hexadecimal digits.
pub(super) fn is_object_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
