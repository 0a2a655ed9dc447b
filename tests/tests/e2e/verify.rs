//! GitRepositories whose commits are to be signed: by keys of a Secret, and again when those change.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository, SshKey};
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, folder, git_repository, kustomization};
use serde_json::Value;

/// Keeps public keys in a Secret on the hub.
async fn trust(fleet: &Fleet, keys: &[&SshKey]) -> Result<()> {
    let keys: String = keys.iter().map(|key| key.public.as_str()).collect();
    let entry = format!("--from-literal=people.sshpub={keys}");
    let args = ["create", "secret", "generic", "signers", &entry, "--dry-run=client", "-o", "yaml"];
    fleet.apply(&fleet.run(&args).await?).await.map(|_| ())
}

/// Commits what is on the branch again, signed by a key.
fn sign(repository: &Repository, key: &SshKey, branch: &str) -> Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder()?;
    let path = folder.path().join("key");
    std::fs::write(&path, &key.identity)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    std::fs::write(path.with_extension("pub"), &key.public)?;
    let by = format!("user.signingkey={}", path.display());
    let tree = repository.git(["rev-parse", &format!("{branch}^{{tree}}")], &[], b"")?;
    let args = ["-c", "gpg.format=ssh", "-c", &by, "commit-tree", "-S", &tree, "-p", branch, "-m", "Signed"];
    let id = repository.git(args, &[], b"")?;
    repository.git(["update-ref", &format!("refs/heads/{branch}"), &id], &[], b"")?;
    Ok(id)
}

/// The condition SourceVerified, null where there is none.
async fn verdict(fleet: &Fleet) -> Result<Value> {
    let source = fleet.get("gitrepository/app").await?;
    let conditions = source["status"]["conditions"].as_array().context("no conditions")?;
    Ok(conditions.iter().find(|one| one["type"] == "SourceVerified").cloned().unwrap_or_default())
}

async fn refused(fleet: &Fleet, reason: &str, parts: &[&str]) -> Result<()> {
    let message = fleet.fails("gitrepository/app", reason, parts).await?;
    let verdict = verdict(fleet).await?;
    ensure!(verdict["status"] == "False" && verdict["reason"] == reason, "{verdict}");
    ensure!(verdict["message"] == message, "{verdict}");
    Ok(())
}

#[tokio::test]
async fn only_what_is_signed_by_those_of_the_secret_is_applied() -> Result<()> {
    let fleet = Fleet::start("verify").await?;
    let space = fleet.cluster.namespace("verify").await?;
    let (ann, bob) = (SshKey::make(&["-t", "ed25519"], "")?, SshKey::make(&["-t", "ecdsa"], "")?);
    let repository = fleet.git.add_repository("app.git")?;
    let commit = |word: &str| {
        let files = Commit::new().file("config.yaml", config_map(space.name(), "verify", word));
        repository.commit("main", word, &files)
    };
    commit("one")?;
    let first = sign(&repository, &ann, "main")?;
    let spec = "secretRef: {name: git}\n  verify: {mode: HEAD, secretRef: {name: signers}}";
    fleet.apply(&git_repository("app", &fleet.git.url("app.git"), spec)).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    refused(&fleet, "VerificationError", &["public keys secret error", "apps/signers", "not found"]).await?;
    let note = [
        "create",
        "secret",
        "generic",
        "signers",
        "--from-literal=note=hunter2",
        "--dry-run=client",
        "-o",
        "yaml",
    ];
    fleet.apply(&fleet.run(&note).await?).await?;
    refused(&fleet, "VerificationError", &["has no public keys"]).await?;
    trust(&fleet, &[&bob]).await?;
    refused(&fleet, "InvalidCommitSignature", &["no matching key", &first]).await?;
    fleet.cluster.has_word(space.name(), "verify", None).await?;

    // It is looked at once an hour: that the Secret changes is what has it verified again.
    trust(&fleet, &[&bob, &ann]).await?;
    fleet.ready("gitrepository/app").await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "verify", Some("one")).await?;
    let good = verdict(&fleet).await?;
    ensure!(good["status"] == "True" && good["reason"] == "Succeeded", "{good}");
    let told = good["message"].as_str().unwrap_or_default();
    ensure!(
        told.starts_with(&format!("verified signature of\n\t- commit '{first}' with key 'SHA256:")),
        "{told}"
    );
    let source = fleet.get("gitrepository/app").await?;
    ensure!(source["status"]["sourceVerificationMode"] == "HEAD", "{source:#}");

    // Somebody pushes what nobody signed: what is applied stays.
    let unsigned = commit("two")?;
    fleet.fetch("app").await?;
    refused(&fleet, "InvalidCommitSignature", &["it is not signed", &unsigned]).await?;
    fleet.cluster.has_word(space.name(), "verify", Some("one")).await?;
    let second = sign(&repository, &bob, "main")?;
    fleet.fetch("app").await?;
    fleet.ready("gitrepository/app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(space.name(), "verify", Some("two")).await?;

    // Bob is not trusted any more, and nothing else changes.
    trust(&fleet, &[&ann]).await?;
    refused(&fleet, "InvalidCommitSignature", &["no matching key", &second]).await?;
    fleet.cluster.has_word(space.name(), "verify", Some("two")).await?;
    trust(&fleet, &[&ann, &bob]).await?;
    fleet.ready("gitrepository/app").await?;
    ensure!(verdict(&fleet).await?["status"] == "True", "{}", verdict(&fleet).await?);

    let tag = spec.replace("HEAD", "Tag");
    fleet.apply(&git_repository("app", &fleet.git.url("app.git"), &tag)).await?;
    refused(&fleet, "InvalidVerificationMode", &["spec.ref.tag"]).await?;
    fleet.apply(&git_repository("app", &fleet.git.url("app.git"), "secretRef: {name: git}")).await?;
    fleet.ready("gitrepository/app").await?;
    eventually("nothing is said of signatures", PATIENCE, || async {
        let source = fleet.get("gitrepository/app").await?;
        ensure!(verdict(&fleet).await?.is_null(), "{source:#}");
        ensure!(source["status"]["sourceVerificationMode"].is_null(), "{source:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_tag_that_gpg_signed() -> Result<()> {
    let fleet = Fleet::start("verify-gpg").await?;
    let repository = fleet.git.add_repository("app.git")?;
    let first = repository.commit("main", "First", &Commit::new().file("a", "1"))?;
    // GnuPG's agent has a socket there, whose path must be short.
    let home = tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp")?;
    let gpg = async |args: &[&str]| -> Result<String> {
        let mut command = tokio::process::Command::new("gpg");
        command.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]).args(args);
        let output = command.env("GNUPGHOME", home.path()).kill_on_drop(true).output().await?;
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    gpg(&["--quick-generate-key", "ann <ann@example.com>", "rsa3072", "sign", "1y"]).await?;
    let public = gpg(&["--armor", "--export", "ann@example.com"]).await?;
    let args = ["-c", "user.signingkey=ann@example.com", "tag", "-s", "-m", "Release", "v1", "main"];
    repository.git(args, &[("GNUPGHOME", home.path().as_os_str())], b"")?;
    let _ = tokio::process::Command::new("gpgconf")
        .args(["--kill", "all"])
        .env("GNUPGHOME", home.path())
        .status()
        .await;
    let entry = format!("--from-literal=ann.asc={public}");
    let secret = ["create", "secret", "generic", "signers", &entry, "--dry-run=client", "-o", "yaml"];
    fleet.apply(&fleet.run(&secret).await?).await?;
    let at = |tag: &str| {
        let spec = "secretRef: {name: git}\n  verify: {mode: Tag, secretRef: {name: signers}}";
        let object = git_repository("app", &fleet.git.url("app.git"), spec);
        object.replace("{branch: main}", &format!("{{tag: {tag}}}"))
    };
    fleet.apply(&at("v1")).await?;
    let message = fleet.ready("gitrepository/app").await?;
    ensure!(message == format!("stored artifact for revision 'v1@sha1:{first}'"), "{message}");
    let verdict = verdict(&fleet).await?;
    let told = verdict["message"].as_str().unwrap_or_default();
    ensure!(told.starts_with("verified signature of\n\t- tag 'v1@"), "{verdict}");
    // The same object under another name, and one that nobody signed.
    repository.git(["update-ref", "refs/tags/v2", "refs/tags/v1"], &[], b"")?;
    repository.annotated_tag("v3", "main")?;
    fleet.apply(&at("v2")).await?;
    refused(&fleet, "InvalidGitObject", &["another name"]).await?;
    fleet.apply(&at("v3")).await?;
    refused(&fleet, "InvalidTagSignature", &["it is not signed"]).await
}
