//! `logs_service.proto`: log records.

use jiff::Timestamp;
use roadstead_trace::Value;
use serde_json::Value as Json;

use super::{Any, AnyValue, InstrumentationScope, KeyValue, Resource, attribute};

/// What is posted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportLogsServiceRequest {
    /// Of each process.
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

/// The log records of a process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceLogs {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// By what made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

/// The log records that one library made.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeLogs {
    /// The library.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The records.
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

/// A log record.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// When it was sent, the same.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    /// 9: for information.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// The whole line.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// What of it collectors select by.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    /// Of which kind it is.
    #[prost(string, tag = "12")]
    pub event_name: String,
}

const INFO: i32 = 9;
/// Fields of a line that become attributes, where they hold a text.
const SELECTED: [&str; 8] = ["user", "impersonator", "verb", "group", "kind", "namespace", "name", "outcome"];

/// What is posted of these lines of JSON of the process that `resource` says: each has its `type`, which becomes the event's name
/// behind `prefix`, and `at`.
pub(crate) fn request(
    resource: &[(&'static str, String)],
    prefix: &str,
    lines: &[String],
    now: Timestamp,
) -> ExportLogsServiceRequest {
    let log_records = lines.iter().map(|line| record(prefix, line, now)).collect();
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource::of(resource)),
            scope_logs: vec![ScopeLogs { scope: Some(InstrumentationScope::own()), log_records }],
        }],
    }
}

fn record(prefix: &str, line: &str, now: Timestamp) -> LogRecord {
    let nanos = |at: Timestamp| u64::try_from(at.as_nanosecond()).unwrap_or_default();
    // This process wrote the line; what is not JSON goes as it is.
    let fields = serde_json::from_str::<Json>(line).unwrap_or_default();
    let text = |field: &str| fields.get(field).and_then(Json::as_str).filter(|text| !text.is_empty());
    let at = text("at").and_then(|at| at.parse().ok()).unwrap_or(now);
    let attributes = SELECTED
        .into_iter()
        .filter_map(|field| Some(attribute(&format!("{prefix}.{field}"), Value::from(text(field)?))));
    LogRecord {
        time_unix_nano: nanos(at),
        observed_time_unix_nano: nanos(now),
        severity_number: INFO,
        body: Some(AnyValue { value: Some(Any::Text(line.to_owned())) }),
        attributes: attributes.collect(),
        event_name: format!("{prefix}.{}", text("type").unwrap_or("line")),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// Against the field numbers of `logs.proto`.
    #[test]
    fn a_record_has_the_bytes_of_the_protocol() {
        let line = r#"{"at":"1970-01-01T00:00:00.000000001Z","type":"t","user":"u","name":"","id":1}"#;
        let now = Timestamp::from_nanosecond(2).unwrap();
        let mut expected = b"\x09\x01\0\0\0\0\0\0\0\x10\x09\x2a".to_vec();
        let length = u8::try_from(line.len()).unwrap();
        expected.extend([length + 2, 10, length]);
        expected.extend(line.as_bytes());
        expected.extend(b"\x32\x0d\x0a\x06a.user\x12\x03\x0a\x01u");
        expected.extend(b"\x59\x02\0\0\0\0\0\0\0\x62\x03a.t");
        assert_eq!(record("a", line, now).encode_to_vec(), expected);
        let request = request(&[("service.name", "hub".to_owned())], "a", &[line.to_owned()], now);
        assert_eq!(ExportLogsServiceRequest::decode(request.encode_to_vec().as_slice()), Ok(request));
    }
}
