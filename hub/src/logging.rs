//! Log lines. In JSON they have the keys of Flux's controllers: `level`, `ts`, `logger`, `msg`, and the
//! event's own; `output` is an object.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use jiff::Timestamp;
use roadstead_trace::WithTraceId;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::LogFormat;

/// The field whose value is JSON already.
const RAW: &str = "output";

/// Starts logging to standard error. `RUST_LOG` says what is logged, by default what an operator needs.
pub(crate) fn start(format: LogFormat) {
    // What the pool of connections says of each of them when the database goes, the hub says once.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,sqlx=error,sqlx::query=warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.event_format(WithTraceId::json(JsonLine)).init(),
        LogFormat::Text => {
            // Colours are for people, and their codes in a file for nobody.
            let ansi = std::io::stderr().is_terminal();
            builder.with_ansi(ansi).map_event_format(|lines| WithTraceId::text(lines.with_ansi(ansi))).init();
        }
    }
}

struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let line = line(event, Timestamp::now());
        writeln!(writer, "{line}")
    }
}

fn line(event: &Event<'_>, now: Timestamp) -> String {
    let metadata = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut line = String::with_capacity(256);
    let level = match *metadata.level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG | Level::TRACE => "debug",
    };
    // Written by hand because the order is for people: what everybody has first.
    let mut field = |key: &str, value: &Value| {
        let lead = if line.is_empty() { '{' } else { ',' };
        // Writing to a String cannot fail.
        let _ = write!(line, "{lead}{}:{value}", Value::from(key));
    };
    field("level", &level.into());
    field("ts", &now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into());
    field("logger", &metadata.target().into());
    if let Some(message) = fields.message {
        field("msg", &message.into());
    }
    for (key, value) in &fields.others {
        field(key, value);
    }
    line.push('}');
    line
}

#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = Some(text);
        } else {
            self.insert(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = Some(value.to_owned()),
            RAW => {
                let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
                self.insert(field, value);
            }
            _ => self.insert(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::JsonLine;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: impl FnOnce()) -> Value {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber =
            tracing_subscriber::fmt().event_format(JsonLine).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = sink.0.lock().unwrap().clone();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn an_apply_has_the_keys_of_the_specification() {
        let mut line = logged(|| {
            tracing::info!(
                target: "controllers.Kustomization",
                kustomization = "default/backend",
                output = r#"{"service/backend":"created"}"#,
                "Kustomization applied in {}", "1.436096591s"
            );
        });
        let ts = line.as_object_mut().unwrap().remove("ts").unwrap();
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        assert_eq!(
            line,
            json!({
                "level": "info",
                "logger": "controllers.Kustomization",
                "msg": "Kustomization applied in 1.436096591s",
                "kustomization": "default/backend",
                "output": { "service/backend": "created" },
            })
        );
    }

    #[test]
    fn a_failure_has_the_keys_of_the_specification() {
        let line = logged(|| {
            let error = "The Service 'backend' is invalid";
            tracing::error!(target: "controllers.Kustomization", kustomization = "default/backend", error);
        });
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["error", "kustomization", "level", "logger", "ts"]);
    }
}
