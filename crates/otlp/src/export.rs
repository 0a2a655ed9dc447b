//! The loop that sends spans in batches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use prost::Message as _;
use roadstead_model::chain;
use roadstead_outbound::{Client, ClientError, Guard, Policy, Proxies, Purpose};
use roadstead_trace::{Collected, Finished};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Destination;
use crate::wire::{ExportTraceServiceResponse, request};

/// Spans that are sent at once: of some 4 KiB at most each.
const BATCH: usize = 512;
/// So long spans are waited for that go with the first one.
const GATHER: Duration = Duration::from_secs(1);
/// So long a collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a batch is tried, and how long it is waited in between, each time twice as long.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_secs(1);
/// So long it may take to send what is there when the process ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER: usize = 64 << 10;

/// Sends spans to where an operator wants them.
pub struct Exporter {
    client: Client,
    to: Destination,
    resource: Vec<(&'static str, String)>,
    /// Whether the log has a line of it that spans are not taken.
    is_told: bool,
    /// How many were not taken.
    lost: u64,
    /// How many were dropped for want of room, when that was told last.
    told_dropped: u64,
}

/// Why a batch was not taken.
struct NotTaken {
    why: String,
    /// It may be taken later.
    again: bool,
}

impl Exporter {
    /// Sends to `to`, whose certificate is one of the system's authorities or of `ca` (PEM), what this process is according to `resource`.
    /// The address is the operator's: so it may be anywhere, and the environment's proxies are gone through.
    ///
    /// # Errors
    /// Where the authorities are none.
    pub fn new(
        to: Destination,
        ca: Option<&[u8]>,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Self, ClientError> {
        let guard = Guard::new(Arc::new(Policy::everything()), Purpose::Notify);
        let client = Client::new(guard.with_proxies(Arc::new(Proxies::from_env())), ca)?;
        Ok(Self { client, to, resource, is_told: false, lost: 0, told_dropped: 0 })
    }

    /// Sends until `stop`, and then what is there already.
    pub async fn run(mut self, mut collected: Collected, stop: CancellationToken) {
        loop {
            let gathered = async {
                let mut spans = collected.next(BATCH).await;
                if spans.len() < BATCH {
                    sleep(GATHER).await;
                    spans.extend(collected.ready(BATCH - spans.len()));
                }
                spans
            };
            // Spans that were gathered when it ends are lost: a second's worth at most.
            let spans = tokio::select! {
                spans = gathered => spans,
                () = stop.cancelled() => break,
            };
            self.tell_dropped(collected.dropped());
            tokio::select! {
                () = self.deliver(spans) => {}
                () = stop.cancelled() => break,
            }
        }
        let rest = async {
            loop {
                let spans = collected.ready(BATCH);
                if spans.is_empty() || self.post(self.body(spans)).await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(FAREWELL, rest).await;
    }

    fn body(&self, spans: Vec<Finished>) -> Bytes {
        request(&self.resource, spans).encode_to_vec().into()
    }

    /// Sends a batch, as often as it takes within bounds.
    async fn deliver(&mut self, spans: Vec<Finished>) {
        let count = spans.len() as u64;
        let body = self.body(spans);
        let mut wait = AGAIN;
        for tried in 1..=TRIES {
            match self.post(body.clone()).await {
                Ok(rejected) => return self.taken(rejected),
                Err(NotTaken { why, again }) => {
                    self.tell_failure(&why);
                    if !again || tried == TRIES {
                        self.lost += count;
                        return;
                    }
                }
            }
            sleep(wait).await;
            wait *= 2;
        }
    }

    /// Posts a batch; says how many of its spans were not taken.
    async fn post(&self, body: Bytes) -> Result<u64, NotTaken> {
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
        let partial =
            ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        Ok(partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or_default()))
    }

    fn taken(&mut self, rejected: u64) {
        if rejected > 0 {
            self.lost += rejected;
            self.tell_failure("it rejected some of the spans");
            return;
        }
        if self.is_told {
            tracing::info!(lost = self.lost, endpoint = self.to.shown(), "the collector takes spans again");
            self.is_told = false;
        }
    }

    fn tell_failure(&mut self, why: &str) {
        if !self.is_told {
            self.is_told = true;
            tracing::warn!(
                why,
                endpoint = self.to.shown(),
                "the collector does not take spans; what waits for too long is dropped, and nothing else is held up"
            );
        }
    }

    /// Once for as long as it goes on: the line at its end has how many there were.
    fn tell_dropped(&mut self, dropped: u64) {
        if dropped > self.told_dropped {
            self.lost += dropped - self.told_dropped;
            self.told_dropped = dropped;
            self.tell_failure("more spans came than it took");
        }
    }
}

/// As the protocol has it, these four may be tried again.
fn not_taken(status: StatusCode) -> NotTaken {
    let again = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    NotTaken { why: format!("it answered HTTP {}", status.as_u16()), again }
}

#[cfg(test)]
mod tests;
