//! Watching what was applied, and asking nothing about what stands, against a real apiserver.

#[cfg(test)]
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_apply::{Applied, AsApplied, Difference, Footprint, Ledger, Sight, Standing};
use roadstead_model::{Digest, ObjectRef};
use serde_json::{Value, json};
use support::{Fixture, actions, config_map, deployment, service};
use tokio::time::Instant;

/// How many ConfigMaps there are.
const MAPS: usize = 60;

/// What was applied, and what was seen.
#[derive(Default)]
struct Book {
    applied: Mutex<HashMap<ObjectRef, Applied>>,
    seen: Mutex<HashMap<ObjectRef, Option<Footprint>>>,
    complete: Mutex<usize>,
    /// Nothing is taken to stand.
    doubted: Mutex<bool>,
}

fn of<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn take(&self, sight: Sight) {
        let mut seen = of(&self.seen);
        match sight {
            Sight::Listed(object, footprint) | Sight::Seen(object, footprint) => {
                seen.insert(object, Some(footprint));
            }
            Sight::Gone(object) => {
                seen.insert(object, None);
            }
            Sight::Complete { .. } => *of(&self.complete) += 1,
            Sight::Lost | Sight::Resumed => {}
        }
    }

    fn standing(&self, object: &ObjectRef) -> Option<Standing> {
        let applied = of(&self.applied);
        let seen = of(&self.seen);
        let footprint = seen.get(object)?.as_ref()?;
        Some(applied.get(object)?.footprint.compare(footprint))
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            ensure!(Instant::now() < deadline, "not so: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Ledger for Book {
    fn stands(&self, object: &ObjectRef, sent: &Digest) -> bool {
        if *of(&self.doubted) {
            return false;
        }
        let same = of(&self.applied).get(object).is_some_and(|one| one.sent == *sent);
        same && self.standing(object) == Some(Standing::AsApplied)
    }

    fn was_other(&self, object: &ObjectRef, sent: &Digest) -> Option<bool> {
        of(&self.applied).get(object).map(|one| one.sent != *sent)
    }

    fn as_applied(&self, object: &ObjectRef) -> Option<AsApplied> {
        let applied = of(&self.applied);
        let one = applied.get(object).filter(|one| one.is_as_sent && !one.is_shared)?;
        let mut version = one.footprint.version();
        match of(&self.seen).get(object) {
            Some(Some(seen)) if one.footprint.compare(seen) != Standing::AsApplied => return None,
            Some(Some(seen)) => version = version.max(seen.version()),
            Some(None) => return None,
            None => {}
        }
        Some(AsApplied { sent: Some(one.sent), footprint: one.footprint.clone(), version })
    }

    fn wants_differences(&self) -> bool {
        false
    }

    fn differs(&self, _: &ObjectRef, _: Difference) {}

    fn note(&self, object: &ObjectRef, applied: Applied) {
        of(&self.applied).insert(object.clone(), applied);
    }
}

#[tokio::test]
async fn what_is_seen_to_stand_is_not_asked_about() -> Result<()> {
    let mut fixture = Fixture::new().await?;
    let book = Arc::new(Book::default());
    fixture.engine = fixture.engine.with_ledger(Arc::clone(&book) as Arc<dyn Ledger>);
    let mut objects: Vec<Value> = (0..MAPS).map(|number| config_map(&format!("map-{number}"), "1")).collect();
    let outcome = fixture.apply(&objects).await;
    ensure!(outcome.error.is_none(), "{:?}", outcome.error);
    let inventory = outcome.inventory;
    let map = |name: &str| inventory.iter().find(|object| object.name == name).cloned().context("the map");
    let first = map("map-0")?;
    let scope = of(&book.applied)[&first].scope.clone();
    let watching = tokio::spawn({
        let (engine, book) = (fixture.engine.clone(), Arc::clone(&book));
        async move { engine.watch_owned(&scope, &mut |sight| book.take(sight)).await }
    });
    book.until("all are listed", |book| *of(&book.complete) == 1).await?;
    ensure!(inventory.iter().all(|object| book.standing(object) == Some(Standing::AsApplied)));

    fixture.requests();
    let outcome = fixture.apply_after(&inventory, &objects).await;
    ensure!(actions(&outcome).iter().all(|action| action.ends_with("unchanged")), "{:?}", outcome.changes);
    let requests = fixture.requests();
    ensure!(requests.is_empty(), "nothing was changed: {requests:?}");

    // What another writes beside it, again and again, changes nothing about that.
    for count in 0..20 {
        let churn = json!({"metadata": {"annotations": {"example.test/count": count.to_string()}}});
        let path = fixture.core("configmaps", "map-1");
        fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&churn)).await?;
    }
    let churned = map("map-1")?;
    let has_annotation = |book: &Book| {
        let seen = of(&book.seen);
        let applied = of(&book.applied);
        let now = seen.get(&churned).and_then(Option::as_ref);
        now.is_some_and(|now| !applied[&churned].footprint.writers_since(now).is_empty())
    };
    book.until("the churn is seen", has_annotation).await?;
    let outcome = fixture.apply_after(&inventory, &objects).await;
    ensure!(outcome.error.is_none(), "{:?}", outcome.error);
    let requests = fixture.requests();
    ensure!(requests.is_empty(), "annotations of others are nothing to us: {requests:?}");

    // One of all is to be another.
    a_second_later(&book).await?;
    objects[2] = config_map("map-2", "2");
    let outcome = fixture.apply_after(&inventory, &objects).await;
    let configured = actions(&outcome).into_iter().filter(|action| action.ends_with("configured"));
    ensure!(configured.eq(["ConfigMap/map-2 configured".to_owned()]), "{:?}", outcome.changes);
    let requests = fixture.requests();
    ensure!(requests.len() == 2, "a dry-run and a write: {requests:?}");

    // One is changed by another, one is deleted, and one loses its label.
    let path = fixture.core("configmaps", "map-3");
    let patch = json!({"data": {"k": "by hand"}});
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&patch)).await?;
    fixture.request("DELETE", &fixture.core("configmaps", "map-4"), None).await?;
    let path = fixture.core("configmaps", "map-5");
    let patch = json!({"metadata": {"labels": {"fleet.roadstead.dev/owner": null}}});
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&patch)).await?;
    let (changed, deleted, stripped) = (map("map-3")?, map("map-4")?, map("map-5")?);
    book.until("all of it is seen", |book| {
        let is_gone = |object: &ObjectRef| of(&book.seen).get(object) == Some(&None);
        book.standing(&changed) == Some(Standing::Changed) && is_gone(&deleted) && is_gone(&stripped)
    })
    .await?;
    fixture.requests();
    let outcome = fixture.apply_after(&inventory, &objects).await;
    let mut written = actions(&outcome);
    written.retain(|action| !action.ends_with("unchanged"));
    ensure!(
        written == ["ConfigMap/map-3 configured", "ConfigMap/map-4 created", "ConfigMap/map-5 adopted"],
        "{written:?}"
    );
    let requests = fixture.requests();
    ensure!(requests.len() == 8, "two or three for each: {requests:?}");
    watching.abort();
    Ok(())
}

/// Waits until the apiserver's times of what is written are others than those of what was written before.
async fn a_second_later(book: &Book) -> Result<()> {
    let began = Instant::now();
    book.until("a second is over", |_| began.elapsed() > Duration::from_millis(1100)).await
}

async fn with_book() -> Result<(Fixture, Arc<Book>)> {
    let mut fixture = Fixture::new().await?;
    let book = Arc::new(Book::default());
    fixture.engine = fixture.engine.with_ledger(Arc::clone(&book) as Arc<dyn Ledger>);
    Ok((fixture, book))
}

#[tokio::test]
async fn what_is_doubted_is_asked_about_once() -> Result<()> {
    let (fixture, book) = with_book().await?;
    let objects = [config_map("a", "1"), config_map("b", "1"), service("c")];
    let outcome = fixture.apply(&objects).await;
    ensure!(outcome.error.is_none(), "{:?}", outcome.error);
    *of(&book.doubted) = true;
    fixture.requests();
    // Within the second in which it was written, and after that.
    for _ in 0..2 {
        let again = fixture.apply_after(&outcome.inventory, &objects).await;
        ensure!(actions(&again).iter().all(|action| action.ends_with("unchanged")), "{:?}", again.changes);
        let requests = fixture.requests();
        ensure!(requests.len() == 3, "a dry-run for each: {requests:?}");
        a_second_later(&book).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_that_nobody_saw_is_seen_by_the_answer() -> Result<()> {
    let (fixture, book) = with_book().await?;
    *of(&book.doubted) = true;
    let mut inventory = Vec::new();
    let path = fixture.core("configmaps", "a");
    // Many times, so that our write, the other and the look after it fall into one second.
    for count in 0..40 {
        let outcome = fixture.apply_after(&inventory, &[config_map("a", "1")]).await;
        ensure!(outcome.error.is_none(), "{:?}", outcome.error);
        let wanted = if count == 0 { "ConfigMap/a created" } else { "ConfigMap/a configured" };
        ensure!(actions(&outcome) == [wanted], "{count}: {:?}", outcome.changes);
        inventory = outcome.inventory;
        ensure!(fixture.get(&path).await?["data"] == json!({"k": "1"}), "{count}");
        let patch = if count % 2 == 0 { json!({"data": {"k": "by hand"}}) } else { json!({"data": null}) };
        fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&patch)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn another_form_of_the_same_is_unchanged() -> Result<()> {
    let (fixture, book) = with_book().await?;
    let with_cpu = |cpu: &str| {
        let mut object = deployment("a", 0, &json!({}));
        object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        object
    };
    let outcome = fixture.apply(&[with_cpu("1000m")]).await;
    ensure!(outcome.error.is_none(), "{:?}", outcome.error);
    a_second_later(&book).await?;
    let again = fixture.apply_after(&outcome.inventory, &[with_cpu("1")]).await;
    ensure!(actions(&again) == ["Deployment/a unchanged"], "{:?}", again.changes);
    Ok(())
}

#[tokio::test]
async fn what_changes_many_times_within_a_second_is_applied_each_time() -> Result<()> {
    let (fixture, _book) = with_book().await?;
    let path = fixture.core("configmaps", "a");
    let mut inventory = Vec::new();
    let mut reads = 0;
    for count in 0..60 {
        let value = count.to_string();
        let outcome = fixture.apply_after(&inventory, &[config_map("a", &value)]).await;
        ensure!(outcome.error.is_none(), "{:?}", outcome.error);
        inventory = outcome.inventory;
        reads += fixture.requests().iter().filter(|request| request.starts_with("GET ")).count();
        let live = fixture.get(&path).await?;
        ensure!(live["data"]["k"] == value, "{count}: {live}");
    }
    ensure!(reads > 0, "of two within a second the answer tells nothing");
    Ok(())
}

#[tokio::test]
async fn what_others_say_on_the_object_is_read_first() -> Result<()> {
    let (fixture, book) = with_book().await?;
    let names = ["edited", "left", "leaving"];
    let objects = names.map(|name| config_map(name, "1"));
    let outcome = fixture.apply(&objects).await;
    ensure!(outcome.error.is_none(), "{:?}", outcome.error);
    a_second_later(&book).await?;
    let write = async |name: &str, manager: &str, patch: Value| {
        let path = format!("{}?fieldManager={manager}", fixture.core("configmaps", name));
        fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&patch)).await
    };
    write("edited", "kubectl-edit", json!({"data": {"extra": "by hand"}})).await?;
    let disabled =
        json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}}});
    write("left", "somebody", disabled).await?;
    write("leaving", "somebody", json!({"metadata": {"finalizers": ["example.test/wait"]}})).await?;
    fixture.request("DELETE", &fixture.core("configmaps", "leaving"), None).await?;

    let changed = ["edited", "left"].map(|name| config_map(name, "2"));
    let again = fixture.apply_after(&outcome.inventory, &changed).await;
    ensure!(again.error.is_none(), "{:?}", again.error);
    ensure!(
        actions(&again) == ["ConfigMap/edited configured", "ConfigMap/left skipped"],
        "{:?}",
        again.changes
    );
    let edited = fixture.get(&fixture.core("configmaps", "edited")).await?;
    ensure!(edited["data"] == json!({"k": "2"}), "what kubectl added is gone: {edited}");
    let left = fixture.get(&fixture.core("configmaps", "left")).await?;
    ensure!(left["data"] == json!({"k": "1"}), "{left}");
    let refused = fixture.apply_after(&outcome.inventory, &[config_map("leaving", "2")]).await;
    let refused = refused.error.context("it is being deleted")?.to_string();
    ensure!(refused.contains("it is being deleted"), "{refused}");
    write("leaving", "somebody", json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

#[tokio::test]
async fn whoever_may_not_watch_is_told() -> Result<()> {
    let fixture = Fixture::new().await?;
    let book = Arc::new(Book::default());
    let engine = fixture.engine.with_ledger(Arc::clone(&book) as Arc<dyn Ledger>);
    let namespace = fixture.namespace.clone();
    let fixture = Fixture { engine, ..fixture };
    let outcome = fixture.apply(&[config_map("a", "1")]).await;
    let object = outcome.inventory.first().context("the map")?;
    let scope = of(&book.applied)[object].scope.clone();
    let account = roadstead_model::ServiceAccount { namespace, name: "nobody".to_owned() };
    let nobody = fixture.engine.impersonate(account);
    let why = tokio::time::timeout(Duration::from_secs(30), nobody.watch_owned(&scope, &mut |_| ())).await?;
    ensure!(why.contains("forbidden"), "{why}");
    Ok(())
}
