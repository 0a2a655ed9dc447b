//! Charts whose provenance is to be signed, by the real `gpg`: of a repository over HTTPS, and of a real registry to which the real `helm`
//! pushed both.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use roadstead_tests::{ChartServer, Fleet, LOGIN, PATIENCE, Registry, eventually, folder};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::helm::{condition, fleet, packed, secret, source, status};

/// Somebody's key, in a folder of its own.
struct Signer(TempDir);

impl Signer {
    fn new(name: &str) -> Result<Self> {
        // GnuPG's agent has a socket there, whose path must be short.
        let signer = Self(tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp")?);
        let user = format!("{name} <{name}@example.com>");
        signer.gpg(&["--quick-generate-key", &user, "ed25519", "sign", "1y"], "")?;
        Ok(signer)
    }

    fn gpg(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]).args(args);
        command.env("GNUPGHOME", self.0.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("run gpg")?;
        child.stdin.take().context("no stdin")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "gpg {args:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn public(&self) -> Result<String> {
        self.gpg(&["--armor", "--export"], "")
    }

    /// What `helm package --sign` writes beside a chart.
    fn provenance(&self, version: &str, chart: &[u8]) -> Result<String> {
        let digest: String = Sha256::digest(chart).iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "apiVersion: v2\nname: app\nversion: {version}\n\n...\nfiles:\n  app-{version}.tgz: sha256:{digest}\n"
        );
        self.gpg(&["--clear-sign"], &text)
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf").args(["--kill", "all"]).env("GNUPGHOME", self.0.path()).status();
    }
}

const OF: &str = "sourceRef: {kind: HelmRepository, name: charts}";
const VERIFY: &str = "verify: {provider: provenance, secretRef: {name: signers}}";

/// Waits until the chart is not taken, and why is said by its conditions.
async fn refused(fleet: &Fleet, reason: &str, parts: &[&str]) -> Result<()> {
    fleet.fails("helmchart/app", reason, parts).await?;
    let chart = status(fleet, "helmchart/app").await?;
    let verdict = condition(&chart, "SourceVerified").context("no verdict")?;
    ensure!(verdict["status"] == "False" && verdict["reason"] == reason, "{chart:#}");
    Ok(())
}

async fn verified(fleet: &Fleet, revision: &str) -> Result<()> {
    let told = format!("verified signature of version {revision} with key '");
    eventually("it is verified", PATIENCE, || async {
        let chart = status(fleet, "helmchart/app").await?;
        let verdict = condition(&chart, "SourceVerified").context("it is not verified")?;
        ensure!(chart["artifact"]["revision"] == revision && verdict["status"] == "True", "{chart:#}");
        ensure!(verdict["message"].as_str().is_some_and(|message| message.starts_with(&told)), "{chart:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn charts_are_stored_where_their_provenance_is_signed_by_those_of_the_secret() -> Result<()> {
    let fleet = fleet("provenance").await?;
    let server = ChartServer::start().await?;
    let (ann, bob) = (Signer::new("ann")?, Signer::new("bob")?);
    let chart = |version: &str| packed("app", version, &[("values.yaml", "replicas: 1\n")]);
    let (one, two) = (chart("1.0.0")?, chart("1.1.0")?);
    server.put("/charts/app-1.0.0.tgz", one.clone());
    server.put(
        "/charts/index.yaml",
        "apiVersion: v1\nentries:\n  app:\n  - {name: app, version: 1.0.0, urls: [app-1.0.0.tgz]}\n",
    );
    secret(&fleet, "ca", &[("ca.crt", server.pem())]).await?;
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", LOGIN.1)]).await?;
    let url = format!("url: {}/charts", server.url());
    let lines = [&url, "secretRef: {name: login}", "certSecretRef: {name: ca}"];
    fleet.apply(&source("HelmRepository", "charts", &lines)).await?;
    fleet.apply(&source("HelmChart", "app", &["chart: app", OF, VERIFY])).await?;
    refused(&fleet, "VerificationError", &["apps/signers", "not found"]).await?;
    secret(&fleet, "signers", &[("note", "hunter2")]).await?;
    refused(&fleet, "VerificationError", &["has no OpenPGP public keys"]).await?;
    secret(&fleet, "signers", &[("bob.asc", &bob.public()?)]).await?;
    refused(&fleet, "ChartVerificationError", &["the chart is not signed", "HTTP 404"]).await?;
    ensure!(!fleet.hub.logs().contains("hunter2"), "what is not a key is told");
    let built = status(&fleet, "helmchart/app").await?;
    ensure!(built["artifact"].is_null() && condition(&built, "BuildFailed").is_some(), "{built:#}");
    // It is looked at once an hour: that the Secret changes is what has it verified, and again.
    server.put("/charts/app-1.0.0.tgz.prov", ann.provenance("1.0.0", &one)?);
    let both = [("bob.asc", &*bob.public()?), ("ann.asc", &*ann.public()?)];
    secret(&fleet, "signers", &both).await?;
    verified(&fleet, "1.0.0").await?;
    secret(&fleet, "signers", &both[..1]).await?;
    refused(&fleet, "ChartVerificationError", &["no matching key"]).await?;
    secret(&fleet, "signers", &both).await?;
    verified(&fleet, "1.0.0").await?;

    // Of a registry, where it is a layer beside the chart's.
    let (registry, files) = (Registry::start().await?, folder()?);
    let file = files.path().join("app-1.1.0.tgz");
    std::fs::write(&file, &two)?;
    std::fs::write(files.path().join("app-1.1.0.tgz.prov"), ann.provenance("1.1.0", &two)?)?;
    registry.helm_push("charts", &file).await?;
    registry.push_chart("charts/app", "1.2.0", &chart("1.2.0")?).await?;
    let ca = std::fs::read_to_string(registry.ca())?;
    secret(&fleet, "ca", &[("ca.crt", &ca)]).await?;
    let url = format!("url: {}", registry.url("charts"));
    let lines = [&url, "type: oci", "secretRef: {name: login}", "certSecretRef: {name: ca}"];
    fleet.apply(&source("HelmRepository", "charts", &lines)).await?;
    let lines = ["chart: app", "version: 1.1.0", OF, VERIFY];
    fleet.apply(&source("HelmChart", "app", &lines)).await?;
    verified(&fleet, "1.1.0").await?;
    fleet.apply(&source("HelmChart", "app", &["chart: app", "version: 1.2.0", OF, VERIFY])).await?;
    refused(&fleet, "ChartVerificationError", &["the chart is not signed"]).await?;
    let kept = status(&fleet, "helmchart/app").await?;
    ensure!(kept["artifact"]["revision"] == "1.1.0", "{kept:#}");
    // Artifacts that are not charts have none.
    let lines = [&format!("url: {}", registry.url("app")), VERIFY];
    let error = fleet.apply(&source("OCIRepository", "app", &lines)).await.map(|_| ());
    let error = format!("{:#}", error.err().context("it is taken")?);
    ensure!(error.contains("spec.verify.provider"), "{error}");
    Ok(())
}
