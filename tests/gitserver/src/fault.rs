//! What a Git server can do wrong.

use std::time::Duration;

/// A server's misbehaviour, from the next request on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fault {
    /// None: it serves.
    #[default]
    None,
    /// It takes requests and never answers.
    HangBeforeAnswer,
    /// It sends the first half of the pack, and then nothing more.
    HangInPack,
    /// It sends the pack a byte at a time, with this between two bytes.
    Trickle(Duration),
    /// It sends the first half of the pack and ends the answer there as if it were whole.
    TruncatePack,
    /// It sends the first half of the pack and breaks the connection off.
    CutInPack,
    /// It flips a bit in the middle of the pack.
    CorruptPack,
    /// It answers every request with this status.
    Status(u16),
    /// It answers every request with this status, and with `Retry-After`.
    RetryAfter(u16, String),
    /// It answers a question for references with a redirect to this base URL (the rest of the URL is appended).
    Redirect(String),
    /// Another fault, for one request.
    Once(Box<Fault>),
    /// It answers a question for references with a redirect to exactly this URL.
    RedirectTo(String),
    /// It answers a request for a pack with the pack of this commit, whatever was asked for.
    OtherPack(String),
    /// It sends references without end.
    EndlessReferences,
    /// It answers with a web page.
    WebPage,
}
