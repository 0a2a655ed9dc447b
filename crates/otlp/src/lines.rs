//! The loop that sends lines of a log, each a record, in batches.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message as _;
use roadstead_outbound::ClientError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Destination;
use crate::post::{Collector, NotTaken};
use crate::wire::of_lines;

/// Lines that are sent at once: as many bytes as wait at most, held three times while that is done (4 MiB of the audit log, so 12 MiB).
const BATCH: usize = 256;
/// So long lines are waited for that go with the first one.
const GATHER: Duration = Duration::from_millis(500);
/// How long it is waited before a batch is tried again: each time twice as long, up to a bound.
const AGAIN: Duration = Duration::from_secs(1);
const MOST_AGAIN: Duration = Duration::from_secs(30);
/// So long it may take to send what is there when the process ends.
const FAREWELL: Duration = Duration::from_secs(3);

/// Lines of JSON that wait to be sent. Whoever holds them bounds how many wait.
pub trait Lines: Send {
    /// The next lines, so many at most; it waits for the first. None will come once it gives none.
    fn next(&mut self, most: usize) -> impl Future<Output = Vec<String>> + Send;

    /// Those that wait already, so many at most.
    fn ready(&mut self, most: usize) -> Vec<String>;

    /// These are done with, and so many of them were lost.
    fn settle(&mut self, lines: &[String], lost: u64);
}

/// Sends lines to where an operator wants them.
pub struct LineExporter {
    collector: Collector,
    prefix: &'static str,
}

impl LineExporter {
    /// Sends to `to`, whose certificate is one of the system's authorities or of `ca` (PEM), what this process is according to `resource`.
    /// `what` they are is for log lines; the names of events and attributes begin with `prefix`.
    ///
    /// # Errors
    /// Where the authorities are none.
    pub fn new(
        to: Destination,
        ca: Option<&[u8]>,
        (what, prefix): (&'static str, &'static str),
        resource: Vec<(&'static str, String)>,
    ) -> Result<Self, ClientError> {
        Ok(Self { collector: Collector::new(to, ca, what, resource)?, prefix })
    }

    /// Sends until `stop`, and then what is there already.
    pub async fn run(mut self, mut lines: impl Lines, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let gathered = async {
                batch = lines.next(BATCH).await;
                if (1..BATCH).contains(&batch.len()) {
                    sleep(GATHER).await;
                }
            };
            // What ends it while a batch is gathered or sent does not lose that.
            tokio::select! {
                () = gathered => {}
                () = stop.cancelled() => break,
            }
            if batch.is_empty() {
                return;
            }
            batch.extend(lines.ready(BATCH - batch.len()));
            let Some(lost) = self.deliver(&batch, &stop).await else { break };
            lines.settle(&batch, lost);
            batch.clear();
        }
        let rest = async {
            loop {
                batch.extend(lines.ready(BATCH - batch.len()));
                if batch.is_empty() {
                    return;
                }
                let Ok(lost) = self.collector.post(self.body(&batch)).await else { return };
                lines.settle(&batch, lost);
                batch.clear();
            }
        };
        let _ = timeout(FAREWELL, rest).await;
    }

    fn body(&self, lines: &[String]) -> Bytes {
        of_lines(&self.collector.resource, self.prefix, lines, Timestamp::now()).encode_to_vec().into()
    }

    /// Sends a batch until it is taken, or is said never to be; gives how many were not taken. None where it is still to be sent when the
    /// process ends: one that is on its way then has a while to arrive, so that it is not sent twice.
    async fn deliver(&mut self, lines: &[String], stop: &CancellationToken) -> Option<u64> {
        let body = self.body(lines);
        let mut wait = AGAIN;
        loop {
            let given_up = async {
                stop.cancelled().await;
                sleep(FAREWELL).await;
            };
            let posted = tokio::select! {
                posted = self.collector.post(body.clone()) => posted,
                () = given_up => return None,
            };
            match posted {
                Ok(rejected) => {
                    self.collector.taken(rejected);
                    return Some(rejected);
                }
                Err(NotTaken { why, again }) => {
                    self.collector.tell_failure(&why);
                    if !again {
                        let count = lines.len() as u64;
                        self.collector.lost += count;
                        return Some(count);
                    }
                }
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => return None,
            }
            wait = (wait * 2).min(MOST_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests;
