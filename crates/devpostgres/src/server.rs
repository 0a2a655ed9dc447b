//! The server's life: made, started or found running, and stopped.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::{PostgresError, attempt};
use crate::folder::{Folder, SOCKET_FILE, create_private, create_state_parent, last_lines};
use crate::{DATABASE, Options};

/// How often a state that changes soon is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long a fast shutdown (sessions are ended, then a checkpoint) may take before the server is told to stop at once.
const STOP_FAST: Duration = Duration::from_secs(30);
const STOP_NOW: Duration = Duration::from_secs(10);

/// The log is set aside at a start when it has grown to this.
const LOG_MAX: u64 = 10 * 1024 * 1024;

/// A running server that this process holds the state folder of.
///
/// Dropping it leaves the server running, as kill -9 would: the next [`PrivatePostgres::start`] on the folder finds it.
/// [`PrivatePostgres::stop`] ends it.
#[derive(Debug)]
pub struct PrivatePostgres {
    folder: Folder,
    options: Options,
    url: String,
    pid: Pid,
    /// Absent where the server was found running.
    child: Option<Child>,
    _lock: File,
}

impl PrivatePostgres {
    /// Starts the server in `state_dir`, which is made if needed and belongs to this crate alone, or takes over the one
    /// that a killed process left running there.
    ///
    /// # Errors
    /// See [`PostgresError`]; each says what to do.
    pub fn start(state_dir: &Path, options: &Options) -> Result<Self, PostgresError> {
        let folder = Folder::new(state_dir)?;
        let data = data_version(&folder.data).map(|version| (folder.data.as_path(), version));
        let binaries = Binaries::find(data)?;
        let account = Account::choose()?;
        create_state_parent(&folder.state)?;
        let lock = folder.lock()?;
        folder.check_reachable(&account, &binaries.postgres())?;

        let deadline = Instant::now() + options.start_timeout;
        if let Some((pid, socket)) = find_running(&folder, options, deadline)? {
            let url = url(&socket);
            let (folder, options) = (Folder { socket, ..folder }, options.clone());
            return Ok(Self { folder, options, url, pid, child: None, _lock: lock });
        }
        if data.is_none() {
            initialise(&folder, &binaries, &account, options)?;
        }
        let (child, pid) = bring_up(&folder, &binaries, &account, options, deadline)?;
        let url = url(&folder.socket);
        Ok(Self { folder, options: options.clone(), url, pid, child: Some(child), _lock: lock })
    }

    /// Starts the server again after it has ended, on the data that it had and under the same URL. One that runs, because
    /// somebody else was faster, is taken over.
    ///
    /// # Errors
    /// See [`PostgresError`]. Data that are gone are not made again: who uses the server believes to have them.
    pub fn restart(&mut self) -> Result<(), PostgresError> {
        let Some(version) = data_version(&self.folder.data) else {
            return Err(PostgresError::DataGone { dir: self.folder.data.clone() });
        };
        let binaries = Binaries::find(Some((self.folder.data.as_path(), version)))?;
        let account = Account::choose()?;
        let deadline = Instant::now() + self.options.start_timeout;
        match find_running(&self.folder, &self.options, deadline)? {
            Some((pid, _)) => (self.pid, self.child) = (pid, None),
            None => {
                let (child, pid) = bring_up(&self.folder, &binaries, &account, &self.options, deadline)?;
                (self.pid, self.child) = (pid, Some(child));
            }
        }
        Ok(())
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.folder.log_tail(0)
    }

    /// The server's process.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Takes over the server that a killed process left running on `state_dir`, so that it can be stopped. None where
    /// none runs; nothing is started.
    ///
    /// # Errors
    /// See [`PostgresError`]; a server whose holder lives is [`PostgresError::InUse`].
    pub fn find(state_dir: &Path) -> Result<Option<Self>, PostgresError> {
        let folder = Folder::new(state_dir)?;
        if !folder.data.is_dir() {
            return Ok(None);
        }
        let lock = folder.lock()?;
        let options = Options::default();
        let found = find_running(&folder, &options, Instant::now() + options.start_timeout)?;
        Ok(found.map(|(pid, socket)| {
            let url = url(&socket);
            Self { folder: Folder { socket, ..folder }, options, url, pid, child: None, _lock: lock }
        }))
    }

    /// The URL of the database [`DATABASE`], for a role that may do everything, over the Unix socket.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server was found running, and not started by this process.
    #[must_use]
    pub fn was_running(&self) -> bool {
        self.child.is_none()
    }

    /// Ends all sessions and stops the server, so that the next start needs no recovery.
    ///
    /// # Errors
    /// [`PostgresError::TimedOut`] when the process is still there after about 40 s.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        for (signal, patience) in [(Signal::INT, STOP_FAST), (Signal::QUIT, STOP_NOW)] {
            // The id of a process that has ended may be another's by now.
            if !self.has_ended() {
                // An error means that it is gone already, which is what the loop finds.
                let _ = rustix::process::kill_process(self.pid, signal);
            }
            let deadline = Instant::now() + patience;
            while Instant::now() < deadline {
                if self.has_ended() {
                    // Where it is outside the state folder, nobody else would remove it.
                    let _ = std::fs::remove_dir(&self.folder.socket);
                    return Ok(());
                }
                std::thread::sleep(POLL);
            }
        }
        Err(PostgresError::TimedOut {
            what: "stop",
            pid: self.pid.as_raw_nonzero().get(),
            seconds: (STOP_FAST + STOP_NOW).as_secs(),
            tail: self.folder.log_tail(0),
            log: self.folder.log,
        })
    }

    /// Whether the server has ended, by itself or because somebody killed it.
    pub fn has_ended(&mut self) -> bool {
        match &mut self.child {
            // Also where it cannot be asked: then it is not a child of ours any more.
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !is_server_of(self.pid, &self.folder.data),
        }
    }
}

/// The major version that made `data`, where there is data.
fn data_version(data: &Path) -> Option<u32> {
    std::fs::read_to_string(data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

/// The file by which a server says where and how it runs.
struct PidFile {
    pid: Pid,
    socket: PathBuf,
    ready: bool,
}

impl PidFile {
    /// What `DATA/postmaster.pid` says. None where it is not there, or is being written.
    fn read(data: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(data.join("postmaster.pid")).ok()?)
    }

    /// Its lines: process, data folder, start, port, socket folder, address, shared memory, state.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = Pid::from_raw(lines.next()?.trim().parse().ok().filter(|pid| *pid > 0)?)?;
        let socket = PathBuf::from(lines.nth(3).unwrap_or_default());
        let ready = lines.nth(2).is_some_and(|state| state.trim() == "ready");
        Some(Self { pid, socket, ready })
    }

    fn serves(&self) -> bool {
        self.ready && UnixStream::connect(self.socket.join(SOCKET_FILE)).is_ok()
    }
}

/// Whether `pid` is a server over `data`. A process id alone says nothing: it may have been given to another program
/// since. A process that has ended and was not reaped has no command line, and is none.
fn is_server_of(pid: Pid, data: &Path) -> bool {
    let raw = pid.as_raw_nonzero().get();
    let command = if Path::new("/proc/self/cmdline").exists() {
        std::fs::read(format!("/proc/{raw}/cmdline")).unwrap_or_default()
    } else {
        let output =
            std::process::Command::new("ps").args(["-o", "command=", "-p"]).arg(raw.to_string()).output();
        output.map(|output| output.stdout).unwrap_or_default()
    };
    let data = data.as_os_str().as_encoded_bytes();
    command.windows(data.len()).any(|window| window == data)
}

/// The server that runs already, waiting until it serves or is gone where it is on the way to either.
fn find_running(
    folder: &Folder,
    options: &Options,
    deadline: Instant,
) -> Result<Option<(Pid, PathBuf)>, PostgresError> {
    while let Some(found) = PidFile::read(&folder.data) {
        if !is_server_of(found.pid, &folder.data) {
            // PostgreSQL would take any living process with this id for a server, and refuse to start.
            let path = folder.data.join("postmaster.pid");
            attempt("remove the stale", &path, std::fs::remove_file(&path))?;
            return Ok(None);
        }
        if found.serves() {
            return Ok(Some((found.pid, found.socket)));
        }
        if Instant::now() >= deadline {
            return Err(timed_out(folder, options, found.pid, 0));
        }
        std::thread::sleep(POLL);
    }
    Ok(None)
}

/// Starts the server on data that are there.
fn bring_up(
    folder: &Folder,
    binaries: &Binaries,
    account: &Account,
    options: &Options,
    deadline: Instant,
) -> Result<(Child, Pid), PostgresError> {
    create_private(&folder.socket, account)?;
    clear_socket(folder)?;
    attempt("write", &folder.config, std::fs::write(&folder.config, configuration(folder, options)))?;
    launch(folder, binaries, account, options, deadline)
}

/// Removes what a killed server left of its socket: its lock file has the same weakness as `postmaster.pid`.
fn clear_socket(folder: &Folder) -> Result<(), PostgresError> {
    for name in [SOCKET_FILE.to_owned(), format!("{SOCKET_FILE}.lock")] {
        let path = folder.socket.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return attempt("remove the stale", &path, Err(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn timed_out(folder: &Folder, options: &Options, pid: Pid, log_from: u64) -> PostgresError {
    PostgresError::TimedOut {
        what: "become ready",
        pid: pid.as_raw_nonzero().get(),
        seconds: options.start_timeout.as_secs(),
        log: folder.log.clone(),
        tail: folder.log_tail(log_from),
    }
}

/// Makes the database cluster. It gets its name when it is whole: a crash on the way leaves nothing that looks like one.
fn initialise(
    folder: &Folder,
    binaries: &Binaries,
    account: &Account,
    options: &Options,
) -> Result<(), PostgresError> {
    let unfinished = &folder.unfinished;
    if unfinished.symlink_metadata().is_ok() {
        attempt("remove", unfinished, std::fs::remove_dir_all(unfinished))?;
    }
    create_private(unfinished, account)?;

    let mut initdb = account.command(&binaries.initdb(), unfinished);
    initdb.arg("-D").arg(unfinished).args(["-U", DATABASE, "--encoding=UTF8", "--locale=C"]);
    // Who reaches the socket's folder is this user or root; over the network there is nothing to reach.
    initdb.args(["--auth-local=trust", "--auth-host=reject"]);
    if !options.fsync {
        initdb.arg("--no-sync");
    }
    run(initdb, "initdb", b"")?;

    // In single-user mode, since psql is not part of every installation of a server.
    let mut single = account.command(&binaries.postgres(), unfinished);
    single.args(["--single", "-D"]).arg(unfinished);
    if !options.fsync {
        single.arg("-F");
    }
    single.arg("postgres");
    run(single, "postgres --single", format!("CREATE DATABASE {DATABASE}\n").as_bytes())?;
    attempt("give its name to", unfinished, std::fs::rename(unfinished, &folder.data))
}

/// Runs a program to its end with `input`.
fn run(mut command: std::process::Command, program: &str, input: &[u8]) -> Result<(), PostgresError> {
    let path = PathBuf::from(command.get_program());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = attempt("run", &path, command.spawn())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading says why in its output.
        let _ = stdin.write_all(input);
    }
    let output = attempt("wait for", &path, child.wait_with_output())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // Single-user mode goes on after a statement that failed, and then ends well.
    if output.status.success() && !text.contains("ERROR:") {
        return Ok(());
    }
    Err(PostgresError::Program {
        program: program.to_owned(),
        status: output.status,
        output: last_lines(&text, 20),
    })
}

/// The whole configuration. Quotes in paths are doubled, backslashes escaped; control characters were refused.
fn configuration(folder: &Folder, options: &Options) -> String {
    let quoted = |path: &Path| path.display().to_string().replace('\\', r"\\").replace('\'', "''");
    // synchronous_commit stays on: without fsync it costs next to nothing, and kill -9 loses no commit.
    let durable = if options.fsync { "on" } else { "off" };
    let mut text = String::from("# Written at each start; changes made here are lost.\n");
    let _ = write!(
        text,
        "listen_addresses = ''\n\
         unix_socket_directories = '{}'\n\
         unix_socket_permissions = 0700\n\
         port = 5432\n\
         max_connections = {}\n\
         fsync = {durable}\n\
         full_page_writes = {durable}\n\
         synchronous_commit = on\n\
         timezone = 'UTC'\n\
         log_timezone = 'UTC'\n\
         log_line_prefix = '%m [%p] %d '\n\
         cluster_name = 'roadstead-private'\n",
        quoted(&folder.socket),
        options.max_connections,
    );
    if options.count_statements {
        // Of all tests that run beside each other: those that come last push out others.
        text.push_str(
            "shared_preload_libraries = 'pg_stat_statements'\npg_stat_statements.max = 50000\npg_stat_statements.save = off\n",
        );
    }
    text
}

/// Starts the server and waits until it serves.
fn launch(
    folder: &Folder,
    binaries: &Binaries,
    account: &Account,
    options: &Options,
    deadline: Instant,
) -> Result<(Child, Pid), PostgresError> {
    if std::fs::metadata(&folder.log).is_ok_and(|log| log.len() > LOG_MAX) {
        let aside = folder.log.with_extension("log.1");
        attempt("set aside", &folder.log, std::fs::rename(&folder.log, aside))?;
    }
    loop {
        let open = File::options().append(true).create(true).mode(0o600).open(&folder.log);
        let log = attempt("open", &folder.log, open)?;
        let from = log.metadata().map_or(0, |metadata| metadata.len());
        let clone = attempt("open", &folder.log, log.try_clone())?;
        let program = binaries.postgres();
        let mut command = account.command(&program, &folder.data);
        command.arg("-D").arg(&folder.data);
        command.arg("-c").arg(format!("config_file={}", folder.config.display()));
        // A group of its own: Ctrl-C at the terminal is for the hub, which still needs its database to drain.
        command.stdout(clone).stderr(log).process_group(0);
        let mut child = attempt("run", &program, command.spawn())?;
        match wait_ready(folder, options, &mut child, deadline, from)? {
            Ok(pid) => return Ok((child, pid)),
            Err(status) => {
                let tail = folder.log_tail(from);
                // Sessions of a server that was killed take a moment to notice, and hold its shared memory until then.
                let passing = tail.contains("shared memory block") && Instant::now() < deadline;
                if !passing {
                    return Err(PostgresError::Exited { status, log: folder.log.clone(), tail });
                }
                std::thread::sleep(POLL);
            }
        }
    }
}

/// Waits until the server serves (its process), or has ended (its status).
fn wait_ready(
    folder: &Folder,
    options: &Options,
    child: &mut Child,
    deadline: Instant,
    log_from: u64,
) -> Result<Result<Pid, ExitStatus>, PostgresError> {
    let pid = Pid::from_child(child);
    loop {
        if let Some(status) = attempt("wait for", &folder.data, child.try_wait())? {
            return Ok(Err(status));
        }
        if PidFile::read(&folder.data).is_some_and(|found| found.pid == pid && found.serves()) {
            return Ok(Ok(pid));
        }
        if Instant::now() >= deadline {
            // Not left behind: recovery goes on where it was at the next start.
            let _ = child.kill();
            let _ = child.wait();
            return Err(timed_out(folder, options, pid, log_from));
        }
        std::thread::sleep(POLL);
    }
}

/// A URL that libpq and sqlx both understand: the host in the query wins over the one in its place.
fn url(socket: &Path) -> String {
    let mut host = String::new();
    for byte in socket.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            host.push(char::from(*byte));
        } else {
            let _ = write!(host, "%{byte:02X}");
        }
    }
    format!("postgres://{DATABASE}@localhost/{DATABASE}?host={host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_server_says_of_itself() {
        let text = "4711\n/s/data\n1700000000\n5432\n/s/socket\n\n  5432001    65536\nready   \n";
        let file = PidFile::parse(text).unwrap();
        assert_eq!(file.pid, Pid::from_raw(4711).unwrap());
        assert_eq!(file.socket, Path::new("/s/socket"));
        assert!(file.ready);
        assert!(!PidFile::parse(&text.replace("ready   ", "starting")).unwrap().ready);
        // It is written line by line, and may be anything after a crash of the machine.
        for text in ["", "\n", "x\n", "-1\n", "0\n"] {
            assert!(PidFile::parse(text).is_none(), "{text:?}");
        }
        assert!(!PidFile::parse("4711\n/s/data\n").unwrap().ready);
    }

    #[test]
    fn quotes_paths() {
        let mut folder = Folder::new(Path::new("/it's")).unwrap();
        folder.socket = PathBuf::from(r"/it's\here");
        let text = configuration(&folder, &Options::default());
        assert!(text.contains(r"unix_socket_directories = '/it''s\\here'"), "{text}");
        assert!(text.contains("fsync = on") && text.contains("max_connections = 100"), "{text}");
        assert!(url(Path::new("/a b?&")).ends_with("host=/a%20b%3F%26"));
    }
}
