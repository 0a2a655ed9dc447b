//! The process's budget of memory and of open files, shared out from the outside in.
//!
//! A bound on one item says nothing about the process until it is multiplied by how many items there can be at once. So
//! the total comes first ([`detect`] finds it), each use has a fixed share of it (a [`Pool`]), and whoever is about to hold
//! bytes that somebody else chose the number of reserves them there before. What does not fit waits, or is refused with
//! an [`Exhausted`] that names the pool.
//!
//! A reservation is a promise, not a measurement: it covers what the holder knows it may need, with overhead. The shares
//! leave a remainder for what is not reserved: code, stacks, pools of connections, and what an allocator keeps.
//!
//! ```
//! use roadstead_budget::{MemoryBudget, PoolName};
//!
//! let budget = MemoryBudget::new(1 << 30);
//! let bodies = budget.pool(PoolName::Bodies);
//! let body = bodies.try_reserve(3 << 20)?;
//! assert!(bodies.used() >= 3 << 20);
//! drop(body);
//! assert_eq!(bodies.used(), 0);
//! # Ok::<(), roadstead_budget::Exhausted>(())
//! ```

pub mod detect;
mod files;
mod pool;
mod shares;
mod size;

pub use files::FileShares;
pub use pool::{Exhausted, Pool, Reservation};
pub use shares::{MemoryBudget, PoolName};
pub use size::show_size;
