//! A real Git server over HTTPS and HTTP: Git's own `http-backend` behind hyper and rustls, with faults on demand.
//!
//! [`SshServer`] is one over SSH.
//!
//! For tests and the demo. [`GitServer::start`] makes a certificate authority of its own, serves on a free port of the
//! loopback interface and keeps its repositories in a folder that goes away with it. [`Repository`] commits to them with
//! the system's `git`, cut off from the user's settings. [`GitServer::fault`] makes the server hang, lie or refuse.
//!
//! The process must have a rustls crypto provider installed ([`install_crypto`] does).

mod backend;
mod fault;
mod github;
mod repository;
mod serve;
mod ssh;
mod tls;

pub use fault::Fault;
pub use github::{APP_KEY, GitHubApi, Mood};
pub use repository::{Commit, Repository, init_bare};
pub use serve::{GitServer, Options, Seen};
pub use ssh::{SshKey, SshServer};
pub use tls::Authority;

/// Installs aws-lc as the process's rustls provider, if there is none yet.
pub fn install_crypto() {
    // An error means that there is one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
