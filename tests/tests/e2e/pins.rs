//! `spec.pin`: a Kustomization that stays at a revision while its source moves on.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};

async fn pin(fleet: &Fleet, name: &str, revision: &str) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"pin\":{{\"revision\":\"{revision}\"}}}}}}");
    fleet.run(&["patch", &format!("kustomization/{name}"), "--type=merge", "-p", &patch]).await.map(drop)
}

#[tokio::test]
async fn a_pinned_kustomization_stays_while_its_source_moves_on() -> Result<()> {
    let fleet = Fleet::start("pins").await?;
    let space = fleet.cluster.namespace("pins").await?;
    let ns = space.name();
    let files = |word: &str| {
        let map = |name: &str| config_map(ns, name, word);
        Commit::new().file("app/map.yaml", map("app")).file("rest/map.yaml", map("rest"))
    };
    let repository = fleet.repository("app", &files("one")).await?;
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    let app = kustomization("app", "app", "./app", &["retryInterval: 5s"]);
    fleet
        .apply(&(app.clone() + &kustomization("rest", "app", "./rest", &["dependsOn: [{name: app}]"])))
        .await?;
    fleet.applied("rest", &first).await?;
    let second = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("rest", &second).await?;

    // Back to what was there.
    pin(&fleet, "app", &format!("main@sha1:{first}")).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(ns, "app", Some("one")).await?;
    let listed = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/appliers?name=app"]).await?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    ensure!(listed["items"][0]["pinned"] == format!("main@sha1:{first}").as_str(), "{listed:#}");
    // The others go on, also one that depends on it.
    let third = repository.commit("main", "Third", &files("three"))?;
    let fourth = repository.commit("main", "Fourth", &files("four"))?;
    fleet.fetch("app").await?;
    fleet.applied("rest", &fourth).await?;
    fleet.cluster.has_word(ns, "rest", Some("four")).await?;
    fleet.cluster.has_word(ns, "app", Some("one")).await?;

    // To a revision that the hub never had, by the commit alone.
    pin(&fleet, "app", &format!("sha1:{third}")).await?;
    fleet.applied("app", &third).await?;
    fleet.cluster.has_word(ns, "app", Some("three")).await?;
    let source = fleet.get("gitrepository/app").await?;
    let revision = source["status"]["artifact"]["revision"].as_str().context("the source's revision")?;
    ensure!(revision.ends_with(&fourth), "the source itself is at {revision}");

    // To one that left the store.
    let mut database = fleet.setup.database().connect().await?;
    let dropped = sqlx::query(
        "WITH builds AS (DELETE FROM build_cache)
         DELETE FROM blob WHERE digest IN (SELECT digest FROM source_artifact WHERE revision = $1)",
    );
    let dropped = dropped.bind(&second).execute(&mut database).await?.rows_affected();
    ensure!(dropped == 1, "{dropped} artifacts were dropped");
    pin(&fleet, "app", &format!("main@sha1:{second}")).await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(ns, "app", Some("two")).await?;

    // What is not there is named, and what was applied stays.
    let nowhere = "0123456789abcdef0123456789abcdef01234567";
    pin(&fleet, "app", &format!("main@sha1:{nowhere}")).await?;
    let parts =
        [nowhere, "of GitRepository 'apps/app', which spec.pin names, is not available: ", "has no commit"];
    fleet.fails("kustomization/app", "ArtifactFailed", &parts).await?;
    fleet.cluster.has_word(ns, "app", Some("two")).await?;
    let refused = fleet.run(&[
        "patch",
        "kustomization/app",
        "--type=merge",
        "-p",
        "{\"spec\":{\"pin\":{\"revision\":\"main@x\"}}}",
    ]);
    let refused = format!("{:#}", refused.await.err().context("a revision that is none was taken")?);
    ensure!(refused.contains("spec.pin.revision: Invalid value"), "{refused}");

    // And it follows its source again.
    fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", "{\"spec\":{\"pin\":null}}"]).await?;
    fleet.applied("app", &fourth).await?;
    eventually("the object is as in the newest commit", PATIENCE, || async {
        fleet.cluster.has_word(ns, "app", Some("four")).await
    })
    .await
}

/// A Secret, and a Deployment-like object with a list of things that have names.
fn files(ns: &str, token: &str, image: &str) -> Commit {
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: token, namespace: {ns}}}\nstringData: {{token: {token}, same: same-value}}\n"
    );
    let pod = format!(
        "apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: pod, namespace: {ns}}}\ntemplate:\n  spec:\n    containers:\n    \
         - {{name: web, image: \"registry.example/{image}\"}}\n"
    );
    Commit::new().file("secret.yaml", secret).file("pod.yaml", pod)
}

#[tokio::test]
async fn builds_of_two_revisions_are_compared_and_secrets_stay_secret() -> Result<()> {
    let fleet = Fleet::start("diff").await?;
    let space = fleet.cluster.namespace("diff").await?;
    let ns = space.name();
    let repository = fleet.repository("app", &files(ns, "canary-one", "web:1")).await?;
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./", &[])).await?;
    fleet.applied("app", &first).await?;
    let view = "/fleet/v1/appliers/Kustomization/apps/app/diff";
    let alone = format!(
        "{:#}",
        fleet.kubectl().run(&["get", "--raw", view]).await.err().context("one build has a diff")?
    );
    ensure!(alone.contains("an earlier build that is another"), "{alone}");

    let more = files(ns, "canary-two", "web:2").file("more.yaml", config_map(ns, "more", "x"));
    let second = repository.commit("main", "Second", &more)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    let text = fleet.kubectl().run(&["get", "--raw", view]).await?;
    ensure!(!text.contains("canary"), "{text}");
    let diff: serde_json::Value = serde_json::from_str(&text)?;
    ensure!(diff["from"]["attempt"] == 1 && diff["to"]["attempt"] == 2, "{diff:#}");
    ensure!(diff["to"]["revision"] == format!("main@sha1:{second}").as_str(), "{diff:#}");
    let told = |name: &str| {
        diff["objects"].as_array().into_iter().flatten().find(|one| one["name"] == name).cloned()
    };
    let pod = told("pod").context("the PodTemplate")?;
    let fields = &pod["fields"];
    ensure!(
        pod["change"] == "changed" && fields.as_array().is_some_and(|fields| fields.len() == 1),
        "{pod:#}"
    );
    ensure!(fields[0]["path"] == ".template.spec.containers[name=web].image", "{pod:#}");
    ensure!(
        fields[0]["from"] == "\"registry.example/web:1\"" && fields[0]["to"] == "\"registry.example/web:2\"",
        "{pod:#}"
    );
    ensure!(told("more").is_some_and(|more| more["change"] == "added"), "{diff:#}");
    let secret = told("token").context("the Secret")?;
    let hashes = &secret["fields"];
    ensure!(hashes.as_array().is_some_and(|fields| fields.len() == 1), "{secret:#}");
    let hash = |which: &str| hashes[0][which].as_str().unwrap_or_default().to_owned();
    ensure!(hash("from").starts_with("hmac:") && hash("from") != hash("to"), "{secret:#}");

    // The other way round, named by revisions and by attempts: the same hashes.
    let back = fleet.kubectl().run(&["get", "--raw", &format!("{view}?from={second}&to=1")]).await?;
    let back: serde_json::Value = serde_json::from_str(&back)?;
    let objects = back["objects"].as_array().context("objects")?;
    let secret = objects.iter().find(|one| one["name"] == "token").context("the Secret")?;
    ensure!(secret["fields"][0]["to"] == hash("from").as_str(), "{secret:#}");
    ensure!(objects.iter().any(|one| one["name"] == "more" && one["change"] == "removed"), "{back:#}");
    let none =
        fleet.kubectl().run(&["get", "--raw", &format!("{view}?to=77")]).await.err().context("77 is none")?;
    ensure!(format!("{none:#}").contains("a build at 77"), "{none:#}");

    let mut database = fleet.setup.database().connect().await?;
    let dropped = sqlx::query(
        "DELETE FROM blob WHERE digest IN (SELECT build_digest FROM reconciliation WHERE attempt = 1)",
    );
    ensure!(dropped.execute(&mut database).await?.rows_affected() == 1, "no build was dropped");
    let gone = fleet.kubectl().run(&["get", "--raw", view]).await.err().context("a build that is gone")?;
    ensure!(format!("{gone:#}").contains("the build of attempt 1 is not stored any more"), "{gone:#}");
    Ok(())
}
