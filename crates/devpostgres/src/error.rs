//! What can go wrong, in words that say what to do next.

use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a private PostgreSQL could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// No binaries of a usable version.
    #[error(
        "no PostgreSQL {minimum} or newer found ({searched}). Install one:\n  \
         Debian, Ubuntu:  apt-get install postgresql\n  \
         Fedora, RHEL:    dnf install postgresql-server\n  \
         macOS:           brew install postgresql@17\n\
         or set ROADSTEAD_POSTGRES_BIN to the folder that holds initdb and postgres"
    )]
    NotInstalled {
        /// The oldest major version that will do.
        minimum: u32,
        /// Where it was looked for and what was found there.
        searched: String,
    },
    /// The data was made by a major version that is no longer installed.
    #[error(
        "the data in {} was created by PostgreSQL {data}, which is not installed (found: {found}). Install PostgreSQL \
         {data}, or remove {} to start over without the data", .dir.display(), .dir.display()
    )]
    OtherVersion {
        /// The data folder.
        dir: PathBuf,
        /// The data's major version.
        data: u32,
        /// The versions that are installed.
        found: String,
    },
    /// The data are gone while the server was in use.
    #[error("the data in {} are gone; put them back, or start with another state folder", .dir.display())]
    DataGone {
        /// The data folder.
        dir: PathBuf,
    },
    /// Another process uses the folder.
    #[error(
        "{} is in use by {holder}. Stop that process, or choose another state folder", .dir.display()
    )]
    InUse {
        /// The state folder.
        dir: PathBuf,
        /// The process that holds it, as it introduced itself.
        holder: String,
    },
    /// Root's folder cannot be entered by the user that the server must run as.
    #[error(
        "PostgreSQL does not run as root, and user {user} cannot enter {}, which is in the way to {}. \
         Choose a state folder elsewhere, or allow it: chmod o+x {}",
        .blocked.display(), .dir.display(), .blocked.display()
    )]
    Unreachable {
        /// The folder that the server needs.
        dir: PathBuf,
        /// The first folder on the way that cannot be entered.
        blocked: PathBuf,
        /// Who cannot enter it.
        user: String,
    },
    /// Root, and no other user to run as.
    #[error(
        "PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as"
    )]
    NoUser,
    /// The socket's folder is not ours alone.
    #[error("{} is not a folder that belongs to user {user} alone; remove it and start again", .dir.display())]
    ForeignFolder {
        /// The folder.
        dir: PathBuf,
        /// Whose it must be.
        user: String,
    },
    /// A path that cannot stand in a configuration file.
    #[error("the state folder {} has a control character or is not UTF-8; choose another", .dir.display())]
    BadPath {
        /// The state folder.
        dir: PathBuf,
    },
    /// A program of PostgreSQL failed.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// Which one.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it printed.
        output: String,
    },
    /// The server ended while it was starting.
    #[error("PostgreSQL ended while starting ({status}); the end of {}:\n{tail}", .log.display())]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// The server did not become ready, or did not stop, in time.
    #[error("PostgreSQL (process {pid}) did not {what} within {seconds} s; the end of {}:\n{tail}", .log.display())]
    TimedOut {
        /// What it should have done.
        what: &'static str,
        /// Its process.
        pid: i32,
        /// How long it was waited for.
        seconds: u64,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// A file, folder or process could not be worked with.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Gives an I/O result its context: `attempt("read", path)(result)`.
pub(crate) fn attempt<T>(
    action: &'static str,
    path: &std::path::Path,
    result: std::io::Result<T>,
) -> Result<T, PostgresError> {
    result.map_err(|source| PostgresError::Io { action, path: path.to_owned(), source })
}
