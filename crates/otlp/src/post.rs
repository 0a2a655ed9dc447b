//! Posting a batch to a collector, and what the process's log has of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use prost::Message as _;
use roadstead_model::chain;
use roadstead_outbound::{Client, ClientError, Guard, Policy, Proxies, Purpose};
use tokio::time::timeout;

use crate::Destination;
use crate::wire::ExportServiceResponse;

/// So long a collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER: usize = 64 << 10;

/// A collector, and how it gets on with what it is sent.
pub(crate) struct Collector {
    client: Client,
    to: Destination,
    /// What is sent, for log lines.
    what: &'static str,
    /// What is known of this process.
    pub(crate) resource: Vec<(&'static str, String)>,
    /// Whether the log has a line of it that batches are not taken.
    pub(crate) is_told: bool,
    /// How many of what was sent were not taken.
    pub(crate) lost: u64,
}

/// Why a batch was not taken.
pub(crate) struct NotTaken {
    pub(crate) why: String,
    /// It may be taken later.
    pub(crate) again: bool,
}

impl Collector {
    /// The one at `to`, whose certificate is one of the system's authorities or of `ca` (PEM). The address is the operator's: so it may be
    /// anywhere, and the environment's proxies are gone through.
    ///
    /// # Errors
    /// Where the authorities are none.
    pub(crate) fn new(
        to: Destination,
        ca: Option<&[u8]>,
        what: &'static str,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Self, ClientError> {
        let guard = Guard::new(Arc::new(Policy::everything()), Purpose::Notify);
        let client = Client::new(guard.with_proxies(Arc::new(Proxies::from_env())), ca)?;
        Ok(Self { client, to, what, resource, is_told: false, lost: 0 })
    }

    /// Posts a batch; says how many of it were rejected.
    pub(crate) async fn post(&self, body: Bytes) -> Result<u64, NotTaken> {
        let mut building = http::Request::post(self.to.url.as_str());
        for (name, value) in &self.to.headers {
            building = building.header(name, value);
        }
        let building = building.header(header::CONTENT_TYPE, "application/x-protobuf");
        let request = building
            .body(Full::new(body))
            .map_err(|_| NotTaken { why: "the endpoint is not a URL".to_owned(), again: false })?;
        let exchanged = async {
            let answer = self.client.send(request).await;
            let answer = answer.map_err(|error| NotTaken { why: chain(&error), again: true })?;
            let status = answer.status();
            if !status.is_success() {
                return Err(not_taken(status));
            }
            let body = Limited::new(answer.into_body(), ANSWER).collect().await;
            Ok(body.map(http_body_util::Collected::to_bytes).unwrap_or_default())
        };
        let slow = || NotTaken { why: format!("it did not answer within {PATIENCE:?}"), again: true };
        let answer = timeout(PATIENCE, exchanged).await.map_err(|_| slow())??;
        // In another form, such as JSON, it says nothing that counts.
        let partial = ExportServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        Ok(partial.map_or(0, |partial| u64::try_from(partial.rejected).unwrap_or_default()))
    }

    /// A batch was taken, apart from what was rejected.
    pub(crate) fn taken(&mut self, rejected: u64) {
        if rejected > 0 {
            self.lost += rejected;
            self.tell_failure("it rejected a part of a batch");
            return;
        }
        if self.is_told {
            let endpoint = self.to.shown();
            tracing::info!(lost = self.lost, endpoint, "the collector takes {} again", self.what);
            self.is_told = false;
        }
    }

    /// Once for as long as it goes on: the line at its end has how many were lost.
    pub(crate) fn tell_failure(&mut self, why: &str) {
        if !self.is_told {
            self.is_told = true;
            tracing::warn!(
                why,
                endpoint = self.to.shown(),
                "the collector does not take {}; what waits for too long is dropped, and nothing else is held up",
                self.what
            );
        }
    }
}

/// As the protocol has it, these four may be tried again.
fn not_taken(status: StatusCode) -> NotTaken {
    let again = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    NotTaken { why: format!("it answered HTTP {}", status.as_u16()), again }
}
