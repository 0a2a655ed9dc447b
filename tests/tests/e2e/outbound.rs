//! Where users may lead the hub: addresses that need the operator's word, what is told of them, sources from before that was
//! so, and servers that never answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, GitServer, Options, install_crypto};
use roadstead_tests::{
    HubProcess, HubSetup, Kubectl, PATIENCE, eventually, free_port, git_repository, unique,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

async fn server() -> Result<GitServer> {
    install_crypto();
    let server = GitServer::start(Options { tls: false, ..Options::default() }).await?;
    let commit = Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    server.add_repository("app.git")?.commit("main", "First", &commit)?;
    Ok(server)
}

/// Waits until a source is Ready, or not, for this reason, and gives the message.
async fn says(kubectl: &Kubectl, name: &str, status: &str, reason: &str) -> Result<String> {
    says_in(kubectl, "default", name, "Ready", status, reason).await
}

async fn says_in(
    kubectl: &Kubectl,
    namespace: &str,
    name: &str,
    condition: &str,
    status: &str,
    reason: &str,
) -> Result<String> {
    let what = format!("source {name} has {condition} {status} {reason}");
    eventually(&what, PATIENCE, || async {
        let seen = kubectl.condition(&["gitrepository", name, "-n", namespace], condition).await?;
        ensure!((seen.0.as_str(), seen.1.as_str()) == (status, reason), "it has {seen:?}");
        Ok(seen.2)
    })
    .await
}

async fn fetch_again(kubectl: &Kubectl, name: &str) -> Result<()> {
    let annotation = format!("reconcile.fluxcd.io/requestedAt={}", unique("fetch"));
    kubectl.run(&["annotate", "--overwrite", "gitrepository", name, &annotation]).await.map(drop)
}

#[tokio::test]
async fn a_refused_address_names_the_flag_and_says_the_same_of_open_and_closed_ports() -> Result<()> {
    let git = server().await?;
    let setup = HubSetup::new("guarded").await?.without_git();
    let mut hub = HubProcess::start(&setup).await?;
    let closed = format!("http://127.0.0.1:{}/app.git", free_port()?);
    let mut told = Vec::new();
    let link = format!("http://127.0.0.1:{}/app.git", hub.link_port());
    for (name, url) in [("open", git.url("app.git")), ("closed", closed), ("hub", link)] {
        hub.kubectl().apply(&git_repository(name, &url, "")).await?;
        let message = says(hub.kubectl(), name, "False", "URLInvalid").await?;
        eprintln!("{name}: {message}");
        told.push(message.replace(&url, "URL"));
    }
    ensure!(told[0] == told[1], "open and closed ports are told apart: {told:?}");
    ensure!(told[0].contains("--allow-network git=127.0.0.1/32"), "{}", told[0]);
    // The hub itself is in no wider network.
    ensure!(told[2].contains(&format!("--allow-network git=127.0.0.1:{}", hub.link_port())), "{}", told[2]);
    for notation in ["127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "localhost"] {
        let url = git.url("app.git").replace("127.0.0.1", notation);
        hub.kubectl().apply(&git_repository("notation", &url, "")).await?;
        let message = says(hub.kubectl(), "notation", "False", "URLInvalid").await?;
        ensure!(message.contains("--allow-network git="), "{notation}: {message}");
        hub.kubectl().run(&["delete", "gitrepository", "notation"]).await?;
    }
    ensure!(git.take_seen().is_empty(), "it was connected to");

    // Credentials in a URL are refused before they are stored, and are not repeated.
    let with_password = git.url("app.git").replace("http://", "http://me:hunter2@");
    let refused = hub.kubectl().apply(&git_repository("secret", &with_password, "")).await;
    let refused = format!("{:#}", refused.err().context("credentials in a URL were taken")?);
    ensure!(refused.contains("spec.url") && refused.contains("spec.secretRef"), "{refused}");
    let events = hub.kubectl().run(&["get", "events,gitrepositories", "-A", "-o", "yaml"]).await?;
    ensure!(!events.contains("hunter2") && !hub.logs().contains("hunter2"), "the password is stored");
    // Those in a Secret are not sent in the clear.
    let secret =
        ["create", "secret", "generic", "login", "--from-literal=username=me", "--from-literal=password=x"];
    hub.kubectl().run(&secret).await?;

    // With the flag that the condition names it is fetched.
    hub.sigterm(PATIENCE).await?;
    drop(hub);
    let setup = setup.arg("--allow-network").arg("git=127.0.0.1/32");
    let hub = HubProcess::start(&setup).await?;
    fetch_again(hub.kubectl(), "open").await?;
    says(hub.kubectl(), "open", "True", "Succeeded").await?;
    hub.kubectl().apply(&git_repository("login", &git.url("app.git"), "secretRef: {name: login}")).await?;
    let message = says(hub.kubectl(), "login", "False", "AuthenticationFailed").await?;
    ensure!(message.contains("--allow-plain-http-credentials"), "{message}");
    ensure!(git.take_seen().iter().all(|seen| !seen.had_credentials), "credentials were sent in the clear");
    Ok(())
}

#[tokio::test]
async fn a_source_from_before_the_guard_goes_on_under_a_condition() -> Result<()> {
    let git = server().await?;
    let setup = HubSetup::new("grace").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let url = git.url("app.git");
    hub.kubectl().apply(&git_repository("old", &url, "")).await?;
    says(hub.kubectl(), "old", "True", "Succeeded").await?;
    hub.sigterm(PATIENCE).await?;
    drop(hub);
    // As it was before the upgrade that brought the guard.
    let mut database = setup.database().connect().await?;
    for statement in ["DROP TABLE source_grace", "DELETE FROM _sqlx_migrations WHERE version = 18"] {
        sqlx::query(statement).execute(&mut database).await?;
    }
    let setup = setup.without_git();
    let hub = HubProcess::start(&setup).await?;
    fetch_again(hub.kubectl(), "old").await?;
    let message =
        says_in(hub.kubectl(), "default", "old", "AddressAllowed", "False", "AddressNotAllowed").await?;
    ensure!(
        message.contains("until 20") && message.contains("--allow-network git=127.0.0.1/32"),
        "{message}"
    );
    says(hub.kubectl(), "old", "True", "Succeeded").await?;
    eventually("one line of the log lists it", PATIENCE, || async {
        let logs = hub.logs();
        let lines =
            logs.lines().filter(|line| line.contains("default/old (--allow-network git=127.0.0.1/32)"));
        ensure!(lines.count() == 1, "{logs}");
        Ok(())
    })
    .await?;
    // A new one has no such time, and neither has another URL.
    hub.kubectl().apply(&git_repository("new", &url, "")).await?;
    says(hub.kubectl(), "new", "False", "URLInvalid").await?;
    hub.kubectl().apply(&git_repository("old", &url.replace("app.git", "other.git"), "")).await?;
    says(hub.kubectl(), "old", "False", "URLInvalid").await?;
    hub.kubectl().apply(&git_repository("old", &url, "")).await?;
    says(hub.kubectl(), "old", "True", "Succeeded").await?;
    // And it ends.
    sqlx::query("UPDATE source_grace SET until = now() - interval '1 minute'").execute(&mut database).await?;
    fetch_again(hub.kubectl(), "old").await?;
    says(hub.kubectl(), "old", "False", "URLInvalid").await?;
    let gone = hub.kubectl().condition(&["gitrepository", "old"], "AddressAllowed").await;
    ensure!(gone.is_err(), "{gone:?}");
    Ok(())
}

/// A port that takes connections and never says anything; counts those that are open.
async fn tarpit(address: &str) -> Result<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut sink = Vec::new();
                let _ = stream.read_to_end(&mut sink).await;
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Ok((address, open))
}

#[tokio::test]
async fn tarpits_of_one_namespace_do_not_stop_the_fetching_of_others() -> Result<()> {
    let git = server().await?;
    let setup = HubSetup::new("tarpits").await?;
    let hub = HubProcess::start(&setup).await?;
    let kubectl = hub.kubectl();
    kubectl.run(&["create", "namespace", "tarpits"]).await?;
    // Each is a host of its own, and would have its place for a day.
    let mut pits = Vec::new();
    let mut manifest = String::new();
    for n in 0..40 {
        let (address, open) = tarpit(&format!("127.0.{}.1:0", n + 1)).await?;
        let url = format!("http://{address}/app.git");
        manifest.push_str(&git_repository(&format!("pit-{n}"), &url, "timeout: 1440m"));
        manifest.push_str("---\n");
        pits.push(open);
    }
    let warned = kubectl.run_with(&["apply", "-n", "tarpits", "-f", "-"], &manifest).await?;
    ensure!(warned.contains("pit-39"), "{warned}");
    let held = || pits.iter().filter(|open| open.load(Ordering::SeqCst) > 0).count();
    eventually("as many as may are fetched", PATIENCE, || async {
        ensure!(held() >= 24, "{} are held", held());
        Ok(())
    })
    .await?;
    let began = std::time::Instant::now();
    kubectl.apply(&git_repository("fine", &git.url("app.git"), "")).await?;
    says(kubectl, "fine", "True", "Succeeded").await?;
    let took = began.elapsed();
    eprintln!("beside {} fetches that hang, one of another namespace took {took:?}", held());
    ensure!(took < Duration::from_secs(30), "it took {took:?}");
    ensure!(held() <= 31, "{} are held by one namespace", held());

    // A source that is deleted, suspended or led elsewhere is not waited for.
    let first = pits.iter().position(|open| open.load(Ordering::SeqCst) > 0).context("one that is held")?;
    let name = format!("pit-{first}");
    says_in(kubectl, "tarpits", &name, "TimeoutCapped", "True", "TimeoutCapped").await?;
    kubectl
        .run(&[
            "patch",
            "gitrepository",
            &name,
            "-n",
            "tarpits",
            "--type=merge",
            "-p",
            r#"{"spec":{"suspend":true}}"#,
        ])
        .await?;
    eventually("the fetch of another spec ends", PATIENCE, || async {
        ensure!(pits[first].load(Ordering::SeqCst) == 0, "it is still waited for");
        Ok(())
    })
    .await?;
    kubectl.run(&["delete", "gitrepository", "--all", "-n", "tarpits"]).await?;
    eventually("the fetches of deleted sources end", PATIENCE, || async {
        ensure!(held() == 0, "{} are still waited for", held());
        Ok(())
    })
    .await
}
