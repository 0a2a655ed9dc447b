//! `cargo xtask test --repeat N`: the whole suite many times over one build, every second time beside load on all cores, to
//! find tests that pass only mostly.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::{POLL, Runner, spawn};

/// What a program printed last is read for so long after its end.
const REST: Duration = Duration::from_secs(2);

/// Threads that compute without end, one for each core, until this is dropped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let burn = |seed: u64| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut value = seed | 1;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..100_000 {
                        value = std::hint::black_box(
                            value.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17),
                        );
                    }
                }
                value
            })
        };
        let threads = (0..cores as u64).map(burn).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it computed is nothing.
            let _ = thread.join();
        }
    }
}

/// One run of the suite.
struct Run {
    loaded: bool,
    took: Duration,
    failed: Vec<String>,
}

/// What came of all runs.
#[derive(Default)]
pub(crate) struct Report {
    runs: Vec<Run>,
}

impl Report {
    /// Whether the run of this number, from 0, is one beside load.
    pub(crate) fn is_loaded(number: usize) -> bool {
        number % 2 == 1
    }

    pub(crate) fn add(&mut self, loaded: bool, took: Duration, failed: Vec<String>) {
        self.runs.push(Run { loaded, took, failed });
    }

    /// How many runs failed.
    pub(crate) fn failures(&self) -> usize {
        self.runs.iter().filter(|run| !run.failed.is_empty()).count()
    }

    /// Each run, and then each test that failed with how often it did.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut often: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (number, run) in (1..).zip(&self.runs) {
            let load = if run.loaded { "beside load" } else { "alone" };
            let outcome = match run.failed.len() {
                0 => "passed".to_owned(),
                failed => format!("FAILED: {failed}"),
            };
            let seconds = run.took.as_secs_f64();
            text.push_str(&format!("run {number:2}, {load:11}: {seconds:7.1} s, {outcome}\n"));
            for name in &run.failed {
                let (alone, loaded) = often.entry(name).or_default();
                *(if run.loaded { loaded } else { alone }) += 1;
            }
        }
        for (name, (alone, loaded)) in often {
            text.push_str(&format!("{name}: failed {alone} times alone, {loaded} times beside load\n"));
        }
        let (all, failed) = (self.runs.len(), self.failures());
        text.push_str(&format!("{} of {all} runs passed\n", all - failed));
        text
    }
}

/// Runs tests to their end; what they print goes to `out`. Gives the names of those that failed besides.
pub(crate) fn watched(
    runner: &Runner,
    command: &mut Command,
    out: &mut impl Write,
) -> Result<(ExitStatus, Vec<String>)> {
    let mut failed = Vec::new();
    let status = runner.piped(command.stdout(Stdio::piped()), |line| {
        failed.extend(failure(line));
        // Where nobody reads it, the tests still count.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    })?;
    Ok((status, failed))
}

/// The test that a line of libtest's output says has failed.
fn failure(line: &str) -> Option<String> {
    let name = line.trim_end().strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.trim().to_owned())
}

impl Runner {
    /// Runs a program to its end, and gives each line of its piped stdout to `line`.
    fn piped(&self, command: &mut Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
        let mut child = spawn(command)?;
        let pipe = child.stdout.take().context("the program's stdout is a pipe")?;
        let (sender, lines) = mpsc::channel();
        // Not waited for: what the program leaves behind may hold the pipe open.
        std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut bytes = Vec::new();
            while pipe.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
                if sender.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let mut ended: Option<Instant> = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok(text) => line(&text),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if ended.is_some_and(|at| at.elapsed() > REST) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if ended.is_none() && child.try_wait().context("wait for the tests")?.is_some() {
                        ended = Some(Instant::now());
                    }
                    if self.check().is_err() {
                        break;
                    }
                }
            }
        }
        self.wait(command, &mut child)
    }
}

/// How long `work` takes, and what it gives.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let value = work();
    (begin.elapsed(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_failed_in_what_libtest_prints() {
        assert_eq!(failure("test clocks::late ... FAILED\n").as_deref(), Some("clocks::late"));
        for line in ["test clocks::late ... ok\n", "test result: FAILED. 1 passed\n", "FAILED\n"] {
            assert_eq!(failure(line), None);
        }
    }

    #[test]
    fn tells_each_run_and_how_often_a_test_failed() {
        let mut report = Report::default();
        for number in 0..3 {
            let failed = if number == 0 { vec![] } else { vec!["a".to_owned()] };
            report.add(Report::is_loaded(number), Duration::from_secs(1), failed);
        }
        let text = report.text();
        assert!(text.contains("run  2, beside load:     1.0 s, FAILED: 1"), "{text}");
        assert!(text.contains("a: failed 1 times alone, 1 times beside load"), "{text}");
        assert!(text.ends_with("1 of 3 runs passed\n"), "{text}");
    }

    #[test]
    fn watches_a_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test one ... ok'; echo 'test two ... FAILED'; exit 1"]);
        // Not to stdout: whoever watches these tests would take it for theirs.
        let mut out = Vec::new();
        let (status, failed) = watched(&Runner::new().unwrap(), &mut command, &mut out).unwrap();
        assert_eq!((status.code(), failed), (Some(1), vec!["two".to_owned()]));
        assert_eq!(out, b"test one ... ok\ntest two ... FAILED\n");
    }

    #[test]
    fn load_ends() {
        drop(Load::start());
    }
}
