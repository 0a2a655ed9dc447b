//! What a GitRepository includes of another namespace: by whose leave, and when that is over.

use anyhow::{Result, bail, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::HubOptions;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::sources::FetchPlan;
use serde_json::{Value, json};

use crate::support::{FLEET, Site, file, git_repository, team_a, web};

const G: KindId = KindId::GitRepository;

/// Three teams; the second one has a repository `fleet`, and there is an admin of the first one.
async fn teams(options: HubOptions) -> Result<(Site, Identity)> {
    let site = Site::with(options).await?;
    for namespace in ["team-a", "team-b", "team-c"] {
        site.namespace(namespace).await?;
    }
    site.source("team-b", "fleet", &[web()]).await?;
    let member = site.member("team-a").await?;
    Ok((site, member))
}

/// A repository that includes this one.
fn including(namespace: &str, name: &str, other: (&str, &str)) -> Value {
    let mut object = git_repository(namespace, name, "https://git.example.com/app.git");
    object["spec"]["include"] = json!([{ "repository": { "name": other.1, "namespace": other.0 } }]);
    object
}

fn grant(kind: &str, from: &str, name: Option<&str>) -> Value {
    let group = match kind {
        "Kustomization" => "kustomize.toolkit.fluxcd.io",
        _ => "source.toolkit.fluxcd.io",
    };
    let mut to = json!({ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository" });
    if let Some(name) = name {
        to["name"] = json!(name);
    }
    json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": "team-b", "name": "for-a" },
        "spec": { "from": [{ "group": group, "kind": kind, "namespace": from }], "to": [to] } })
}

/// That a pass over this repository would fetch it now.
async fn is_fetched(site: &Site, namespace: &str, name: &str) -> Result<()> {
    match site.hub.sources.plan_fetch(site.stored(G, namespace, name).await?.uid).await? {
        FetchPlan::Fetch(_) => Ok(()),
        FetchPlan::Nothing(_) => {
            let (reason, message) = site.ready(G, namespace, name).await?;
            bail!("{namespace}/{name} is not fetched: {reason}: {message}")
        }
    }
}

/// That it is not, for this reason and in these words, which are those of Ready and of what it includes.
async fn is_not(site: &Site, namespace: &str, name: &str, reason: &str, parts: &[&str]) -> Result<()> {
    let stored = site.stored(G, namespace, name).await?;
    let planned = site.hub.sources.plan_fetch(stored.uid).await?;
    ensure!(matches!(planned, FetchPlan::Nothing(_)), "{namespace}/{name} is fetched");
    let stored = site.stored(G, namespace, name).await?;
    let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (type_, status) in [("Ready", "False"), ("IncludeUnavailable", "True")] {
        let found = conditions.iter().find(|one| one["type"] == type_).cloned().unwrap_or_default();
        ensure!(found["status"] == status && found["reason"] == reason, "{type_}: {conditions:#?}");
        let message = found["message"].as_str().unwrap_or_default();
        for part in parts {
            ensure!(message.contains(part), "no `{part}` in: {message}");
        }
    }
    Ok(())
}

async fn not_due(site: &Site) -> Result<()> {
    let sql = "UPDATE schedule SET due_at = 'infinity'";
    sqlx::query(sql).execute(&mut site.database.connect().await?).await?;
    Ok(())
}

async fn is_due(site: &Site, namespace: &str, name: &str) -> Result<bool> {
    let due = sqlx::query_scalar("SELECT due_at < 'infinity' FROM schedule WHERE uid = $1");
    let uid = site.stored(G, namespace, name).await?.uid;
    Ok(due.bind(uid.0).fetch_one(&mut site.database.connect().await?).await?)
}

#[tokio::test]
async fn what_another_namespace_has_is_included_with_leave_only() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    let others = site.member("team-c").await?;
    site.apply_as(&member, including("team-a", "app", ("team-b", "fleet"))).await?;
    site.apply_as(&others, including("team-c", "app", ("team-b", "fleet"))).await?;
    let refused = ["include 'team-b/fleet' is in another namespace", "ReferenceGrant in namespace 'team-b'"];
    is_not(&site, "team-a", "app", "AccessDenied", &refused).await?;
    // Of what is not there the same is said.
    site.apply_as(&member, including("team-a", "guess", ("team-b", "none"))).await?;
    let guessed = ["include 'team-b/none' is in another namespace", "ReferenceGrant in namespace 'team-b'"];
    is_not(&site, "team-a", "guess", "AccessDenied", &guessed).await?;
    for wrong in [
        grant("GitRepository", "team-d", Some("fleet")),
        grant("Kustomization", "team-a", Some("fleet")),
        grant("GitRepository", "team-a", Some("other")),
    ] {
        site.apply(wrong).await?;
        is_not(&site, "team-a", "app", "AccessDenied", &refused).await?;
    }
    // The other team says so, and its word is known at once; it is for the one team, and for the one repository.
    not_due(&site).await?;
    let owner = site.member("team-b").await?;
    site.apply_as(&owner, grant("GitRepository", "team-a", Some("fleet"))).await?;
    ensure!(is_due(&site, "team-a", "app").await?, "the grant wakes nobody");
    ensure!(!is_due(&site, "team-c", "app").await?, "it is not for that one");
    is_fetched(&site, "team-a", "app").await?;
    is_not(&site, "team-c", "app", "AccessDenied", &refused).await?;
    is_not(&site, "team-a", "guess", "AccessDenied", &guessed).await?;
    site.apply_as(&owner, grant("GitRepository", "team-a", None)).await?;
    is_not(&site, "team-a", "guess", "NotFound", &["GitRepository team-b/none not found"]).await?;
    // Taken back, it is over.
    not_due(&site).await?;
    site.delete(KindId::ReferenceGrant, "team-b", "for-a").await?;
    ensure!(is_due(&site, "team-a", "app").await?, "its end wakes nobody");
    is_not(&site, "team-a", "app", "AccessDenied", &refused).await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn who_may_get_what_is_included_gives_leave_by_writing_it() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    site.apply_as(&member, including("team-a", "app", ("team-b", "fleet"))).await?;
    is_not(&site, "team-a", "app", "AccessDenied", &["somebody who may get it has to write the reference"])
        .await?;
    // Not by what somebody with more rights does to it besides.
    site.annotate(G, "team-a", "app", "reconcile.fluxcd.io/requestedAt", "now").await?;
    is_not(&site, "team-a", "app", "AccessDenied", &[]).await?;
    let mut longer = including("team-a", "app", ("team-b", "fleet"));
    longer["spec"]["interval"] = json!("2m");
    site.apply(longer.clone()).await?;
    is_fetched(&site, "team-a", "app").await?;
    // From then on the team has no other part of it put elsewhere, and gets no other address for it; it may stop it, or give it up.
    let mut more = longer.clone();
    more["spec"]["include"][0]["fromPath"] = json!("secrets");
    let error = site.apply_as(&member, more).await.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(error.contains("forbidden") && error.contains("GitRepository team-b/fleet"), "{error}");
    let mut suspended = longer.clone();
    suspended["spec"]["suspend"] = json!(true);
    site.apply_as(&member, suspended).await?;
    site.apply_as(&member, longer).await?;
    is_fetched(&site, "team-a", "app").await?;
    let mut without = git_repository("team-a", "app", "https://git.example.com/app.git");
    without["spec"]["include"] = json!([]);
    site.apply_as(&member, without).await?;
    is_fetched(&site, "team-a", "app").await?;
    site.apply_as(&member, including("team-a", "app", ("team-b", "fleet"))).await?;
    is_not(&site, "team-a", "app", "AccessDenied", &[]).await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn includes_across_namespaces_can_be_turned_off() -> Result<()> {
    let options = HubOptions { no_cross_namespace_refs: true, ..HubOptions::default() };
    let (site, _) = teams(options).await?;
    site.apply(grant("GitRepository", "team-a", None)).await?;
    site.apply(including("team-a", "app", ("team-b", "fleet"))).await?;
    is_not(&site, "team-a", "app", "AccessDenied", &["--no-cross-namespace-refs"]).await?;
    // One's own namespace may be named.
    site.source("team-a", "own", &[web()]).await?;
    site.apply(including("team-a", "app", ("team-a", "own"))).await?;
    is_fetched(&site, "team-a", "app").await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_cycle_through_another_namespace_is_seen() -> Result<()> {
    let (site, _) = teams(HubOptions::default()).await?;
    site.apply(including("team-a", "app", ("team-b", "fleet"))).await?;
    is_fetched(&site, "team-a", "app").await?;
    // A repository of the same name in another namespace is another one.
    site.apply(including("team-b", "app", ("team-a", "app"))).await?;
    let mut fleet = including("team-b", "fleet", ("team-b", "app"));
    fleet["spec"]["url"] = json!("https://git.example.com/fleet.git");
    site.apply(fleet).await?;
    is_not(&site, "team-a", "app", "IncludeCycle", &["app -> team-b/fleet -> team-b/app -> app"]).await?;
    is_not(&site, "team-b", "fleet", "IncludeCycle", &["fleet -> app -> team-a/app -> fleet"]).await?;
    for (namespace, why) in [("Team B", "spec.include[0].repository.namespace"), ("a.b", "namespace")] {
        let error = site.apply(including("team-a", "bad", (namespace, "fleet"))).await.err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        ensure!(error.contains(why), "{namespace}: {error}");
    }
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_git_makes_includes_its_family_and_what_it_has_leave_for() -> Result<()> {
    let sources = [
        including("flux-system", "web", ("flux-system", "shared")),
        git_repository("flux-system", "shared", "https://git.example.com/shared.git"),
        including("flux-system", "thief", ("team-b", "fleet")),
    ];
    let site = team_a(json!({}), &[file("root/sources.yaml", &sources)]).await?;
    site.source("team-b", "fleet", &[web()]).await?;
    site.process("team-a", "app").await?;
    // Where the namespace that Git names lies on the hub.
    let made = site.get(G, "team-a", "web").await?["spec"]["include"].clone();
    ensure!(made == json!([{ "repository": { "name": "shared", "namespace": "team-a" } }]), "{made:#}");
    is_not(&site, "team-a", "web", "NoArtifact", &["no artifact available for include 'shared'"]).await?;
    is_not(&site, "team-a", "thief", "AccessDenied", &["ReferenceGrant in namespace 'team-b'"]).await?;
    site.apply(grant("GitRepository", "team-a", Some("fleet"))).await?;
    is_fetched(&site, "team-a", "thief").await?;
    site.close().await;
    Ok(())
}
