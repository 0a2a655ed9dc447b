//! Profiles of a hub's CPU time, as Go's `pprof` reads them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_tests::{HubProcess, HubSetup, Kubectl};

/// What the hub answers at a path: bytes, or what kubectl says of a refusal.
async fn get(kubectl: &Kubectl, path: &str, more: &[&str]) -> Result<Vec<u8>> {
    let mut command = kubectl.command(&[&["get", "--raw", path], more].concat());
    let output = command.output().await.context("run kubectl")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// The functions of a profile, those that have most below them first.
fn functions(folder: &Path, profile: &[u8]) -> Result<String> {
    let file = folder.join("profile.pb.gz");
    std::fs::write(&file, profile)?;
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0"]);
    let output = pprof.arg(&file).output().context("run go tool pprof")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

#[tokio::test]
async fn masters_see_where_time_goes() -> Result<()> {
    let setup = HubSetup::new("profiles").await?.arg("--profiling");
    let hub = HubProcess::start(&setup).await?;
    let (kubectl, folder) = (hub.kubectl(), tempfile::tempdir()?);
    // Something to be seen.
    let busy = async {
        for number in 0..60 {
            kubectl.run(&["create", "namespace", &format!("busy-{number}")]).await?;
        }
        anyhow::Ok(())
    };
    let long = "/debug/pprof/profile?seconds=4";
    // One after the other: kubectl comes again where the hub says that one is being made.
    let (profile, done, second) =
        tokio::join!(get(kubectl, long, &[]), busy, get(kubectl, "/debug/pprof/profile?seconds=1", &[]));
    done?;
    second?;
    let seen = functions(folder.path(), &profile?)?;
    ensure!(seen.contains("Type: cpu"), "{seen}");
    ensure!(seen.contains("roadstead_hub"), "{seen}");
    ensure!(!seen.contains("perf_signal_handler"), "{seen}");
    for wrong in ["0", "61", "x"] {
        let path = format!("/debug/pprof/profile?seconds={wrong}");
        let said = get(kubectl, &path, &[]).await.unwrap_err().to_string();
        ensure!(said.contains("must be a whole number from 1 to 60"), "{said}");
    }
    // A role for all paths is not enough.
    let role = ["create", "clusterrole", "paths", "--verb=get", "--non-resource-url=/*"];
    kubectl.run(&role).await?;
    kubectl.run(&["create", "clusterrolebinding", "paths", "--clusterrole=paths", "--user=jane"]).await?;
    let said = get(kubectl, "/debug/pprof/profile", &["--as=jane"]).await.unwrap_err().to_string();
    ensure!(said.contains("members of system:masters only"), "{said}");
    ensure!(!get(kubectl, "/metrics", &["--as=jane"]).await?.is_empty(), "the role counts elsewhere");
    Ok(())
}

#[tokio::test]
async fn profiles_are_off_unless_asked_for() -> Result<()> {
    let setup = HubSetup::new("no-profiles").await?;
    let hub = HubProcess::start(&setup).await?;
    let said = get(hub.kubectl(), "/debug/pprof/profile?seconds=1", &[]).await.unwrap_err().to_string();
    ensure!(said.contains("start the hub with --profiling"), "{said}");
    Ok(())
}
