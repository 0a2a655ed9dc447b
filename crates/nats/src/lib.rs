//! Publishing a message to a NATS server.
//!
//! [`Servers`] and [`Subject`] are what somebody wrote, [`Login`] is what their Secret says, and [`Publisher::publish`] opens a connection by
//! the guarded way out, logs in, publishes one [`Message`], and asks whether it was taken. What is spoken is computed apart from the
//! connection ([`Decoder`], `encode`), and what a server says is bounded in lines, operations and bytes; the time is for the caller to bound.
//!
//! Of what a server says nothing is told on: it may repeat what it was sent.

mod decode;
mod encode;
mod error;
mod login;
mod nkey;
mod publish;
mod servers;
mod subject;

pub use decode::{Decoder, Info, MAX_LINE, Op, Refusal, Unreadable};
pub use error::PublishError;
pub use login::Login;
pub use nkey::{BadKey, UserKey};
pub use publish::{Message, Publisher};
pub use servers::{BadServers, Servers};
pub use subject::{BadSubject, Subject};
