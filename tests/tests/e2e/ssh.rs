//! GitRepositories over SSH: from a real `sshd`, with the Secret that the real `flux` makes for it.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, SshKey, SshServer};
use roadstead_tests::{Fleet, HubSetup, clients, config_map, folder, git_repository, kustomization};

/// A fleet whose hub may connect to this server, and to no other SSH server of this machine.
async fn fleet(name: &str, server: &SshServer) -> Result<Fleet> {
    let port = server.address().port();
    let setup = HubSetup::new(name).await?.arg(&format!("--allow-network=git=127.0.0.1:{port}"));
    Fleet::start_on(setup).await
}

/// Keeps a key, and the keys that the server shows now, in a Secret on the hub, as `flux create secret git` writes it.
async fn introduce(fleet: &Fleet, server: &SshServer, key: &SshKey, password: &str) -> Result<()> {
    let folder = folder()?;
    let file = folder.path().join("identity");
    std::fs::write(&file, &key.identity)?;
    let mut command = tokio::process::Command::new(clients()?.join("bin/flux"));
    command.env_clear().env("HOME", folder.path()).args(["create", "secret", "git", "ssh", "--export"]);
    command
        .arg(format!("--url={}", server.url("app.git")))
        .arg(format!("--private-key-file={}", file.display()));
    command.arg("--namespace=apps").arg(format!("--password={password}")).kill_on_drop(true);
    let output = command.output().await.context("run flux")?;
    ensure!(output.status.success(), "flux create secret: {}", String::from_utf8_lossy(&output.stderr));
    let manifest = String::from_utf8(output.stdout)?;
    ensure!(manifest.contains("known_hosts: "), "flux wrote no known_hosts");
    fleet.apply(&manifest).await.map(|_| ())
}

#[tokio::test]
async fn a_commit_is_applied_and_a_changed_host_is_not_believed() -> Result<()> {
    let mut server = SshServer::start()?;
    let fleet = fleet("ssh", &server).await?;
    let space = fleet.cluster.namespace("ssh").await?;
    let repository = server.add_repository("app.git")?;
    let commit = |word: &str| Commit::new().file("config.yaml", config_map(space.name(), "ssh", word));
    let first = repository.commit("main", "First", &commit("one"))?;
    let key = SshKey::make(&["-t", "ed25519"], "correct-horse")?;
    let url = server.url("app.git");
    fleet.apply(&git_repository("app", &url, "")).await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["`identity` and `known_hosts`"]).await?;
    fleet.apply(&git_repository("app", &url, "secretRef: {name: ssh}")).await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["apps/ssh", "not found"]).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;

    // A key that nobody lets in; then it is let in.
    introduce(&fleet, &server, &key, "correct-horse").await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["does not let user", "SHA256:"]).await?;
    server.authorize(&key)?;
    fleet.fetch("app").await?;
    let message = fleet.ready("gitrepository/app").await?;
    ensure!(message == format!("stored artifact for revision 'main@sha1:{first}'"), "{message}");
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "ssh", Some("one")).await?;

    // The server has another key: what is applied stays, and nothing is said to it.
    server.renew_host_keys(&[&["-t", "ecdsa", "-b", "384"]])?;
    let second = repository.commit("main", "Second", &commit("two"))?;
    fleet.fetch("app").await?;
    let scan = format!("ssh-keyscan -p {}", server.address().port());
    let parts = ["knownhosts: key mismatch", "known_hosts", &scan];
    let message = fleet.fails("gitrepository/app", "GitOperationFailed", &parts).await?;
    fleet.cluster.has_word(space.name(), "ssh", Some("one")).await?;
    server.renew_host_keys(&[&["-t", "ed25519"]])?;
    fleet.fetch("app").await?;
    fleet.fails("gitrepository/app", "GitOperationFailed", &["key mismatch: the server showed"]).await?;

    // It is looked at once an hour: the Secret's change is what mends it.
    introduce(&fleet, &server, &key, "correct-horse").await?;
    fleet.ready("gitrepository/app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(space.name(), "ssh", Some("two")).await?;

    introduce(&fleet, &server, &key, "correct-horse").await?;
    let secret = fleet.get("secret/ssh").await?;
    let known = secret["data"]["known_hosts"].as_str().context("no known_hosts")?;
    ensure!(!message.contains(known), "{message}");
    let told = fleet.hub.logs();
    for word in ["correct-horse", &key.identity[60..100]] {
        ensure!(!told.contains(word), "the log has a secret");
    }
    Ok(())
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_named() -> Result<()> {
    let server = SshServer::start()?;
    let fleet = fleet("ssh-keys", &server).await?;
    let repository = server.add_repository("app.git")?;
    let first = repository.commit("main", "First", &Commit::new().file("a", "1"))?;
    let key = SshKey::make(&["-t", "rsa", "-b", "3072"], "correct-horse")?;
    server.authorize(&key)?;
    let url = server.url("app.git");
    let known = server.scan()?;
    let make = async |name: &str, entries: &[(&str, &str)]| -> Result<()> {
        let folder = folder()?;
        let mut args = vec!["create".to_owned(), "secret".to_owned(), "generic".to_owned(), name.to_owned()];
        for (entry, value) in entries {
            std::fs::write(folder.path().join(entry), value)?;
            args.push(format!("--from-file={}", folder.path().join(entry).display()));
        }
        args.extend(["--dry-run=client", "-o", "yaml"].map(str::to_owned));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        fleet.apply(&fleet.run(&args).await?).await.map(|_| ())
    };
    let identity = ("identity", key.identity.as_str());
    let hosts = ("known_hosts", known.as_str());
    for (name, entries, words) in [
        ("no-hosts", &[identity][..], &["apps/no-hosts", "has no known_hosts"][..]),
        ("no-key", &[hosts], &["apps/no-key", "has no identity"]),
        ("locked", &[identity, hosts], &["has a passphrase", "`password`"]),
        ("wrong", &[identity, hosts, ("password", "wr0ng")], &["passphrase in `password` is not the one"]),
        ("junk", &[("identity", "hunter2"), hosts], &["not a private key"]),
        (
            "cut",
            &[identity, ("known_hosts", "host ssh-ed25519\n"), ("password", "correct-horse")],
            &["line 1"],
        ),
    ] {
        make(name, entries).await?;
        fleet.apply(&git_repository(name, &url, &format!("secretRef: {{name: {name}}}"))).await?;
        let message = fleet.fails(&format!("gitrepository/{name}"), "AuthenticationFailed", words).await?;
        ensure!(!message.contains("wr0ng") && !message.contains("hunter2"), "{message}");
    }
    let right = [identity, hosts, ("password", "correct-horse")];
    make("right", &right).await?;
    fleet.apply(&git_repository("right", &url, "secretRef: {name: right}")).await?;
    let message = fleet.ready("gitrepository/right").await?;
    ensure!(message.contains(&first), "{message}");
    // The same Secret for a URL that is not one of SSH.
    make("other", &[identity, hosts]).await?;
    fleet.apply(&git_repository("other", &fleet.git.url("app.git"), "secretRef: {name: other}")).await?;
    fleet.fails("gitrepository/other", "AuthenticationFailed", &["apps/other", "key for SSH"]).await?;
    Ok(())
}
