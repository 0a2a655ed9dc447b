//! Where spans are sent to, as an operator says it: by flags, or by the variables that all of OpenTelemetry's programs have.

use http::{HeaderName, HeaderValue};
use roadstead_outbound::secret_header;
use url::Url;

/// What is appended to an endpoint that is for all signals.
const TRACES: &str = "v1/traces";
/// Headers that are sent with each batch.
const MOST_HEADERS: usize = 32;

/// Where spans are sent to.
#[derive(Clone)]
pub struct Destination {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why spans cannot be sent there. Neither credentials nor what stands in their place is told.
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
    /// An endpoint for all signals, to which the path of traces is appended; or one for traces alone, which is taken as it is.
    ///
    /// # Errors
    /// [`BadDestination::Url`].
    pub fn new(endpoint: &str, is_for_traces: bool) -> Result<Self, BadDestination> {
        let mut url = Url::parse(endpoint).map_err(|_| BadDestination::Url)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_plain || !is_http || url.query().is_some() || url.fragment().is_some() {
            return Err(BadDestination::Url);
        }
        if !is_for_traces {
            let path = format!("{}/{TRACES}", url.path().trim_end_matches('/'));
            url.set_path(&path);
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
    fn an_endpoint_is_for_all_signals_or_for_traces() {
        let shown = |endpoint, is_for_traces| {
            Destination::new(endpoint, is_for_traces).map(|to| to.shown().to_owned())
        };
        for (endpoint, url) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://otlp.example/tenant/", "https://otlp.example/tenant/v1/traces"),
        ] {
            assert_eq!(shown(endpoint, false).as_deref(), Ok(url));
        }
        assert_eq!(shown("https://otlp.example/x", true).as_deref(), Ok("https://otlp.example/x"));
        for bad in ["", "collector:4318", "ftp://a", "http://u:canary@a", "http://a/?k=canary", "http://a/#b"]
        {
            assert_eq!(shown(bad, false), Err(BadDestination::Url), "{bad}");
        }
    }

    #[test]
    fn headers_are_read_and_do_not_print() {
        let to = Destination::new("http://a", false).unwrap();
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
