//! Git sources against a real Git server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod fetch;
mod guarded;
mod hostile;
mod kit;
mod known;
mod readers;
mod ssh;
mod verify;
