//! Helm repositories and charts: what is fetched of them, what is asked of their servers, and what servers that lie get away with.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod chart;
mod dependencies;
mod hostile;
mod index;
mod kit;
mod learned;
mod oracle;
mod provenance;
#[path = "../oci/registry.rs"]
#[expect(dead_code, reason = "the tests of OCI repositories use more of it")]
mod registry;
mod server;
#[path = "../common/serving.rs"]
mod serving;
mod shared;
#[path = "../common/signer.rs"]
#[expect(dead_code, reason = "the tests of Git repositories use more of it")]
mod signer;
#[path = "../common/source_cases.rs"]
mod source_cases;
mod tree;
