//! The messages of OTLP, as far as they are sent: opentelemetry-proto 1.x, whose numbers do not change.

mod logs;
mod traces;

use roadstead_trace::Value;

pub use logs::{ExportLogsServiceRequest, LogRecord, ResourceLogs, ScopeLogs};
pub use traces::{ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span, Status};

pub(crate) use logs::request as of_lines;
pub(crate) use traces::request as of_spans;

/// What is answered, whatever was sent: the messages of all signals have this form.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportServiceResponse {
    /// What was not taken.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What of a batch was not taken.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// How many spans, or log records.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// A process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    /// What is known of it.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

impl Resource {
    fn of(known: &[(&'static str, String)]) -> Self {
        let attributes = known.iter().map(|(key, value)| attribute(key, Value::from(value.as_str())));
        Self { attributes: attributes.collect() }
    }
}

/// What made spans or log records.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

impl InstrumentationScope {
    fn own() -> Self {
        Self { name: "roadstead".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// Which kind of value.
    #[prost(oneof = "Any", tags = "1, 2, 3")]
    pub value: Option<Any>,
}

/// A value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Any {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A truth.
    #[prost(bool, tag = "2")]
    Truth(bool),
    /// A number.
    #[prost(int64, tag = "3")]
    Number(i64),
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Number(number) => Any::Number(number),
        Value::Truth(truth) => Any::Truth(truth),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
