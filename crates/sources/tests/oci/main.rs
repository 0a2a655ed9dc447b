//! OCI repositories: what is fetched of a registry, what is asked of it, and what a registry that lies gets away with.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod auth;
mod cases;
mod clouds;
#[path = "../common/clouds.rs"]
mod clouds_stand;
mod fetch;
mod hostile;
mod keyless;
mod learned;
mod notation;
mod registry;
mod revocation;
#[path = "../common/serving.rs"]
mod serving;
#[path = "../common/source_cases.rs"]
mod source_cases;
// The server that answers as a test says is the key services' own.
#[expect(dead_code, reason = "it misbehaves where key services are tested")]
#[path = "../../../kms/tests/services/server.rs"]
mod token_server;
mod verify;
mod verify_hostile;
