//! A dispatch's turn: so many are worked on at once, shared fairly by the namespaces of the hub, and one that is slow holds up
//! nobody for long.

use std::pin::pin;
use std::time::Duration;

use roadstead_model::Dispatch;
use roadstead_places::{Limits, Place, Places};
use tokio_util::sync::CancellationToken;

use crate::outbox::Outbox;

/// How many dispatches are worked on at once. Others wait, so that what each takes of its timeout is its own work. One that waits for
/// health is not worked on.
const AT_ONCE: usize = 32;

/// A dispatch that has been worked on for so long goes on beside the others, and its place is another one's: of a namespace that has
/// its share of the places, or of one that has more.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_OVER_SHARE: Duration = Duration::from_secs(2);

/// A dispatch that waits no longer than this is not told of.
const SHORT_WAIT: Duration = Duration::from_secs(1);

pub(super) const LIMITS: Limits = Limits {
    total: AT_ONCE,
    // Of one cluster, which is all that there is.
    per_group: AT_ONCE,
    patience: PATIENCE,
    patience_over_share: PATIENCE_OVER_SHARE,
};

/// The turn of one dispatch.
pub(super) struct Turn<'a> {
    pub(super) places: &'a Places,
    pub(super) outbox: &'a Outbox,
    pub(super) dispatch: &'a Dispatch,
    pub(super) cancel: &'a CancellationToken,
    pub(super) place: Option<Place>,
}

/// The dispatch was cancelled while it waited.
#[derive(Debug)]
pub(super) struct Cancelled;

impl Turn<'_> {
    /// Waits until it has a place. Where that takes long, the hub is told.
    pub(super) async fn take(&mut self) -> Result<(), Cancelled> {
        if self.place.is_some() {
            return Ok(());
        }
        let Dispatch { key, spec, .. } = self.dispatch;
        let taken = async {
            let mut turn = pin!(self.places.take(&spec.applier.namespace, ""));
            if let Ok(place) = tokio::time::timeout(SHORT_WAIT, turn.as_mut()).await {
                return place;
            }
            self.outbox.waits(key);
            let place = turn.await;
            self.outbox.started(key);
            place
        };
        let place = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Cancelled),
            place = taken => place,
        };
        self.place = Some(place);
        Ok(())
    }

    /// Gives its place to whoever waits.
    pub(super) fn give_up(&mut self) {
        self.place = None;
    }

    /// Does what it has a place for, and gives that up where it takes long.
    pub(super) async fn work<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Some(place) = &self.place {
            tokio::select! {
                biased;
                done = work.as_mut() => return done,
                () = place.asked_to_leave() => {}
            }
        }
        self.give_up();
        work.await
    }
}
