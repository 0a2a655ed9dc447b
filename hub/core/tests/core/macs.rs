//! What becomes of encrypted build inputs whose MACs do not fit, as the Kustomization says and as the operator does (`--sops-mac`).

use anyhow::{Result, ensure};
use roadstead_hub_core::HubOptions;
use roadstead_hub_core::delivery::SopsMac;
use serde_json::{Value, json};

use crate::support::{Site, kustomization};

/// An env file of which a value in plain text was changed after it was encrypted; `hush` is what is encrypted.
const CHANGED: &str = include_str!("../support/changed.env");
const IDENTITY: &str = include_str!("../../../../crates/sops/tests/age/key.agekey");

/// What came of a pass over a Kustomization.
#[derive(Debug, PartialEq)]
enum Came {
    /// It is dispatched, with a warning that names the file.
    Warned,
    /// It is refused, since the MAC does not fit.
    Mismatch,
    /// It is refused, since the operator does not allow what it says.
    Forbidden,
}

async fn site(sops_mac: SopsMac) -> Result<Site> {
    let site = Site::with(HubOptions { sops_mac, ..HubOptions::default() }).await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    let generator = "namespace: web\nsecretGenerator:\n- name: env\n  envs: [words.env]\n";
    let files = [("app/kustomization.yaml", generator), ("app/words.env", CHANGED)];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    site.source("team-a", "fleet", &files).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "sops-age" },
        "stringData": { "age.agekey": IDENTITY },
    });
    site.apply(secret).await?;
    Ok(site)
}

/// A pass over a Kustomization of this name, whose `decryption.mac` is this.
async fn came(site: &Site, name: &str, mac: Option<&str>) -> Result<Came> {
    let mut decryption = json!({ "provider": "sops", "secretRef": { "name": "sops-age" } });
    if let Some(mac) = mac {
        decryption["mac"] = mac.into();
    }
    let spec = json!({ "clusterRef": { "name": "staging" }, "decryption": decryption });
    site.apply(kustomization("team-a", name, "./app", spec)).await?;
    let (reason, message) = site.process("team-a", name).await?;
    let dispatched: Option<Option<Value>> = sqlx::query_scalar(
        "SELECT dispatch -> 'warnings' FROM reconciliation WHERE applier = $1 ORDER BY attempt DESC LIMIT 1",
    )
    .bind(site.uid("team-a", name).await?.0)
    .fetch_optional(&mut site.database.connect().await?)
    .await?;
    let warnings = dispatched.flatten().unwrap_or_default().to_string();
    ensure!(!format!("{message}{warnings}").contains("hush"), "{message} {warnings}");
    if reason != "BuildFailed" {
        for part in
            ["app/words.env, which secretGenerator 'env' of app reads", "MAC mismatch", "restore the file"]
        {
            ensure!(warnings.contains(part), "no `{part}` in {warnings}; {reason}: {message}");
        }
        return Ok(Came::Warned);
    }
    if message.contains("--sops-mac=enforce") {
        ensure!(message.contains("spec.decryption.mac Warn is not allowed"), "{message}");
        ensure!(message.contains("set it to Verify"), "{message}");
        return Ok(Came::Forbidden);
    }
    for part in ["cannot decrypt app/words.env", "MAC mismatch", "restore the file"] {
        ensure!(message.contains(part), "no `{part}` in {message}");
    }
    Ok(Came::Mismatch)
}

#[tokio::test]
async fn macs_are_checked_as_the_kustomization_and_the_operator_say() -> Result<()> {
    use Came::{Forbidden, Mismatch, Warned};
    ensure!(HubOptions::default().sops_mac == SopsMac::Verify, "they are checked where nobody says anything");
    for (sops_mac, unsaid, warn, verify) in [
        (SopsMac::Verify, Mismatch, Warned, Mismatch),
        (SopsMac::Warn, Warned, Warned, Mismatch),
        (SopsMac::Enforce, Mismatch, Forbidden, Mismatch),
    ] {
        let site = site(sops_mac).await?;
        for (name, mac, expected) in
            [("unsaid", None, unsaid), ("warn", Some("Warn"), warn), ("verify", Some("Verify"), verify)]
        {
            let came = came(&site, name, mac).await?;
            ensure!(came == expected, "--sops-mac {sops_mac:?}, mac {mac:?}: {came:?}");
        }
        site.close().await;
    }
    Ok(())
}
