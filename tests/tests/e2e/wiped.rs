//! What is decrypted is wiped from an agent's memory once it is applied.
//!
//! Looked for is what only the agent's own buffers have: the apiserver takes `stringData` and answers `data`, in base64, which stays in buffers
//! of HTTP and TLS until they are used again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, TestCluster, eventually, kustomization, unique};

use crate::decryption::{Keys, memory, secret};
use crate::secrets::contains;

const SECRETS: usize = 3;
/// How long each piece on the way to the apiserver is held while the values are in use: longer than it takes to read an agent's memory.
const SLOWLY: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_was_decrypted_is_wiped_once_it_is_applied() -> Result<()> {
    let setup = HubSetup::new("wiped").await?;
    let cluster = TestCluster::first()?;
    let (proxied, apiserver) = cluster.through_proxy().await?;
    let space = cluster.namespace("wiped").await?;
    let fleet = Fleet::start_in(setup, cluster, &proxied).await?;
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let mut files = Commit::new();
    let mut values = Vec::new();
    for number in 0..SECRETS {
        let value = unique(&format!("hush-{number}"));
        let text = secret(space.name(), &format!("token-{number}"), "token", &value);
        files = files.file(&format!("{number}.yaml"), keys.encrypt_secret(&text, &key)?);
        values.push(value);
    }
    fleet.repository("app", &files).await?;
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    fleet.run(&["create", "secret", "generic", "sops-age", &literal]).await?;
    let held = || -> Result<usize> {
        let memory = memory(fleet.agent.id())?;
        Ok(values.iter().filter(|value| contains(&memory, value.as_bytes())).count())
    };

    apiserver.slow(SLOWLY);
    let decryption = ["decryption: {provider: sops, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    eventually("the agent has the values to apply them", PATIENCE, || async {
        ensure!(held()? > 0, "none was found");
        Ok(())
    })
    .await?;
    apiserver.open();
    fleet.ready("kustomization/app").await?;
    // What a connection sent stays in its buffers until it sends more.
    eventually("the values are wiped", PATIENCE, || async {
        let found = held()?;
        ensure!(found == 0, "{found} of {SECRETS} values are in the agent's memory");
        Ok(())
    })
    .await
    .context("after it was applied")?;

    // It corrects them all the same.
    let name = ["secret", "token-0", "--namespace", space.name()];
    let kubectl = fleet.cluster.kubectl();
    kubectl.run(&[&["delete"], &name[..]].concat()).await?;
    eventually("what was deleted is there again", PATIENCE, || async { kubectl.get(&name).await.map(drop) })
        .await
}
