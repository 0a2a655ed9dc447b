//! How much memory builds take at once: what is unpacked has its memory set aside before, so that many large builds wait for each other
//! where they would end the agent at its limit.

use roadstead_budget::{Pool, Reservation, show_size};
use roadstead_proto::limits::MAX_BUILD_COMPRESSED_BYTES;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What a byte of a build's JSON takes as objects, and as what is made of these while they are applied, where its values are short.
const BYTES_OF_ONE: u64 = 6;

/// The most builds that are received at once, compressed.
const COMING: u64 = 8;
/// What these may take, each at its largest, in percent of the process's memory. One is always received.
const COMING_SHARE: u64 = 25;

/// What builds that are unpacked may take, in percent of the process's memory.
const SHARE: u64 = 45;

/// One build may take more than the share, alone: so much, in percent.
const ALONE: u64 = 75;

/// A build that does not fit, however long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "has {} of JSON, whose objects take about {}, and the agent may use {} in all: raise the memory limit of its Deployment, or divide the \
     Kustomization",
    show_size(*json), show_size(*needs), show_size(*total)
)]
pub struct TooLarge {
    json: u64,
    needs: u64,
    total: u64,
}

/// The memory that builds have.
#[derive(Debug)]
pub(crate) struct BuildMemory {
    total: u64,
    coming: Semaphore,
    unpacked: Pool,
}

impl BuildMemory {
    /// The share of a process that may use so many bytes.
    pub(crate) fn of(total: u64) -> Self {
        let unpacked = Pool::new("builds", total / 100 * SHARE);
        let coming = total / 100 * COMING_SHARE / MAX_BUILD_COMPRESSED_BYTES as u64;
        let coming = usize::try_from(coming.clamp(1, COMING)).unwrap_or(1);
        Self { total, coming: Semaphore::new(coming), unpacked }
    }

    /// Waits until one more build may come; none where that is never closed, which it is not.
    pub(crate) async fn coming(&self) -> Option<SemaphorePermit<'_>> {
        self.coming.acquire().await.ok()
    }

    /// Waits until there is memory for a build of so many bytes of JSON.
    ///
    /// # Errors
    /// [`TooLarge`] where there never is.
    pub(crate) async fn unpack(&self, json: usize) -> Result<Reservation, TooLarge> {
        let json = u64::try_from(json).unwrap_or(u64::MAX);
        let needs = json.saturating_mul(BYTES_OF_ONE);
        let too_large = TooLarge { json, needs, total: self.total };
        if needs > self.total / 100 * ALONE {
            return Err(too_large);
        }
        self.unpacked.reserve(needs.min(self.unpacked.size())).await.map_err(|_| too_large)
    }
}

impl Default for BuildMemory {
    /// As `deploy/agent` limits an agent.
    fn default() -> Self {
        Self::of(512 << 20)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn large_builds_wait_for_each_other_and_the_largest_are_refused() {
        let memory = BuildMemory::of(100 << 20);
        let first = memory.unpack(5 << 20).await.unwrap();
        let small = memory.unpack(1 << 20).await.unwrap();
        let mut second = std::pin::pin!(memory.unpack(5 << 20));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        drop(second.await.unwrap());
        drop(small);
        // Larger than the share: all of it.
        let alone = memory.unpack(12 << 20).await.unwrap();
        assert_eq!(alone.bytes(), memory.unpacked.size());
        let error = memory.unpack(13 << 20).await.unwrap_err().to_string();
        assert!(
            error.contains("has 13.0 MiB of JSON") && error.contains("raise the memory limit"),
            "{error}"
        );
        assert!(memory.unpack(usize::MAX).await.is_err());
    }

    #[tokio::test]
    async fn few_come_at_once_and_fewer_where_there_is_little_memory() {
        for (total, most) in [(0, 1), (64 << 20, 1), (130 << 20, 2), (520 << 20, 8), (64 << 30, 8)] {
            let memory = BuildMemory::of(total);
            let coming: Vec<_> =
                std::iter::from_fn(|| memory.coming().now_or_never()).take(most + 1).collect();
            assert_eq!(coming.len(), most, "{total}");
            drop(coming);
            assert!(memory.coming().await.is_some());
        }
    }
}
