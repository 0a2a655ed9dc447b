//! `roadstead support-bundle`: one file with what helps, and with nothing that is secret.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, binary, config_map, eventually, kustomization};
use serde_json::Value;
use tokio::process::Command;

const CANARY: &str = "c4n4ry-0f-4-5ecret";

/// Runs the command with a kubeconfig: whether it went well, and what it said.
async fn bundle(kubeconfig: &Path, to: &Path) -> Result<(bool, String)> {
    let mut command = Command::new(binary("roadstead")?);
    command.args(["support-bundle", "--output"]).arg(to).arg("--kubeconfig").arg(kubeconfig);
    let output = command.output().await.context("run roadstead")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The files of a bundle.
async fn files(bundle: &Path) -> Result<BTreeMap<String, String>> {
    let folder = bundle.with_extension("unpacked");
    std::fs::create_dir(&folder)?;
    let unpacked = Command::new("tar").arg("-xzf").arg(bundle).arg("-C").arg(&folder).status().await?;
    ensure!(unpacked.success(), "tar: {unpacked}");
    let mut files = BTreeMap::new();
    for part in [folder.clone(), folder.join("views")] {
        for file in std::fs::read_dir(&part).with_context(|| format!("list {}", part.display()))? {
            let path = file?.path();
            if path.is_file() {
                let name = path.strip_prefix(&folder)?.display().to_string();
                files.insert(name, std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(files)
}

#[tokio::test]
async fn a_bundle_has_what_helps_and_nothing_secret() -> Result<()> {
    let fleet = Fleet::start("support").await?;
    let space = fleet.cluster.namespace("support").await?;
    let map = config_map(space.name(), "support", "fine");
    fleet.repository("app", &Commit::new().file("config.yaml", map)).await?;
    let substitute = format!("postBuild: {{substitute: {{password: {CANARY}}}}}");
    fleet.apply(&kustomization("app", "app", ".", &[&substitute])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.run(&["create", "secret", "generic", "hidden", &format!("--from-literal=token={CANARY}")]).await?;

    let folder = tempfile::tempdir()?;
    let whole = folder.path().join("whole.tar.gz");
    let kubeconfig = fleet.kubectl().kubeconfig().to_owned();
    let (is_done, said) = bundle(&kubeconfig, &whole).await?;
    ensure!(is_done && said.contains("has 13 parts") && !said.contains("left out"), "{said}");
    ensure!(std::fs::metadata(&whole)?.permissions().mode() & 0o777 == 0o600);
    let found = files(&whole).await?;
    let appliers: Value = serde_json::from_str(found.get("views/appliers.json").context("no appliers")?)?;
    ensure!(appliers["isWhole"] == true && appliers["items"][0]["name"] == "app", "{appliers}");
    ensure!(found.get("metrics.txt").is_some_and(|text| text.contains("gotk_resource_info{")));
    let ready = found.get("readyz.txt").context("no readiness")?;
    for part in ["database", "schema", "workers", "controllers", "audit-sealer", "link"] {
        ensure!(ready.contains(&format!("[+]{part} ok\n")), "{part}: {ready}");
    }
    for (name, text) in &found {
        ensure!(!text.contains(CANARY), "{name} has what is secret");
    }
    // What is there is not written over.
    let (is_done, said) = bundle(&kubeconfig, &whole).await?;
    ensure!(!is_done && said.contains("exists already"), "{said}");

    // Whoever may see one namespace bundles that, and is told what is not in it.
    fleet.run(&["create", "serviceaccount", "viewer"]).await?;
    let account = "--serviceaccount=apps:viewer";
    fleet.run(&["create", "rolebinding", "viewer", "--clusterrole=view", account]).await?;
    let token = fleet.run(&["create", "token", "viewer"]).await?;
    let mut theirs: Value = serde_json::from_slice(&std::fs::read(&kubeconfig)?)?;
    theirs["users"][0]["user"]["token"] = token.trim().into();
    let viewers = folder.path().join("viewer.kubeconfig");
    std::fs::write(&viewers, theirs.to_string())?;
    let known = ["auth", "can-i", "list", "kustomizations", "--as=system:serviceaccount:apps:viewer"];
    eventually("the binding is known", PATIENCE, || async { fleet.run(&known).await.map(drop) }).await?;
    let part = folder.path().join("part.tar.gz");
    let (is_done, said) = bundle(&viewers, &part).await?;
    ensure!(is_done && said.contains("left out: metrics.txt: the hub refused (403"), "{said}");
    let found = files(&part).await?;
    ensure!(
        found.contains_key("views/appliers.json") && !found.contains_key("metrics.txt"),
        "{said} {:?}",
        found.keys()
    );
    let about: Value = serde_json::from_str(found.get("about.json").context("no about.json")?)?;
    ensure!(about["leftOut"].as_array().is_some_and(|parts| !parts.is_empty()), "{about}");
    Ok(())
}
