//! The worker's side: what a process does that was started as a worker.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::{self, Head, Tag};
use crate::process::Setup;
use crate::protect;

/// Most bytes of a job's input that a worker takes. The pool's own bounds are lower.
const MOST_INPUT: usize = 64 << 20;

type Handler = Box<dyn FnMut(&mut Context, Vec<u8>) -> Vec<u8>>;

/// What a worker can do, by kind of job.
#[derive(Default)]
pub struct Registry(BTreeMap<&'static str, Handler>);

impl Registry {
    /// Registers a kind of job. `handler` may keep what helps with later jobs: one worker does one job at a time.
    #[must_use]
    pub fn with(
        mut self,
        kind: &'static str,
        handler: impl FnMut(&mut Context, Vec<u8>) -> Vec<u8> + 'static,
    ) -> Self {
        self.0.insert(kind, Box::new(handler));
        self
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a job has, besides its input.
#[derive(Debug)]
pub struct Context {
    line: Line,
    scratch: PathBuf,
}

impl Context {
    /// The only folder in which files can be opened or made. It is emptied after the job.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Asks the process that runs this worker. The answer is read as it comes; the next question discards what was not read.
    ///
    /// # Errors
    /// Where the other side refuses (kind `Other`, with its reason as text), or is gone.
    pub fn ask(&mut self, question: &[u8]) -> io::Result<Answer> {
        self.line.ask(question)
    }

    /// The way to ask, for libraries that want to own it. It is of no use after the job.
    #[must_use]
    pub fn line(&self) -> Line {
        self.line.clone()
    }
}

/// The way to the process that runs this worker.
#[derive(Debug, Clone)]
pub struct Line(Arc<Mutex<Ends>>);

#[derive(Debug)]
struct Ends {
    input: io::Stdin,
    output: io::Stdout,
    /// The answer that is being read: of its current frame so many bytes are to come, and whether that is the last.
    answer: Option<(usize, bool)>,
}

impl Line {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Ends { input: io::stdin(), output: io::stdout(), answer: None })))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Context::ask`].
    ///
    /// # Errors
    /// As [`Context::ask`].
    pub fn ask(&self, question: &[u8]) -> io::Result<Answer> {
        let mut ends = self.ends();
        ends.discard()?;
        frame::write(&mut ends.output, Tag::Ask, question)?;
        let head = ends.head()?;
        ends.answer = Some((head.length, head.last));
        drop(ends);
        let mut answer = Answer(self.clone());
        match head.tag {
            Tag::Answer => Ok(answer),
            Tag::Refusal => {
                let mut why = Vec::new();
                answer.by_ref().take(4096).read_to_end(&mut why)?;
                Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()))
            }
            _ => Err(frame::malformed("a question was answered with another kind of message")),
        }
    }
}

impl Ends {
    fn head(&mut self) -> io::Result<Head> {
        frame::read_head(&mut self.input)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn discard(&mut self) -> io::Result<()> {
        if self.answer.is_some() {
            io::copy(self, &mut io::sink())?;
        }
        Ok(())
    }
}

impl Read for Ends {
    /// Of the answer that is being read.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.answer {
                None => return Ok(0),
                Some((0, true)) => self.answer = None,
                Some((0, false)) => {
                    let head = self.head()?;
                    self.answer = Some((head.length, head.last));
                }
                Some((left, last)) => {
                    let want = buffer.len().min(left);
                    let count = self.input.read(&mut buffer[..want])?;
                    if count == 0 && want > 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.answer = Some((left - count, last));
                    return Ok(count);
                }
            }
        }
    }
}

/// An answer, as it comes.
#[derive(Debug)]
pub struct Answer(Line);

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.ends().read(buffer)
    }
}

/// Is a worker: takes the process's protections, then does jobs until its standard input ends. `arguments` are those that
/// the pool gave it, behind those of the [`crate::Program`].
///
/// To be called first of all in `main`, while the process has one thread.
#[must_use]
pub fn serve(arguments: impl Iterator<Item = OsString>, registry: Registry) -> ExitCode {
    match run(arguments, registry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl Iterator<Item = OsString>, mut registry: Registry) -> io::Result<()> {
    let setup = Setup::parse(arguments)
        .ok_or_else(|| io::Error::other("a worker is started by its program only, not by hand"))?;
    let protections = protect::apply(&setup)?;
    let mut context = Context { line: Line::new(), scratch: setup.scratch };
    frame::write(&mut io::stdout(), Tag::Hello, &protections.encode())?;
    while let Some((kind, bytes)) = next_job(&mut io::stdin())? {
        let handler =
            registry.0.get_mut(kind.as_str()).ok_or_else(|| frame::malformed("no such kind of job"))?;
        let result = handler(&mut context, bytes);
        context.line.ends().discard()?;
        clear(&context.scratch);
        frame::write(&mut io::stdout(), Tag::Size, &(result.len() as u64).to_le_bytes())?;
        frame::write(&mut io::stdout(), Tag::Done, &result)?;
    }
    Ok(())
}

/// The kind and the input of the next job; none where there is none any more.
fn next_job(input: &mut impl Read) -> io::Result<Option<(String, Vec<u8>)>> {
    let Some(mut head) = frame::read_head(input)? else { return Ok(None) };
    let mut message = Vec::new();
    loop {
        if head.tag != Tag::Job || message.len() + head.length > MOST_INPUT {
            return Err(frame::malformed("a job is too large, or the message is not a job"));
        }
        let start = message.len();
        message.resize(start + head.length, 0);
        input.read_exact(&mut message[start..])?;
        if head.last {
            break;
        }
        head = frame::read_head(input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    }
    let length = usize::from(*message.first().ok_or_else(|| frame::malformed("a job has no kind"))?);
    let kind = message.get(1..=length).ok_or_else(|| frame::malformed("a job's kind is cut short"))?;
    let kind = String::from_utf8_lossy(kind).into_owned();
    message.drain(..=length);
    Ok(Some((kind, message)))
}

/// The message that is a job.
pub(crate) fn job_message(kind: &str, input: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(1 + kind.len() + input.len());
    let length = u8::try_from(kind.len()).unwrap_or(u8::MAX);
    message.push(length);
    message.extend_from_slice(&kind.as_bytes()[..usize::from(length)]);
    message.extend_from_slice(input);
    message
}

/// Leaves nothing of one job to the next. What cannot be removed goes with the worker.
fn clear(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}
