//! `cargo xtask deny`: cargo-deny over the rules in `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::process::Runner;

/// Pinned: a newer one may know other rules.
const VERSION: &str = "0.20.2";

/// Installs cargo-deny into the cache the first time, and runs it. Not its check for advisories: the database of those
/// is fetched from outside, which a build must not depend on.
pub(crate) fn run(root: &Path, runner: &Runner) -> Result<()> {
    let tool = cache::folder("tools")?.join(format!("cargo-deny-{VERSION}"));
    let program = tool.join("bin/cargo-deny");
    if !program.exists() {
        runner.say(&format!("installing cargo-deny {VERSION} once, into the cache (minutes)"));
        let mut install = cache::cargo();
        install.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--quiet", "--root"]);
        // Neither this workspace's settings nor its target folder are for it.
        install.arg(&tool).current_dir(tool.parent().unwrap_or(root)).env_remove("CARGO_TARGET_DIR");
        runner.run(&mut install)?;
        runner.say("installed");
    }
    let mut deny = Command::new(&program);
    deny.current_dir(root).args(["--workspace", "--locked", "check", "bans", "licenses", "sources"]);
    runner.run(&mut deny)
}
