//! Whose build is next: namespaces share the worker processes fairly.
//!
//! A pass that has to build goes through two doors. The first lets so many passes in that the others, which find their build
//! stored or need none, always have room beside them; who is turned away there comes again when the work before it should be
//! done. The second is for the workers themselves: of the passes inside, the one whose namespace has the fewest workers goes
//! next.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use roadstead_places::{Place, Places};

use crate::workers::fair_places;

/// Passes at once that build or wait for it: fewer than a replica makes over Kustomizations, so that a namespace of which each
/// build takes its whole time leaves passes to the others.
const INSIDE: usize = 12;
/// Whoever is turned away comes again after this at the earliest, and at the latest.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(10);
/// How much the newest build counts in the average of what a build takes: one part in so many.
const WEIGHT: u32 = 8;
/// What a build is taken to last before there was one.
const FIRST_GUESS: Duration = Duration::from_millis(50);

/// The places for builds of one replica.
pub(crate) struct BuildPlaces {
    inside: Places,
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
            workers: fair_places(workers),
            side_by_side: u32::try_from(workers.max(1)).unwrap_or(1),
            average: Mutex::new(FIRST_GUESS),
        }
    }

    /// The first door: a place to wait in, or after how long to come again.
    pub(crate) fn enter(&self, namespace: &str) -> Result<Place, Duration> {
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

    #[tokio::test]
    async fn a_namespace_that_only_builds_leaves_room_to_others() {
        let places = BuildPlaces::new(2);
        let mut inside: Vec<Place> = std::iter::from_fn(|| places.enter("greedy").ok()).collect();
        assert!(inside.len() < INSIDE, "{}", inside.len());
        let _at_work = [places.worker("greedy").await, places.worker("greedy").await];
        inside.push(places.enter("honest").expect("there is room for somebody else"));
        // The greedy one's next comes again later, and the honest one has the next worker.
        let later = places.enter("greedy").expect_err("it has more than its share");
        assert!((SOONEST..=LATEST).contains(&later), "{later:?}");
    }

    #[tokio::test]
    async fn the_namespace_with_the_fewest_workers_is_next() {
        let places = std::sync::Arc::new(BuildPlaces::new(2));
        let mut greedy = vec![places.worker("greedy").await, places.worker("greedy").await];
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for namespace in ["greedy", "greedy", "honest"] {
            let (places, sender) = (std::sync::Arc::clone(&places), sender.clone());
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

    #[test]
    fn who_is_turned_away_comes_again_when_the_work_should_be_done() {
        let places = BuildPlaces::new(2);
        let _inside: Vec<Place> = std::iter::from_fn(|| places.enter("many").ok()).collect();
        for _ in 0..100 {
            places.took(Duration::from_millis(2));
        }
        let quick = places.enter("many").expect_err("full");
        assert_eq!(quick, SOONEST);
        for _ in 0..100 {
            places.took(Duration::from_secs(60));
        }
        assert_eq!(places.enter("many").expect_err("full"), LATEST);
    }
}
