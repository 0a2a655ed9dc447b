//! Keys that the cluster has and the hub does not.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, unique};

use crate::decryption::{Keys, at_home, has, lookups, secret};

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

    // Once the hub has one of that name, that one counts, and it is another key.
    let literal = format!("--from-literal=age.agekey={}", other.identity);
    fleet.run(&["create", "secret", "generic", &name, &literal]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["cannot recover the data key", &key.recipient]).await?;
    fleet.run(&["delete", "secret", &name]).await?;
    fleet.ready("kustomization/app").await.map(drop)
}
