//! Tells this replica's sessions when to look. One question for all of them, at each signal and on a timer: with a thousand
//! agents a question of each would be a thousand.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roadstead_hub_core::{Hub, HubError};
use roadstead_model::{SessionId, Topic};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The timer under the signals: dispatches that another replica planned, a newer session elsewhere, a Cluster gone.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The sessions of this replica.
#[derive(Default)]
pub(crate) struct Switchboard {
    sessions: Mutex<HashMap<SessionId, Arc<Notify>>>,
}

/// A session's place; given up when dropped.
pub(crate) struct Place {
    board: Arc<Switchboard>,
    session: SessionId,
    pub(crate) woken: Arc<Notify>,
}

impl Switchboard {
    /// A place for a session, which is to look at once.
    pub(crate) fn place(self: &Arc<Self>, session: SessionId) -> Place {
        let woken = Arc::new(Notify::new());
        woken.notify_one();
        self.lock().insert(session, Arc::clone(&woken));
        Place { board: Arc::clone(self), session, woken }
    }

    /// A panic elsewhere leaves the map whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Notify>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until `stop`.
    pub(crate) async fn run(self: Arc<Self>, hub: Hub, stop: CancellationToken) {
        let mut dispatches = hub.signals().subscribe(Topic::Dispatch);
        let mut timer = tokio::time::interval(LOOK_AGAIN);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let on_timer = tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => true,
                Ok(()) = dispatches.changed() => false,
            };
            tokio::select! {
                _ = hub.attempt("could not supervise the replica's sessions", self.check(&hub, on_timer)) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn check(&self, hub: &Hub, on_timer: bool) -> Result<(), HubError> {
        if self.lock().is_empty() {
            return Ok(());
        }
        let known: Vec<SessionId> = self.lock().keys().copied().collect();
        let mut wanted: HashSet<SessionId> =
            hub.sessions.sessions_with_dispatches().await?.into_iter().collect();
        if on_timer {
            let current: HashSet<SessionId> = hub.sessions.current().await?.into_iter().collect();
            // Those that were known before the question, so that one which has just begun is not taken for an old one.
            wanted.extend(known.into_iter().filter(|session| !current.contains(session)));
        }
        let sessions = self.lock();
        wanted.iter().filter_map(|session| sessions.get(session)).for_each(|woken| woken.notify_one());
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.board.lock().remove(&self.session);
    }
}
