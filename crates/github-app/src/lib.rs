//! Tokens of GitHub Apps: an App shows who it is by a JSON Web Token that its private key signed, and is given a token for one of its
//! installations, which is good for an hour.
//!
//! [`App`] is what a Secret says of one, and [`read_token`] what the API answers: both are pure. [`Tokens`] asks for tokens through the guarded
//! way out of whoever wants one, and keeps them for a part of their life.

mod answer;
mod app;
mod error;
mod exchange;
mod tokens;

pub use answer::{Bad, Given, read_token};
pub use app::{App, Installation, KEYS};
pub use error::AppError;
pub use tokens::{Tokens, Want};
