//! Programs of the demo that go on when the command has ended.
//!
//! Each is recorded by its process id and the moment that this process began: an id alone may belong to another program
//! by the time that it is to be ended.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// How long a program may take to end by itself: the hub drains and stops its Postgres.
const PATIENCE: Duration = Duration::from_secs(60);

/// One program of the demo, running or not.
pub(super) struct Daemon {
    name: String,
    record: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// The program `name` of the demo in `folder`, which has the folders `run` and `logs`.
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            record: folder.join("run").join(name),
            log: folder.join("logs").join(format!("{name}.log")),
        }
    }

    /// Every program that was ever started in `folder`, the last started first.
    pub(super) fn recorded(folder: &Path) -> Result<Vec<Self>> {
        let Ok(entries) = std::fs::read_dir(folder.join("run")) else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.context("list the demo's programs")?;
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let modified = modified.context("look at the demo's programs")?;
            names.push((modified, entry.file_name().to_string_lossy().into_owned()));
        }
        names.sort();
        Ok(names.into_iter().rev().map(|(_, name)| Self::new(folder, &name)).collect())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The process, where it lives and is the one that was started.
    pub(super) fn running(&self) -> Option<Pid> {
        let record = std::fs::read_to_string(&self.record).ok()?;
        let (pid, began) = record.trim().split_once(' ')?;
        let pid: i32 = pid.parse().ok()?;
        (began_at(pid)? == began).then(|| Pid::from_raw(pid))?
    }

    /// Starts the program in the background, unless it runs.
    pub(super) fn start(&self, command: &mut Command) -> Result<Started> {
        if self.running().is_some() {
            return Ok(Started::Before);
        }
        let log = File::options().append(true).create(true).open(&self.log);
        let log = log.with_context(|| format!("open {}", self.log.display()))?;
        let error = log.try_clone().context("share the log between stdout and stderr")?;
        // A group of its own, so that Ctrl-C at this command does not end what is to go on.
        command.stdin(Stdio::null()).stdout(log).stderr(error).process_group(0);
        let child = command.spawn().with_context(|| format!("start {}", self.name))?;
        let pid = Pid::from_child(&child).as_raw_nonzero().get();
        let began = began_at(pid).with_context(|| format!("{} ended at once{}", self.name, self.tail()))?;
        std::fs::write(&self.record, format!("{pid} {began}\n"))
            .with_context(|| format!("record the process of {}", self.name))?;
        // Reaped when it ends while this command still runs; init does it later.
        std::thread::spawn(move || {
            let mut child = child;
            let _ = child.wait();
        });
        Ok(Started::Now)
    }

    /// Fails with the end of its log where the program has ended.
    pub(super) fn check(&self) -> Result<()> {
        if self.running().is_none() {
            bail!("{} has ended{}", self.name, self.tail());
        }
        Ok(())
    }

    /// The end of its log, for messages.
    pub(super) fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n  ");
        format!("; the end of {}:\n  {last}", self.log.display())
    }

    /// Ends the program and what it started, and forgets it. Politely at first.
    pub(super) fn stop(&self) -> Result<()> {
        if let Some(pid) = self.running() {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
            if !self.gone_within(PATIENCE) {
                eprintln!("{} did not end within {PATIENCE:?}: killed", self.name);
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                if !self.gone_within(PATIENCE) {
                    bail!("{} (process {}) cannot be ended", self.name, pid.as_raw_nonzero());
                }
            }
        }
        match std::fs::remove_file(&self.record) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("forget {}", self.name))
            }
            _ => Ok(()),
        }
    }

    fn gone_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if self.running().is_none() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

/// Whether a program was started, or ran before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    Now,
    Before,
}

/// When a process began, in the kernel's ticks since boot; none where there is no such process, or it has ended and
/// waits to be reaped. The demo's clusters need Linux, so this may, too.
fn began_at(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for part in ["run", "logs"] {
            std::fs::create_dir(temp.path().join(part)).unwrap();
        }
        temp
    }

    #[test]
    fn starts_once_and_stops() {
        let temp = folder();
        let daemon = Daemon::new(temp.path(), "sleeper");
        assert_eq!(daemon.start(Command::new("sleep").arg("1000")).unwrap(), Started::Now);
        assert_eq!(daemon.start(Command::new("sleep").arg("1000")).unwrap(), Started::Before);
        let pid = daemon.running().unwrap();
        assert_eq!(Daemon::recorded(temp.path()).unwrap().len(), 1);
        daemon.stop().unwrap();
        assert!(began_at(pid.as_raw_nonzero().get()).is_none());
        assert!(Daemon::recorded(temp.path()).unwrap().is_empty());
    }

    #[test]
    fn never_takes_another_process_for_its_own() {
        let temp = folder();
        let daemon = Daemon::new(temp.path(), "other");
        std::fs::write(temp.path().join("run/other"), format!("{} 1\n", std::process::id())).unwrap();
        assert!(daemon.running().is_none());
        daemon.stop().unwrap();
    }

    #[test]
    fn shows_the_log_of_what_ended() {
        let temp = folder();
        let daemon = Daemon::new(temp.path(), "short");
        // Whether it is caught ending at once or later, the log is shown.
        let _ = daemon.start(Command::new("sh").args(["-c", "echo no such luck >&2"]));
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match daemon.check() {
                Err(error) if error.to_string().contains("luck") => break error,
                _ => assert!(Instant::now() < deadline),
            }
        };
        assert!(error.to_string().contains("short has ended"), "{error}");
    }
}
