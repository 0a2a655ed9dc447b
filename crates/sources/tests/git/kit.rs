//! A Git server with one repository, and short ways to fetch from it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::git::KnownServer;
use roadstead_sources::{
    Artifact, Fetched, GitError, GitReference, GitRequest, Outcome, TreeLimits, fetch, unpack,
};
use roadstead_test_gitserver::{GitServer, Options, Repository, install_crypto};
use tokio_util::sync::CancellationToken;

/// A server and its repository `app.git`.
pub(crate) struct Kit {
    /// The server.
    pub(crate) server: GitServer,
    /// What it serves.
    pub(crate) repository: Repository,
}

impl Kit {
    /// Starts both.
    pub(crate) async fn start(tls: bool, login: Option<(&str, &str)>) -> Self {
        install_crypto();
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let server = GitServer::start(Options { tls, login, ..Options::default() }).await.unwrap();
        let repository = server.add_repository("app.git").unwrap();
        Self { server, repository }
    }

    /// The repository's URL.
    pub(crate) fn url(&self) -> String {
        self.server.url("app.git")
    }

    /// A request for a branch of it, which trusts its server.
    pub(crate) fn request(&self, branch: &str) -> GitRequest {
        GitRequest {
            reference: GitReference::Branch(branch.to_owned()),
            ca: self.server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
            timeout: Duration::from_secs(30),
            guard: way_to(&[self.server.address()]),
            ..GitRequest::new(self.url())
        }
    }
}

/// A way out to these servers, whatever address of this machine they are asked for by.
pub(crate) fn way_to(servers: &[SocketAddr]) -> Guard {
    let ports = servers.iter().map(SocketAddr::port);
    by(&ports.flat_map(|port| [format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}")]).collect::<Vec<_>>())
}

/// A way out with these entries.
pub(crate) fn by(rules: &[impl AsRef<str>]) -> Guard {
    let rules = rules.iter().map(|rule| rule.as_ref().parse().unwrap()).collect();
    Guard::new(Arc::new(Policy::new(rules)), Purpose::Git)
}

/// A request to a server of which nothing is known yet.
fn without_greeting(request: GitRequest) -> GitRequest {
    GitRequest { known_server: KnownServer::default(), ..request }
}

/// What a first fetch that must work and find something gives.
pub(crate) async fn fetched(request: GitRequest) -> Fetched {
    fetched_again(without_greeting(request)).await
}

/// As [`fetched`], with what is known of the server.
pub(crate) async fn fetched_again(request: GitRequest) -> Fetched {
    match fetch(request, &CancellationToken::new()).await.unwrap() {
        Outcome::Fetched(fetched) => *fetched,
        Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
    }
}

/// The error of a first fetch that must fail.
pub(crate) async fn error(request: GitRequest) -> GitError {
    error_again(without_greeting(request)).await
}

/// As [`error`], with what is known of the server.
pub(crate) async fn error_again(request: GitRequest) -> GitError {
    match fetch(request, &CancellationToken::new()).await {
        Err(error) => error,
        Ok(outcome) => panic!("no error, but {outcome:?}"),
    }
}

/// The artifact of a fetch that must work.
pub(crate) async fn artifact(request: GitRequest) -> Artifact {
    fetched(request).await.artifact
}

/// The paths in an artifact.
pub(crate) fn files(fetched: &Fetched) -> Vec<String> {
    let tree = unpack(&fetched.artifact.bytes, &TreeLimits::default()).unwrap();
    tree.into_iter().map(|(path, _)| path).collect()
}

/// The paths in the artifact of a fetch that must work.
pub(crate) async fn quiet_files(request: GitRequest) -> Vec<String> {
    files(&fetched(request).await)
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
