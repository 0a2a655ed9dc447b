//! Who has which share of the memory.

use crate::Pool;

/// What memory is set aside for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolName {
    /// What the API holds for those who have not said who they are: connections that have shown no valid token, and bodies
    /// of enrolments.
    Unauthenticated,
    /// Connections to the agents' listener that have shown no certificate. Apart from the API's, so that neither listener's
    /// anonymous clients take the other's places.
    Handshakes,
    /// Connections to the API of those who have said who they are.
    Connections,
    /// Bodies of API requests, as they are sent.
    Bodies,
    /// What bodies are decoded into, and what handlers make of it. Apart from the bytes, so that one may be waited for
    /// while holding the others.
    Decoded,
    /// Fetching, unpacking and building, in this process and its children.
    Workers,
    /// What is kept so that watches need not ask the database: set aside, and not counted yet.
    WatchCaches,
    /// Agents' connections and sessions, at rest.
    Sessions,
    /// Agents' messages. Apart from the sessions, so that no message keeps a session out.
    Messages,
    /// What agents tell of dispatches that are under way.
    Progress,
    /// Builds and artifacts on their way to agents, and long answers on their way to clients.
    Blobs,
}

/// A pool: (name, its name in messages, percent of the budget, bytes at most).
type Share = (PoolName, &'static str, u64, u64);

/// In percent of the whole; what is left is for the process itself.
const SHARES: [Share; 11] = [
    (PoolName::Unauthenticated, "requests without credentials", 3, 12 << 20),
    (PoolName::Handshakes, "agents' handshakes", 1, 4 << 20),
    (PoolName::Connections, "connections", 6, u64::MAX),
    (PoolName::Bodies, "requests' bodies", 4, u64::MAX),
    (PoolName::Decoded, "decoded bodies", 11, u64::MAX),
    (PoolName::Workers, "fetching and building", 36, u64::MAX),
    (PoolName::WatchCaches, "watches", 3, u64::MAX),
    (PoolName::Sessions, "agents' sessions", 9, u64::MAX),
    (PoolName::Messages, "agents' messages", 5, u64::MAX),
    (PoolName::Progress, "progress of dispatches", 1, u64::MAX),
    (PoolName::Blobs, "builds and artifacts on their way", 8, u64::MAX),
];

/// The memory of a process, shared out: fixed shares, so that no use can starve another.
#[derive(Debug)]
pub struct MemoryBudget {
    total: u64,
    pools: [Pool; SHARES.len()],
}

impl MemoryBudget {
    /// Less than this cannot be shared out so that each use works.
    pub const LEAST: u64 = 128 << 20;

    /// Shares `bytes` out; less than [`MemoryBudget::LEAST`] are taken for that.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = bytes.max(Self::LEAST);
        let pools = SHARES.map(|(_, name, percent, most)| Pool::new(name, (total / 100 * percent).min(most)));
        Self { total, pools }
    }

    /// Bytes in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The share for one use.
    #[must_use]
    pub fn pool(&self, name: PoolName) -> &Pool {
        // They are declared, and made, in this order.
        &self.pools[name as usize]
    }

    /// All shares.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// Bytes that are nobody's share: for code, stacks, the database's connections, and what an allocator keeps.
    #[must_use]
    pub fn remainder(&self) -> u64 {
        self.total.saturating_sub(self.pools().map(Pool::size).sum())
    }
}

impl Default for MemoryBudget {
    /// One gibibyte, as `deploy/hub` limits a hub.
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_is_found_under_its_name() {
        let budget = MemoryBudget::default();
        for (index, (name, told, ..)) in SHARES.iter().enumerate() {
            assert_eq!(*name as usize, index);
            assert_eq!(budget.pool(*name).name(), *told);
        }
    }

    #[test]
    fn shares_fit_the_total_and_leave_a_remainder() {
        for total in [0, 128 << 20, 512 << 20, 1 << 30, 64 << 30, 1 << 50] {
            let budget = MemoryBudget::new(total);
            let shared: u64 = budget.pools().map(Pool::size).sum();
            assert_eq!(shared + budget.remainder(), budget.total());
            assert!(budget.remainder() >= budget.total() / 8, "{total}: {}", budget.remainder());
        }
    }

    #[test]
    fn those_without_credentials_have_four_percent_and_at_most_sixteen_mebibytes() {
        let size = |total: u64| {
            let budget = MemoryBudget::new(total);
            [PoolName::Unauthenticated, PoolName::Handshakes]
                .map(|name| budget.pool(name).size())
                .iter()
                .sum::<u64>()
        };
        assert!(size(128 << 20) <= (128 << 20) * 4 / 100);
        assert!(size(1 << 30) <= 16 << 20);
        assert_eq!(size(1 << 40), 16 << 20);
    }
}
