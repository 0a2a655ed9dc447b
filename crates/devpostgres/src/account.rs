//! Which user the server runs as.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::PostgresError;

/// The user that owns the data and runs the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) name: String,
    /// Whether this process must change to it: true for root only.
    pub(crate) switch: bool,
}

impl Account {
    /// This process's user or, for root, `postgres` or else `nobody`.
    pub(crate) fn choose() -> Result<Self, PostgresError> {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            let gid = rustix::process::getegid();
            let name = format!("with id {}", uid.as_raw());
            return Ok(Self { uid: uid.as_raw(), gid: gid.as_raw(), name, switch: false });
        }
        ["postgres", "nobody"].into_iter().find_map(Self::look_up).ok_or(PostgresError::NoUser)
    }

    /// Asks the system's `id`, which knows every user database that the machine has.
    fn look_up(name: &str) -> Option<Self> {
        let ask = |flag: &str| -> Option<u32> {
            let output = Command::new("id").args([flag, name]).stderr(Stdio::null()).output().ok()?;
            let id = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
            (output.status.success() && id != 0).then_some(id)
        };
        Some(Self { uid: ask("-u")?, gid: ask("-g")?, name: name.to_owned(), switch: true })
    }

    /// A command that runs as this user in `dir`, with an environment that holds nothing of this process's own: neither
    /// its secrets nor `PG…` variables that would lead it elsewhere.
    pub(crate) fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").env("HOME", dir);
        for kept in ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command.current_dir(dir).stdin(Stdio::null());
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }
}
