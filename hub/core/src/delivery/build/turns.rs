//! Turns to build, where a namespace's quota bounds how many of its builds run at once on all replicas. Who finds none waits in the database,
//! holds nothing here, and is due again when another's turn ends; the look after a while is a net below that.

use std::sync::Arc;
use std::time::Duration;

use roadstead_api::RUNNING_BUILDS;
use roadstead_hub_store::{BuildQuota, BuildTurn, Store, TurnOf};
use roadstead_model::{ReplicaId, chain};
use uuid::Uuid;

use crate::HubError;
use crate::clock::{Clock, MOST_APART};
use crate::delivery::build::For;

/// The first in line looks again after this, those behind it later: they are told when it is their turn.
const AGAIN: Duration = Duration::from_secs(10);
const AGAIN_AT_THE_LATEST: Duration = Duration::from_secs(300);
/// So long past that a place in the line is kept. Who does not come, since nothing is to be built any more, holds up the others that long.
const KEPT: Duration = Duration::from_secs(30);
/// A turn that nobody ended counts so long: longer than a build with two tries takes. (That of a replica that is gone ends with it.)
const LEASE: Duration = Duration::from_secs(3600);
/// A turn whose end could not be written: it is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// Turns, as one replica takes them.
pub(super) struct Turns {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) replica: ReplicaId,
}

/// Why there is no turn now.
pub(super) struct Wait {
    /// After how long to ask again.
    pub(super) later: Duration,
    /// For the condition. It stays the same for as long as the quota does.
    pub(super) why: String,
}

impl Turns {
    /// A turn, or why there is none.
    pub(super) async fn take(
        &self,
        whom: For<'_>,
        quota: &BuildQuota,
    ) -> Result<Result<HeldTurn, Wait>, HubError> {
        let of = TurnOf { applier: whom.applier, namespace: whom.namespace, replica: self.replica };
        let kept = |before| later(before, quota.limit) + KEPT;
        match self.store.take_build_turn(of, quota.limit, self.clock.now(), LEASE, kept).await? {
            BuildTurn::Runs(id) => {
                Ok(Ok(HeldTurn { store: self.store.clone(), namespace: whom.namespace.to_owned(), id }))
            }
            BuildTurn::Waits(before) => {
                let BuildQuota { name, limit } = quota;
                let why = format!(
                    "waits for its turn to build: ResourceQuota '{name}' allows {limit} at once in this namespace ({RUNNING_BUILDS})"
                );
                Ok(Err(Wait { later: later(before, *limit), why }))
            }
        }
    }

    /// Has turns and places in the line count no longer than they would if they began now: the clock may have been put back.
    pub(super) async fn mend(&self) -> Result<(), HubError> {
        let kept = AGAIN_AT_THE_LATEST + KEPT;
        Ok(self.store.mend_build_turns(self.clock.now(), (LEASE, kept), MOST_APART).await?)
    }

    /// Gives a place in the line away that is not needed any more.
    pub(super) async fn leave(&self, whom: For<'_>) -> Result<(), HubError> {
        Ok(self.store.end_build_turn(whom.namespace, None, Some(whom.applier)).await?)
    }
}

/// After how long to ask again, behind so many others.
fn later(before: i64, limit: i64) -> Duration {
    let rounds = u32::try_from(before / limit.max(1)).unwrap_or(u32::MAX);
    AGAIN.saturating_mul(rounds.saturating_add(1)).min(AGAIN_AT_THE_LATEST)
}

/// A turn to build; ended on drop, however a pass ends.
pub(crate) struct HeldTurn {
    store: Store,
    namespace: String,
    id: Uuid,
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        let (store, namespace, id) = (self.store.clone(), std::mem::take(&mut self.namespace), self.id);
        // Without a runtime the process is about to end, and its turns with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            while let Err(error) = store.end_build_turn(&namespace, Some(id), None).await {
                tracing::warn!(namespace, error = chain(&error), "could not end a turn to build");
                tokio::time::sleep(RETRY).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, AGAIN_AT_THE_LATEST, later};

    #[test]
    fn who_is_far_behind_asks_less_often() {
        assert_eq!((later(0, 2), later(1, 2), later(2, 2)), (AGAIN, AGAIN, AGAIN * 2));
        assert_eq!(later(10_000, 2), AGAIN_AT_THE_LATEST);
        // Of a quota of none, nobody's turn comes before it is another one.
        assert_eq!((later(0, 0), later(i64::MAX, 0)), (AGAIN, AGAIN_AT_THE_LATEST));
    }
}
