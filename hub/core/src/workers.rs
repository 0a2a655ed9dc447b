//! The hub's worker processes: how many there are, and what they may have of memory and disk. What they do is registered in
//! `jobs.rs`.

use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_places::{Limits, Places};
use roadstead_sources::Scratch;
use roadstead_worker::{JobError, Pool, Program, Protections, Reservation, Reserve, Settings};

use crate::jobs::WORKER_ARGUMENT;

/// Workers at once, of those that build and of those that read what servers sent. Of what workers may have, each builder
/// has three tenths, and each reader one; the rest is for what this process holds of their input and output.
const BUILDERS: usize = 2;
const READERS: usize = 2;
/// More memory than this is more than any build takes that ends within its time.
const MOST: u64 = 2 << 30;
/// A reader has this at least, which is what the largest file of an artifact takes; where there is not enough for two of
/// them there is one.
const LEAST_OF_A_READER: u64 = 32 << 20;
/// Beyond this a reader has no use for more: it holds two of the largest objects that it takes.
const MOST_OF_A_READER: u64 = 256 << 20;
/// What a reader has mapped of the pack, twice at times, and of its index.
const MAPPED: u64 = 2 << 30;
/// A reader's files: the pack and its index. A builder needs none.
const FILES_OF_A_READER: u64 = 1 << 30;
const FILES_OF_A_BUILDER: u64 = 16 << 20;

/// Bytes of the disk for what servers send, until it is read. `deploy/hub` gives a hub 4 GiB for temporary files, of which this and what
/// is uploaded are one half and the workers' own the other; a pod that passes that is evicted.
const SPOOLED: u64 = 3 << 29;
/// The same for artifacts that are uploaded: whoever uploads does not keep others from fetching.
const UPLOADED: u64 = 512 << 20;

/// The worker processes of a hub. Together, with what this process holds for them, they stay within their share of the
/// budget. Those that build and those that read what servers sent are apart, so that neither waits for the other.
#[derive(Debug, Clone)]
pub struct Workers {
    /// Those that unpack and build.
    pub builders: Pool,
    /// Those that read what servers sent.
    pub readers: Pool,
    /// Room in this process for artifacts on their way to and from workers.
    pub(crate) artifacts: roadstead_budget::Pool,
    /// What all fetches may have of the disk for what servers send.
    pub(crate) disk: roadstead_budget::Pool,
    /// What all uploads may have of the disk.
    pub(crate) uploads: roadstead_budget::Pool,
    /// Where workers have their folders: swept by the next process where this one is killed.
    _scratch: Arc<Scratch>,
}

impl Workers {
    /// Why no worker can be started at the moment, where the last one that was to be could not.
    pub(crate) fn why_none_starts(&self) -> Option<String> {
        let fails = |(pool, what): &(&Pool, &str)| pool.cannot_start().then(|| (*what).to_owned());
        let pools = [
            (&self.builders, "no process that builds can be started"),
            (&self.readers, "no process that reads can be started"),
        ];
        pools.iter().find_map(fails)
    }

    /// Starts a worker where there is none, and tells which protections are on: to be said when the program starts.
    ///
    /// # Errors
    /// Where none can be started.
    pub async fn protections(&self) -> Result<Protections, JobError> {
        self.builders.protections().await
    }
}

/// The hub's worker processes.
///
/// # Errors
/// Where the system does not tell where this program lies, or there is no place for temporary folders.
pub fn workers(budget: &MemoryBudget) -> std::io::Result<Workers> {
    workers_of(Program::this("roadstead-hub", WORKER_ARGUMENT)?, budget)
}

/// As [`workers`], with a program that calls [`crate::be_a_worker`].
///
/// # Errors
/// As [`workers`].
pub fn workers_of(program: Program, budget: &MemoryBudget) -> std::io::Result<Workers> {
    let share = budget.pool(PoolName::Workers);
    // In whole KiB, as reservations are.
    let tenth = share.size() / 10 / 1024 * 1024;
    let scratch = Scratch::new(None)?;
    let settings = |workers, memory: u64, most: u64, scratch_size| Settings {
        workers,
        scratch_size,
        memory,
        // What is above is not worth keeping for the next job.
        recycle_above: memory / 2,
        scratch: Some(scratch.path().to_owned()),
        reserve: Some(reserve(share, most)),
        ..Settings::default()
    };
    let builder = (tenth * 3).min(MOST);
    let readers = if tenth < LEAST_OF_A_READER { 1 } else { READERS };
    // Of the smallest budgets a reader takes a part of what is nobody's, or has less.
    let part = tenth * 2 / readers as u64;
    let least = LEAST_OF_A_READER.min(budget.total() / 8);
    let reader = part.clamp(least, MOST_OF_A_READER);
    Ok(Workers {
        builders: Pool::new(program.clone(), settings(BUILDERS, builder, builder, FILES_OF_A_BUILDER)),
        readers: Pool::new(
            program,
            Settings { mapped: MAPPED, ..settings(readers, reader, reader.min(part), FILES_OF_A_READER) },
        ),
        artifacts: roadstead_budget::Pool::new(share.name(), tenth * 2),
        disk: roadstead_budget::Pool::new("fetches' temporary files", SPOOLED),
        uploads: roadstead_budget::Pool::new("uploads' temporary files", UPLOADED),
        _scratch: Arc::new(scratch),
    })
}

/// So many places, which namespaces share fairly. Nobody is asked to leave: the time of what workers do has its own bound, and
/// what is cut would start over.
pub(crate) fn fair_places(total: usize) -> Places {
    Places::new(Limits {
        total,
        per_group: total,
        patience: Duration::MAX,
        patience_over_share: Duration::MAX,
    })
}

/// Reserves a worker's memory out of the workers' share, but no more than `most`.
fn reserve(share: &roadstead_budget::Pool, most: u64) -> Reserve {
    let share = share.clone();
    Arc::new(move |bytes| {
        let share = share.clone();
        // All that there can be fit together, so that none is refused.
        Box::pin(async move { Box::new(share.reserve(bytes.min(most)).await.ok()) as Reservation })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_workers_and_their_artifacts_fit_together() {
        for total in [128 << 20, 256 << 20, 1 << 30, 64 << 30] {
            let budget = MemoryBudget::new(total);
            let program = Program { path: "/bin/true".into(), name: "x".into(), arguments: Vec::new() };
            let workers = workers_of(program, &budget).unwrap();
            let share = budget.pool(PoolName::Workers);
            let mut held = Vec::new();
            for pool in [&workers.builders, &workers.readers] {
                let Settings { workers, memory, reserve, .. } = pool.settings().clone();
                for _ in 0..workers {
                    held.push(reserve.as_ref().unwrap()(memory).await);
                }
            }
            assert!(share.used() + workers.artifacts.size() <= share.size(), "{total}: {}", share.used());
            // What is not reserved of the readers' memory is less than half of what is nobody's.
            let readers = workers.readers.settings();
            let above = (readers.workers as u64 * readers.memory).saturating_sub(share.size() / 5);
            assert!(above <= budget.remainder() / 2, "{total}: {above}");
        }
    }
}
