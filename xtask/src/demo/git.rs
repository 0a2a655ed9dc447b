//! The demo's Git repository: its server, its Secret, and the change that is pushed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

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
/// person would. Gives the tag and the commit.
pub(super) fn push_change(runner: &Runner, place: &Place, ports: &Ports) -> Result<(String, String)> {
    let work = place.folder().join("work");
    let password = place.git_password()?;
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).env("HOME", place.folder().join("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        // The password in the environment of this one process, and neither in its arguments nor in the clone.
        let helper = "!f() { echo username=$DEMO_USER; echo password=$DEMO_PASSWORD; }; f";
        command.env("DEMO_USER", USER).env("DEMO_PASSWORD", &password).env("GIT_TERMINAL_PROMPT", "0");
        command.env("GIT_SSL_CAINFO", place.git_ca()).env("GIT_CONFIG_COUNT", "2");
        command.env("GIT_CONFIG_KEY_0", "credential.helper").env("GIT_CONFIG_VALUE_0", helper);
        command.env("GIT_CONFIG_KEY_1", "http.proxy").env("GIT_CONFIG_VALUE_1", "");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Demo");
            command.env(format!("GIT_{who}_EMAIL"), "demo@roadstead.invalid");
        }
        runner.capture(&mut command)
    };
    let dir = work.to_str().context("the demo's folder has a name that is not UTF-8")?;
    if work.exists() {
        std::fs::remove_dir_all(&work).context("remove the old clone")?;
    }
    git(&["clone", "--quiet", "--branch", "main", &format!("{}/webapp.git", url(ports)), dir])?;

    let count: u32 =
        git(&["-C", dir, "rev-list", "--count", "HEAD"])?.parse().context("count the commits")?;
    let tag = format!("1.{count}.0");
    let file = work.join("webapp/base/kustomization.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let text: String = text
        .lines()
        .map(|line| match line.trim_start() {
            start if start.starts_with("newTag:") => format!("    newTag: {tag}\n"),
            start if start.starts_with("- greeting=") => {
                format!("      - greeting=Hello from change {count}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    git(&["-C", dir, "commit", "--quiet", "--all", "--message", &format!("webapp {tag}")])?;
    git(&["-C", dir, "push", "--quiet", "origin", "main"])?;
    let commit = git(&["-C", dir, "rev-parse", "--short=12", "HEAD"])?;
    Ok((tag, commit))
}
