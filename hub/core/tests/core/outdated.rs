//! That an artifact is told to be outdated while something newer is known and cannot be had or stored; with real Git servers and readers.

mod kinds;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::sources::FetchPlan;
use roadstead_hub_core::{HubOptions, Outbound};
use roadstead_model::ResourceUid;
use roadstead_outbound::Policy;
use roadstead_test_gitserver::{Commit, Fault, GitServer, Options, Repository, install_crypto};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Site, git_repository};

const G: KindId = KindId::GitRepository;

/// A hub, a server that it may reach, and sources of its repositories in the namespace `team-a`.
struct Kit {
    site: Site,
    server: GitServer,
    repository: Repository,
}

impl Kit {
    async fn start() -> Result<Self> {
        install_crypto();
        let rule = "127.0.0.1".parse().context("a rule")?;
        let outbound = Outbound { policy: Arc::new(Policy::new(vec![rule])), ..Outbound::default() };
        let site = Site::with(HubOptions { outbound, ..HubOptions::default() }).await?;
        site.namespace("team-a").await?;
        let server = GitServer::start(Options { tls: false, ..Options::default() }).await?;
        let repository = server.add_repository("app.git")?;
        Ok(Self { site, server, repository })
    }

    /// Commits to the repository `app`, and gives the revision.
    fn commit(&self, content: &str) -> Result<String> {
        let commit = self.repository.commit("main", content, &Commit::new().file("a", content))?;
        Ok(format!("main@sha1:{commit}"))
    }

    async fn source(&self, name: &str, more: Value) -> Result<()> {
        let mut source = git_repository("team-a", name, &self.server.url(&format!("{name}.git")));
        source["spec"]["ref"] = json!({ "branch": "main" });
        for (field, value) in more.as_object().into_iter().flatten() {
            source["spec"][field] = value.clone();
        }
        self.site.apply(source).await?;
        Ok(())
    }

    /// Fetches a source, with this fault of the server's.
    async fn fetch(&self, name: &str, fault: Fault) -> Result<()> {
        self.server.fault(fault);
        // Each is tried whatever came of the one before.
        let at = ResourceUid::random().to_string();
        self.site.annotate(G, "team-a", name, "reconcile.fluxcd.io/requestedAt", &at).await?;
        let (sources, uid) = (&self.site.hub.sources, self.site.stored(G, "team-a", name).await?.uid);
        let FetchPlan::Fetch(job) = sources.plan_fetch(uid).await? else { bail!("nothing to fetch") };
        let outcome = sources.fetch(&job, &CancellationToken::new()).await?;
        sources.record_fetch(&job, outcome).await?;
        Ok(())
    }

    /// A condition of `app`: its status, its reason and its message, and the generation that it is of.
    async fn condition(&self, type_: &str) -> Result<Option<(String, i64)>> {
        let status = self.site.get(G, "team-a", "app").await?["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let Some(found) = conditions.iter().find(|one| one["type"] == type_) else { return Ok(None) };
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        let told = format!("{} {}: {}", text("status"), text("reason"), text("message"));
        Ok(Some((told, found["observedGeneration"].as_i64().unwrap_or_default())))
    }

    /// That the artifact is outdated in these words, or that nothing says so.
    async fn is(&self, told: Option<(&str, i64)>) -> Result<()> {
        let found = self.condition("ArtifactOutdated").await?;
        let told = told.map(|(told, generation)| (told.to_owned(), generation));
        ensure!(found == told, "{found:?}, not {told:?}");
        Ok(())
    }

    /// That Ready and this condition are of the failure itself.
    async fn failed(&self, trouble: &str, reason: &str) -> Result<()> {
        let (ready, found) = (self.condition("Ready").await?, self.condition(trouble).await?);
        let message = |found: &Option<(String, i64)>| {
            found.as_ref().and_then(|(told, _)| told.split_once(' ').map(|(_, rest)| rest.to_owned()))
        };
        ensure!(message(&ready) == message(&found), "{ready:?}, and {found:?}");
        ensure!(message(&ready).is_some_and(|told| told.starts_with(reason)), "{ready:?}");
        Ok(())
    }

    async fn artifact(&self) -> Result<String> {
        let status = self.site.get(G, "team-a", "app").await?["status"].clone();
        Ok(status["artifact"]["revision"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test]
async fn a_revision_that_cannot_be_fetched_makes_the_artifact_outdated_until_it_is_there() -> Result<()> {
    let kit = Kit::start().await?;
    let first = kit.commit("one")?;
    kit.source("app", json!({})).await?;
    // Without an artifact none is outdated.
    kit.fetch("app", Fault::CutInPack).await?;
    kit.failed("FetchFailed", "GitOperationFailed").await?;
    kit.is(None).await?;
    kit.fetch("app", Fault::None).await?;
    kit.is(None).await?;
    let second = kit.commit("two")?;
    kit.fetch("app", Fault::CutInPack).await?;
    kit.failed("FetchFailed", "GitOperationFailed").await?;
    let outdated = format!("True NewRevision: new upstream revision '{second}'");
    kit.is(Some((&outdated, 1))).await?;
    ensure!(kit.artifact().await? == first, "the artifact stays");
    // A server that says nothing does not take it back.
    kit.fetch("app", Fault::Status(500)).await?;
    kit.is(Some((&outdated, 1))).await?;
    let third = kit.commit("three")?;
    kit.fetch("app", Fault::CorruptPack).await?;
    kit.is(Some((&format!("True NewRevision: new upstream revision '{third}'"), 1))).await?;
    kit.fetch("app", Fault::None).await?;
    kit.is(None).await?;
    ensure!(kit.artifact().await? == third);
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn one_that_is_refused_is_known_and_the_same_one_is_not_newer() -> Result<()> {
    let kit = Kit::start().await?;
    kit.commit("one")?;
    kit.source("app", json!({})).await?;
    kit.fetch("app", Fault::None).await?;
    // Another spec of the same revision.
    kit.source("app", json!({ "sparseCheckout": ["nothing"] })).await?;
    kit.fetch("app", Fault::None).await?;
    kit.failed("FetchFailed", "GitOperationFailed").await?;
    kit.is(None).await?;
    let keys = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "signers" },
        "stringData": { "own.sshpub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl" } });
    kit.site.apply(keys).await?;
    kit.source("app", json!({ "verify": { "mode": "HEAD", "secretRef": { "name": "signers" } } })).await?;
    let second = kit.commit("two")?;
    kit.fetch("app", Fault::None).await?;
    kit.failed("SourceVerified", "InvalidCommitSignature").await?;
    kit.is(Some((&format!("True NewRevision: new upstream revision '{second}'"), 3))).await?;
    // A spec that cannot be acted on says nothing of where it points to.
    kit.source("app", json!({ "secretRef": { "name": "nothing" } })).await?;
    let uid = kit.site.stored(G, "team-a", "app").await?.uid;
    kit.site.hub.sources.plan_fetch(uid).await?;
    kit.failed("FetchFailed", "AuthenticationFailed").await?;
    kit.is(None).await?;
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn so_is_one_that_cannot_be_stored() -> Result<()> {
    let kit = Kit::start().await?;
    kit.commit("one")?;
    kit.source("app", json!({})).await?;
    kit.fetch("app", Fault::None).await?;
    let quota = |limit: &str| {
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
            "spec": { "hard": { "bytes/artifacts.fleet.roadstead.dev": limit } } })
    };
    kit.site.apply(quota("1")).await?;
    let second = kit.commit("two")?;
    kit.fetch("app", Fault::None).await?;
    kit.failed("StorageOperationFailed", "StorageOperationFailed: exceeded quota").await?;
    kit.is(Some((&format!("True NewRevision: new upstream revision '{second}'"), 1))).await?;
    kit.site.apply(quota("1Mi")).await?;
    kit.fetch("app", Fault::None).await?;
    kit.is(None).await?;
    ensure!(kit.artifact().await? == second);
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn other_artifacts_to_include_make_it_outdated_too() -> Result<()> {
    let kit = Kit::start().await?;
    let first = kit.commit("one")?;
    let shared = kit.server.add_repository("shared.git")?;
    shared.commit("main", "Shared", &Commit::new().file("lib/one", "1"))?;
    kit.source("shared", json!({})).await?;
    kit.fetch("shared", Fault::None).await?;
    kit.source("app", json!({ "include": [{ "repository": { "name": "shared" }, "fromPath": "lib" }] }))
        .await?;
    kit.fetch("app", Fault::None).await?;
    kit.is(None).await?;
    // What is to be included is not there any more.
    shared.commit("main", "Moved", &Commit::new().remove("lib").file("other/one", "1"))?;
    kit.fetch("shared", Fault::None).await?;
    kit.fetch("app", Fault::None).await?;
    kit.failed("IncludeUnavailable", "CopyFailure").await?;
    let changed = "True IncludeChange: included artifacts differ from last observed includes";
    kit.is(Some((changed, 1))).await?;
    ensure!(kit.artifact().await? == first, "the artifact stays");
    // A new commit beside it is what is told, whatever else there is.
    let second = kit.commit("two")?;
    kit.fetch("app", Fault::None).await?;
    kit.is(Some((&format!("True NewRevision: new upstream revision '{second}'"), 1))).await?;
    shared.commit("main", "Back", &Commit::new().file("lib/one", "2"))?;
    kit.fetch("shared", Fault::None).await?;
    kit.fetch("app", Fault::None).await?;
    kit.is(None).await?;
    ensure!(kit.artifact().await? == second);
    kit.site.close().await;
    Ok(())
}
