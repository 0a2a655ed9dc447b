//! `trace_service.proto`: spans.

use roadstead_trace::Finished;

use super::{InstrumentationScope, KeyValue, Resource, attribute};

/// What is posted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceRequest {
    /// Of each process.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The spans of a process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// By what made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// The spans that one library made.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    /// The library.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// A span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Span {
    /// Of which trace: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its own: 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The one that it is under; empty of a first one.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What was done.
    #[prost(string, tag = "5")]
    pub name: String,
    /// 1: within the process.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// When it began, in nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// When it ended.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What it was done with.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// What came of it.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// What came of a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// 0: nothing is said, 2: it failed.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

const INTERNAL: i32 = 1;
const ERROR: i32 = 2;

/// What is posted of these spans of the process that `resource` says.
pub(crate) fn request(
    resource: &[(&'static str, String)],
    spans: Vec<Finished>,
) -> ExportTraceServiceRequest {
    let spans = spans.into_iter().map(Span::from).collect();
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource::of(resource)),
            scope_spans: vec![ScopeSpans { scope: Some(InstrumentationScope::own()), spans }],
        }],
    }
}

impl From<Finished> for Span {
    fn from(span: Finished) -> Self {
        let nanos = |at: jiff::Timestamp| u64::try_from(at.as_nanosecond()).unwrap_or_default();
        Self {
            trace_id: span.context.trace.as_bytes().to_vec(),
            span_id: span.context.span.as_bytes().to_vec(),
            parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.as_bytes().to_vec()),
            name: span.name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: nanos(span.start),
            end_time_unix_nano: nanos(span.end),
            attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
            status: span.failed.then_some(Status { code: ERROR }),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// The bytes that OpenTelemetry's own package for Python (opentelemetry-proto) makes of the same span.
    #[test]
    fn a_span_has_the_bytes_of_the_protocol() {
        let at = |nanos| jiff::Timestamp::from_nanosecond(nanos).unwrap();
        let context = "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01".parse().unwrap();
        let parent = roadstead_model::SpanId::new(*b"parented");
        let mut span = Finished::new(context, parent, "x", (at(1), at(2))).with("n", 3_usize).with("t", true);
        span.failed = true;
        let mut expected = vec![10, 16];
        expected.extend(1..=16);
        expected.extend([18, 8]);
        expected.extend(17..=24);
        expected.extend(b"\x22\x08parented\x2a\x01x\x30\x01");
        expected.extend(b"\x39\x01\0\0\0\0\0\0\0\x41\x02\0\0\0\0\0\0\0");
        expected
            .extend(b"\x4a\x07\x0a\x01n\x12\x02\x18\x03\x4a\x07\x0a\x01t\x12\x02\x10\x01\x7a\x02\x18\x02");
        assert_eq!(Span::from(span.clone()).encode_to_vec(), expected);
        let request = request(&[("service.name", "hub".to_owned())], vec![span]);
        assert_eq!(ExportTraceServiceRequest::decode(request.encode_to_vec().as_slice()), Ok(request));
    }
}
