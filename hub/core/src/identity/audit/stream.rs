//! The audit log as lines of JSON: in a file, on standard output, or for whoever sends them on. Whoever writes to the log waits for none of
//! it: lines wait in a bounded queue for a thread that writes them, or a task that sends them, and what does not fit, or cannot be written,
//! is counted as lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Lines that wait.
const MOST_LINES: usize = 8_192;
/// Bytes that wait.
const MOST_BYTES: usize = 4 << 20;

/// Where the log is streamed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSink {
    /// Standard output.
    Stdout,
    /// A file, which is renamed once it is as long as it may be.
    File {
        /// Where it is.
        path: PathBuf,
        /// Bytes of it at most.
        max_bytes: u64,
        /// How many of those from before are kept, as `PATH.1`, `PATH.2`, …
        kept: u32,
    },
}

/// A stream that is open.
pub struct AuditStream {
    lines: Sender<String>,
    state: Arc<State>,
}

/// Lines of a stream that somebody sends on.
pub struct AuditLines {
    lines: Receiver<String>,
    state: Arc<State>,
}

/// What both ends of a stream know.
#[derive(Default)]
struct State {
    /// Bytes of the lines that are not done with.
    waiting: AtomicUsize,
    lost: Counter,
}

impl AuditStream {
    /// One whose lines somebody else sends on. `lost` counts those that were lost.
    pub(super) fn lines(lost: Counter) -> (Self, AuditLines) {
        let (lines, waiting) = channel(MOST_LINES);
        let state = Arc::new(State { lost, ..State::default() });
        (Self { lines, state: Arc::clone(&state) }, AuditLines { lines: waiting, state })
    }

    /// One that is written. `lost` counts the lines that were lost.
    ///
    /// # Errors
    /// Where it cannot be written to, or no thread can be started.
    pub(super) fn open(sink: &AuditSink, lost: Counter) -> io::Result<Self> {
        let out: Box<dyn Out> = match sink {
            // A handle of its own: a reader that stands still holds up nobody else who prints.
            AuditSink::Stdout => Box::new(Plain {
                file: File::from(io::stdout().as_fd().try_clone_to_owned()?),
                broken: false,
            }),
            AuditSink::File { path, max_bytes, kept } => Box::new(Rotated::open(path, *max_bytes, *kept)?),
        };
        let (stream, waiting) = Self::lines(lost);
        std::thread::Builder::new().name("audit-stream".to_owned()).spawn(move || write_all(waiting, out))?;
        Ok(stream)
    }

    /// Has a line written; never waits.
    pub(super) fn send(&self, line: String) {
        let bytes = line.len();
        let before = self.state.waiting.fetch_add(bytes, Ordering::AcqRel);
        if before.saturating_add(bytes) <= MOST_BYTES && self.lines.try_send(line).is_ok() {
            return;
        }
        self.state.waiting.fetch_sub(bytes, Ordering::AcqRel);
        self.state.lost.inc();
    }

    /// How many lines were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.state.lost.get()
    }

    /// Whether all that was sent is written, or lost.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state.waiting.load(Ordering::Acquire) == 0
    }
}

impl AuditLines {
    /// The next lines, so many at most; it waits for the first. None will come once it gives none.
    pub async fn next(&mut self, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        self.lines.recv_many(&mut lines, most).await;
        lines
    }

    /// Those that wait already, so many at most.
    pub fn ready(&mut self, most: usize) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).take(most).collect()
    }

    /// These are done with, and so many of them were lost.
    pub fn settle(&mut self, lines: &[String], lost: u64) {
        self.state.lost.inc_by(lost);
        let bytes = lines.iter().map(String::len).sum();
        self.state.waiting.fetch_sub(bytes, Ordering::AcqRel);
    }
}

fn write_all(AuditLines { mut lines, state }: AuditLines, mut out: Box<dyn Out>) {
    let mut failing = false;
    while let Some(mut line) = lines.blocking_recv() {
        let bytes = line.len();
        line.push('\n');
        let written = out.write(line.as_bytes());
        if let Err(error) = &written {
            state.lost.inc();
            if !failing {
                tracing::error!(%error, "the audit log cannot be streamed: entries are lost there, and not in the database");
            }
        } else if failing {
            tracing::info!("the audit log is streamed again");
        }
        failing = written.is_err();
        state.waiting.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// What lines are written to: whole ones only.
trait Out: Send {
    fn write(&mut self, line: &[u8]) -> io::Result<()>;
}

/// What cannot take back what was written.
struct Plain {
    file: File,
    broken: bool,
}

impl Out for Plain {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.broken {
            // The part of a line that was written stands for itself.
            self.file.write_all(b"\n")?;
        }
        self.broken = true;
        self.file.write_all(line)?;
        self.broken = false;
        Ok(())
    }
}

struct Rotated {
    path: PathBuf,
    max_bytes: u64,
    kept: u32,
    file: File,
    length: u64,
}

impl Rotated {
    fn open(path: &Path, max_bytes: u64, kept: u32) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        let mut length = file.seek(SeekFrom::End(0))?;
        if length > 0 {
            // A process that was killed may have left a part of a line.
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                length += 1;
            }
        }
        Ok(Self { path: path.to_owned(), max_bytes, kept, file, length })
    }

    fn before(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        let present = |moved: io::Result<()>| match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        for number in (1..self.kept).rev() {
            present(std::fs::rename(self.before(number), self.before(number + 1)))?;
        }
        if self.kept == 0 {
            present(std::fs::remove_file(&self.path))?;
        } else {
            present(std::fs::rename(&self.path, self.before(1)))?;
        }
        *self = Self::open(&self.path, self.max_bytes, self.kept)?;
        Ok(())
    }
}

impl Out for Rotated {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let bytes = line.len() as u64;
        if self.length > 0 && self.length.saturating_add(bytes) > self.max_bytes {
            self.rotate()?;
        }
        let written = self.file.write_all(line);
        match written {
            Ok(()) => self.length += bytes,
            // A line is there whole or not at all.
            Err(_) => self.file.set_len(self.length)?,
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn settled(stream: &AuditStream) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !stream.is_idle() {
            assert!(Instant::now() < deadline, "it is not written");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_is_renamed_when_it_is_full_and_only_some_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "half a li").unwrap();
        let sink = AuditSink::File { path: path.clone(), max_bytes: 100, kept: 2 };
        let stream = AuditStream::open(&sink, Counter::default()).unwrap();
        for number in 0..10 {
            stream.send(format!("{number:040}"));
        }
        settled(&stream);
        assert_eq!(stream.lost(), 0);
        let read = |suffix: &str| std::fs::read_to_string(format!("{}{suffix}", path.display())).unwrap();
        assert_eq!(read(""), format!("{:040}\n{:040}\n", 8, 9));
        assert_eq!(read(".2"), format!("{:040}\n{:040}\n", 4, 5));
        assert!(!folder.path().join("audit.jsonl.3").exists());
    }

    #[test]
    fn a_part_of_a_line_that_was_left_stands_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "half a li").unwrap();
        let sink = AuditSink::File { path: path.clone(), max_bytes: 1 << 20, kept: 1 };
        let stream = AuditStream::open(&sink, Counter::default()).unwrap();
        stream.send("{}".to_owned());
        settled(&stream);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half a li\n{}\n");
    }

    /// A reader that stands still: a pipe that nobody reads.
    #[test]
    fn nobody_waits_for_a_sink_that_stands_still_and_what_is_lost_is_counted() {
        let (reader, writer) = io::pipe().unwrap();
        let (stream, waiting) = AuditStream::lines(Counter::default());
        let file = File::from(writer.as_fd().try_clone_to_owned().unwrap());
        drop(writer);
        let thread = std::thread::spawn(move || write_all(waiting, Box::new(Plain { file, broken: false })));
        let began = Instant::now();
        for _ in 0..20_000 {
            stream.send("x".repeat(1_000));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "a sender waited");
        let lost = stream.lost();
        assert!(lost > 10_000 && stream.state.waiting.load(Ordering::Relaxed) <= MOST_BYTES, "{lost}");
        // Who was slow gets all that was kept, and nothing is lost any more.
        let reading = std::thread::spawn(move || io::read_to_string(reader).unwrap());
        settled(&stream);
        stream.send("last".to_owned());
        settled(&stream);
        assert_eq!(stream.lost(), lost);
        drop(stream);
        thread.join().unwrap();
        let read = reading.join().unwrap();
        assert!(read.ends_with("x\nlast\n"));
        assert_eq!(read.lines().count() as u64, 20_001 - lost);
    }

    #[test]
    fn a_disk_that_is_full_is_counted() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert!(Plain { file, broken: false }.write(b"{}\n").is_err());
    }
}
