//! What identities of clouds ask for, of whom, and what they make of answers, also of servers that misbehave.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

// The server that answers as a test says is the key services' own.
#[path = "../../../kms/tests/services/server.rs"]
mod server;

mod identities;
mod misbehaving;
