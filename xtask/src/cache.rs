//! Where things that take long to make are kept between runs (`$ROADSTEAD_CACHE`, by default `~/.cache/roadstead`),
//! and where cargo is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

/// A folder in the cache, which is made.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let cache = match std::env::var_os("ROADSTEAD_CACHE").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(
            std::env::var_os("HOME").context("neither ROADSTEAD_CACHE nor HOME says where to keep things")?,
        )
        .join(".cache/roadstead"),
    };
    let folder = std::path::absolute(cache).context("resolve the cache folder")?.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// The cargo that runs this task, or the one in PATH.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds all programs as tests, demo and checks want them.
///
/// The examples with them: cargo then counts the features that development dependencies ask for, as it does for tests, and
/// builds nothing twice.
pub(crate) fn build_programs(root: &Path) -> Command {
    let mut command = cargo();
    command.current_dir(root).args(["build", "--workspace", "--bins", "--examples"]);
    command
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("ask cargo for the target folder")?;
    Ok(metadata.target_directory.into())
}
