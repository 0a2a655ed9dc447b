//! The real kubectl, apart from whatever the machine's user has set up.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::given::variable;
use crate::reader::Reader;

/// No line may take longer: a test that hangs says nothing.
const PATIENCE: Duration = Duration::from_secs(180);

/// kubectl for one server, with a home and a kubeconfig of its own.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: Arc<TempDir>,
    reader: Reader,
}

impl Kubectl {
    /// For the server in `kubeconfig`.
    ///
    /// # Errors
    /// When the run does not say where kubectl is.
    pub fn new(kubeconfig: &Path) -> Result<Self> {
        Ok(Self {
            program: PathBuf::from(variable("ROADSTEAD_TEST_KUBECTL")?),
            kubeconfig: kubeconfig.to_owned(),
            home: Arc::new(tempfile::tempdir().context("make a home for kubectl")?),
            reader: Reader::new(kubeconfig),
        })
    }

    /// The kubeconfig that it uses.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The command, for tests that need more than [`Self::run`].
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // The kubeconfig alone names the server: a proxy or another context would lead elsewhere.
        command.env_clear().env("HOME", self.home.path()).env("KUBECONFIG", &self.kubeconfig);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.args(args).kill_on_drop(true).stdin(Stdio::null());
        command
    }

    /// What a line prints on stdout.
    ///
    /// # Errors
    /// What it prints on stderr, when it fails.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with(args, "").await
    }

    /// What a line prints, given `input`.
    ///
    /// # Errors
    /// What it prints on stderr, when it fails.
    pub async fn run_with(&self, args: &[&str], input: &str) -> Result<String> {
        let line = format!("kubectl {}", args.join(" "));
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| line.clone())?;
        let mut stdin = child.stdin.take().context("kubectl's stdin is a pipe")?;
        let finish = async {
            // One that ends without reading says why on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(PATIENCE, finish)
            .await
            .with_context(|| format!("{line}: not done within {PATIENCE:?}"))?
            .with_context(|| line.clone())?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A client of the same server, for what is asked so often that kubectl's start would count.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<kube::Client> {
        self.reader.client().await
    }

    /// Starts a line that does not end, such as a watch; it ends with the value.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, args: &[&str]) -> Result<Child> {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// `kubectl apply -f -`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], manifest).await
    }

    /// What `kubectl get … -o json` gives, for a type and a name or for types, with `-n`, `-l` and
    /// `--show-managed-fields`; kubectl itself is not started for it.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self, args: &[&str]) -> Result<Value> {
        let line = || format!("get {}", args.join(" "));
        let answer = tokio::time::timeout(PATIENCE, self.reader.get(args)).await;
        answer.with_context(|| format!("{}: not done within {PATIENCE:?}", line()))?.with_context(line)
    }

    /// The status, reason and message of a condition of an object; fails where it has none of this type.
    ///
    /// # Errors
    /// When the object or the condition is not there.
    pub async fn condition(&self, args: &[&str], kind: &str) -> Result<(String, String, String)> {
        let object = self.get(args).await?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        let found =
            found.with_context(|| format!("{} has no condition {kind}: {object:#}", args.join(" ")))?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Ok((text("status"), text("reason"), text("message")))
    }
}
