//! Where spans and log records are sent to, as an operator says it: by flags, or by the variables that all of OpenTelemetry's programs have.

use http::{HeaderName, HeaderValue};
use roadstead_outbound::secret_header;
use url::Url;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
}

impl Signal {
    /// What is appended to an endpoint that is for all signals.
    const fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Logs => "v1/logs",
        }
    }
}

/// Headers that are sent with each batch.
const MOST_HEADERS: usize = 32;

/// Where a signal is sent to.
#[derive(Clone)]
pub struct Destination {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why nothing can be sent there. Neither credentials nor what stands in their place is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDestination {
    /// The URL.
    #[error(
        "the OTLP endpoint must be an http:// or https:// URL without user and password, query and fragment"
    )]
    Url,
    /// The headers.
    #[error(
        "OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE pairs with commas between them, percent-encoded, and at most 32 of them"
    )]
    Headers,
}

impl Destination {
    /// An endpoint for all signals, to which the path of this one is appended.
    ///
    /// # Errors
    /// [`BadDestination::Url`].
    pub fn shared(endpoint: &str, signal: Signal) -> Result<Self, BadDestination> {
        let mut to = Self::exact(endpoint)?;
        let path = format!("{}/{}", to.url.path().trim_end_matches('/'), signal.path());
        to.url.set_path(&path);
        Ok(to)
    }

    /// An endpoint for one signal, which is taken as it is.
    ///
    /// # Errors
    /// [`BadDestination::Url`].
    pub fn exact(endpoint: &str) -> Result<Self, BadDestination> {
        let url = Url::parse(endpoint).map_err(|_| BadDestination::Url)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_plain || !is_http || url.query().is_some() || url.fragment().is_some() {
            return Err(BadDestination::Url);
        }
        Ok(Self { url, headers: Vec::new() })
    }

    /// The same with these headers, as `OTEL_EXPORTER_OTLP_HEADERS` has them. They may be credentials, and do not print.
    ///
    /// # Errors
    /// [`BadDestination::Headers`].
    pub fn with_headers(mut self, text: &str) -> Result<Self, BadDestination> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(BadDestination::Headers)?;
            let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8();
            let value = value.map_err(|_| BadDestination::Headers)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| BadDestination::Headers)?;
            self.headers.push((name, secret_header(&value).map_err(|_| BadDestination::Headers)?));
        }
        if self.headers.len() > MOST_HEADERS {
            return Err(BadDestination::Headers);
        }
        Ok(self)
    }

    /// For log lines.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.url.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_for_all_signals_or_for_one() {
        let shown = |to: Result<Destination, _>| to.map(|to| to.shown().to_owned());
        for (endpoint, url) in [
            ("http://collector:4318", "http://collector:4318/v1/"),
            ("http://collector:4318/", "http://collector:4318/v1/"),
            ("https://otlp.example/tenant/", "https://otlp.example/tenant/v1/"),
        ] {
            for (signal, name) in [(Signal::Traces, "traces"), (Signal::Logs, "logs")] {
                assert_eq!(shown(Destination::shared(endpoint, signal)), Ok(format!("{url}{name}")));
            }
        }
        assert_eq!(
            shown(Destination::exact("https://otlp.example/x")).as_deref(),
            Ok("https://otlp.example/x")
        );
        for bad in ["", "collector:4318", "ftp://a", "http://u:canary@a", "http://a/?k=canary", "http://a/#b"]
        {
            assert_eq!(shown(Destination::exact(bad)), Err(BadDestination::Url), "{bad}");
        }
    }

    #[test]
    fn headers_are_read_and_do_not_print() {
        let to = Destination::exact("http://a").unwrap();
        let with = to.clone().with_headers("authorization=Bearer%20canary, x-tenant = blue,").unwrap();
        let read: Vec<_> =
            with.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(read, [("authorization", "Bearer canary"), ("x-tenant", "blue")]);
        assert!(!format!("{:?}", with.headers).contains("canary"));
        for bad in ["canary", "a b=c", "a=%0acanary", "=canary"] {
            let error = to.clone().with_headers(bad).err().unwrap();
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        assert!(to.with_headers(&"a=b,".repeat(33)).is_err());
    }
}
