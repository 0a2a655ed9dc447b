//! Work side by side, a bounded number of pieces at once.

use std::future::Future;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

/// Runs `work`, `limit` pieces at once, starting them in order; each result is handed to `done` as it comes. Once
/// `go_on` says no, nothing new is started, and what runs is run to its end.
pub(crate) async fn side_by_side<F: Future>(
    limit: usize,
    work: impl IntoIterator<Item = F>,
    go_on: &(dyn Fn() -> bool + Sync),
    done: &mut (dyn FnMut(F::Output) + Send),
) {
    let mut work = work.into_iter();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < limit.max(1) && go_on() {
            match work.next() {
                Some(piece) => running.push(piece),
                None => break,
            }
        }
        match running.next().await {
            Some(result) => done(result),
            None => return,
        }
    }
}
