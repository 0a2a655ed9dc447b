//! The index of a Helm repository over HTTP: which charts it has, in which versions, and where they are.
//!
//! What a server sends is read version by version (`load`), in memory for one of them and not for all, and written again in one form
//! (`write`): JSON, charts by name and versions from the newest on, without the time at which it was made. So a repository that merely
//! writes its index again has the same artifact. `choose` picks a version out of that.

mod bounded;
mod choose;
mod load;
mod write;

use jiff::Timestamp;

pub(super) use choose::{Choice, Chosen, choose};
pub(super) use load::load;

use crate::version::Version;

/// Where the JSON of a version of a chart lies, and what it is sorted by.
struct Item {
    version: Version,
    created: Option<Timestamp>,
    offset: u64,
    size: u32,
}
