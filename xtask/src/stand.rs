//! What tests and measurements run against: a Postgres and two clusters, all of it one run's own.
//!
//! | variable | what programs find there |
//! |---|---|
//! | `ROADSTEAD_TEST_DATABASE_URL` | a Postgres whose role may make databases |
//! | `ROADSTEAD_TEST_KUBECONFIG_1`, `_2` | two clusters, as their administrator |
//! | `ROADSTEAD_TEST_KUBECTL` | kubectl |
//! | `ROADSTEAD_TEST_CLIENTS` | foreign clients: bin/flux, bin/sops, bin/age-keygen, python/bin/python with `kubernetes`; tests only |
//! | `ROADSTEAD_TEST_FLUX` | bin/kustomize-controller and bin/source-controller, and crds.yaml with what they work on; tests only |
//! | `ROADSTEAD_TEST_OIDC` | node_modules with an OpenID provider; tests only |
//! | `ROADSTEAD_TEST_HELM` | bin/helm; tests only, which build it where that is not said |
//! | `ROADSTEAD_TEST_NATS` | bin/nats-server; tests only, which build it where that is not said |
//! | `ROADSTEAD_TEST_KUBELOGIN` | bin/kubelogin; tests only |
//! | `ROADSTEAD_TEST_PROMETHEUS` | prometheus and promtool; tests only |
//! | `ROADSTEAD_TEST_LANDED_AGENT` | the agent of the last landed version; tests only |
//! | `ROADSTEAD_TEST_BIN_DIR` | the built programs: roadstead-hub, roadstead-agent, roadstead, gitserver |
//!
//! A run that was killed leaves its Postgres and clusters behind: the next one removes them. One stand may be kept for
//! tests that are run by hand: [`kept`].

pub(crate) mod kept;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use roadstead_devpostgres::{Options, PrivatePostgres};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::phases::Phases;
use crate::process::Runner;

/// Sessions for all tests together; each hub under test holds a pool.
const MAX_CONNECTIONS: u16 = 300;

/// The servers of one run.
pub(crate) struct Servers {
    postgres: PrivatePostgres,
    kubeconfigs: Vec<PathBuf>,
    kubectl: PathBuf,
    temporary: PathBuf,
}

impl Servers {
    /// The kubeconfig of the first cluster; it lies in the cluster's folder.
    pub(crate) fn first_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfigs.first().map(PathBuf::as_path)
    }

    /// Tells a program where everything is.
    pub(crate) fn tell(&self, command: &mut Command, bin_dir: &Path) {
        command.envs(self.variables(bin_dir));
        // What a killed program leaves goes with the run.
        command.env("TMPDIR", &self.temporary);
    }

    /// Where everything is, but for the foreign clients.
    fn variables(&self, bin_dir: &Path) -> Vec<(String, OsString)> {
        let variable = |name: &str, value: OsString| (format!("ROADSTEAD_TEST_{name}"), value);
        let mut variables = vec![
            variable("DATABASE_URL", self.postgres.url().into()),
            variable("KUBECTL", self.kubectl.clone().into()),
            variable("BIN_DIR", bin_dir.into()),
        ];
        for (number, kubeconfig) in (1..).zip(&self.kubeconfigs) {
            variables.push(variable(&format!("KUBECONFIG_{number}"), kubeconfig.into()));
        }
        variables
    }
}

/// What servers are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Tests: two clusters, and nothing waits for the disk.
    Tests,
    /// Figures: one cluster without nodes, and all that is written is on the disk, as in production.
    Figures,
}

/// Starts the servers, does `work` with them, and takes all of it down again, whatever came of the work.
pub(crate) fn with_servers(
    runner: &Runner,
    cluster: &Devcluster,
    phases: &mut Phases,
    purpose: Purpose,
    work: impl FnOnce(&Servers, &mut Phases) -> Result<()>,
) -> Result<()> {
    let stand = Stand::new()?;
    let result = stand.start(runner, cluster, phases, purpose).and_then(|servers| {
        work(&servers, phases)?;
        Ok(servers.postgres.stop()?)
    });
    runner.begin_cleanup();
    let cleaned = phases.time(runner, "take all down", || stand.take_down(runner, cluster));
    phases.print();
    // Of two failures the work's is what matters; the other is shown, too.
    match (result, cleaned) {
        (Err(error), Err(cleanup)) => {
            eprintln!("error: {cleanup:#}");
            Err(error)
        }
        (result, cleaned) => result.and(cleaned),
    }
}

/// What a run has outside the repository, recorded in the cache so that it can be found when the run was killed.
struct Stand {
    id: String,
    record: PathBuf,
    /// Postgres, and the tests' temporary files: not in the cache, since root's home cannot be entered by the user that
    /// Postgres runs as.
    folder: PathBuf,
    /// Held while the run lives.
    _lock: File,
}

impl Stand {
    fn new() -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Self::named(format!("{}-{}", now.as_secs(), std::process::id()))
    }

    fn named(id: String) -> Result<Self> {
        let record = cache::folder("test-runs")?.join(&id);
        let folder = std::env::temp_dir().join(format!("roadstead-test-{id}"));
        std::fs::create_dir(&record).with_context(|| format!("make {}", record.display()))?;
        let lock = Self::lock(&record)?.context("this run's own record is locked")?;
        let path = folder.to_str().context("the folder for temporary files has a name that is not UTF-8")?;
        std::fs::write(record.join("folder"), path).context("write the run's record")?;
        roadstead_devpostgres::create_state_parent(&folder)?;
        Ok(Self { id, record, folder, _lock: lock })
    }

    /// The record's lock, or None while its run lives.
    fn lock(record: &Path) -> Result<Option<File>> {
        let path = record.join("lock");
        let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// The stand of a run that has ended: one that was killed, or the one that is kept.
    fn left(record: PathBuf) -> Result<Option<Self>> {
        let Some(lock) = Self::lock(&record)? else { return Ok(None) };
        let id = record.file_name().context("a record has a name")?.to_string_lossy().into_owned();
        let folder = std::fs::read_to_string(record.join("folder")).unwrap_or_default();
        Ok(Some(Self { id, record, folder: folder.into(), _lock: lock }))
    }

    fn start(
        &self,
        runner: &Runner,
        cluster: &Devcluster,
        phases: &mut Phases,
        purpose: Purpose,
    ) -> Result<Servers> {
        let fsync = purpose == Purpose::Figures;
        let options = Options {
            fsync,
            max_connections: MAX_CONNECTIONS,
            count_statements: purpose == Purpose::Tests,
            ..Options::default()
        };
        let postgres = phases.time(runner, "start Postgres", || {
            Ok(PrivatePostgres::start(&self.folder.join("postgres"), &options)?)
        })?;
        let kubeconfigs = phases.time(runner, "start clusters", || {
            let [first, second] = self.clusters();
            Ok(match purpose {
                Purpose::Tests => vec![cluster.up(runner, &first, &[])?, cluster.up(runner, &second, &[])?],
                Purpose::Figures => vec![cluster.up(runner, &first, &["--no-nodes", "--durable"])?],
            })
        })?;
        Ok(Servers { postgres, kubeconfigs, kubectl: cluster.kubectl(), temporary: self.temporary()? })
    }

    /// Where tests put temporary files.
    fn temporary(&self) -> Result<PathBuf> {
        let path = self.folder.join("tmp");
        roadstead_devpostgres::create_state_parent(&path)?;
        Ok(path)
    }

    fn clusters(&self) -> [String; 2] {
        [1, 2].map(|number| format!("test-{}-{number}", self.id))
    }

    /// Where tests have clusters of their own (`tests/src/own_cluster.rs`).
    fn own_clusters(&self) -> PathBuf {
        self.folder.join("tmp/clusters")
    }

    /// Ends and removes all of it; goes on after a failure, so that one part does not keep the others.
    fn take_down(&self, runner: &Runner, cluster: &Devcluster) -> Result<()> {
        let clusters =
            cluster.down(runner, &self.clusters()).and(cluster.down_all(runner, &self.own_clusters()));
        let mut files = Ok(());
        if self.folder.is_dir() {
            files = stop_servers(&self.folder, 5).and_then(|()| {
                std::fs::remove_dir_all(&self.folder)
                    .with_context(|| format!("remove {}", self.folder.display()))
            });
        }
        clusters.and(files)?;
        std::fs::remove_dir_all(&self.record).with_context(|| format!("remove {}", self.record.display()))
    }
}

/// Stops the run's Postgres and those of hubs by `--dev` that a test killed: a server outlives its hub.
fn stop_servers(folder: &Path, depth: usize) -> Result<()> {
    if folder.join("data/postmaster.pid").is_file() {
        if let Some(server) = PrivatePostgres::find(folder)? {
            server.stop()?;
        }
        return Ok(());
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        if depth > 0 && path.is_dir() && !path.is_symlink() {
            stop_servers(&path, depth - 1)?;
        }
    }
    Ok(())
}

/// Takes down what killed runs left.
pub(crate) fn sweep(runner: &Runner, cluster: &Devcluster) -> Result<()> {
    let runs = cache::folder("test-runs")?;
    for entry in std::fs::read_dir(&runs).with_context(|| format!("list {}", runs.display()))? {
        let record = entry.with_context(|| format!("list {}", runs.display()))?.path();
        if record.ends_with(kept::ID) {
            continue;
        }
        if let Some(stand) = Stand::left(record)? {
            runner.say(&format!("removing what the killed run {} left", stand.id));
            stand.take_down(runner, cluster)?;
        }
    }
    Ok(())
}
