//! A program under test: its life and its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// How much of a log is shown when a test fails.
const TAIL: usize = 6 * 1024;

/// A running program. Dropping it kills it; when the test has failed, the end of its log is shown.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    /// Set once it was waited for.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`; what it prints goes to `log`, behind what is there already.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options().append(true).create(true).open(log);
        let file = file.with_context(|| format!("open {}", log.display()))?;
        let error = file.try_clone().context("share a log")?;
        // In the group of the test: what ends a run that hangs ends this, too.
        let child = command.stdin(Stdio::null()).stdout(file).stderr(error).spawn();
        let child = child.with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child, ended: None })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The same, to send signals to.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// All that it has printed, and what earlier programs have to the same file.
    #[must_use]
    pub fn logs(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it has printed `text`: what others hear of, it may print a moment later.
    ///
    /// # Errors
    /// When it has not within `patience`.
    pub async fn says(&self, text: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.logs().contains(text) {
            if Instant::now() >= deadline {
                bail!("{} has not said «{text}» within {patience:?}:\n{}", self.name, self.tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().with_context(|| format!("ask after {}", self.name))?;
        }
        Ok(self.ended)
    }

    /// Fails with the end of its log when it has ended.
    ///
    /// # Errors
    /// When it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} has ended ({status}):\n{}", self.name, self.tail());
        }
        Ok(())
    }

    /// kill -9, and waits until it is gone.
    ///
    /// # Errors
    /// When it had ended before: the test believes it to be running.
    pub async fn kill9(&mut self) -> Result<()> {
        self.check()?;
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(10)).await.map(|_| ())
    }

    /// SIGTERM, and waits until it has ended by itself.
    ///
    /// # Errors
    /// When it has not within `patience`.
    pub async fn sigterm(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.check()?;
        self.signal(Signal::TERM)?;
        self.wait(patience).await
    }

    /// Freezes it: its connections stay open, and nothing answers.
    ///
    /// # Errors
    /// When it has ended.
    pub fn freeze(&mut self) -> Result<()> {
        self.check()?;
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&mut self) -> Result<()> {
        self.check()?;
        self.signal(Signal::CONT)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it has not within `patience`.
    pub async fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} has not ended within {patience:?}:\n{}", self.name, self.tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Not reaped yet (`check` came first), so the id is still its own.
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    pub(crate) fn tail(&self) -> String {
        let logs = self.logs();
        let begin = (logs.len().saturating_sub(TAIL)..=logs.len()).find(|at| logs.is_char_boundary(*at));
        logs[begin.unwrap_or(0)..].to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the log of {}:\n{}\n---", self.name, self.tail());
        }
        if !matches!(self.ended(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// kill -9 of a process that is not this one's child. That it is gone is not waited for.
///
/// # Errors
/// When there is none.
pub fn kill9(pid: i32) -> Result<()> {
    let pid = Pid::from_raw(pid).context("a pid")?;
    rustix::process::kill_process(pid, Signal::KILL).with_context(|| format!("kill {pid:?}"))
}

/// Copies a folder with all that is in it, owners and modes included.
///
/// # Errors
/// When it cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().context("cp")?;
    if !copied.status.success() {
        bail!("cp -a: {}", String::from_utf8_lossy(&copied.stderr).trim());
    }
    Ok(())
}
