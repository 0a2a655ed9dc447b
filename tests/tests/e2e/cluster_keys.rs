//! Keys that the cluster has and the hub does not.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, unique};

use crate::decryption::{AgeKey, Keys, at_home, decrypted_with, has, lookups, secret};

/// Where the spec does not say where keys are, and the hub's namespace lacks the Secret: one that the cluster has is used where it lies.
#[tokio::test]
async fn a_key_that_the_hub_lacks_is_found_in_the_cluster() -> Result<()> {
    let fleet = Fleet::start("sops-found").await?;
    let (target, home) =
        (fleet.cluster.namespace("sops-found").await?, fleet.cluster.namespace("sops-home").await?);
    let (keys, value) = (Keys::new(&fleet.setup)?, unique("value-of-a-found-key"));
    let (key, other) = (keys.age()?, keys.age()?);
    let name = unique("sops-age");
    let text = keys.encrypt_secret(&secret(target.name(), "token", "token", &value), &key)?;
    fleet.repository("app", &Commit::new().file("secret.yaml", text)).await?;
    let decryption = format!("decryption: {{provider: sops, secretRef: {{name: {name}}}}}");
    fleet.apply(&at_home(home.name(), &[&decryption], "./")).await?;
    // Nobody has it: both places are named.
    let nowhere = format!("not found on the hub, nor in namespace '{}' of the cluster", home.name());
    fleet.fails("kustomization/app", "BuildFailed", &[&nowhere, &name]).await?;
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    let args = ["create", "secret", "generic", &name, "--namespace", home.name(), &literal];
    fleet.cluster.kubectl().run(&args).await?;
    fleet.reconcile("kustomization/app").await?;
    fleet.ready("kustomization/app").await?;
    has(&fleet, target.name(), "token", "token", &value).await?;
    let found = lookups(&fleet, "app").await?;
    ensure!(found[0]["name"] == name.as_str() && found[0]["location"] == "Cluster", "{found}");
    decrypted_with(&fleet, "app", &[format!("age {}", key.recipient)]).await?;

    // Once the hub has one of that name, that one counts, and it is another key.
    let literal = format!("--from-literal=age.agekey={}", other.identity);
    fleet.run(&["create", "secret", "generic", &name, &literal]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["cannot recover the data key", &key.recipient]).await?;
    fleet.run(&["delete", "secret", &name]).await?;
    fleet.ready("kustomization/app").await.map(drop)
}

/// A key that comes, changes or goes in the cluster starts a reconciliation there and then: the interval is an hour, and nobody asks.
#[tokio::test]
async fn a_changed_key_of_the_cluster_starts_a_reconciliation() -> Result<()> {
    let fleet = Fleet::start("sops-changed").await?;
    let (target, home) =
        (fleet.cluster.namespace("sops-changed").await?, fleet.cluster.namespace("sops-home").await?);
    let (ns, cluster) = (target.name(), fleet.cluster.kubectl());
    let (keys, first, second) = (Keys::new(&fleet.setup)?, unique("first-value"), unique("second-value"));
    let (old, new) = (keys.age()?, keys.age()?);
    let name = unique("sops-age");
    let of = |value: &str, key: &AgeKey| keys.encrypt_secret(&secret(ns, "token", "token", value), key);
    let repository = fleet.repository("app", &Commit::new().file("secret.yaml", of(&first, &old)?)).await?;
    let here = format!("decryption: {{provider: sops, location: Cluster, secretRef: {{name: {name}}}}}");
    fleet.apply(&at_home(home.name(), &[&here, "retryInterval: 1h"], "./")).await?;
    fleet.fails("kustomization/app", "BuildFailed", &[&name, "not found"]).await?;
    // It comes.
    let literal = format!("--from-literal=age.agekey={}", old.identity);
    cluster.run(&["create", "secret", "generic", &name, "--namespace", home.name(), &literal]).await?;
    has(&fleet, ns, "token", "token", &first).await?;
    fleet.ready("kustomization/app").await?;
    // It is rotated: the file comes first, and waits for its key.
    repository.commit("main", "Rotated", &Commit::new().file("secret.yaml", of(&second, &new)?))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "BuildFailed", &["cannot recover the data key", &new.recipient]).await?;
    let both = format!(r#"{{"stringData":{{"new.agekey":"{}"}}}}"#, new.identity);
    cluster.run(&["patch", "secret", &name, "--namespace", home.name(), "--type=merge", "-p", &both]).await?;
    has(&fleet, ns, "token", "token", &second).await?;
    fleet.ready("kustomization/app").await?;
    // It goes: nothing goes with it, and it is told.
    cluster.run(&["delete", "secret", &name, "--namespace", home.name()]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &[&name, "not found"]).await?;
    has(&fleet, ns, "token", "token", &second).await
}
