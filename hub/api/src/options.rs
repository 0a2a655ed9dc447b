//! What the operator may set of the API.

use std::num::NonZero;
use std::time::Duration;

/// How much the API takes, from whom, and for how long.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// Connections at once of those who have said who they are, of which one user has a quarter; fewer where there is less
    /// memory. A new one beyond these takes the place of the one that has been idle for longest, or else of one of the user
    /// that has most; where there is neither, its requests are answered 429.
    pub connections: usize,
    /// Connections at once of those who have not, besides; the oldest of the address that has most of them makes room.
    pub anonymous: usize,
    /// A connection without a request for so long is closed.
    pub idle_timeout: Duration,
    /// A client that needs longer for its handshake, or for a request's headers, is cut.
    pub header_timeout: Duration,
    /// A client that needs longer for a request's body is answered 408.
    pub body_timeout: Duration,
    /// A client that takes nothing of what it is sent for so long is cut.
    pub write_timeout: Duration,
    /// Requests that run at once; a user has three quarters of them at most. Watches count until they have begun.
    pub requests: usize,
    /// Changes of one user that run at once, of the user's requests.
    pub changes_per_user: usize,
    /// Requests of one user that wait for their turn; more are answered 429.
    pub waiting_per_user: usize,
    /// Watches at once; more are answered 429.
    pub watches: usize,
    /// Watches of one user at once.
    pub watches_per_user: usize,
    /// How often it is looked whether those who watch are still known: a token may have been taken back, or somebody have signed out.
    pub check_credentials: Duration,
    /// A watch or a stream ends after so long: its client comes again.
    pub longest_answer: Duration,
    /// Origins of web pages of which browsers may let scripts read answers; `*` for all. None by default.
    pub cors_origins: Vec<String>,
    /// Whether Receivers are called here, too.
    pub hooks: bool,
    /// Whose certificates clients may show to say who they are.
    pub client_ca: Option<ClientCa>,
}

/// An authority whose certificates clients may show.
#[derive(Debug, Clone)]
pub struct ClientCa {
    /// Its certificate, or those of several (PEM).
    pub pem: String,
    /// Whether its certificates may have the group system:masters.
    pub masters: bool,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            connections: 10_000,
            anonymous: 512,
            idle_timeout: Duration::from_secs(90),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            requests: 64,
            changes_per_user: changes_by_processors(),
            waiting_per_user: 256,
            watches: 20_000,
            watches_per_user: 5_000,
            check_credentials: Duration::from_secs(20),
            longest_answer: crate::lasting::LONGEST,
            cors_origins: Vec::new(),
            hooks: true,
            client_ca: None,
        }
    }
}

/// With more of one user's changes at once, these would hardly end sooner on this machine, and all else would wait for them.
fn changes_by_processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).max(2)
}
