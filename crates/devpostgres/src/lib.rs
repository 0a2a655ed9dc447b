//! A private PostgreSQL for development, tests and demos, made from binaries that the system already has.
//!
//! [`PrivatePostgres::start`] finds the binaries, makes a database cluster in a folder of its own and serves it on a
//! Unix socket that only this user (and root) can reach. It needs no configuration and touches no other PostgreSQL of
//! the machine. Everything here blocks: asynchronous callers use their runtime's thread for blocking work.
//!
//! ```text
//! STATE/lock              held while a process uses the folder; says which
//! STATE/postgresql.conf   written again at each start
//! STATE/postgres.log      what the server prints
//! STATE/data/             the database cluster  (the server's user only)
//! STATE/socket/           the Unix socket       (the server's user only)
//! ```
//!
//! PostgreSQL refuses to run as root. Started by root, the server runs as `postgres` or else `nobody`, and root writes
//! only into folders that are root's, so that this user cannot make root follow a link.

mod account;
mod binaries;
mod error;
mod folder;
mod server;

use std::path::Path;
use std::time::Duration;

pub use error::PostgresError;
pub use server::PrivatePostgres;

/// How the server is set up. Every start applies it again, except to a server that is found running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether commits reach the disk. Without it tests are several times faster, and a power failure (not a crash of
    /// the process) can corrupt the data.
    pub fsync: bool,
    /// How many sessions may be open at once.
    pub max_connections: u16,
    /// Whether the server counts statements, for the extension `pg_stat_statements`; it must be installed.
    pub count_statements: bool,
    /// How long a start may take, crash recovery included.
    pub start_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fsync: true,
            max_connections: 100,
            count_statements: false,
            start_timeout: Duration::from_secs(60),
        }
    }
}

/// The name of the database and of its only role, a superuser.
pub const DATABASE: &str = "roadstead";

/// Says whether binaries can be found, and what to do where not, without starting anything.
///
/// # Errors
/// [`PostgresError::NotInstalled`] names the commands that install PostgreSQL.
pub fn check_installed() -> Result<(), PostgresError> {
    binaries::Binaries::find(None).map(|_| ())
}

/// Makes a folder that can hold a `STATE` of this crate: reachable for the server's user also when root makes it, and
/// closed to reading by others. An existing folder stays as it is.
///
/// # Errors
/// When the folder cannot be made.
pub fn create_state_parent(path: &Path) -> Result<(), PostgresError> {
    folder::create_state_parent(path)
}
