//! The protocol between hub and agent: the code generated from `link.proto`, and the checked way between its messages,
//! which hold whatever the other side sent, and the domain's values, which hold what was found to be sound.
//!
//! `v1` is made by `cargo xtask generate` and checked in. Nobody but the two `link`s works with `v1` beyond the frame
//! of a message: they turn its contents into the values of [`message`] and `roadstead-model` first.

pub mod capabilities;
pub mod codec;
pub mod convert;
pub mod limits;
pub mod message;

pub use convert::ConvertError;
pub use message::{
    AgentState, Backlog, Corrected, Correction, DriftReport, Failure, Finished, HealthReport, HealthState,
    InventoryAck, InventoryIntent, ObjectHealth, OwnedByAnother, Progress, Started, Tended, Unwatched,
};

/// The generated messages, client and server of `roadstead.link.v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::implicit_clone,
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "generated: which of these lints fire is up to the generator's version, so `expect` would break on an update"
)]
pub mod v1 {
    include!("generated/roadstead.link.v1.rs");

    impl std::fmt::Debug for GivenKey {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("GivenKey").finish_non_exhaustive()
        }
    }

    /// The values may be those of a Secret.
    impl std::fmt::Debug for GivenVariables {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            let names: Vec<&String> = self.values.keys().collect();
            f.debug_struct("GivenVariables").field("name", &self.name).field("values", &names).finish()
        }
    }
}
