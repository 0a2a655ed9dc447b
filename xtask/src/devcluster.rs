//! Clusters by `tests/devcluster`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::Runner;

/// The folder with the binaries, which are built the first time.
pub(crate) struct Devcluster {
    bin: PathBuf,
}

impl Devcluster {
    /// Builds the binaries where they are not in the cache: minutes the first time.
    pub(crate) fn build(root: &Path, runner: &Runner) -> Result<Self> {
        let folder = runner
            .capture(&mut Command::new(root.join("tests/devcluster/build.sh")))
            .context("build the development cluster")?;
        Ok(Self { bin: PathBuf::from(folder) })
    }

    pub(crate) fn kubectl(&self) -> PathBuf {
        self.bin.join("kubectl")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("devcluster"));
        command.args(args);
        command
    }

    /// Starts a cluster, or leaves it as it is where it runs, and gives its administrator's kubeconfig.
    pub(crate) fn up(&self, runner: &Runner, name: &str, options: &[&str]) -> Result<PathBuf> {
        let path = runner
            .capture(self.command(&["up", name]).args(options))
            .with_context(|| format!("start cluster {name}"))?;
        Ok(PathBuf::from(path))
    }

    /// The same of all that are in a folder, if it is there.
    pub(crate) fn down_all(&self, runner: &Runner, folder: &Path) -> Result<()> {
        if !folder.is_dir() {
            return Ok(());
        }
        let mut command = self.command(&["down", "--all", "--state-dir"]);
        runner
            .run(command.arg(folder))
            .with_context(|| format!("remove the clusters in {}", folder.display()))
    }

    /// Ends clusters and removes their data; those that are not there are no error.
    pub(crate) fn down(&self, runner: &Runner, names: &[String]) -> Result<()> {
        let mut args = vec!["down"];
        args.extend(names.iter().map(String::as_str));
        runner.run(&mut self.command(&args)).with_context(|| format!("remove clusters {}", names.join(", ")))
    }
}
