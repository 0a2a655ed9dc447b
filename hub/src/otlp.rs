//! What is sent to an OpenTelemetry collector: traces, and the audit log; the command line's options for both.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use roadstead_hub_core::identity::{AuditLines, AuditLog};
use roadstead_otlp::{Destination, LineExporter, Lines, Signal, SpanExporter};
use roadstead_trace::Sampling;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Most bytes of a file with authorities.
const MOST_CA: u64 = 1 << 20;

/// What is sent, and where it goes. The variables are those of OpenTelemetry, which collectors' operators set for everything that they run.
#[derive(Debug, Args)]
#[command(next_help_heading = "OpenTelemetry")]
pub(crate) struct OtlpArgs {
    /// Make traces, and send them to this collector: OTLP over HTTP with protobuf, at URL/v1/traces. Credentials go into
    /// OTEL_EXPORTER_OTLP_HEADERS (or OTEL_EXPORTER_OTLP_TRACES_HEADERS), as NAME=VALUE with commas between them;
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is taken as it is, without a path appended. Without this no traces are made
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<String>,

    /// Send what this replica adds to the audit log to this collector: OTLP over HTTP with protobuf, at URL/v1/logs, a log record for
    /// each entry. Credentials go into OTEL_EXPORTER_OTLP_LOGS_HEADERS (or OTEL_EXPORTER_OTLP_HEADERS)
    #[arg(long, value_name = "URL", env = "ROADSTEAD_AUDIT_OTLP_ENDPOINT", hide_env_values = true)]
    audit_otlp_endpoint: Option<String>,

    /// Authorities (PEM) that the collector's certificate may be of, besides the system's; read at start
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_file: Option<PathBuf>,

    /// The part of all traces whose spans are sent, from 0 to 1. A trace that a caller has begun is sent if that says so
    #[arg(long, value_name = "RATIO", env = "ROADSTEAD_TRACE_SAMPLE", default_value = "1", value_parser = sampling)]
    trace_sample: Sampling,
}

/// Something that is sent for as long as the process runs.
pub(crate) struct Sending {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Sending {
    /// Has it sent by `run`.
    fn by<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(CancellationToken) -> F) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(run(stop.clone())), stop }
    }

    /// Has what is there sent, for a few seconds at most, and ends it.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        // It bounds its own end.
        let _ = self.task.await;
    }
}

/// The audit log's lines, as they are sent.
struct Audit(AuditLines);

impl Lines for Audit {
    async fn next(&mut self, most: usize) -> Vec<String> {
        self.0.next(most).await
    }

    fn ready(&mut self, most: usize) -> Vec<String> {
        self.0.ready(most)
    }

    fn settle(&mut self, lines: &[String], lost: u64) {
        self.0.settle(lines, lost);
    }
}

fn sampling(text: &str) -> Result<Sampling, String> {
    let ratio = text.parse::<f64>().ok().and_then(Sampling::new);
    ratio.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

/// A variable that is set. Empty is what a chart makes of a value that is not.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The same of a flag.
fn given(flag: &Option<String>) -> Option<&String> {
    flag.as_ref().filter(|value| !value.is_empty())
}

fn with_headers(to: Destination, own: &str) -> Result<Destination> {
    let headers = set(own).or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"));
    Ok(to.with_headers(headers.as_deref().unwrap_or_default())?)
}

fn resource(replica: &str) -> Vec<(&'static str, String)> {
    vec![
        ("service.name", "roadstead-hub".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", replica.to_owned()),
    ]
}

impl OtlpArgs {
    /// Has traces made and sent, where that is asked for.
    pub(crate) async fn start_traces(&self, replica: &str) -> Result<Option<Sending>> {
        let own = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let to = match (&own, given(&self.otlp_endpoint)) {
            (Some(own), _) => Destination::exact(own)?,
            (None, Some(shared)) => Destination::shared(shared, Signal::Traces)?,
            (None, None) => return Ok(None),
        };
        let to = with_headers(to, "OTEL_EXPORTER_OTLP_TRACES_HEADERS")?;
        let (ca, endpoint) = (self.ca().await?, to.shown().to_owned());
        let exporter = SpanExporter::new(to, ca.as_deref(), resource(replica));
        let exporter = exporter.context("set up the sending of traces")?;
        let Some(collected) = roadstead_trace::start(self.trace_sample) else { return Ok(None) };
        tracing::info!(endpoint, sample = self.trace_sample.ratio(), "traces are sent");
        Ok(Some(Sending::by(|stop| exporter.run(collected, stop))))
    }

    /// Has the audit log sent, where that is asked for.
    pub(crate) async fn start_audit(&self, replica: &str, log: &AuditLog) -> Result<Option<Sending>> {
        let Some(endpoint) = given(&self.audit_otlp_endpoint) else { return Ok(None) };
        let to = Destination::shared(endpoint, Signal::Logs).context("--audit-otlp-endpoint")?;
        let to = with_headers(to, "OTEL_EXPORTER_OTLP_LOGS_HEADERS")?;
        let (ca, endpoint) = (self.ca().await?, to.shown().to_owned());
        let names = ("the audit log", "roadstead.audit");
        let exporter = LineExporter::new(to, ca.as_deref(), names, resource(replica));
        let exporter = exporter.context("set up the sending of the audit log")?;
        let Some(lines) = log.stream_out() else { return Ok(None) };
        tracing::info!(endpoint, "the audit log is sent");
        Ok(Some(Sending::by(|stop| exporter.run(Audit(lines), stop))))
    }

    async fn ca(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = self.otlp_ca_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let read = async {
            if tokio::fs::metadata(path).await?.len() > MOST_CA {
                bail!("it is longer than 1 MiB");
            }
            Ok(tokio::fs::read(path).await?)
        };
        read.await.map(Some).with_context(|| format!("read {} (--otlp-ca-file)", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_between_none_and_all() {
        for (text, ratio) in [("0", Some(0.0)), ("0.25", Some(0.25)), ("1", Some(1.0))] {
            assert_eq!(sampling(text).ok().map(Sampling::ratio), ratio);
        }
        for text in ["", "-0.1", "1.1", "NaN", "inf", "half"] {
            assert!(sampling(text).is_err(), "{text}");
        }
    }
}
