//! Traces: the command line's options for them, and what sends them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use roadstead_otlp::{Destination, Exporter};
use roadstead_trace::{Collected, Sampling};

/// Most bytes of a file with authorities.
const MOST_CA: u64 = 1 << 20;

/// Whether traces are made, and where they go. The variables are those of OpenTelemetry, which collectors' operators set for everything
/// that they run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceArgs {
    /// Make traces, and send them to this collector: OTLP over HTTP with protobuf, at URL/v1/traces. Credentials go into
    /// OTEL_EXPORTER_OTLP_HEADERS (or OTEL_EXPORTER_OTLP_TRACES_HEADERS), as NAME=VALUE with commas between them;
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is taken as it is, without a path appended. Without this no traces are made
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<String>,

    /// Authorities (PEM) that the collector's certificate may be of, besides the system's; read at start
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_file: Option<PathBuf>,

    /// The part of all traces whose spans are sent, from 0 to 1. A trace that a caller has begun is sent if that says so
    #[arg(long, value_name = "RATIO", env = "ROADSTEAD_TRACE_SAMPLE", default_value = "1", value_parser = sampling)]
    trace_sample: Sampling,
}

/// What sends traces, and what it sends.
pub(crate) type Traces = (Exporter, Collected);

fn sampling(text: &str) -> Result<Sampling, String> {
    let ratio = text.parse::<f64>().ok().and_then(Sampling::new);
    ratio.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

impl TraceArgs {
    /// Has traces made, where that is asked for.
    pub(crate) async fn start(&self, replica: &str) -> Result<Option<Traces>> {
        // Empty is what a chart makes of a value that is not set.
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let own = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let shared = self.otlp_endpoint.as_ref().filter(|endpoint| !endpoint.is_empty());
        let to = match (&own, shared) {
            (Some(own), _) => Destination::new(own, true)?,
            (None, Some(shared)) => Destination::new(shared, false)?,
            (None, None) => return Ok(None),
        };
        let headers = set("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"));
        let to = to.with_headers(headers.as_deref().unwrap_or_default())?;
        let ca = match self.otlp_ca_file.as_ref().filter(|path| !path.as_os_str().is_empty()) {
            None => None,
            Some(path) => {
                let read = || async {
                    if tokio::fs::metadata(path).await?.len() > MOST_CA {
                        bail!("it is longer than 1 MiB");
                    }
                    Ok(tokio::fs::read(path).await?)
                };
                Some(read().await.with_context(|| format!("read {} (--otlp-ca-file)", path.display()))?)
            }
        };
        let resource = vec![
            ("service.name", "roadstead-hub".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", replica.to_owned()),
        ];
        let shown = to.shown().to_owned();
        let exporter = Exporter::new(to, ca.as_deref(), resource).context("set up the sending of traces")?;
        let Some(collected) = roadstead_trace::start(self.trace_sample) else { return Ok(None) };
        tracing::info!(endpoint = shown, sample = self.trace_sample.ratio(), "traces are sent");
        Ok(Some((exporter, collected)))
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
