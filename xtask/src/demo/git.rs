//! The demo's Git repository: its server, its Secret, and the change that is pushed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::place::{Place, Ports};
use crate::process::Runner;

const USER: &str = "demo";

/// Where the hub finds the repositories.
pub(super) fn url(ports: &Ports) -> String {
    format!("https://127.0.0.1:{}", ports.git)
}

/// The server's command line. It publishes the sample repository the first time.
pub(super) fn server(root: &Path, place: &Place, bin: &Path, ports: &Ports) -> Result<Command> {
    let mut command = Command::new(bin.join("gitserver"));
    command.arg("--root").arg(place.folder().join("git"));
    command.args(["--listen", &format!("127.0.0.1:{}", ports.git), "--user", USER]);
    command.arg("--password-file").arg(place.git_password_file()?);
    command.arg("--ca-dir").arg(place.git_ca_dir());
    let repository = root.join("tests/demo/repository");
    command.arg("--publish").arg(format!("webapp.git={}", repository.display()));
    Ok(command)
}

/// The Secret by which the hub reads the repository. In JSON, which is YAML and needs no thought about quoting.
pub(super) fn secret(place: &Place) -> Result<String> {
    let ca =
        std::fs::read_to_string(place.git_ca()).context("read the Git server's certificate authority")?;
    let quoted =
        |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    Ok(format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {{\"name\": \"webapp-git\", \"namespace\": \
         \"apps\"}}, \"stringData\": {{\"username\": {}, \"password\": {}, \"ca.crt\": {}}}}}\n",
        quoted(USER),
        quoted(&place.git_password()?),
        quoted(&ca),
    ))
}

/// Commits a new image tag and a new greeting to the base that both overlays have, and pushes it over HTTPS, as a
/// person would. Gives the tag and the commit. From the clone that it leaves a person can push too.
pub(super) fn push_change(runner: &Runner, place: &Place, ports: &Ports) -> Result<(String, String)> {
    let work = place.folder().join("work");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).env("HOME", place.folder().join("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        // It would count before the clone's own configuration.
        command.env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_SSL_CAINFO");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Demo");
            command.env(format!("GIT_{who}_EMAIL"), "demo@roadstead.invalid");
        }
        runner.capture(&mut command)
    };
    let dir = text(&work)?;
    if work.exists() {
        // What git cannot read is not a clone, and nobody's work.
        let is_of_use =
            |args: &[&str]| git(&[&["-C", &dir], args].concat()).is_ok_and(|said| !said.is_empty());
        if is_of_use(&["status", "--porcelain"]) || is_of_use(&["log", "--oneline", "origin/main.."]) {
            bail!("{dir} has changes that are not pushed: push them, or remove the folder");
        }
        std::fs::remove_dir_all(&work).context("remove the old clone")?;
    }
    // Options of `clone` stay in the clone's configuration. The password does not: its file is read when it is needed.
    let ca = format!("http.sslCAInfo={}", text(&place.git_ca())?);
    // A person's `GIT_SSL_CAINFO` counts in the place of that one. A folder with the CA is looked at in any case.
    let ca_file = place.git_ca();
    let ca_folder = format!("http.sslCAPath={}", text(ca_file.parent().unwrap_or(&ca_file))?);
    let password = text(&place.git_password_file()?)?.replace('\'', "'\\''");
    let helper =
        format!("credential.helper=!f() {{ echo username={USER}; echo password=$(cat '{password}'); }}; f");
    // An empty helper takes out those of the person, which would keep the demo's password.
    let only = "credential.helper=";
    let options = [&ca, &ca_folder, only, &helper, "http.proxy="].map(|option| ["--config", option]);
    let source = format!("{}/webapp.git", url(ports));
    git(&[&["clone", "--quiet", "--branch", "main"], options.as_flattened(), &[&source, &dir]].concat())?;
    let dir = dir.as_str();

    let count: u32 =
        git(&["-C", dir, "rev-list", "--count", "HEAD"])?.parse().context("count the commits")?;
    let tag = format!("1.{count}.0");
    let file = work.join("webapp/base/kustomization.yaml");
    let before = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let after: String = before
        .lines()
        .map(|line| match line.trim_start() {
            start if start.starts_with("newTag:") => format!("    newTag: {tag}\n"),
            start if start.starts_with("- greeting=") => {
                format!("      - greeting=Hello from change {count}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    std::fs::write(&file, after).with_context(|| format!("write {}", file.display()))?;
    git(&["-C", dir, "commit", "--quiet", "--all", "--message", &format!("webapp {tag}")])?;
    git(&["-C", dir, "push", "--quiet", "origin", "main"])?;
    let commit = git(&["-C", dir, "rev-parse", "--short=12", "HEAD"])?;
    Ok((tag, commit))
}

/// A path as text.
fn text(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}
