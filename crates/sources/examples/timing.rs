//! How long a fetch and an unchanged poll of a small repository take, over HTTPS on the loopback interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::{GitReference, GitRequest, Outcome, fetch};
use roadstead_test_gitserver::{Commit, GitServer, Options, install_crypto};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    use std::io::Write as _;
    install_crypto();
    let server = GitServer::start(Options::default()).await?;
    let repository = server.add_repository("app.git")?;
    let commit = (0..50).fold(Commit::new(), |commit, n| {
        commit.file(
            &format!("apps/{n}/deployment.yaml"),
            format!("kind: Deployment\nname: app-{n}\n").repeat(40),
        )
    });
    repository.commit("main", "1", &commit)?;
    let request = GitRequest {
        reference: GitReference::Branch("main".to_owned()),
        ca: server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
        guard: Guard::new(Arc::new(Policy::new(vec!["127.0.0.1".parse()?])), Purpose::Git),
        ..GitRequest::new(server.url("app.git"))
    };
    let (mut fetches, mut polls) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let started = Instant::now();
        let outcome = fetch(request.clone(), &CancellationToken::new()).await?;
        fetches.push(started.elapsed());
        let Outcome::Fetched(fetched) = outcome else { anyhow::bail!("unchanged without a known revision") };
        let started = Instant::now();
        fetch(GitRequest { known: Some(fetched.revision), ..request.clone() }, &CancellationToken::new())
            .await?;
        polls.push(started.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    writeln!(std::io::stdout(), "fetch {:?}, unchanged poll {:?}", median(&mut fetches), median(&mut polls))?;
    Ok(())
}
