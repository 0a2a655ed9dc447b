//! The agent of the last landed version, built from its commit: hubs of this version must go on with it.
//!
//! It takes some minutes once, and is kept in the cache by its commit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::process::Runner;

/// The commit. Whoever lands a change of the protocol moves it to the newest one that has landed before.
const COMMIT: &str = "6902f855ea2febacb09ca1f2ba5d3031f6bfea87";

/// The program of that version's agent; it is built where the cache lacks it.
pub(crate) fn agent(root: &Path, runner: &Runner) -> Result<PathBuf> {
    let place = cache::folder("landed")?;
    let program = place.join(COMMIT).join("roadstead-agent");
    if program.is_file() {
        return Ok(program);
    }
    // One run builds it, and the others wait for that.
    let lock = File::create(place.join("lock")).context("make the lock of the landed agent")?;
    lock.lock().context("wait until another run has built the landed agent")?;
    if program.is_file() {
        return Ok(program);
    }
    let work = place.join("building");
    let (source, target) = (work.join("source"), work.join("target"));
    check_out(root, &source)?;
    let mut build = cache::cargo();
    build.current_dir(&source).args(["build", "--locked", "--package", "roadstead-agent"]);
    // What it does counts here, not how fast.
    build.args(["--config", "profile.dev.package.'*'.opt-level=0"]);
    build.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    runner.run(&mut build)?;
    let kept = place.join(COMMIT);
    std::fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
    std::fs::rename(target.join("debug/roadstead-agent"), &program)
        .with_context(|| format!("put {} in its place", program.display()))?;
    std::fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    Ok(program)
}

/// Writes the commit's files to `source`.
fn check_out(root: &Path, source: &Path) -> Result<()> {
    // What a run that was killed has left may be another commit's.
    if source.exists() {
        std::fs::remove_dir_all(source).with_context(|| format!("remove {}", source.display()))?;
    }
    std::fs::create_dir_all(source).with_context(|| format!("make {}", source.display()))?;
    let mut archive = Command::new("git")
        .current_dir(root)
        .args(["archive", "--format=tar", COMMIT])
        .stdout(Stdio::piped())
        .spawn()
        .context("start git archive")?;
    let bytes = archive.stdout.take().context("git archive has an output")?;
    let unpacked =
        Command::new("tar").args(["-x", "-C"]).arg(source).stdin(bytes).status().context("run tar")?;
    let archived = archive.wait().context("wait for git archive")?;
    if !archived.success() || !unpacked.success() {
        bail!(
            "the commit {COMMIT}, whose agent is tested with this hub, is not in this clone: fetch the whole history \
             (git fetch --unshallow)"
        );
    }
    Ok(())
}
