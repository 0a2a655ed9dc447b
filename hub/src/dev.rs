//! `--dev`: everything that an operator would set up, made in a state folder.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use roadstead_devpostgres::{Options, PrivatePostgres, create_state_parent};

/// The folder with all that `--dev` made.
pub(crate) struct DevState {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Its Postgres.
    pub(crate) postgres: PrivatePostgres,
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
        std::env::home_dir().context("find a home folder for the state; or say where with --state-dir")?;
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
    Ok(DevState { folder, postgres })
}

impl DevState {
    /// Stops its Postgres.
    pub(crate) async fn stop(self) -> Result<()> {
        tokio::task::spawn_blocking(move || self.postgres.stop())
            .await
            .context("stop the private Postgres")?
            .context("stop the private Postgres")
    }
}
