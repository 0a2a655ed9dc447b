//! Git sources against a real Git server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod app;
mod cases;
mod fetch;
mod guarded;
mod hostile;
mod includes;
mod inventory;
mod kit;
mod known;
mod learned;
mod proxies;
mod readers;
#[path = "../common/signer.rs"]
mod signer;
#[path = "../common/source_cases.rs"]
mod source_cases;
mod ssh;
mod submodules;
mod verify;
mod versions;
