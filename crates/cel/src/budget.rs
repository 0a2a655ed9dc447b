//! What an evaluation may take: steps, which stand for time, and bytes, which stand for memory.
//!
//! Both are counted while an expression is evaluated, and counted up only, so that whether an expression is too costly for
//! an object depends on nothing but the two.

use crate::error::{Answer, Fault};

/// The most steps of an evaluation. One takes 20 to 100 ns, also in a debug build.
const MOST_STEPS: u64 = 10_000_000;
/// The most bytes that an evaluation may ask for, whether or not it gave some back. A list that grows holds up to three
/// times what it was counted as.
const MOST_BYTES: u64 = 24 << 20;

/// What is left of them.
pub(crate) struct Budget {
    steps: u64,
    bytes: u64,
}

impl Budget {
    /// The part of the whole that each of so many has.
    pub(crate) fn shared(among: u32) -> Self {
        let among = u64::from(among.max(1));
        Self { steps: MOST_STEPS / among, bytes: MOST_BYTES / among }
    }

    /// Takes steps before they are gone.
    pub(crate) fn steps(&mut self, steps: u64) -> Answer<()> {
        self.steps = self.steps.checked_sub(steps).ok_or(Fault::Cost)?;
        Ok(())
    }

    /// Takes the steps for reading a number of bytes once.
    pub(crate) fn read(&mut self, bytes: usize) -> Answer<()> {
        const BYTES_A_STEP: u64 = 32;
        self.steps(1 + as_u64(bytes) / BYTES_A_STEP)
    }

    /// Takes the steps for going through a number of bytes by character, or looking for a text in them.
    pub(crate) fn search(&mut self, bytes: usize) -> Answer<()> {
        const BYTES_A_STEP: u64 = 8;
        self.steps(1 + as_u64(bytes) / BYTES_A_STEP)
    }

    /// Takes bytes before they are allocated, and the steps for writing them.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Answer<()> {
        self.read(bytes)?;
        self.bytes = self.bytes.checked_sub(as_u64(bytes)).ok_or(Fault::Cost)?;
        Ok(())
    }

    /// Takes the bytes for so many more values in a list.
    pub(crate) fn values(&mut self, count: usize) -> Answer<()> {
        self.bytes(count.saturating_mul(size_of::<crate::value::Value<'_>>()))
    }

    /// Takes the bytes for a list: so many values, and what the smallest one takes.
    pub(crate) fn list(&mut self, count: usize) -> Answer<()> {
        /// The first room that a list has, and its counters.
        const SMALLEST: usize = 5;
        self.values(count.saturating_add(SMALLEST))
    }

    /// Takes the bytes for a map of so many entries: its tree has nodes for eleven keys and values, at least half of
    /// which are used but for a single one.
    pub(crate) fn map(&mut self, count: usize) -> Answer<()> {
        const NODE: usize = 11;
        self.values((count / (NODE / 2) + 1).saturating_mul(2 * NODE + 2))
    }
}

/// A length as a count.
pub(crate) fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
