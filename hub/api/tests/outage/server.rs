//! A PostgreSQL that can be hurt.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use roadstead_devpostgres::{Options, PrivatePostgres};
use roadstead_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use crate::told::PATIENCE;

/// A folder for servers, which the account that they run as can reach.
pub(crate) fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("rs").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    Ok(folder)
}

/// A server that can be hurt.
pub(crate) struct Server {
    state: PathBuf,
    running: Option<PrivatePostgres>,
}

impl Server {
    pub(crate) async fn start(state: &Path) -> Result<Self> {
        let mut server = Self { state: state.to_owned(), running: None };
        server.start_again().await?;
        Ok(server)
    }

    pub(crate) async fn start_again(&mut self) -> Result<()> {
        let (state, before) = (self.state.clone(), self.running.take());
        let started = tokio::task::spawn_blocking(move || {
            if let Some(before) = before {
                before.stop()?;
            }
            PrivatePostgres::start(
                &state,
                &Options { fsync: false, max_connections: 40, ..Options::default() },
            )
        });
        self.running = Some(started.await??);
        Ok(())
    }

    pub(crate) fn url(&self) -> Result<String> {
        Ok(self.running.as_ref().context("a server")?.url().to_owned())
    }

    /// The server's process and all that serve sessions.
    fn processes(&self) -> Result<Vec<Pid>> {
        let text = std::fs::read_to_string(self.state.join("data/postmaster.pid"))?;
        let postmaster: i32 = text.lines().next().context("a process")?.trim().parse()?;
        let mut found = vec![postmaster];
        for entry in std::fs::read_dir("/proc")? {
            let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
            // PID (NAME) STATE PARENT …
            let (Some((pid, _)), Some((_, rest))) = (stat.split_once(' '), stat.rsplit_once(')')) else {
                continue;
            };
            if rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) == Some(postmaster) {
                found.push(pid.parse()?);
            }
        }
        Ok(found.into_iter().filter_map(Pid::from_raw).collect())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        for pid in self.processes()? {
            // Some end with the first of them.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    pub(crate) async fn execute(&self, statement: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url()?).await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }
}

impl Server {
    /// The folder of its socket.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        let text = std::fs::read_to_string(self.state.join("data/postmaster.pid"))?;
        Ok(text.lines().nth(4).context("the socket's folder")?.into())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(PrivatePostgres::has_ended)
    }

    async fn value(&self, query: &'static str) -> Result<String> {
        let mut connection = PgConnection::connect(&self.url()?).await?;
        let value = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(value)
    }

    /// Puts a rule for who may connect before the others. Once this returns, it holds for every new connection.
    pub(crate) async fn put_rule(&self, rule: &str) -> Result<()> {
        // What a process of the server knows was read by the one that it was forked from.
        const LOADED: &str = "SELECT pg_conf_load_time()::text";
        let rules = self.state.join("data/pg_hba.conf");
        let (before, loaded) = (std::fs::read_to_string(&rules)?, self.value(LOADED).await?);
        std::fs::write(&rules, format!("{rule}\n{before}"))?;
        self.execute("SELECT pg_reload_conf()").await?;
        eventually("the server has read its rules", PATIENCE, || async {
            ensure!(self.value(LOADED).await? != loaded, "those of {loaded} hold");
            Ok(())
        })
        .await
    }

    /// A server that follows this one.
    pub(crate) async fn standby(&self, state: &Path) -> Result<Self> {
        let programs =
            PathBuf::from(self.value("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await?);
        self.put_rule("local replication all trust").await?;
        roadstead_devpostgres::create_state_parent(state)?;
        let data = state.join("data");
        let mut copy = Command::new(programs.join("pg_basebackup"));
        copy.args(["--username=roadstead", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-h"]);
        run(copy.arg(self.socket()?).arg("-D").arg(&data))?;
        if rustix::process::geteuid().is_root() {
            let mut owner = std::ffi::OsString::from("--reference=");
            owner.push(self.state.join("data"));
            run(Command::new("chown").arg("-R").arg(owner).arg(&data))?;
        }
        Self::start(state).await
    }

    /// Waits until this standby has everything that `primary` has.
    pub(crate) async fn has_all_of(&self, primary: &Self) -> Result<()> {
        let written = primary.value("SELECT pg_current_wal_flush_lsn()::text").await?;
        eventually("the standby has followed", PATIENCE, || async {
            let there = self.value("SELECT pg_last_wal_replay_lsn()::text").await?;
            ensure!(position(&there) >= position(&written), "it is at {there}, not at {written}");
            Ok(())
        })
        .await
    }
}

/// A place in a log: two numbers in hexadecimal.
fn position(text: &str) -> Option<(u64, u64)> {
    let (high, low) = text.split_once('/')?;
    Some((u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?))
}

/// A small file system of its own.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// None where this user may not mount.
    pub(crate) fn mount(path: &Path, bytes: u64) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        std::fs::create_dir(path)?;
        let options = format!("size={bytes},mode=0711");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "roadstead-test"]).arg(path))?;
        Ok(Some(Self(path.to_owned())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all room that is left, with a file.
    pub(crate) fn fill(&self) -> Result<PathBuf> {
        let path = self.0.join("ballast");
        let mut file = std::fs::File::create(&path)?;
        let piece = vec![0; 64 << 10];
        loop {
            match file.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(path),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also where a server still has files there.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.signal(Signal::CONT);
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
