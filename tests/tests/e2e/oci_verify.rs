//! OCIRepositories that are to be signed: by the real `cosign` with keys of a Secret, by identities that a trusted root vouches for, or by
//! notation; and verified again when the Secret changes.

use anyhow::{Context, Result, ensure};
use roadstead_tests::{Fleet, LOGIN, PATIENCE, Registry, eventually, folder};
use serde_json::{Value, json};

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
    verdict_of(fleet, "ocirepository/app").await
}

async fn verdict_of(fleet: &Fleet, name: &str) -> Result<Value> {
    let source = fleet.get(name).await?;
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
async fn verified(fleet: &Fleet, revision: &str) -> Result<()> {
    fleet.ready("ocirepository/app").await?;
    let verdict = verdict(fleet).await?;
    ensure!(verdict["status"] == "True" && verdict["reason"] == "Succeeded", "{verdict}");
    ensure!(verdict["message"] == format!("verified signature of revision {revision}"), "{verdict}");
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
    refused(
        &fleet,
        &["using provider 'cosign keyless'", "spec.verify.trustedRootSecretRef", "spec.verify.secretRef"],
    )
    .await?;
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
    verified(&fleet, &format!("v1@{first}")).await?;
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
    verified(&fleet, &format!("v1@{second}")).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;

    // Bob is not trusted any more, and nothing else changes.
    trust(&fleet, &[&ann]).await?;
    refused(&fleet, &[failed, &second]).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;
    registry.sign("app", &second, &key("ann"), true).await?;
    look(&fleet, "app").await?;
    verified(&fleet, &format!("v1@{second}")).await?;
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

/// What the real notation signed, where it was made.
const NOTATION: &str = include_str!("../../../crates/sources/tests/oci/notation/signed.json");

#[tokio::test]
async fn what_notation_signed_is_stored_where_the_policy_takes_it() -> Result<()> {
    let fleet = fleet("oci-notation").await?;
    let registry = Registry::start().await?;
    introduce(&fleet, &registry, LOGIN.1).await?;
    let all: Value = serde_json::from_str(NOTATION)?;
    let url = registry.url("app");
    let policy = |level: &str| {
        json!({ "version": "1.0", "trustPolicies": [{
            "name": "own", "registryScopes": [format!("{}/app", registry.host())],
            "signatureVerification": { "level": level }, "trustStores": ["ca:own"],
            "trustedIdentities": ["x509.subject: C=DE, ST=Berlin, O=Example\\, Ltd"],
        }] })
        .to_string()
    };
    let trust = async |policy: &str, certificate: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "signers" },
            "stringData": { "trustpolicy.json": policy, "own.crt": all["certificates"][certificate] },
        });
        fleet.apply(&secret.to_string()).await
    };
    let at = |tag: &str| {
        let reference = format!("ref: {{tag: {tag}}}");
        let verify = "verify: {provider: notation, secretRef: {name: signers}}";
        oci_repository("app", &url, &[&[reference.as_str(), verify][..], &SECRETS].concat())
    };
    registry.lay("app", &all).await?;
    let digest = |tag: &str| all["tags"][tag].as_str().map(str::to_owned).context("no such tag");
    let signed = digest("cose-es256")?;
    let (of_signed, of_other) =
        (format!("cose-es256@{signed}"), format!("jws-ps256@{}", digest("jws-ps256")?));

    fleet.apply(&at("cose-es256")).await?;
    refused(&fleet, &["public keys secret error", "apps/signers", "not found"]).await?;
    trust("{}", "root").await?;
    refused(&fleet, &["provider 'notation'", "apps/signers", "key trustpolicy.json: its version is ''"])
        .await?;
    trust(&policy("strict"), "root").await?;
    eventually("it is verified", PATIENCE, || verified(&fleet, &of_signed)).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == of_signed, "{source:#}");

    // Nothing changes but the certificate: another authority is trusted.
    trust(&policy("strict"), "other").await?;
    refused(&fleet, &[&signed, "none of its certificates is one that is trusted"]).await?;
    trust(&policy("audit"), "other").await?;
    eventually("it is let pass, and not said to be verified", PATIENCE, || async {
        fleet.ready("ocirepository/app").await?;
        let verdict = verdict(&fleet).await?;
        ensure!(verdict.is_null(), "{verdict}");
        Ok(())
    })
    .await?;

    // Without a signature nothing new is stored.
    trust(&policy("strict"), "root").await?;
    fleet.apply(&at("unsigned")).await?;
    refused(&fleet, &["it is not signed"]).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == of_signed, "{source:#}");
    fleet.apply(&at("jws-ps256")).await?;
    eventually("the other one is verified", PATIENCE, || verified(&fleet, &of_other)).await
}

/// What was signed without keys, by a Sigstore of its own.
const KEYLESS: &str = include_str!("../../../crates/sources/tests/oci/keyless/signed.json");

/// Keeps a trusted root in a Secret on the hub.
async fn trust_root(fleet: &Fleet, root: &str) -> Result<()> {
    let folder = folder()?;
    let file = folder.path().join("trusted_root.json");
    std::fs::write(&file, root)?;
    let from = format!("--from-file={}", file.display());
    let secret =
        fleet.run(&["create", "secret", "generic", "root", &from, "--dry-run=client", "-o", "yaml"]).await?;
    fleet.apply(&secret).await.map(|_| ())
}

#[tokio::test]
async fn only_what_is_signed_by_an_identity_of_a_trusted_root_is_taken() -> Result<()> {
    let fleet = fleet("oci-keyless").await?;
    let registry = Registry::start().await?;
    introduce(&fleet, &registry, LOGIN.1).await?;
    let fixture: Value = serde_json::from_str(KEYLESS)?;
    registry.lay("app", &fixture).await?;
    let root = |name: &str| fixture["roots"][name].as_str().unwrap_or_default().to_owned();
    let digest = |tag: &str| fixture["tags"][tag].as_str().unwrap_or_default().to_owned();
    let url = registry.url("app");
    let verify = |subject: &str| {
        format!(
            "verify: {{provider: cosign, trustedRootSecretRef: {{name: root}}, matchOIDCIdentity: [{{issuer: '^https://token\\.example$', \
             subject: '{subject}'}}]}}"
        )
    };
    let spec = |tag: &str, verify: &str| {
        oci_repository(
            "app",
            &url,
            &[&[format!("ref: {{tag: {tag}}}").as_str(), verify][..], &SECRETS].concat(),
        )
    };
    let good = verify("^https://git\\.example/app/");
    fleet.apply(&spec("bundle", &good)).await?;
    refused(
        &fleet,
        &["trusted root secret error", "apps/root", "spec.verify.trustedRootSecretRef not found"],
    )
    .await?;
    let keyless = "failed to verify the signature using provider 'cosign keyless': ";
    trust_root(&fleet, "{}").await?;
    refused(
        &fleet,
        &[keyless, "unable to parse trusted root: Secret 'apps/root': key trusted_root.json: missing field"],
    )
    .await?;
    // Another Sigstore's root: the certificate is not of its authority.
    trust_root(&fleet, &root("ended")).await?;
    let none = format!("{keyless}no matching signatures were found for '{url}@{}': ", digest("bundle"));
    refused(&fleet, &[&none, "not issued by an authority of the trusted root"]).await?;
    // That the Secret changes is what has it verified again.
    trust_root(&fleet, &root("good")).await?;
    let is_verified = async |name: &str, message: &str| {
        eventually("it is verified", PATIENCE, || async {
            fleet.ready(name).await?;
            let verdict = verdict_of(&fleet, name).await?;
            ensure!(verdict["status"] == "True" && verdict["reason"] == "Succeeded", "{verdict}");
            ensure!(verdict["message"] == message, "{verdict}");
            Ok(())
        })
        .await
    };
    let told = |tag: &str| format!("verified signature of revision {tag}@{}", digest(tag));
    is_verified("ocirepository/app", &told("bundle")).await?;
    fleet.apply(&spec("old", &good)).await?;
    is_verified("ocirepository/app", &told("old")).await?;

    // Nothing but who may sign changes: somebody else, and nobody.
    fleet.apply(&spec("old", &verify("^https://git\\.example/other/"))).await?;
    refused(&fleet, &["it was signed by subject https://git.example/app/.ci/release@refs/tags/v1 of issuer https://token.example"]).await?;
    ensure!(
        artifact(&fleet.get("ocirepository/app").await?, "revision")? == format!("old@{}", digest("old"))
    );
    fleet.apply(&spec("old", "verify: {provider: cosign, trustedRootSecretRef: {name: root}}")).await?;
    refused(&fleet, &[keyless, "without an identity anybody's signature would do"]).await?;
    fleet.apply(&spec("old", &good)).await?;
    is_verified("ocirepository/app", &told("old")).await?;
    // And the root is replaced by one that does not vouch for it any more.
    trust_root(&fleet, &root("ended")).await?;
    refused(&fleet, &["not issued by an authority of the trusted root"]).await?;

    let chart = |verify: &str| {
        let base = url.trim_end_matches("/app");
        format!(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {{name: charts}}\nspec:\n  type: oci\n  url: {base}\n  \
             interval: 1h\n  {}\n---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nmetadata: {{name: app}}\nspec:\n  interval: \
             1h\n  chart: app\n  version: 1.0.0\n  sourceRef: {{kind: HelmRepository, name: charts}}\n  {verify}\n",
            SECRETS.join("\n  ")
        )
    };
    fleet.apply(&chart(&good)).await?;
    fleet
        .fails("helmchart/app", "ChartVerificationError", &["cosign keyless", "not issued by an authority"])
        .await?;
    trust_root(&fleet, &root("good")).await?;
    is_verified("helmchart/app", "verified signature of version 1.0.0").await
}
