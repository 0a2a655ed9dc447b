//! How long a fetch and an unchanged poll take, over HTTPS on the loopback interface: of a small repository, and of one of
//! 20 MB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::{GitReference, GitRequest, Outcome, fetch};
use roadstead_test_gitserver::{Commit, GitServer, Options, install_crypto};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    install_crypto();
    let server = GitServer::start(Options::default()).await?;
    let small = (0..50).fold(Commit::new(), |commit, n| {
        commit.file(
            &format!("apps/{n}/deployment.yaml"),
            format!("kind: Deployment\nname: app-{n}\n").repeat(40),
        )
    });
    measure(&server, "small", &small, 20).await?;
    // Half of it is what does not compress.
    let large = (0_u32..1_000).fold(Commit::new(), |commit, n| {
        let noise = (0_u32..1_250).map(|m| (m ^ (n << 16)).wrapping_mul(2_654_435_761).to_string() + "\n");
        let text = format!("kind: ConfigMap\nname: {n}\n").repeat(300);
        commit.file(&format!("apps/{n}/config.yaml"), noise.collect::<String>() + &text)
    });
    measure(&server, "large", &large, 5).await
}

async fn measure(server: &GitServer, name: &str, commit: &Commit, times: usize) -> Result<()> {
    use std::io::Write as _;
    let repository = server.add_repository(&format!("{name}.git"))?;
    repository.commit("main", "1", commit)?;
    let request = GitRequest {
        reference: GitReference::Branch("main".to_owned()),
        ca: server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
        guard: Guard::new(Arc::new(Policy::new(vec!["127.0.0.1".parse()?])), Purpose::Git),
        ..GitRequest::new(server.url(&format!("{name}.git")))
    };
    let (mut fetches, mut polls, mut size) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..times {
        let started = Instant::now();
        let outcome = fetch(request.clone(), &CancellationToken::new()).await?;
        fetches.push(started.elapsed());
        let Outcome::Fetched(fetched) = outcome else { anyhow::bail!("unchanged without a known revision") };
        size = (fetched.artifact.unpacked_bytes, fetched.artifact.size());
        let started = Instant::now();
        fetch(GitRequest { known: Some(fetched.revision), ..request.clone() }, &CancellationToken::new())
            .await?;
        polls.push(started.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    writeln!(
        std::io::stdout(),
        "{name} ({} bytes, {} packed): fetch {:?}, unchanged poll {:?}",
        size.0,
        size.1,
        median(&mut fetches),
        median(&mut polls)
    )?;
    Ok(())
}
