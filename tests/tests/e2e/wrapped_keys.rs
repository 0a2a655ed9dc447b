//! The hub's own keys, wrapped by a key service: a file goes over to it while a hub runs, and what a hub says at start of a service that
//! is down or refuses, and of a file that was changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use roadstead_tests::key_services::{ACCESS_KEY, VAULT_TOKEN};
use roadstead_tests::{HubProcess, HubSetup, KeyServices, PATIENCE, Process, binary, free_port, unique};

use crate::secrets::{Word, dump, search};

const ARN: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
const MAP: &str =
    "apiVersion: v1\nkind: Secret\nmetadata: {name: kept, namespace: default}\nstringData: {value: kept}\n";

/// What a hub and its commands find of the services in their environment.
fn variables(url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hush-of-aws".to_owned()),
        ("AWS_ENDPOINT_URL", url.to_owned()),
        ("VAULT_ADDR", url.to_owned()),
        ("VAULT_TOKEN", VAULT_TOKEN.to_owned()),
    ]
}

fn transit(url: &str) -> [String; 2] {
    ["--vault-transit".to_owned(), format!("{url}/v1/transit/keys/hub")]
}

fn kms() -> [String; 2] {
    ["--aws-kms".to_owned(), ARN.to_owned()]
}

/// A hub's setup, and the services that its environment names.
async fn setup(name: &str, url: &str) -> Result<(HubSetup, PathBuf)> {
    let mut setup = HubSetup::new(name).await?;
    for (name, value) in variables(url) {
        setup = setup.env(name, value);
    }
    let key_file = setup.folder().join("hub.key");
    Ok((setup, key_file))
}

async fn run(url: &str, args: &[String]) -> Result<(Output, String)> {
    let mut command = Command::new(binary("roadstead-hub")?);
    command.args(args).envs(variables(url));
    for variable in ["ROADSTEAD_DATABASE_URL", "ROADSTEAD_DATABASE_URL_FILE", "ROADSTEAD_KEY_FILE"] {
        command.env_remove(variable);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
    Ok((output, text))
}

async fn wrap(url: &str, service: &[String], key_file: &Path, more: &[&str]) -> Result<String> {
    let path = key_file.display().to_string();
    let mut args = vec!["wrap-key".to_owned()];
    args.extend_from_slice(service);
    args.extend(["--in", &path, "--out", &path].iter().chain(more).map(|arg| (*arg).to_owned()));
    let (done, text) = run(url, &args).await?;
    ensure!(done.status.success(), "{text}");
    Ok(text)
}

async fn rekey(setup: &HubSetup, url: &str, key_file: &Path, more: &[&str]) -> Result<String> {
    let path = key_file.display().to_string();
    let args = [&["rekey", "--database-url", setup.database().url(), "--key-file", &path][..], more].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let (done, text) = run(url, &args).await?;
    ensure!(done.status.success(), "{text}");
    Ok(text)
}

async fn has_its_secret(hub: &HubProcess) -> Result<()> {
    let secret = hub.kubectl().get(&["secret", "kept", "-n", "default"]).await?;
    ensure!(secret["data"]["value"] == "a2VwdA==", "{secret}");
    Ok(())
}

/// Starts a hub that does not come to serve; what it says.
async fn refused(setup: &HubSetup, key_file: &Path, url: &str, more: &[&str]) -> Result<String> {
    let args = ["--listen", "127.0.0.1:0", "--link-listen", "127.0.0.1:0", "--log-format", "text"];
    let path = key_file.display().to_string();
    let own = ["--database-url", setup.database().url(), "--key-file", &path];
    let args: Vec<String> = [&args[..], &own, more].concat().into_iter().map(str::to_owned).collect();
    let (done, text) = tokio::time::timeout(PATIENCE, run(url, &args)).await??;
    ensure!(!done.status.success(), "{text}");
    Ok(text)
}

fn says(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "it does not say «{part}»: {text}");
    }
    for secret in [VAULT_TOKEN, "hush-of-aws"] {
        ensure!(!text.contains(secret), "it says a credential: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_plain_key_file_goes_over_to_key_services_while_the_hub_runs() -> Result<()> {
    let services = KeyServices::start().await?;
    let url = services.url.clone();
    let (setup, key_file) = setup("wrapped", &url).await?;
    let plain = std::fs::read_to_string(&key_file)?.trim().to_owned();
    let mut hub = HubProcess::start(&setup).await?;
    hub.kubectl().apply(MAP).await?;
    ensure!(services.unwrapped() == 0, "a plain file asks nobody");

    // The same key, by Vault: nothing is to be done but to give the file to the hubs.
    let text = wrap(&url, &transit(&url), &key_file, &[]).await?;
    says(&text, &["wrapped: the key ", "/v1/transit/keys/hub", "next: give all hubs this key file"])?;
    let wrapped = std::fs::read_to_string(&key_file)?;
    ensure!(wrapped.starts_with("vault-transit:") && !wrapped.contains(&plain), "{wrapped}");
    hub.says("the key file was read again", PATIENCE).await?;
    let asked = services.unwrapped();
    has_its_secret(&hub).await?;
    hub.sigterm(PATIENCE).await?;
    ensure!(services.unwrapped() == asked, "an unchanged file is not unwrapped again");
    let mut hub = HubProcess::start(&setup).await?;
    has_its_secret(&hub).await?;

    // A new key, which was never in a file as it is; by another service, while the old one is there still.
    let text = wrap(&url, &kms(), &key_file, &["--new"]).await?;
    says(&text, &["left as it is: the key that is wrapped by the Vault", "roadstead-hub rekey"])?;
    hub.says("new values are sealed with the newest key of the key file", PATIENCE).await?;
    let text = rekey(&setup, &url, &key_file, &["--settle", "1"]).await?;
    says(&text, &["can be taken out of the key file"])?;
    let both = std::fs::read_to_string(&key_file)?;
    let newest = both.lines().next().context("a line")?;
    ensure!(newest.starts_with(&format!("aws-kms:{ARN}:")) && both.lines().count() == 2, "{both}");
    std::fs::write(&key_file, format!("{newest}\n"))?;
    rekey(&setup, &url, &key_file, &["--check"]).await?;
    hub.sigterm(PATIENCE).await?;
    let mut hub = HubProcess::start(&setup).await?;
    has_its_secret(&hub).await?;
    hub.sigterm(PATIENCE).await?;

    // The key from before does not open the database any more, and none of it is found anywhere.
    let old = setup.folder().join("old.key");
    std::fs::write(&old, &plain)?;
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let text = refused(&setup, &old, &url, &[]).await?;
    says(&text, &["does not fit this database"])?;
    let words = [Word::new("the hub's first key", &plain), Word::new("a token", VAULT_TOKEN)];
    let mut places = dump(&mut setup.database().connect().await?).await?;
    places.push(crate::secrets::Place::new("the hub's log", hub.logs()));
    search(&words, &places)
}

#[tokio::test]
async fn what_is_wrong_with_a_key_service_is_said_at_start() -> Result<()> {
    let services = KeyServices::start().await?;
    let url = services.url.clone();
    let (setup, key_file) = setup("wrapped-bad", &url).await?;
    for service in [transit(&url), kms()] {
        let plain = std::fs::read_to_string(&key_file)?;
        wrap(&url, &service, &key_file, &[]).await?;
        let good = std::fs::read_to_string(&key_file)?;
        let is_aws = service[0] == "--aws-kms";

        services.deny(true);
        let what =
            if is_aws { ["AccessDeniedException", "kms:Decrypt"] } else { ["403", "transit/decrypt/hub"] };
        let started = std::time::Instant::now();
        let text = refused(&setup, &key_file, &url, &[]).await?;
        says(&text, &["use key 1 of the key file", &service[1], what[0], what[1]])?;
        ensure!(started.elapsed().as_secs() < 20, "a refusal is final");
        services.deny(false);

        // The ciphertext was changed; it is another key's; it is cut.
        let end = good.trim_end();
        let other =
            if is_aws { end.replace("1234abcd", "1234abce") } else { end.replace("keys/hub", "keys/hut") };
        for bad in [format!("{}A=", &end[..end.len() - 2]), format!("{}AAA", &end[..end.len() - 3]), other] {
            std::fs::write(&key_file, &bad)?;
            let text = refused(&setup, &key_file, &url, &[]).await?;
            says(&text, &["restore the"])?;
        }
        std::fs::write(&key_file, &end[..end.len() - 1])?;
        let text = refused(&setup, &key_file, &url, &[]).await?;
        says(&text, &["line 1", "it was cut or changed"])?;
        std::fs::write(&key_file, plain)?;
    }

    // An envelope whose address only the file has gets no token.
    let elsewhere = KeyServices::start().await?;
    wrap(&elsewhere.url, &transit(&elsewhere.url), &key_file, &[]).await?;
    let text = refused(&setup, &key_file, &url, &[]).await?;
    says(&text, &[&elsewhere.url, "VAULT_ADDR"])?;
    ensure!(elsewhere.unwrapped() == 1, "it was asked at the start of the hub");
    Ok(())
}

#[tokio::test]
async fn a_key_service_that_is_down_at_start_is_waited_for() -> Result<()> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let (setup, key_file) = setup("wrapped-down", &url).await?;
    let first = KeyServices::start().await?;
    // The envelope names the port where nothing listens yet.
    wrap(&first.url, &transit(&first.url), &key_file, &[]).await?;
    let line = std::fs::read_to_string(&key_file)?.replace(&first.url, &url);
    std::fs::write(&key_file, line)?;
    let text = refused(&setup, &key_file, &url, &["--key-service-patience", "2s"]).await?;
    let parts = ["did not unwrap the hub's key within 2s", "it is asked again", "cannot be reached", &url];
    says(&text, &parts)?;

    // One that comes up meanwhile is used; until then the hub can be ended.
    let log = setup.folder().join("waits.log");
    let start = |name: &str| {
        let mut command = Command::new(binary("roadstead-hub")?);
        command.args(["--listen", "127.0.0.1:0", "--link-listen", "127.0.0.1:0", "--log-format", "text"]);
        command.arg("--database-url").arg(setup.database().url()).arg("--key-file").arg(&key_file);
        command.envs(variables(&url));
        Process::start(&unique(name), &mut command, &log)
    };
    let mut hub = start("waits")?;
    hub.says("it is asked again", PATIENCE).await?;
    ensure!(hub.sigterm(PATIENCE).await?.success(), "{}", hub.logs());
    let mut hub = start("waits")?;
    hub.says("it is asked again", PATIENCE).await?;
    let _up = first.also_at(port).await?;
    hub.says("the hub serves", PATIENCE).await?;
    hub.sigterm(PATIENCE).await.map(drop)
}
