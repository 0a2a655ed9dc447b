//! The seam between Git's protocol and the network: one side speaks the protocol (gix, with a server's bytes in its hands),
//! the other sends requests and streams answers, and neither knows the other. They need not be in one process.

use std::io;

use super::error::GitError;
use crate::tree::Measure;

/// A request of Git's HTTP protocol.
#[derive(Debug, Clone)]
pub struct WireRequest {
    /// POST, with `body`; else GET.
    pub post: bool,
    /// What is asked for.
    pub url: String,
    /// The repository's URL in front of it. A redirect may move that, and nothing else.
    pub base_url: String,
    /// Names and values. Credentials are not among them: they are the wire's to add.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// The head of an answer, which was a success.
#[derive(Debug, Clone, Default)]
pub struct WireHead {
    /// Names and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Where the repository turned out to be, if it was moved.
    pub redirected: Option<String>,
}

/// Sends requests to one server and streams the answers, one at a time. Calls block; each ends when the attempt's time is
/// up or it is cancelled.
///
/// What an error says is for the protocol's layers, on the way through which it becomes text; the wire keeps what really
/// happened for [`Wire::take_failure`].
pub trait Wire: Send {
    /// Sends a request and gives the head of the answer, after the redirects that may be followed. What is left of an
    /// earlier answer is dropped.
    ///
    /// # Errors
    /// When there is no answer, or none that is a success.
    fn send(&mut self, request: WireRequest) -> io::Result<WireHead>;

    /// The next bytes of the answer's body; empty at its end.
    ///
    /// # Errors
    /// When they do not come, or are more than is allowed.
    fn receive(&mut self) -> io::Result<Vec<u8>>;

    /// From now on `limit` more bytes may come.
    fn allow(&mut self, measure: Measure, limit: u64);

    /// What failed first, if the wire noticed it.
    fn take_failure(&mut self) -> Option<GitError>;
}
