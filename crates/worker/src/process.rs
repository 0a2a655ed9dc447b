//! Starting a worker: the program, its arguments, and the pipes to it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc;

use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// How a process becomes a worker.
#[derive(Debug, Clone)]
pub struct Program {
    /// What is run. With `/proc/self/exe` it is this very program, also after its file was replaced.
    pub path: PathBuf,
    /// What it shows up as in a list of processes.
    pub name: OsString,
    /// Its first arguments: those by which it knows that it is to call [`crate::serve`] with the rest.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This program, which becomes a worker when `argument` is its first one.
    ///
    /// # Errors
    /// Where the system does not tell where the program lies.
    pub fn this(name: &str, argument: &str) -> io::Result<Self> {
        let linux = PathBuf::from("/proc/self/exe");
        let path = if linux.exists() { linux } else { std::env::current_exe()? };
        Ok(Self { path, name: name.into(), arguments: vec![argument.into()] })
    }
}

/// What a worker is told when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Most bytes of memory.
    pub(crate) memory: u64,
    /// Most bytes of files that are mapped besides.
    pub(crate) mapped: u64,
    /// Most open files.
    pub(crate) files: u64,
    /// Most bytes of a file.
    pub(crate) file_size: u64,
    /// The folder in which it may have files.
    pub(crate) scratch: PathBuf,
    /// Folders that it may read besides.
    pub(crate) readable: Vec<PathBuf>,
}

impl Setup {
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = [self.memory, self.mapped, self.files, self.file_size]
            .map(|number| number.to_string().into())
            .into();
        arguments.push(self.scratch.clone().into());
        arguments.extend(self.readable.iter().cloned().map(OsString::from));
        arguments
    }

    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number =
            || -> Option<u64> { String::from_utf8(arguments.next()?.into_vec()).ok()?.parse().ok() };
        let (memory, mapped, files, file_size) = (number()?, number()?, number()?, number()?);
        let scratch = PathBuf::from(arguments.next()?);
        Some(Self {
            memory,
            mapped,
            files,
            file_size,
            scratch,
            readable: arguments.map(PathBuf::from).collect(),
        })
    }
}

type Started = oneshot::Sender<io::Result<Child>>;

/// Starts workers, on a thread of its own.
///
/// A worker is killed by the system when the thread ends that started it; a runtime's threads come and go, this one stays
/// as long as its pool.
#[derive(Debug, Clone)]
pub(crate) struct Starter(mpsc::Sender<(Setup, Started)>);

impl Starter {
    pub(crate) fn new(program: Program) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<(Setup, Started)>();
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        std::thread::Builder::new().name("worker-starter".to_owned()).spawn(move || {
            let _guard = runtime.enter();
            while let Ok((setup, started)) = receiver.recv() {
                // Who does not wait any more drops it, which kills it.
                let _ = started.send(command(&program, &setup).spawn());
            }
        })?;
        Ok(Self(sender))
    }

    pub(crate) async fn start(&self, setup: Setup) -> io::Result<Child> {
        let (sender, receiver) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts workers is gone");
        self.0.send((setup, sender)).map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())?
    }
}

fn command(program: &Program, setup: &Setup) -> Command {
    let mut command = std::process::Command::new(&program.path);
    {
        use std::os::unix::process::CommandExt as _;
        command.arg0(&program.name);
    }
    command
        .args(&program.arguments)
        .args(setup.arguments())
        .env_clear()
        .current_dir(&setup.scratch)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_is_told_arrives() {
        let setup = Setup {
            memory: 1 << 40,
            mapped: 3,
            files: 7,
            file_size: 0,
            scratch: PathBuf::from(OsString::from_vec(b"/tmp/\xff x".to_vec())),
            readable: vec![PathBuf::from("/a"), PathBuf::from("-b")],
        };
        assert_eq!(Setup::parse(setup.arguments().into_iter()), Some(setup));
        assert_eq!(Setup::parse(["1", "2", "3", "x", "/tmp"].map(OsString::from).into_iter()), None);
        assert_eq!(Setup::parse(["1", "2", "3", "4"].map(OsString::from).into_iter()), None);
    }
}
