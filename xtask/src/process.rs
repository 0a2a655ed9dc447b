//! Running programs so that an interrupt ends them too, and saying how far things are.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often it is looked whether a program has ended.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// How long an interrupted program may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs programs, each in a process group of its own: an interrupt ends the whole group, whatever it has started, and
/// leaves this process alive to clean up.
pub(crate) struct Runner {
    interrupted: Arc<AtomicBool>,
    /// An interrupt came before what is cleaned up now.
    ended: AtomicBool,
    begin: Instant,
}

impl Runner {
    /// From here on SIGINT, SIGTERM and SIGHUP no longer end this process: whatever waits returns an error instead.
    pub(crate) fn new() -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("listen for signals")?;
        }
        Ok(Self { interrupted, ended: AtomicBool::new(false), begin: Instant::now() })
    }

    /// Says what begins, with the seconds since the start.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("[{:6.1} s] {text}", self.begin.elapsed().as_secs_f64());
    }

    /// Fails when an interrupt has come.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// From here on what waits goes on: what follows is cleaning up, which a second interrupt should not stop half-way.
    pub(crate) fn begin_cleanup(&self) {
        if self.interrupted.swap(false, Ordering::Relaxed) {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Fails when an interrupt has come, also before something was cleaned up: nothing new is to be begun.
    pub(crate) fn check_before_more(&self) -> Result<()> {
        if self.ended.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        self.check()
    }

    /// Runs a program to its end; what it prints goes where ours goes.
    pub(crate) fn status(&self, command: &mut Command) -> Result<ExitStatus> {
        let mut child = spawn(command)?;
        self.wait(command, &mut child)
    }

    /// Runs a program that must succeed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let status = self.status(command)?;
        if !status.success() {
            bail!("{} failed ({status})", shown(command));
        }
        Ok(())
    }

    /// Runs a program that must succeed and gives what it printed on stdout, without the space around it.
    pub(crate) fn capture(&self, command: &mut Command) -> Result<String> {
        let mut child = spawn(command.stdout(Stdio::piped()))?;
        let mut pipe = child.stdout.take().context("the program's stdout is a pipe")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text)
        });
        let status = self.wait(command, &mut child)?;
        if !status.success() {
            bail!("{} failed ({status})", shown(command));
        }
        let text = reader.join().map_err(|_| anyhow::anyhow!("the reader of a pipe panicked"))?;
        Ok(text.with_context(|| format!("read what {} prints", shown(command)))?.trim().to_owned())
    }

    pub(crate) fn wait(&self, command: &Command, child: &mut Child) -> Result<ExitStatus> {
        let group = Pid::from_child(child);
        loop {
            if let Some(status) = child.try_wait().with_context(|| format!("wait for {}", shown(command)))? {
                return Ok(status);
            }
            if let Err(error) = self.check() {
                end_group(group, child);
                return Err(error).with_context(|| format!("while running {}", shown(command)));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks `done` again and again until it gives something, an interrupt comes or the time is up; then fails with the
    /// last reason that it gave.
    pub(crate) fn until<T>(
        &self,
        what: &str,
        patience: Duration,
        mut done: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            match done() {
                Ok(value) => return Ok(value),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).with_context(|| format!("gave up after {patience:?}: {what}"));
                }
                Err(_) => self.check()?,
            }
            std::thread::sleep(POLL * 5);
        }
    }
}

pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    let spawned = command.stdin(Stdio::null()).process_group(0).spawn();
    spawned.with_context(|| format!("start {}", shown(command)))
}

/// Ends a process group: first politely, so that tests can end what they started.
fn end_group(group: Pid, leader: &mut Child) {
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let _ = leader.try_wait();
        if rustix::process::test_kill_process_group(group).is_err() {
            return;
        }
        std::thread::sleep(POLL);
    }
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = leader.wait();
}

/// A command as a person would write it, for messages.
fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let mut text = name;
    for argument in command.get_args().take(6) {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn gives_status_and_output() {
        let runner = Runner::new().unwrap();
        assert_eq!(runner.status(&mut sh("exit 3")).unwrap().code(), Some(3));
        assert_eq!(runner.capture(&mut sh("echo out; echo err >&2")).unwrap(), "out");
        let error = runner.run(&mut sh("exit 3")).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3") && error.contains('3'), "{error}");
    }

    #[test]
    fn an_interrupt_ends_what_the_program_started() {
        let runner = Runner::new().unwrap();
        let flag = Arc::clone(&runner.interrupted);
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let watcher = std::thread::spawn({
            let file = file.clone();
            move || {
                while std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')).eq(&false) {
                    std::thread::sleep(POLL);
                }
                flag.store(true, Ordering::Relaxed);
            }
        });
        let error = runner.run(&mut sh(&script)).unwrap_err();
        watcher.join().unwrap();
        assert!(error.to_string().contains("sleep 1000"), "{error:#}");
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let gone = || rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_err();
        let zombie =
            || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        assert!(gone() || zombie(), "the background process is still there");
    }

    #[test]
    fn an_interrupt_lets_cleaning_up_go_on_and_nothing_new_begin() {
        let runner = Runner::new().unwrap();
        runner.begin_cleanup();
        assert!(runner.check().is_ok() && runner.check_before_more().is_ok());
        runner.interrupted.store(true, Ordering::Relaxed);
        assert!(runner.check().is_err() && runner.check_before_more().is_err());
        runner.begin_cleanup();
        assert!(runner.check().is_ok() && runner.check_before_more().is_err());
    }

    #[test]
    fn waiting_ends_with_the_last_reason() {
        let runner = Runner::new().unwrap();
        let error = runner.until("the moon", Duration::from_millis(1), || -> Result<()> { bail!("no moon") });
        let text = format!("{:#}", error.unwrap_err());
        assert!(text.contains("the moon") && text.contains("no moon"), "{text}");
    }
}
