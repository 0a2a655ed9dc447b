//! Sends the process's spans, and lines of its audit log, to a collector: OTLP over HTTP, as protobuf, in batches.
//!
//! Nothing waits for it. What is to be sent queues with whoever makes it, who drops what there is no room for; a batch that a collector does
//! not take is tried again. The log has one line when that begins, and one when it is over.
//!
//! It is made by hand, of the messages in [`wire`] and the HTTP client that is in the tree anyway. OpenTelemetry's own crates bring a second
//! generation of `rand`, and an HTTP client; what they would do besides, making spans, is not theirs here: those of an attempt begin in one
//! process and end in another, and have ids that both can derive.

mod destination;
mod lines;
mod post;
mod spans;
pub mod wire;

pub use destination::{BadDestination, Destination, Signal};
pub use lines::{LineExporter, Lines};
pub use spans::Exporter as SpanExporter;
