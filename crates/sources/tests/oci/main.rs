//! OCI repositories: what is fetched of a registry, what is asked of it, and what a registry that lies gets away with.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod auth;
mod cases;
mod fetch;
mod hostile;
mod keyless;
mod notation;
mod registry;
#[path = "../common/serving.rs"]
mod serving;
#[path = "../common/source_cases.rs"]
mod source_cases;
mod verify;
mod verify_hostile;
