//! Room for artifacts in memory.

use roadstead_budget::{Exhausted, Pool, Reservation};

/// Where room for artifacts in memory is reserved.
#[derive(Debug, Clone)]
pub struct Room {
    /// The share of memory that artifacts have.
    pub pool: Pool,
    /// How often whoever asks for the artifact has it in memory.
    pub copies: u64,
}

impl Room {
    /// Room for an artifact of so many bytes; waits until there is some.
    ///
    /// # Errors
    /// Where there could never be so much.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, Exhausted> {
        self.pool.reserve(bytes.saturating_mul(self.copies)).await
    }
}
