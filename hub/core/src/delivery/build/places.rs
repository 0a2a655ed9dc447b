//! Whose build is next: namespaces share the worker processes fairly.
//!
//! A pass that has to build goes through two doors. The first lets so many passes in that the others, which find their build
//! stored or need none, always have room beside them. A few wait there; whoever is turned away comes again when the work before it
//! should be done. The second is for the workers themselves: of the passes inside, the one whose namespace has the fewest workers goes
//! next.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use roadstead_places::{Place, Places};
use tokio::sync::Semaphore;

use crate::workers::fair_places;

/// Passes at once that build or wait for it: fewer than a replica makes over Kustomizations, so that a namespace of which each
/// build takes its whole time leaves passes to the others.
const INSIDE: usize = 12;
/// Whoever is turned away comes again after this at the earliest, and at the latest.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(10);
/// So many wait for one of these places: a pass that comes again asks the database for all it needs once more.
const WAITING: usize = 8;
/// How much the newest build counts in the average of what a build takes: one part in so many.
const WEIGHT: u32 = 8;
/// What a build is taken to last before there was one.
const FIRST_GUESS: Duration = Duration::from_millis(50);

/// The places for builds of one replica.
pub(crate) struct BuildPlaces {
    inside: Places,
    waiting: Semaphore,
    workers: Places,
    /// As many as there are places for workers.
    side_by_side: u32,
    /// What a build takes, waiting aside: a moving average.
    average: Mutex<Duration>,
}

impl BuildPlaces {
    /// For a pool of so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            inside: fair_places(INSIDE),
            waiting: Semaphore::new(WAITING),
            workers: fair_places(workers),
            side_by_side: u32::try_from(workers.max(1)).unwrap_or(1),
            average: Mutex::new(FIRST_GUESS),
        }
    }

    /// The first door: a place to wait in, or after how long to come again.
    pub(crate) async fn enter(&self, namespace: &str) -> Result<Place, Duration> {
        if let Ok(_waits) = self.waiting.try_acquire() {
            return Ok(self.inside.take(namespace, namespace).await);
        }
        self.inside.try_take(namespace, namespace).ok_or_else(|| {
            let before = u32::try_from(self.inside.waiting(namespace) + INSIDE).unwrap_or(u32::MAX);
            let expected = self.average().saturating_mul(before) / self.side_by_side;
            expected.clamp(SOONEST, LATEST)
        })
    }

    /// The second door: a worker's place, once it is this namespace's turn.
    pub(crate) async fn worker(&self, namespace: &str) -> AtWork<'_> {
        let place = self.workers.take(namespace, namespace).await;
        AtWork { places: self, since: Instant::now(), _place: place }
    }

    fn average(&self) -> Duration {
        *self.average.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn took(&self, time: Duration) {
        let mut average = self.average.lock().unwrap_or_else(PoisonError::into_inner);
        *average = (*average * (WEIGHT - 1) + time.min(LATEST)) / WEIGHT;
    }
}

/// A worker's place; given back, and its time counted, on drop.
pub(crate) struct AtWork<'a> {
    places: &'a BuildPlaces,
    since: Instant,
    _place: Place,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.places.took(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::task::JoinSet;

    /// All that one namespace can have: what is inside, what waits, and after how long the next one is to come again.
    struct Crowd {
        inside: Vec<Place>,
        waits: JoinSet<Result<Place, Duration>>,
        later: Duration,
    }

    async fn crowd(places: &Arc<BuildPlaces>, namespace: &'static str) -> Crowd {
        let (mut inside, mut waits) = (Vec::new(), JoinSet::new());
        loop {
            let of = Arc::clone(places);
            waits.spawn(async move { of.enter(namespace).await });
            tokio::task::yield_now().await;
            match waits.try_join_next().map(|entered| entered.expect("no panic")) {
                None => {}
                Some(Ok(place)) => inside.push(place),
                Some(Err(later)) => return Crowd { inside, waits, later },
            }
        }
    }

    #[tokio::test]
    async fn a_namespace_that_only_builds_leaves_room_to_others() {
        let places = Arc::new(BuildPlaces::new(2));
        let greedy = crowd(&places, "greedy").await;
        assert!(greedy.inside.len() < INSIDE, "{}", greedy.inside.len());
        assert_eq!(greedy.waits.len(), WAITING);
        let _at_work = [places.worker("greedy").await, places.worker("greedy").await];
        let _honest = places.enter("honest").await.expect("there is room for somebody else");
        // The greedy one's next comes again later, and the honest one has the next worker.
        let later = places.enter("greedy").await.expect_err("it has more than its share");
        assert!((SOONEST..=LATEST).contains(&later), "{later:?}");
    }

    #[tokio::test]
    async fn who_waits_goes_in_when_another_leaves() {
        let places = Arc::new(BuildPlaces::new(2));
        let Crowd { mut inside, mut waits, .. } = crowd(&places, "many").await;
        inside.pop();
        let entered = waits.join_next().await.expect("they wait").expect("no panic");
        assert!(entered.is_ok(), "{entered:?}");
        assert_eq!(waits.len(), WAITING - 1);
    }

    #[tokio::test]
    async fn the_namespace_with_the_fewest_workers_is_next() {
        let places = Arc::new(BuildPlaces::new(2));
        let mut greedy = vec![places.worker("greedy").await, places.worker("greedy").await];
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for namespace in ["greedy", "greedy", "honest"] {
            let (places, sender) = (Arc::clone(&places), sender.clone());
            tokio::spawn(async move {
                let at_work = places.worker(namespace).await;
                sender.send(namespace).expect("the test waits for it");
                // Long enough for the others to be asked which of them is next.
                std::future::pending::<()>().await;
                drop(at_work);
            });
        }
        while places.workers.waiting("greedy") + places.workers.waiting("honest") < 3 {
            tokio::task::yield_now().await;
        }
        greedy.pop();
        assert_eq!(order.recv().await, Some("honest"));
    }

    #[tokio::test]
    async fn who_is_turned_away_comes_again_when_the_work_should_be_done() {
        let places = Arc::new(BuildPlaces::new(2));
        for _ in 0..100 {
            places.took(Duration::from_millis(2));
        }
        let many = crowd(&places, "many").await;
        assert_eq!(many.later, SOONEST);
        for _ in 0..100 {
            places.took(Duration::from_secs(60));
        }
        assert_eq!(places.enter("many").await.expect_err("full"), LATEST);
    }
}
