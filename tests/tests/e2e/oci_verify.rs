//! OCIRepositories that are to be signed: by the real `cosign`, with keys of a Secret, and verified again when those change.

use anyhow::{Context, Result, ensure};
use roadstead_tests::{Fleet, LOGIN, PATIENCE, Registry, eventually, folder};
use serde_json::Value;

use crate::oci::{SECRETS, artifact, deployed, fleet, introduce, look, oci_repository, write};

/// Keeps public keys in a Secret on the hub.
async fn trust(fleet: &Fleet, keys: &[&str]) -> Result<()> {
    let entries: Vec<String> =
        (0..).zip(keys).map(|(number, key)| format!("--from-literal={number}.pub={key}")).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let args = ["create", "secret", "generic", "signers"];
    let secret = fleet.run(&[&args[..], &entries, &["--dry-run=client", "-o", "yaml"]].concat()).await?;
    fleet.apply(&secret).await.map(|_| ())
}

/// The condition SourceVerified, null where there is none.
async fn verdict(fleet: &Fleet) -> Result<Value> {
    let source = fleet.get("ocirepository/app").await?;
    let conditions = source["status"]["conditions"].as_array().context("no conditions")?;
    Ok(conditions.iter().find(|one| one["type"] == "SourceVerified").cloned().unwrap_or_default())
}

/// That it is refused, for this: another refusal may be there from before.
async fn refused(fleet: &Fleet, parts: &[&str]) -> Result<()> {
    eventually("it is refused", PATIENCE, || async {
        let message = fleet.fails("ocirepository/app", "VerificationError", &[]).await?;
        for part in parts {
            ensure!(message.contains(part), "no `{part}` in: {message}");
        }
        let verdict = verdict(fleet).await?;
        ensure!(verdict["status"] == "False" && verdict["reason"] == "VerificationError", "{verdict}");
        ensure!(verdict["message"] == message, "{verdict}");
        Ok(())
    })
    .await
}

/// That it is verified, at this digest.
async fn verified(fleet: &Fleet, digest: &str) -> Result<()> {
    fleet.ready("ocirepository/app").await?;
    let verdict = verdict(fleet).await?;
    ensure!(verdict["status"] == "True" && verdict["reason"] == "Succeeded", "{verdict}");
    ensure!(verdict["message"] == format!("verified signature of revision v1@{digest}"), "{verdict}");
    Ok(())
}

#[tokio::test]
async fn only_what_is_signed_by_a_key_of_the_secret_is_applied() -> Result<()> {
    let fleet = fleet("oci-verify").await?;
    let (registry, files, keys) = (Registry::start().await?, folder()?, folder()?);
    let space = fleet.cluster.namespace("oci-verify").await?;
    introduce(&fleet, &registry, LOGIN.1).await?;
    let ann = registry.key_pair(keys.path(), "ann").await?;
    let bob = registry.key_pair(keys.path(), "bob").await?;
    let key = |name: &str| keys.path().join(format!("{name}.key"));
    let push = async |word: &str| {
        write(files.path(), space.name(), word)?;
        registry.push("app", "v1", files.path()).await
    };
    let url = registry.url("app");
    let spec = |verify: &str| {
        let verify: &[&str] = if verify.is_empty() { &[] } else { &[verify] };
        oci_repository("app", &url, &[&["ref: {tag: v1}"][..], verify, &SECRETS].concat())
    };
    let first = push("one").await?;
    // Nobody says who would have to sign.
    fleet.apply(&spec("verify: {provider: cosign}")).await?;
    fleet.apply(&deployed("app", "deploy")).await?;
    refused(&fleet, &["using provider 'cosign keyless'", "spec.verify.secretRef"]).await?;
    let by_key = spec("verify: {provider: cosign, secretRef: {name: signers}}");
    fleet.apply(&by_key).await?;
    refused(&fleet, &["public keys secret error", "apps/signers", "not found"]).await?;
    trust(&fleet, &["no key"]).await?;
    refused(&fleet, &["no matching signatures were found", "apps/signers", "has no public keys"]).await?;
    trust(&fleet, &[&ann]).await?;
    let failed =
        "failed to verify the signature using provider 'cosign': no matching signatures were found for";
    refused(&fleet, &[failed, &url, &first, "it is not signed"]).await?;
    registry.sign("app", &first, &key("ann"), true).await?;
    look(&fleet, "app").await?;
    verified(&fleet, &first).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("one")).await?;

    // Somebody else signs what comes next, in the old form: what is applied stays.
    let second = push("two").await?;
    registry.sign("app", &second, &key("bob"), false).await?;
    look(&fleet, "app").await?;
    refused(&fleet, &[failed, &second, "not made by a key that is trusted"]).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == format!("v1@{first}"), "{source:#}");
    fleet.cluster.has_word(space.name(), "oci", Some("one")).await?;
    // It is looked at once an hour: that the Secret changes is what has it verified again.
    trust(&fleet, &[&ann, &bob]).await?;
    fleet.applied("app", &second).await?;
    verified(&fleet, &second).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;

    // Bob is not trusted any more, and nothing else changes.
    trust(&fleet, &[&ann]).await?;
    refused(&fleet, &[failed, &second]).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;
    registry.sign("app", &second, &key("ann"), true).await?;
    look(&fleet, "app").await?;
    verified(&fleet, &second).await?;
    ensure!(fleet.get("ocirepository/app").await?["status"]["observedVerificationKeys"].is_string());

    fleet.apply(&spec("")).await?;
    fleet.ready("ocirepository/app").await?;
    eventually("nothing is said of signatures", PATIENCE, || async {
        let source = fleet.get("ocirepository/app").await?;
        ensure!(verdict(&fleet).await?.is_null(), "{source:#}");
        ensure!(source["status"]["observedVerificationKeys"].is_null(), "{source:#}");
        Ok(())
    })
    .await
}
