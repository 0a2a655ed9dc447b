//! The folders: who may enter which, where the socket goes, and the lock.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown,
};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::error::{PostgresError, attempt};

/// While this process starts a program, the child has copies of its open files until the program runs, and with them the lock of a
/// folder that was given back in the meantime.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The socket's file name: PostgreSQL makes it from the port, which is only a name where nothing listens on TCP.
pub(crate) const SOCKET_FILE: &str = ".s.PGSQL.5432";

/// The longest path of a Unix socket on Linux; macOS has four bytes less.
const SOCKET_PATH_MAX: usize = 103;

/// The paths in a state folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) state: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) unfinished: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) config: PathBuf,
    pub(crate) log: PathBuf,
}

impl Folder {
    pub(crate) fn new(state: &Path) -> Result<Self, PostgresError> {
        let state = attempt("resolve", state, std::path::absolute(state))?;
        if state.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(PostgresError::BadPath { dir: state });
        }
        Ok(Self {
            data: state.join("data"),
            unfinished: state.join("data.unfinished"),
            socket: socket_dir(&state),
            config: state.join("postgresql.conf"),
            log: state.join("postgres.log"),
            state,
        })
    }

    /// Takes the folder for this process. The lock goes with the process, also by kill -9.
    pub(crate) fn lock(&self) -> Result<File, PostgresError> {
        let path = self.state.join("lock");
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = attempt("open", &path, open)?;
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_POLL),
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    let holder = if holder.is_empty() { "another process" } else { holder.trim() };
                    return Err(PostgresError::InUse { dir: self.state.clone(), holder: holder.to_owned() });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(PostgresError::Io { action: "lock", path, source });
                }
            }
        }
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let holder = format!("{program}, process {}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        attempt("write", &path, written)?;
        Ok(file)
    }

    /// Fails, naming the folder that is in the way, where `account` cannot reach the state folder.
    pub(crate) fn check_reachable(&self, account: &Account, program: &Path) -> Result<(), PostgresError> {
        if !account.switch {
            return Ok(());
        }
        // A real attempt knows access lists and mount options, which mode bits do not.
        let enter = |dir: &Path| {
            let mut command = account.command(program, dir);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()
        };
        attempt("run as another user", program, enter(Path::new("/")))?;
        match enter(&self.state) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let mut ancestors: Vec<&Path> = self.state.ancestors().collect();
                ancestors.reverse();
                let blocked = ancestors.into_iter().find(|dir| enter(dir).is_err()).unwrap_or(&self.state);
                Err(PostgresError::Unreachable {
                    dir: self.state.clone(),
                    blocked: blocked.to_owned(),
                    user: account.name.clone(),
                })
            }
            Err(source) => Err(PostgresError::Io { action: "enter", path: self.state.clone(), source }),
        }
    }

    /// What the log has from byte `from` on: its last lines.
    pub(crate) fn log_tail(&self, from: u64) -> String {
        const BYTES: u64 = 8 * 1024;
        const LINES: usize = 20;
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(from.max(length.saturating_sub(BYTES))))?;
            let mut bytes = Vec::new();
            file.take(BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        last_lines(&text, LINES)
    }
}

/// The end of `text`, or a note that there is none.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "(it printed nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// See [`crate::create_state_parent`].
pub(crate) fn create_state_parent(path: &Path) -> Result<(), PostgresError> {
    if path.is_dir() {
        return Ok(());
    }
    // Root's own: others may pass through to what is theirs, and list nothing.
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    attempt("make folder", path, DirBuilder::new().recursive(true).mode(mode).create(path))?;
    // The process's umask may have taken away what the server's user needs.
    attempt("set the mode of", path, std::fs::set_permissions(path, Permissions::from_mode(mode)))
}

/// Makes a folder for `account` alone or, where it is there, makes sure that it is that.
pub(crate) fn create_private(path: &Path, account: &Account) -> Result<(), PostgresError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) if account.switch => {
            attempt("change the owner of", path, lchown(path, Some(account.uid), Some(account.gid)))
        }
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let held = attempt("examine", path, std::fs::symlink_metadata(path))?;
            if held.is_dir() && held.uid() == account.uid && held.mode() & 0o077 == 0 {
                return Ok(());
            }
            Err(PostgresError::ForeignFolder { dir: path.to_owned(), user: account.name.clone() })
        }
        Err(source) => Err(PostgresError::Io { action: "make folder", path: path.to_owned(), source }),
    }
}

/// Where the socket goes: into the state folder or, where its path is too long or has characters that a list of
/// folders in a configuration file cannot hold, into a short one named after it.
fn socket_dir(state: &Path) -> PathBuf {
    let dir = state.join("socket");
    let text = dir.as_os_str().as_encoded_bytes();
    let plain = text.iter().all(|c| c.is_ascii_alphanumeric() || b"/._-".contains(c));
    if plain && text.len() + 1 + SOCKET_FILE.len() <= SOCKET_PATH_MAX {
        return dir;
    }
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    let root = rustix::process::geteuid().is_root();
    let parent = if root && Path::new("/run").is_dir() { "/run" } else { "/tmp" };
    Path::new(parent).join(format!("roadstead-pg-{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_goes_elsewhere_where_its_path_would_not_fit() {
        assert_eq!(socket_dir(Path::new("/s/pg")), Path::new("/s/pg/socket"));
        for state in [format!("/{}", "x".repeat(90)), "/with space".to_owned(), "/a,b".to_owned()] {
            let dir = socket_dir(Path::new(&state));
            assert!(!dir.starts_with(&state), "{}", dir.display());
            assert!(dir.join(SOCKET_FILE).as_os_str().len() <= SOCKET_PATH_MAX);
            assert_eq!(dir, socket_dir(Path::new(&state)), "the same folder has the same socket");
        }
    }

    #[test]
    fn refuses_a_path_that_would_add_lines_to_the_configuration() {
        let error = Folder::new(Path::new("/a\nlisten_addresses = '*'")).unwrap_err();
        assert!(matches!(error, PostgresError::BadPath { .. }), "{error}");
    }

    #[test]
    fn a_private_folder_must_not_be_a_link_or_open_to_others() {
        let temp = tempfile::tempdir().unwrap();
        let account = Account {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            name: "self".to_owned(),
            switch: false,
        };
        let ours = temp.path().join("ours");
        create_private(&ours, &account).unwrap();
        create_private(&ours, &account).unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(matches!(create_private(&link, &account), Err(PostgresError::ForeignFolder { .. })));
        std::fs::set_permissions(&ours, Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(create_private(&ours, &account), Err(PostgresError::ForeignFolder { .. })));
    }

    #[test]
    fn keeps_the_last_lines() {
        assert_eq!(last_lines("a\n\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines(" \n", 2), "(it printed nothing)");
    }
}
