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
        install.args(["install", name, "--version", version, "--locked", "--quiet", "--root"]);
        // Neither this workspace's settings nor its target folder are for it.
        let outside = folder.parent().context("the tool's folder has a parent")?;
        install.arg(&folder).current_dir(outside).env_remove("CARGO_TARGET_DIR");
        runner.run(&mut install)?;
        runner.say("installed");
    }
    Ok(program)
}
