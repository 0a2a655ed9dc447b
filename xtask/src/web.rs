//! `cargo xtask web`: the dashboard, which is built before the hub that it becomes a part of. What has not changed since the
//! last time is not done again.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::Runner;

/// What Vite asks for.
const NODE: (u32, u32) = (20, 19);

/// Installs what package-lock.json names, unless it is there.
pub(crate) fn install(root: &Path, runner: &Runner) -> Result<()> {
    check_node(runner)?;
    let web = root.join("web");
    let stamp = web.join("node_modules/.roadstead-lock");
    let want = digest(&web, &[".npmrc", "package-lock.json"])?;
    if is_stamped(&stamp, &want) {
        return Ok(());
    }
    runner.say("installing the dashboard's libraries");
    runner.run(npm(root).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    write_stamp(&stamp, &want)
}

/// Builds `web/dist`, unless it is what the sources make.
pub(crate) fn build(root: &Path, runner: &Runner) -> Result<()> {
    install(root, runner)?;
    let web = root.join("web");
    let stamp = root.join("target/xtask-web/built");
    let inputs =
        ["index.html", "package-lock.json", "package.json", "public", "scripts", "src", "vite.config.ts"];
    let want = digest(&web, &inputs)?;
    if is_stamped(&stamp, &want) && web.join("dist/index.html").is_file() {
        return Ok(());
    }
    runner.say("building the dashboard");
    runner.run(npm(root).args(["run", "--silent", "build"]))?;
    write_stamp(&stamp, &want)
}

/// Formats, types, lints and the size of the first page.
pub(crate) fn check(root: &Path, runner: &Runner) -> Result<()> {
    build(root, runner)?;
    let mut failed = Vec::new();
    for script in ["format:check", "typecheck", "lint", "size"] {
        runner.say(&format!("the dashboard: {script}"));
        if !runner.status(npm(root).args(["run", "--silent", script]))?.success() {
            failed.push(script);
        }
    }
    if !failed.is_empty() {
        bail!("the dashboard: {} failed", failed.join(", "));
    }
    Ok(())
}

/// The tests of its parts, which need no hub.
pub(crate) fn test(root: &Path, runner: &Runner) -> Result<bool> {
    Ok(runner.status(npm(root).args(["run", "--silent", "test"]).env("NO_COLOR", "1"))?.success())
}

/// The types of the fleet views, made from their OpenAPI into `out`.
pub(crate) fn generate_types(root: &Path, runner: &Runner, out: &Path) -> Result<()> {
    install(root, runner)?;
    let mut command = npm(root);
    command.args(["run", "--silent", "generate", "--"]).arg(out);
    runner.capture(&mut command).map(|_| ())
}

fn npm(root: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(root.join("web")).env("npm_config_update_notifier", "false");
    command
}

fn check_node(runner: &Runner) -> Result<()> {
    let (major, minor) = NODE;
    let version = runner.capture(Command::new("node").arg("--version")).with_context(|| {
        format!("the dashboard is built by Node.js {major}.{minor} or newer, with npm: `make tools` says where from")
    })?;
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < NODE {
        bail!("Node.js {version} is too old: the dashboard is built by {major}.{minor} or newer");
    }
    Ok(())
}

fn is_stamped(stamp: &Path, want: &str) -> bool {
    std::fs::read_to_string(stamp).is_ok_and(|held| held == want)
}

fn write_stamp(stamp: &Path, text: &str) -> Result<()> {
    if let Some(folder) = stamp.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    std::fs::write(stamp, text).with_context(|| format!("write {}", stamp.display()))
}

/// Of names and contents, so that neither a checkout nor a copy makes work.
fn digest(folder: &Path, inputs: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for input in inputs {
        collect(&folder.join(input), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(folder).unwrap_or(&file).hash(&mut hasher);
        std::fs::read(&file).with_context(|| format!("read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        collect(&entry.with_context(|| format!("list {}", path.display()))?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_names_and_contents() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = temp.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("src/a.ts", "1");
        write("other", "1");
        let first = digest(temp.path(), &["src"]).unwrap();
        write("other", "2");
        assert_eq!(digest(temp.path(), &["src"]).unwrap(), first);
        write("src/deep/b.ts", "1");
        let second = digest(temp.path(), &["src"]).unwrap();
        assert_ne!(second, first);
        std::fs::rename(temp.path().join("src/deep/b.ts"), temp.path().join("src/deep/c.ts")).unwrap();
        assert_ne!(digest(temp.path(), &["src"]).unwrap(), second);
        assert!(digest(temp.path(), &["none"]).is_err());
    }
}
