//! One share of the budget, and reservations out of it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::show_size;

/// Bytes of a semaphore's permit: permits are counted in 32 bits, which are four tebibytes of these.
const UNIT: u64 = 1024;
const MAX_UNITS: u64 = u32::MAX as u64;

/// Why bytes were not reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// Never, however long one waits.
    #[error(
        "{} exceed the whole memory share of {pool}, {} (see --memory-budget)",
        show_size(*wanted), show_size(*size)
    )]
    TooLarge {
        /// The pool's name.
        pool: &'static str,
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes of the pool.
        size: u64,
    },
    /// Not now.
    #[error("the share of memory for {pool}, {}, is in use", show_size(*size))]
    InUse {
        /// The pool's name.
        pool: &'static str,
        /// Bytes of the pool.
        size: u64,
    },
}

/// A fixed share of the process's memory. Clones are the same share.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    units: u64,
    free: Arc<Semaphore>,
}

impl Pool {
    /// A pool of its own, outside a [`crate::MemoryBudget`]: for tests, and for shares of shares. Holds at least 1 KiB.
    #[must_use]
    pub fn new(name: &'static str, bytes: u64) -> Self {
        let units = (bytes / UNIT).clamp(1, MAX_UNITS.min(Semaphore::MAX_PERMITS as u64));
        let free = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(usize::MAX)));
        Self(Arc::new(Inner { name, units, free }))
    }

    /// What it is for, as messages and logs name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Bytes in all.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.units * UNIT
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used() * UNIT
    }

    /// Reserves bytes now or not at all; whole KiB are counted. Whoever waits in [`Pool::reserve`] comes first.
    ///
    /// # Errors
    /// [`Exhausted`] where so many are not free.
    pub fn try_reserve(&self, bytes: u64) -> Result<Reservation, Exhausted> {
        let units = self.units(bytes)?;
        match Arc::clone(&self.0.free).try_acquire_many_owned(units) {
            Ok(permit) => Ok(self.reserved(units, permit)),
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => Err(self.in_use()),
        }
    }

    /// Reserves bytes, waiting until so many are free; whole KiB are counted. Who waits is served in order of arrival, so
    /// that a large reservation is not overtaken by small ones for ever.
    ///
    /// Whoever holds a reservation of this pool must not wait for another of it: two that do so would wait for each
    /// other. [`Reservation::try_grow_to`] does not wait for that reason.
    ///
    /// # Errors
    /// [`Exhausted::TooLarge`], at once, where the pool is smaller than that.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Exhausted> {
        let units = self.units(bytes)?;
        // It is never closed.
        let permit = Arc::clone(&self.0.free).acquire_many_owned(units).await.map_err(|_| self.in_use())?;
        Ok(self.reserved(units, permit))
    }

    fn units(&self, bytes: u64) -> Result<u32, Exhausted> {
        let units = bytes.div_ceil(UNIT);
        let fits = u32::try_from(units).ok().filter(|_| units <= self.0.units);
        fits.ok_or(Exhausted::TooLarge { pool: self.0.name, wanted: bytes, size: self.size() })
    }

    fn in_use(&self) -> Exhausted {
        Exhausted::InUse { pool: self.0.name, size: self.size() }
    }

    fn reserved(&self, units: u32, permit: OwnedSemaphorePermit) -> Reservation {
        Reservation { pool: self.clone(), units, permit }
    }
}

impl Inner {
    fn used(&self) -> u64 {
        let free = u64::try_from(self.free.available_permits()).unwrap_or(u64::MAX);
        self.units.saturating_sub(free)
    }
}

/// Bytes that are set aside; free again when it is dropped.
#[derive(Debug)]
#[must_use = "a reservation that is dropped at once reserves nothing"]
pub struct Reservation {
    pool: Pool,
    units: u32,
    permit: OwnedSemaphorePermit,
}

impl Reservation {
    /// Bytes that it holds, in whole KiB.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.units) * UNIT
    }

    /// Holds at least `bytes` in all from here on; nothing changes where it does already.
    ///
    /// # Errors
    /// [`Exhausted`] where they are not free; it then holds what it held.
    pub fn try_grow_to(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let wanted = self.pool.units(bytes)?;
        let Some(more) = wanted.checked_sub(self.units).filter(|more| *more > 0) else { return Ok(()) };
        match Arc::clone(&self.pool.0.free).try_acquire_many_owned(more) {
            Ok(permit) => {
                self.permit.merge(permit);
                self.units = wanted;
                Ok(())
            }
            Err(_) => Err(self.pool.in_use()),
        }
    }

    /// Holds at most `bytes` from here on.
    pub fn shrink_to(&mut self, bytes: u64) {
        let wanted = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let less = self.units.saturating_sub(wanted);
        if less > 0 && self.permit.split(less as usize).is_some() {
            self.units = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_dropped_is_free_again() {
        let pool = Pool::new("test", 10 * UNIT);
        let held = pool.try_reserve(6 * UNIT).unwrap();
        assert_eq!((pool.used(), held.bytes()), (6 * UNIT, 6 * UNIT));
        assert_eq!(
            pool.try_reserve(5 * UNIT).unwrap_err(),
            Exhausted::InUse { pool: "test", size: 10 * UNIT }
        );
        drop(held);
        assert_eq!(pool.used(), 0);
        assert!(pool.try_reserve(10 * UNIT).is_ok());
    }

    #[tokio::test]
    async fn what_can_never_fit_is_refused_at_once() {
        let pool = Pool::new("test", 10 * UNIT);
        let _held = pool.try_reserve(10 * UNIT).unwrap();
        for bytes in [10 * UNIT + 1, u64::MAX] {
            let error = pool.reserve(bytes).await.unwrap_err();
            assert!(matches!(error, Exhausted::TooLarge { .. }), "{error}");
            assert_eq!(pool.try_reserve(bytes).unwrap_err(), error);
        }
    }

    #[tokio::test]
    async fn a_large_reservation_is_not_overtaken() {
        let pool = Pool::new("test", 10 * UNIT);
        let held = pool.try_reserve(UNIT).unwrap();
        let large = tokio::spawn({
            let pool = pool.clone();
            async move { pool.reserve(10 * UNIT).await }
        });
        // It waits once what is free is out of reach for others.
        tokio::time::timeout(Duration::from_secs(20), async {
            while pool.try_reserve(UNIT).is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        drop(held);
        assert_eq!(large.await.unwrap().unwrap().bytes(), 10 * UNIT);
    }

    #[tokio::test]
    async fn who_goes_away_while_waiting_takes_nothing() {
        let pool = Pool::new("test", 10 * UNIT);
        let held = pool.try_reserve(10 * UNIT).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(1), pool.reserve(UNIT)).await.is_err());
        drop(held);
        assert_eq!(pool.used(), 0);
    }

    proptest! {
        /// However reservations grow and shrink, the pool's use is their sum, never more than the pool, and none at the end.
        #[test]
        fn use_is_the_sum_of_what_is_held(steps in prop::collection::vec((0_usize..4, 0_u64..12_000), 0..50)) {
            let pool = Pool::new("test", 10 * UNIT);
            let mut held: Vec<Reservation> = Vec::new();
            for (what, bytes) in steps {
                match (what, held.last_mut()) {
                    (1, Some(last)) => drop(last.try_grow_to(last.bytes() + bytes)),
                    (2, Some(last)) => last.shrink_to(bytes),
                    (3, Some(_)) => drop(held.pop()),
                    _ => held.extend(pool.try_reserve(bytes)),
                }
                prop_assert_eq!(pool.used(), held.iter().map(Reservation::bytes).sum::<u64>());
                prop_assert!(pool.used() <= pool.size());
            }
            drop(held);
            prop_assert_eq!(pool.used(), 0);
        }
    }
}
