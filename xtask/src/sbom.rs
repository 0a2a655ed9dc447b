//! `cargo xtask sbom`: a bill of materials of each program, as CycloneDX JSON, for a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Runner;
use crate::{cache, tool};

const VERSION: &str = "0.5.9";
/// The packages whose programs are released, with their folders.
const PACKAGES: [(&str, &str); 3] =
    [("roadstead-hub", "hub"), ("roadstead-agent", "agent"), ("roadstead", "cli")];

/// Writes `target/sbom/PACKAGE.cdx.json` for each program, and the dashboard's beside the hub's, whose part it is.
///
/// # Errors
/// Where the tools fail, or a bill names no component.
pub(crate) fn run(root: &Path, runner: &Runner) -> Result<()> {
    let program = tool::installed(runner, "cargo-cyclonedx", VERSION)?;
    let folder = cache::target(root)?.join("sbom");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    for (package, place) in PACKAGES {
        let mut command = Command::new(&program);
        command.current_dir(root).args(["cyclonedx", "--format", "json", "--spec-version", "1.5"]);
        command.args(["--override-filename", "sbom.tmp", "--manifest-path"]);
        runner.run(command.arg(root.join(place).join("Cargo.toml")))?;
        let made = root.join(place).join("sbom.tmp.json");
        let kept = folder.join(format!("{package}.cdx.json"));
        fs::copy(&made, &kept).with_context(|| format!("take {}", made.display()))?;
        sweep(root)?;
        report(&kept, package)?;
    }
    let dashboard = folder.join("dashboard.cdx.json");
    let mut npm = Command::new("npm");
    npm.current_dir(root.join("web"));
    npm.args(["sbom", "--package-lock-only", "--omit=dev", "--sbom-format=cyclonedx"]);
    fs::write(&dashboard, runner.capture(&mut npm)?)
        .with_context(|| format!("write {}", dashboard.display()))?;
    report(&dashboard, "dashboard")
}

/// The tool writes one beside the manifest of each package of the workspace.
fn sweep(root: &Path) -> Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    for package in metadata.packages {
        let file = package.manifest_path.with_file_name("sbom.tmp.json");
        if file.exists() {
            fs::remove_file(&file).with_context(|| format!("remove {file}"))?;
        }
    }
    Ok(())
}

fn report(path: &Path, name: &str) -> Result<()> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let bill: Value = serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))?;
    match bill["components"].as_array() {
        Some(components) if !components.is_empty() => {
            println!("{name}: {} components, {}", components.len(), path.display());
            Ok(())
        }
        _ => bail!("{} names no component", path.display()),
    }
}
