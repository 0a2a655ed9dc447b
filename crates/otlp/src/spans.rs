//! The loop that sends spans in batches.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_outbound::ClientError;
use roadstead_trace::{Collected, Finished};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Destination;
use crate::post::{Collector, NotTaken};
use crate::wire::of_spans;

/// Spans that are sent at once: of some 4 KiB at most each.
const BATCH: usize = 512;
/// So long spans are waited for that go with the first one.
const GATHER: Duration = Duration::from_secs(1);
/// How often a batch is tried, and how long it is waited in between, each time twice as long.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_secs(1);
/// So long it may take to send what is there when the process ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Sends spans to where an operator wants them.
pub struct Exporter {
    collector: Collector,
    /// How many were dropped for want of room, when that was told last.
    told_dropped: u64,
}

impl Exporter {
    /// Sends to `to`, whose certificate is one of the system's authorities or of `ca` (PEM), what this process is according to `resource`.
    ///
    /// # Errors
    /// Where the authorities are none.
    pub fn new(
        to: Destination,
        ca: Option<&[u8]>,
        resource: Vec<(&'static str, String)>,
    ) -> Result<Self, ClientError> {
        Ok(Self { collector: Collector::new(to, ca, "spans", resource)?, told_dropped: 0 })
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
                if spans.is_empty() || self.collector.post(self.body(spans)).await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(FAREWELL, rest).await;
    }

    fn body(&self, spans: Vec<Finished>) -> Bytes {
        of_spans(&self.collector.resource, spans).encode_to_vec().into()
    }

    /// Sends a batch, as often as it takes within bounds.
    async fn deliver(&mut self, spans: Vec<Finished>) {
        let count = spans.len() as u64;
        let body = self.body(spans);
        let mut wait = AGAIN;
        for tried in 1..=TRIES {
            match self.collector.post(body.clone()).await {
                Ok(rejected) => return self.collector.taken(rejected),
                Err(NotTaken { why, again }) => {
                    self.collector.tell_failure(&why);
                    if !again || tried == TRIES {
                        self.collector.lost += count;
                        return;
                    }
                }
            }
            sleep(wait).await;
            wait *= 2;
        }
    }

    fn tell_dropped(&mut self, dropped: u64) {
        if dropped > self.told_dropped {
            self.collector.lost += dropped - self.told_dropped;
            self.told_dropped = dropped;
            self.collector.tell_failure("more spans came than it took");
        }
    }
}

#[cfg(test)]
mod tests;
