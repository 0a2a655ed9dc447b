//! A Git server with one repository, and short ways to fetch from it.

use std::time::{Duration, Instant};

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
            ..GitRequest::new(self.url())
        }
    }
}

/// What a fetch that must work and find something gives.
pub(crate) async fn fetched(request: GitRequest) -> Fetched {
    match fetch(request, &CancellationToken::new()).await.unwrap() {
        Outcome::Fetched(fetched) => *fetched,
        Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
    }
}

/// The error of a fetch that must fail.
pub(crate) async fn error(request: GitRequest) -> GitError {
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
