//! `cargo xtask test`: sets up what tests need, runs every test, and takes all of it down again.
//!
//! | variable | what tests find there |
//! |---|---|
//! | `ROADSTEAD_TEST_DATABASE_URL` | a Postgres whose role may make databases |
//! | `ROADSTEAD_TEST_KUBECONFIG_1`, `_2` | two clusters, as their administrator |
//! | `ROADSTEAD_TEST_KUBECTL` | kubectl |
//! | `ROADSTEAD_TEST_BIN_DIR` | the built programs: roadstead-hub, roadstead-agent, roadstead, gitserver |
//!
//! All of it is this run's own. A run that was killed leaves its Postgres and clusters behind: the next one removes them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use roadstead_devpostgres::{Options, PrivatePostgres};

use crate::cache;
use crate::devcluster::Devcluster;
use crate::process::Runner;

/// Sessions for all tests together; each hub under test holds a pool.
const MAX_CONNECTIONS: u16 = 300;

/// Runs every test; `cargo_args` go to `cargo test`, in place of `--workspace` where they name packages.
pub(crate) fn run(root: &Path, runner: &Runner, go: bool, cargo_args: &[String]) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    sweep(runner, &cluster)?;

    let selection = selection(cargo_args);
    phases.time(runner, "build programs", || {
        runner.run(cache::cargo().current_dir(root).args(["build", "--workspace", "--bins"]))
    })?;
    phases.time(runner, "build tests", || {
        let mut command = cache::cargo();
        command.current_dir(root).arg("test").args(&selection.build).arg("--no-run");
        runner.run(&mut command)
    })?;

    let stand = Stand::new()?;
    let result = with_stand(root, runner, &cluster, &stand, &mut phases, &selection.run, go);
    runner.begin_cleanup();
    let cleaned = phases.time(runner, "take all down", || stand.take_down(runner, &cluster));
    phases.print();
    // Of two failures the tests' is what matters; the other is shown, too.
    match (result, cleaned) {
        (Err(error), Err(cleanup)) => {
            eprintln!("error: {cleanup:#}");
            Err(error)
        }
        (result, cleaned) => result.and(cleaned),
    }
}

/// What cargo is told: to build the tests, and to run them.
struct Selection {
    build: Vec<String>,
    run: Vec<String>,
}

fn selection(cargo_args: &[String]) -> Selection {
    // What follows a `--` is for the test programs, and no option of the build.
    let options = cargo_args.iter().position(|arg| arg == "--").unwrap_or(cargo_args.len());
    let narrowed =
        cargo_args[..options].iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    let mut build = if narrowed { Vec::new() } else { vec!["--workspace".to_owned()] };
    build.extend_from_slice(&cargo_args[..options]);
    let mut run = build.clone();
    run.push("--no-fail-fast".to_owned());
    run.extend_from_slice(&cargo_args[options..]);
    Selection { build, run }
}

fn with_stand(
    root: &Path,
    runner: &Runner,
    cluster: &Devcluster,
    stand: &Stand,
    phases: &mut Phases,
    run: &[String],
    go: bool,
) -> Result<()> {
    let options = Options { fsync: false, max_connections: MAX_CONNECTIONS, ..Options::default() };
    let postgres = phases.time(runner, "start Postgres", || {
        Ok(PrivatePostgres::start(&stand.folder.join("postgres"), &options)?)
    })?;
    let kubeconfigs = phases.time(runner, "start two clusters", || {
        let [first, second] = stand.clusters();
        Ok([cluster.up(runner, &first)?, cluster.up(runner, &second)?])
    })?;

    let mut cargo = cache::cargo();
    cargo.current_dir(root).arg("test").args(run);
    cargo.env("ROADSTEAD_TEST_DATABASE_URL", postgres.url());
    cargo.env("ROADSTEAD_TEST_KUBECONFIG_1", &kubeconfigs[0]);
    cargo.env("ROADSTEAD_TEST_KUBECONFIG_2", &kubeconfigs[1]);
    cargo.env("ROADSTEAD_TEST_KUBECTL", cluster.kubectl());
    cargo.env("ROADSTEAD_TEST_BIN_DIR", bin_dir(root)?);
    // What a killed test leaves goes with the run.
    cargo.env("TMPDIR", stand.temporary()?);
    let rust = phases.time(runner, "run Rust tests", || runner.status(&mut cargo))?;
    let mut failed = Vec::new();
    if !rust.success() {
        failed.push("cargo test");
    }
    if go {
        // As build.sh sets them, so that both use the same build cache.
        let mut command = Command::new("go");
        command.current_dir(root.join("tests/devcluster")).args(["test", "./..."]);
        command.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
        command.env("GOFLAGS", "-trimpath -buildvcs=false -mod=readonly");
        if !phases.time(runner, "run Go tests", || runner.status(&mut command))?.success() {
            failed.push("go test");
        }
    }
    postgres.stop()?;
    if !failed.is_empty() {
        bail!("{} failed", failed.join(" and "));
    }
    Ok(())
}

/// Where cargo puts programs of the dev profile.
fn bin_dir(root: &Path) -> Result<PathBuf> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("ask cargo for the target folder")?;
    Ok(metadata.target_directory.join("debug").into())
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
        let id = format!("{}-{}", now.as_secs(), std::process::id());
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

    /// The stand of a run that was killed.
    fn abandoned(record: PathBuf) -> Result<Option<Self>> {
        let Some(lock) = Self::lock(&record)? else { return Ok(None) };
        let id = record.file_name().context("a record has a name")?.to_string_lossy().into_owned();
        let folder = std::fs::read_to_string(record.join("folder")).unwrap_or_default();
        Ok(Some(Self { id, record, folder: folder.into(), _lock: lock }))
    }

    /// Where tests put temporary files; `cargo test` is told.
    fn temporary(&self) -> Result<PathBuf> {
        let path = self.folder.join("tmp");
        roadstead_devpostgres::create_state_parent(&path)?;
        Ok(path)
    }

    fn clusters(&self) -> [String; 2] {
        [1, 2].map(|number| format!("test-{}-{number}", self.id))
    }

    /// Ends and removes all of it; goes on after a failure, so that one part does not keep the others.
    fn take_down(&self, runner: &Runner, cluster: &Devcluster) -> Result<()> {
        let clusters = cluster.down(runner, &self.clusters());
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
fn sweep(runner: &Runner, cluster: &Devcluster) -> Result<()> {
    let runs = cache::folder("test-runs")?;
    for entry in std::fs::read_dir(&runs).with_context(|| format!("list {}", runs.display()))? {
        let record = entry.with_context(|| format!("list {}", runs.display()))?.path();
        if let Some(stand) = Stand::abandoned(record)? {
            runner.say(&format!("removing what the killed run {} left", stand.id));
            stand.take_down(runner, cluster)?;
        }
    }
    Ok(())
}

/// What took how long.
#[derive(Default)]
struct Phases {
    seconds: Vec<(String, f64)>,
}

impl Phases {
    fn time<T>(&mut self, runner: &Runner, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        runner.say(name);
        let begin = Instant::now();
        let result = work();
        self.seconds.push((name.to_owned(), begin.elapsed().as_secs_f64()));
        result
    }

    fn print(&self) {
        for (name, seconds) in &self.seconds {
            eprintln!("{seconds:8.1} s  {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(args: &[&str]) -> (String, String) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let selection = selection(&args);
        (selection.build.join(" "), selection.run.join(" "))
    }

    #[test]
    fn chooses_packages_and_passes_filters_on() {
        assert_eq!(split(&[]), ("--workspace".to_owned(), "--workspace --no-fail-fast".to_owned()));
        assert_eq!(
            split(&["-p", "roadstead-tests", "--", "kill"]),
            ("-p roadstead-tests".to_owned(), "-p roadstead-tests --no-fail-fast -- kill".to_owned())
        );
        assert_eq!(split(&["--", "-p"]).1, "--workspace --no-fail-fast -- -p");
    }
}
