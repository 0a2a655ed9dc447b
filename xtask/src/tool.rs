//! Programs that cargo installs, kept in the cache by their version.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cache;
use crate::process::Runner;

/// The program of the crate `name` at `version`; installed into the cache the first time, which takes minutes.
pub(crate) fn installed(runner: &Runner, name: &str, version: &str) -> Result<PathBuf> {
    let folder = cache::folder("tools")?.join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        runner.say(&format!("installing {name} {version} once, into the cache (minutes)"));
        let mut install = cache::cargo();
        // Not optimized: it would take several times as long to build as it runs.
        install.args(["install", name, "--version", version, "--locked", "--quiet", "--debug", "--root"]);
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        // Neither this workspace's settings nor its target folder are for it.
        let outside = folder.parent().context("the tool's folder has a parent")?;
        install.arg(&folder).current_dir(outside).env_remove("CARGO_TARGET_DIR");
        runner.run(&mut install)?;
        runner.say("installed");
    }
    Ok(program)
}

/// The folder with `prometheus` and `promtool`: the one that is named, one of PATH, or where `make tools` unpacks them.
pub(crate) fn prometheus() -> Result<PathBuf> {
    let named = std::env::var_os("ROADSTEAD_TEST_PROMETHEUS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = cache::folder("prometheus")?.join("usr/bin");
    let mut folders = named.into_iter().chain(std::env::split_paths(&path)).chain([unpacked]);
    let found =
        folders.find(|folder| ["prometheus", "promtool"].iter().all(|one| folder.join(one).is_file()));
    found.context("prometheus and promtool not found: `make tools` installs them, ROADSTEAD_TEST_PROMETHEUS names their folder")
}
