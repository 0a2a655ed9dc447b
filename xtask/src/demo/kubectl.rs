//! kubectl with a home and a configuration of its own: what a person has set up must not matter here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::place::{Place, write_private};
use crate::process::Runner;

/// The kubectl that a person has.
pub(super) fn installed() -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&folders).map(|folder| folder.join("kubectl"));
    programs.find(|program| program.is_file()).context("kubectl not found in PATH: install it first")
}

/// kubectl for one server.
pub(super) struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(super) fn new(program: PathBuf, place: &Place, kubeconfig: PathBuf) -> Self {
        Self { program, home: place.folder().join("home"), kubeconfig }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("HOME", &self.home).env("KUBECONFIG", &self.kubeconfig);
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy);
        }
        command
    }

    /// Shows the line, as a person would type it, and what it prints.
    pub(super) fn run(&self, runner: &Runner, args: &[&str]) -> Result<()> {
        eprintln!("$ kubectl {}", args.join(" "));
        // All of what the demo says goes to stderr, in order.
        runner.run(self.command(args).stdout(std::io::stderr()))
    }

    /// What a line prints; shows nothing unless it fails.
    pub(super) fn quiet(&self, runner: &Runner, args: &[&str]) -> Result<String> {
        runner.check()?;
        let mut command = self.command(args);
        let output = command.arg("--request-timeout=10s").stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("start kubectl {}", args.join(" ")))?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies manifests that are not a file of the repository; they may hold secrets.
    pub(super) fn apply_text(&self, runner: &Runner, place: &Place, name: &str, text: &str) -> Result<()> {
        let file = place.folder().join(format!("{name}.yaml"));
        write_private(&file, text)?;
        self.run(runner, &["apply", "-f", &file.to_string_lossy()])
    }
}
