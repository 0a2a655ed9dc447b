//! What is taken, from whom, and as whom: tokens that are forged in all known ways, configurations, and claims.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod config;
mod mapping;
mod parse;
mod signer;
mod tokens;
