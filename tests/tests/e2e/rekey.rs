//! The hub's own key: a new one is put into the key file while a hub runs, everything goes over to it by `roadstead-hub rekey`,
//! which is killed in the middle, and the old one is taken out.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_tests::{HubProcess, HubSetup, PATIENCE, Process, binary, eventually, unique};
use serde_json::{Value, json};
use sqlx::Connection as _;

const SECRETS: usize = 120;

fn rekey(setup: &HubSetup, key_file: &Path, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary("roadstead-hub")?);
    command.arg("rekey").arg("--database-url").arg(setup.database().url());
    command.arg("--key-file").arg(key_file).args(args);
    for variable in ["ROADSTEAD_DATABASE_URL", "ROADSTEAD_DATABASE_URL_FILE", "ROADSTEAD_KEY_FILE"] {
        command.env_remove(variable);
    }
    Ok(command)
}

async fn output(mut command: Command) -> Result<(Output, String)> {
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
    Ok((output, text))
}

fn write_keys(path: &Path, keys: &[&str]) -> Result<()> {
    // As a Secret that is mounted changes: at once.
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, keys.join("\n"))?;
    std::fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(std::fs::rename(&fresh, path)?)
}

fn secrets(value: &str) -> String {
    let secret = |number: usize| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("s-{number}"), "namespace": "default" },
                "stringData": { "value": value } })
    };
    let items: Vec<Value> = (0..SECRETS).map(secret).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

async fn all_are(hub: &HubProcess, value: &str) -> Result<()> {
    let list = hub.kubectl().get(&["secrets", "-n", "default"]).await?;
    let items = list["items"].as_array().context("a list")?;
    let is = |item: &&Value| item["data"]["value"] == STANDARD.encode(value);
    let ours = items.iter().filter(is).count();
    ensure!(ours == SECRETS, "{ours} of {SECRETS} are {value}");
    Ok(())
}

#[tokio::test]
async fn the_hubs_key_is_rotated_while_it_runs() -> Result<()> {
    let setup = HubSetup::new("rekey").await?;
    let key_file = setup.folder().join("hub.key");
    let old = std::fs::read_to_string(&key_file)?;
    let new =
        STANDARD.encode([uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat());
    let mut hub = HubProcess::start(&setup).await?;
    hub.kubectl().apply(&secrets("before")).await?;

    write_keys(&key_file, &[&new, &old])?;
    hub.says("new values are sealed with the newest key of the key file", PATIENCE).await?;
    let (checked, text) = output(rekey(&setup, &key_file, &["--check"])?).await?;
    ensure!(checked.status.code() == Some(1) && text.contains("run roadstead-hub rekey"), "{text}");

    // It waits for what somebody else has locked, and is killed there.
    let mut connection = setup.database().connect().await?;
    let mut lock = connection.begin().await?;
    sqlx::query("SELECT FROM resource WHERE kind = 'Secret' AND name = 's-7' FOR UPDATE")
        .execute(&mut *lock)
        .await?;
    let log = setup.folder().join("rekey.log");
    let mut command = rekey(&setup, &key_file, &["--settle", "1"])?;
    let mut killed = Process::start(&unique("rekey"), &mut command, &log)?;
    killed.says("waiting: others work on values", PATIENCE).await?;
    killed.kill9().await?;
    lock.rollback().await?;
    all_are(&hub, "before").await?;
    hub.kubectl().apply(&secrets("meanwhile")).await?;

    let (done, text) = output(rekey(&setup, &key_file, &["--settle", "1"])?).await?;
    ensure!(done.status.success() && text.contains("can be taken out of the key file"), "{text}");
    let (checked, text) = output(rekey(&setup, &key_file, &["--check"])?).await?;
    ensure!(checked.status.success() && !text.contains("(older)"), "{text}");

    write_keys(&key_file, &[&new])?;
    eventually("the old key was left out", PATIENCE, || async {
        let read = hub.logs().matches("the key file was read again").count();
        ensure!(read == 2, "{read}");
        Ok(())
    })
    .await?;
    all_are(&hub, "meanwhile").await?;
    hub.sigterm(PATIENCE).await?;
    // The administrator's token is from before, and is taken still.
    let mut hub = HubProcess::start(&setup).await?;
    all_are(&hub, "meanwhile").await?;
    hub.sigterm(PATIENCE).await?;
    a_hub_with_the_old_key_only_does_not_start(&setup, &key_file, &old).await
}

async fn a_hub_with_the_old_key_only_does_not_start(
    setup: &HubSetup,
    key_file: &Path,
    old: &str,
) -> Result<()> {
    write_keys(key_file, &[old])?;
    let mut command = Command::new(binary("roadstead-hub")?);
    command.args(["--listen", "127.0.0.1:0", "--link-listen", "127.0.0.1:0", "--log-format", "text"]);
    command.arg("--database-url").arg(setup.database().url()).arg("--key-file").arg(key_file);
    let (refused, text) = tokio::time::timeout(Duration::from_secs(60), output(command)).await??;
    ensure!(!refused.status.success() && text.contains("does not fit this database"), "{text}");
    ensure!(!text.contains(old.trim()), "the message holds the key");
    Ok(())
}
