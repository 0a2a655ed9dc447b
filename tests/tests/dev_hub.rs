//! The hub's own life: it starts with nothing configured, ends cleanly, survives kill -9, and shares a database.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::{HubProcess, HubSetup, Kubectl, Process, eventually, folder};

/// Draining and a shutdown of Postgres, on a busy machine.
const END: Duration = Duration::from_secs(60);

async fn keep_a_secret(kubectl: &Kubectl, name: &str) -> Result<()> {
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\nstringData: {{word: ahoy}}\n"
    );
    kubectl.apply(&secret).await.map(|_| ())
}

async fn has_the_secret(kubectl: &Kubectl, name: &str) -> Result<()> {
    let word = kubectl.run(&["get", "secret", name, "-o", "jsonpath={.data.word}"]).await?;
    ensure!(word == "YWhveQ==", "the secret holds {word:?}");
    Ok(())
}

/// The Postgres of a state folder, by its process id.
fn postgres(state: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(state.join("postgres/data/postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn mode(path: &Path) -> Result<u32> {
    let metadata = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o777)
}

#[tokio::test]
async fn starts_with_nothing_configured_ends_cleanly_and_keeps_its_state() -> Result<()> {
    let folder = folder()?;
    let (state, log) = (folder.path().join("state"), folder.path().join("hub.log"));
    let (mut hub, kubectl) = HubProcess::start_dev(&state, &log).await?;
    for secret in ["admin.kubeconfig", "hub.key"] {
        ensure!(mode(&state.join(secret))? == 0o600, "{secret} can be read by others");
    }
    keep_a_secret(&kubectl, "kept").await?;
    let data = state.join("postgres/data");
    ensure!(mode(&data)? == 0o700, "the data of Postgres can be read by others");

    let status = hub.sigterm(END).await?;
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", hub.logs());
    ensure!(postgres(&state).is_none(), "its Postgres still runs");

    let (mut hub, kubectl) = HubProcess::start_dev(&state, &log).await?;
    has_the_secret(&kubectl, "kept").await?;
    hub.sigterm(END).await?;
    Ok(())
}

#[tokio::test]
async fn admits_nobody_without_a_token_of_its_own() -> Result<()> {
    let setup = HubSetup::new("tokens").await?;
    let hub = HubProcess::start(&setup).await?;
    // kubectl asks at the terminal where it is given nothing at all; the API's own tests do without.
    for flags in [["--token=wrong"].as_slice(), &["--username=a", "--password=b"]] {
        let args = [flags, &["get", "namespaces", "--kubeconfig=/dev/null"]].concat();
        let server = format!("--server=https://127.0.0.1:{}", hub.api_port());
        let ca = authority(hub.kubectl()).await?;
        let path = setup.folder().join("ca.pem");
        std::fs::write(&path, ca)?;
        let ca = format!("--certificate-authority={}", path.display());
        let error = match hub.kubectl().run(&[args.as_slice(), &[&server, &ca]].concat()).await {
            Ok(output) => bail!("admitted with {flags:?}: {output}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains("nauthorized") || error.contains("must be logged in"), "{flags:?}: {error}");
    }
    Ok(())
}

/// The server's CA in kubectl's kubeconfig.
async fn authority(kubectl: &Kubectl) -> Result<Vec<u8>> {
    use base64::Engine as _;
    let path = "jsonpath={.clusters[0].cluster.certificate-authority-data}";
    let text = kubectl.run(&["config", "view", "--raw", "-o", path]).await?;
    base64::engine::general_purpose::STANDARD.decode(text).context("the CA in the kubeconfig is base64")
}

#[tokio::test]
async fn a_second_dev_hub_on_the_folder_is_told_who_holds_it() -> Result<()> {
    let folder = folder()?;
    let state = folder.path().join("state");
    let (mut first, kubectl) = HubProcess::start_dev(&state, &folder.path().join("first.log")).await?;
    let log = folder.path().join("second.log");
    let mut second = Process::start("the second hub", &mut HubProcess::dev_command(&state)?, &log)?;
    let status = second.wait(END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = second.logs();
    ensure!(logs.contains("is in use by") && logs.contains(&first.id().to_string()), "{logs}");
    // And the first is none the worse.
    kubectl.run(&["get", "namespaces"]).await?;
    first.sigterm(END).await?;
    Ok(())
}

#[tokio::test]
async fn after_kill_9_it_takes_its_postgres_over() -> Result<()> {
    let folder = folder()?;
    let (state, log) = (folder.path().join("state"), folder.path().join("hub.log"));
    let (mut hub, kubectl) = HubProcess::start_dev(&state, &log).await?;
    keep_a_secret(&kubectl, "kept").await?;
    let before = postgres(&state).context("Postgres runs")?;
    hub.kill9().await?;

    let (mut hub, kubectl) = HubProcess::start_dev(&state, &log).await?;
    ensure!(postgres(&state) == Some(before), "it is another Postgres");
    has_the_secret(&kubectl, "kept").await?;
    let status = hub.sigterm(END).await?;
    ensure!(status.success(), "after SIGTERM it ended with {status}");
    ensure!(postgres(&state).is_none(), "its Postgres still runs");
    Ok(())
}

#[tokio::test]
async fn two_hubs_share_a_database_and_one_goes_on_alone() -> Result<()> {
    let setup = HubSetup::new("pair").await?;
    let mut first = HubProcess::start(&setup).await?;
    let second = HubProcess::start_another(&setup).await?;
    keep_a_secret(first.kubectl(), "from-first").await?;
    has_the_secret(second.kubectl(), "from-first").await?;
    keep_a_secret(second.kubectl(), "from-second").await?;
    has_the_secret(first.kubectl(), "from-second").await?;
    first.kill9().await?;
    keep_a_secret(second.kubectl(), "alone").await?;
    let first = HubProcess::start(&setup).await?;
    eventually("the first has what was kept meanwhile", END, || has_the_secret(first.kubectl(), "alone"))
        .await
}

#[tokio::test]
async fn says_what_installs_postgres_where_there_is_none() -> Result<()> {
    let folder = folder()?;
    let mut command = HubProcess::dev_command(&folder.path().join("state"))?;
    command.env("ROADSTEAD_POSTGRES_BIN", folder.path());
    let mut hub = Process::start("a hub without Postgres", &mut command, &folder.path().join("hub.log"))?;
    let status = hub.wait(END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = hub.logs();
    ensure!(logs.contains("apt-get install postgresql") && logs.contains("ROADSTEAD_POSTGRES_BIN"), "{logs}");
    Ok(())
}
