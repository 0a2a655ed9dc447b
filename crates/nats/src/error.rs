//! Why a message was not taken. Nothing of a Secret, and nothing that a server said, stands in it.

use crate::decode::Refusal;

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The address may not be connected to.
    #[error(transparent)]
    NotAllowed(roadstead_outbound::Refusal),
    /// There is no connection, or no more of it may be told.
    #[error("the connection failed")]
    Unreachable,
    /// It says nothing for a long time.
    #[error("the server did not answer in time")]
    Slow,
    /// It went away.
    #[error("the server closed the connection before it had answered")]
    Closed,
    /// It speaks something else, or says too much.
    #[error("what is at the address does not speak as a NATS server does")]
    NotNats,
    /// It has no TLS, which was asked for.
    #[error("the server has no TLS, which tls:// and a certSecretRef ask for")]
    NoTls,
    /// It is somebody else, or does not speak TLS.
    #[error(
        "TLS failed: the server's certificate is not trusted, or is for another name, or it does not speak TLS"
    )]
    Tls,
    /// What is secret would be heard on the way.
    #[error(
        "what the Secret holds would go in the clear, where anyone on the way can read it: give a tls:// address, or log in by an nkey; the \
         hub does not send it without --allow-plain-http-credentials"
    )]
    InTheClear,
    /// A key is asked for nothing.
    #[error("the server asks for no signature of an nkey, which the Secret has")]
    NoNonce,
    /// The server says no.
    #[error("{}", said(.0))]
    Refused(Refusal),
    /// It is larger than the server takes.
    #[error("the message has {bytes} bytes, and the server takes {most}")]
    TooLarge {
        /// Its size, with headers.
        bytes: usize,
        /// The server's limit.
        most: u64,
    },
}

fn said(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Login => "the server refuses the login",
        Refusal::Subject => "the login may not publish to the subject",
        Refusal::Size => "the message is larger than the server takes",
        Refusal::Clear => "the server wants TLS: give a tls:// address",
        Refusal::Connection => "the server takes no more connections",
        Refusal::Other => "the server does not take the message",
    }
}

impl PublishError {
    /// Whether it is about the very message: the next one may be taken.
    #[must_use]
    pub fn is_of_message(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::Refused(Refusal::Size))
    }

    /// Whether another server of the same cluster might take it.
    pub(crate) fn is_of_server(&self) -> bool {
        !self.is_of_message() && !matches!(self, Self::Refused(Refusal::Subject))
    }
}
