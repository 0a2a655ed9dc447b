//! Watches on the cluster that are opened and ended as what is wanted of them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::tend::Watch;

/// Where watching is forbidden, or how a kind is watched is not known, it is tried again after so long: rights change.
pub(crate) const FORBIDDEN_FOR: Duration = Duration::from_secs(300);

/// How often it is looked whether other watches are wanted where nothing says so.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long it is waited for more that is to be watched.
const GATHER: Duration = Duration::from_millis(100);

/// The watches of one kind that are open. They end with the value.
#[derive(Debug, Default)]
pub(crate) struct OpenWatches {
    open: BTreeMap<Watch, AbortHandle>,
    tasks: JoinSet<()>,
}

impl OpenWatches {
    /// Ends those that are not wanted any more, and opens those that are new, until there are `most`. Says whether more are wanted.
    pub(crate) fn set<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        wanted: BTreeSet<Watch>,
        most: usize,
        watching: impl Fn(Watch) -> F,
    ) -> bool {
        let Self { open, tasks } = self;
        open.retain(|watch, task| {
            let stays = wanted.contains(watch) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        for watch in wanted {
            if open.contains_key(&watch) {
                continue;
            }
            if open.len() >= most {
                return true;
            }
            let task = tasks.spawn(watching(watch.clone()));
            open.insert(watch, task);
        }
        false
    }

    /// Does something beside them, after which others may be wanted.
    pub(crate) fn beside(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Waits until others may be wanted: `changed` says so, one has ended, or some time has passed.
    pub(crate) async fn rest(&mut self, changed: &Notify) {
        tokio::select! {
            // Many dispatches may end at about the same time.
            () = async { changed.notified().await; sleep(GATHER).await } => {}
            Some(_) = self.tasks.join_next() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}
