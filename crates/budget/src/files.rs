//! Open files, shared out: each connection is one, and a process that has none left accepts nobody.

/// How many files each part of the process may have open. Fixed shares, so that no listener can take another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileShares {
    /// Connections to the API.
    pub api: usize,
    /// Connections of agents.
    pub link: usize,
    /// All else: the database, fetches, children, logs.
    pub rest: usize,
}

impl FileShares {
    /// Shares `limit` open files out: two fifths to the API, two fifths to the link, and a fifth to the rest.
    ///
    /// A quarter of a very small limit goes to the rest, since a hub that cannot reach its database serves nobody.
    #[must_use]
    pub fn of(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // More than enough for what the rest opens, however many there are.
        let rest = (limit / 5).clamp(limit.min(1024) / 4, 16_384);
        let each = (limit - rest) / 2;
        Self { api: each.max(1), link: each.max(1), rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_reaches_into_another() {
        for limit in [64, 256, 1024, 4096, 20_000, 1 << 20, u64::MAX] {
            let shares = FileShares::of(limit);
            let sum = shares.api as u128 + shares.link as u128 + shares.rest as u128;
            assert!(sum <= u128::from(limit), "{limit}: {shares:?}");
            assert!(shares.rest >= usize::try_from(limit).unwrap_or(usize::MAX).min(1024) / 5, "{shares:?}");
        }
    }
}
