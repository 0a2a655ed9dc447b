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
async fn a_log_in_a_file_has_no_colours() -> Result<()> {
    let folder = folder()?;
    let mut command = HubProcess::dev_command(&folder.path().join("state"))?;
    command.args(["--log-format", "text"]);
    let mut hub = Process::start("roadstead-hub --dev", &mut command, &folder.path().join("hub.log"))?;
    let logs = eventually("the hub logs something", Duration::from_secs(60), || async {
        let logs = hub.logs();
        ensure!(logs.contains("INFO"), "it has logged: {logs}");
        Ok(logs)
    });
    let logs = logs.await?;
    ensure!(!logs.contains('\u{1b}'), "there are escape codes in it:\n{logs}");
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

/// Kills the Postgres of a state folder as the kernel would, out of memory.
fn kill_postgres(state: &Path) -> Result<u32> {
    let id = postgres(state).context("Postgres runs")?;
    let pid = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw).context("a process id")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).context("kill Postgres")?;
    Ok(id)
}

#[tokio::test]
async fn a_dev_hub_starts_its_postgres_again_when_that_is_killed() -> Result<()> {
    let folder = folder()?;
    let (state, log) = (folder.path().join("state"), folder.path().join("hub.log"));
    let (mut hub, kubectl) = HubProcess::start_dev(&state, &log).await?;
    keep_a_secret(&kubectl, "kept").await?;
    for round in 0..2 {
        let before = kill_postgres(&state)?;
        eventually("another Postgres serves", END, || async {
            ensure!(postgres(&state).is_some_and(|now| now != before), "it is not there yet");
            has_the_secret(&kubectl, "kept").await
        })
        .await?;
        let name = format!("after-{round}");
        eventually("the hub writes again", END, || keep_a_secret(&kubectl, &name)).await?;
    }
    hub.check()?;
    let logs = hub.logs();
    ensure!(logs.contains("the private Postgres has stopped; it is being restarted"), "{logs}");
    let status = hub.sigterm(END).await?;
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", hub.logs());
    ensure!(postgres(&state).is_none(), "its Postgres still runs");
    Ok(())
}

#[tokio::test]
async fn a_dev_hub_whose_postgres_does_not_start_again_ends_and_says_why() -> Result<()> {
    let folder = folder()?;
    let (state, log) = (folder.path().join("state"), folder.path().join("hub.log"));
    let (mut hub, _) = HubProcess::start_dev(&state, &log).await?;
    std::fs::write(state.join("postgres/data/global/pg_control"), b"nonsense")
        .context("break the control file")?;
    kill_postgres(&state)?;
    let status = hub.wait(3 * END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = hub.logs();
    ensure!(logs.contains("the private Postgres has stopped and cannot be restarted"), "{logs}");
    ensure!(logs.contains("pg_control"), "the cause is not named: {logs}");

    // The next start fails at once, with the same cause.
    let begin = log.with_extension("again");
    let mut hub = Process::start("the hub", &mut HubProcess::dev_command(&state)?, &begin)?;
    let status = hub.wait(END).await?;
    ensure!(!status.success() && hub.logs().contains("pg_control"), "{status}: {}", hub.logs());
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_once_and_before_anything_is_made() -> Result<()> {
    let folder = folder()?;
    let state = folder.path().join("state");
    let other = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = other.local_addr()?.to_string();
    let mut command = HubProcess::dev_command_at(&state, &address)?;
    let mut hub =
        Process::start("a hub whose port is taken", &mut command, &folder.path().join("taken.log"))?;
    let status = hub.wait(END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = hub.logs();
    ensure!(logs.contains("--listen") && logs.matches("in use").count() == 1, "{logs}");
    ensure!(logs.contains(&address) && !state.exists(), "{logs}");
    Ok(())
}

#[tokio::test]
async fn a_dev_hub_without_room_for_its_state_says_so() -> Result<()> {
    let folder = folder()?;
    let state = folder.path().join("state");
    // No file may grow beyond 2 MiB, which looks like a full disk to whoever writes.
    let dev = HubProcess::dev_command(&state)?;
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 4096; exec \"$0\" \"$@\""]).arg(dev.get_program()).args(dev.get_args());
    for (name, value) in dev.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let mut hub = Process::start("a hub without room", &mut limited, &folder.path().join("hub.log"))?;
    let status = hub.wait(END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = hub.logs();
    ensure!(logs.contains("start the private Postgres") && logs.contains("File too large"), "{logs}");
    // Nothing half-made is taken for a database: with room, it starts.
    let (mut hub, _) = HubProcess::start_dev(&state, &folder.path().join("again.log")).await?;
    hub.sigterm(END).await?;

    // A state folder that cannot be written: a file is in its way.
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, "in the way")?;
    let mut command = HubProcess::dev_command(&blocked)?;
    let mut hub = Process::start("a hub without a folder", &mut command, &folder.path().join("blocked.log"))?;
    let status = hub.wait(END).await?;
    ensure!(!status.success(), "it ended with {status}");
    let logs = hub.logs();
    ensure!(logs.contains(&blocked.display().to_string()), "{logs}");
    Ok(())
}
