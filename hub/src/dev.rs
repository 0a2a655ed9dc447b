//! `--dev`: everything that an operator would set up, made in a state folder.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use roadstead_devpostgres::{Options, PostgresError, PrivatePostgres, create_state_parent};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether Postgres still runs.
const LOOK: Duration = Duration::from_millis(200);
/// The first wait before it is started again, and the longest; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// It is started again so often without having run for a while in between; then the hub ends.
const STARTS: u32 = 6;
/// Postgres that ran for so long is none that ends again and again.
const GOOD: Duration = Duration::from_secs(60);

/// The folder with all that `--dev` made.
pub(crate) struct DevState {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The URL of its Postgres.
    pub(crate) url: String,
    supervisor: JoinHandle<Option<PrivatePostgres>>,
    stop: CancellationToken,
    given_up: watch::Receiver<Option<String>>,
}

/// Where state goes when nobody says where. Root's home is closed to the user that Postgres runs as.
fn default_folder() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/roadstead"));
    }
    if let Some(state) = std::env::var_os("XDG_STATE_HOME").filter(|state| !state.is_empty()) {
        return Ok(PathBuf::from(state).join("roadstead"));
    }
    let home =
        std::env::home_dir().context("find a home folder for the state; or choose one with --state-dir")?;
    Ok(home.join(".local/state/roadstead"))
}

/// Makes the folder and starts its Postgres.
pub(crate) async fn start(folder: Option<PathBuf>) -> Result<DevState> {
    let folder = folder.map_or_else(default_folder, |folder| {
        std::path::absolute(&folder).with_context(|| format!("resolve {}", folder.display()))
    })?;
    let state = folder.clone();
    let postgres = tokio::task::spawn_blocking(move || {
        create_state_parent(&state)?;
        PrivatePostgres::start(&state.join("postgres"), &Options::default())
    })
    .await
    .context("start the private Postgres")?
    .context("start the private Postgres")?;
    tracing::info!(state = %folder.display(), reused = postgres.was_running(), "private Postgres is up");
    let (url, stop) = (postgres.url().to_owned(), CancellationToken::new());
    let (say, given_up) = watch::channel(None);
    let supervisor = tokio::spawn(supervise(postgres, say, stop.clone()));
    Ok(DevState { folder, url, supervisor, stop, given_up })
}

/// What came of starting Postgres again.
enum Again {
    /// It runs.
    Up(PrivatePostgres),
    /// The hub ends meanwhile.
    Stopped(PrivatePostgres),
    /// It does not start; why.
    Failed(Option<PrivatePostgres>, String),
}

/// The starts since Postgres last ran for a while.
struct Starts {
    count: u32,
    wait: Duration,
}

impl Starts {
    const NONE: Self = Self { count: 0, wait: FIRST_WAIT };
}

/// Starts Postgres again whenever it ends, until `stop`; gives it back, so that it can be stopped. Says why where it gives
/// up.
async fn supervise(
    mut postgres: PrivatePostgres,
    given_up: watch::Sender<Option<String>>,
    stop: CancellationToken,
) -> Option<PrivatePostgres> {
    let (mut up, mut starts) = (Instant::now(), Starts::NONE);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Some(postgres),
            () = sleep(LOOK) => {}
        }
        if !postgres.has_ended() {
            continue;
        }
        if up.elapsed() >= GOOD {
            starts = Starts::NONE;
        }
        tracing::error!(process = postgres.id(), "the private Postgres has stopped; it is being restarted");
        match start_again(postgres, &mut starts, &stop).await {
            Again::Up(again) => postgres = again,
            Again::Stopped(ended) => return Some(ended),
            Again::Failed(ended, why) => {
                given_up.send_replace(Some(why));
                return ended;
            }
        }
        up = Instant::now();
        tracing::info!(process = postgres.id(), "private Postgres is up again");
    }
}

async fn start_again(mut postgres: PrivatePostgres, starts: &mut Starts, stop: &CancellationToken) -> Again {
    let mut failed: Option<PostgresError> = None;
    while starts.count < STARTS {
        tokio::select! {
            () = stop.cancelled() => return Again::Stopped(postgres),
            () = sleep(starts.wait) => {}
        }
        starts.count += 1;
        starts.wait = (starts.wait * 2).min(LONGEST_WAIT);
        // Not cut short by `stop`: that would leave a server which nobody stops.
        let restarted = tokio::task::spawn_blocking(move || {
            let result = postgres.restart();
            (postgres, result)
        });
        let Ok((back, result)) = restarted.await else {
            return Again::Failed(None, "a start was interrupted".to_owned());
        };
        postgres = back;
        match result {
            Ok(()) => return Again::Up(postgres),
            Err(error) => {
                tracing::error!(%error, start = starts.count, of = STARTS, "the private Postgres did not start");
                failed = Some(error);
            }
        }
    }
    let ended_again = || format!("it stopped again and again; the end of its log:\n{}", postgres.log_tail());
    let why = failed.map_or_else(ended_again, |error| error.to_string());
    Again::Failed(Some(postgres), why)
}

impl DevState {
    /// Resolves, with the reason, once Postgres is gone for good.
    pub(crate) async fn given_up(&self) -> anyhow::Error {
        let mut given_up = self.given_up.clone();
        let why = given_up.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => anyhow!("the private Postgres has stopped and cannot be restarted: {why}"),
            // Whoever would say so is stopped.
            None => std::future::pending().await,
        }
    }

    /// Stops its Postgres.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let Some(postgres) = self.supervisor.await.context("stop the supervision of the private Postgres")?
        else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || postgres.stop())
            .await
            .context("stop the private Postgres")?
            .context("stop the private Postgres")
    }
}
