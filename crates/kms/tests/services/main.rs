//! Key services as servers of the tests' own play them, on loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod identities;
mod kit;
mod misbehaving;
mod server;
mod wrapping;
