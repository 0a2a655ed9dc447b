//! Buckets: what is fetched of an object store, what is asked of it, and what a store that lies gets away with.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod cases;
mod fetch;
mod hostile;
mod logins;
mod server;
#[path = "../common/serving.rs"]
mod serving;
#[path = "../common/source_cases.rs"]
mod source_cases;
