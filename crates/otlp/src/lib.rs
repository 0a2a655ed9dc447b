//! Sends the process's spans to a collector: OTLP over HTTP, as protobuf, in batches.
//!
//! Nothing waits for it. Spans queue in `roadstead-trace`, which drops what it has no room for; a batch that a collector does not take is
//! tried again for a while, and is dropped then. The log has one line when that begins, and one when it is over.
//!
//! It is made by hand, of the messages in [`wire`] and the HTTP client that is in the tree anyway. OpenTelemetry's own crates bring a second
//! generation of `rand`, and an HTTP client; what they would do besides, making spans, is not theirs here: those of an attempt begin in one
//! process and end in another, and have ids that both can derive.

mod destination;
mod export;
pub mod wire;

pub use destination::{BadDestination, Destination};
pub use export::Exporter;
