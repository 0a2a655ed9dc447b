//! Objects that go from one applier to another, as the inventory and the attempts of both know it.

mod support;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{BuiltObjects, Key, Moves, OldOwner, Sealer, Store};
use roadstead_model::{Action, ApplierUid, Attempt, ClusterUid, Digest, ObjectRef, ObjectResult};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};

const OLD: &str = "Kustomization apps/old";

fn map(name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "apps".to_owned(),
        name: name.to_owned(),
    }
}

struct Site {
    database: TestDatabase,
    store: Store,
    cluster: ClusterUid,
    old: ApplierUid,
    new: ApplierUid,
}

impl Site {
    /// A cluster on which the old owner has these ConfigMaps.
    async fn new(owned: &[&str]) -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        let (old, new, cluster) = (ApplierUid::random(), ApplierUid::random(), ClusterUid::random());
        let owned: Vec<ObjectRef> = owned.iter().map(|name| map(name)).collect();
        let mut tx = store.begin().await?;
        ensure!(tx.announce(cluster, old, &owned).await?.is_empty());
        tx.commit().await?;
        Ok(Self { database, store, cluster, old, new })
    }

    /// A build of these ConfigMaps: in the namespace `apps`, or in none that it says.
    async fn build(&self, names: &[&str], says_namespace: bool) -> Result<Digest> {
        let objects: Vec<Value> = names
            .iter()
            .map(|name| match says_namespace {
                true => json!({ "g": "", "k": "ConfigMap", "ns": "apps", "n": name }),
                false => json!({ "k": "ConfigMap", "n": name }),
            })
            .collect();
        self.stored(&json!(objects)).await
    }

    /// A build of these objects.
    async fn stored(&self, objects: &Value) -> Result<Digest> {
        let digest = Digest::of(objects.to_string().as_bytes());
        let mut connection = self.database.connect().await?;
        for sql in [
            "INSERT INTO blob (digest, size, sealed) VALUES ($1, 1, false) ON CONFLICT DO NOTHING",
            "INSERT INTO build_labels (build_digest, objects) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        ] {
            let query = sqlx::query(sql).bind(digest.as_bytes().as_slice());
            let query = if sql.contains("$2") { query.bind(objects) } else { query };
            query.execute(&mut connection).await?;
        }
        Ok(digest)
    }

    fn old<'a>(&self, built: Option<BuiltObjects<'a>>) -> OldOwner<'a> {
        OldOwner { applier: self.old, cluster: self.cluster, built }
    }

    /// The names of what goes to the new owner.
    async fn moved(&self, old: &OldOwner<'_>, new: &BuiltObjects<'_>) -> Result<Vec<String>> {
        let mut tx = self.store.begin().await?;
        let moved = tx.hand_over(old, OLD, self.new, new).await?;
        tx.commit().await?;
        Ok(moved.into_iter().map(|object| object.name).collect())
    }

    async fn opened(&self, applier: ApplierUid, build: Digest) -> Result<Attempt> {
        let now = self.store.now().await?;
        let mut tx = self.store.begin().await?;
        let spec = support::dispatch("new", build);
        let attempt = support::open(&mut tx, self.cluster, applier, &spec, now).await?;
        tx.commit().await?;
        Ok(attempt)
    }

    async fn settled(&self, attempt: Attempt, owned: &[ObjectRef]) -> Result<()> {
        let mut tx = self.store.begin().await?;
        tx.settle(self.cluster, self.new, attempt, owned, &[]).await?;
        tx.commit().await?;
        Ok(())
    }
}

fn built(builds: &[Digest]) -> BuiltObjects<'_> {
    BuiltObjects { builds, substituted: false, default_namespace: "apps" }
}

#[tokio::test]
async fn an_attempt_that_did_not_know_of_it_does_not_settle_what_was_handed_over() -> Result<()> {
    let site = Site::new(&["stays", "goes"]).await?;
    let Site { store, cluster, old, new, .. } = &site;
    let build = [site.build(&["goes", "none"], true).await?];
    let first = site.opened(*new, build[0]).await?;

    let all = site.old(None);
    ensure!(site.moved(&all, &built(&build)).await? == ["goes"]);
    ensure!(store.inventory(*cluster, *old).await? == [map("stays")]);
    ensure!(store.holdings(*new).await?.handed && !store.holdings(*old).await?.handed);
    ensure!(site.moved(&all, &built(&build)).await?.is_empty(), "nothing goes twice");
    // The attempt that was under way owned nothing of it, and ends.
    site.settled(first, &[]).await?;
    ensure!(store.inventory(*cluster, *new).await? == [map("goes")], "it would be nobody's");

    // The next one knows of it, and says so.
    let second = site.opened(*new, build[0]).await?;
    ensure!(!store.holdings(*new).await?.handed);
    let history = store.history(*new, None, 1).await?;
    let newest = history.first().context("an attempt")?;
    let told = [ObjectResult { object: map("goes"), action: Action::TakenOver, other: Some(OLD.to_owned()) }];
    ensure!(newest.change_set == told, "{:?}", newest.change_set);
    site.settled(second, &[map("goes")]).await?;
    ensure!(store.inventory(*cluster, *new).await? == [map("goes")]);
    // From now on it is like any other.
    let third = site.opened(*new, build[0]).await?;
    ensure!(store.history(*new, None, 1).await?.first().is_some_and(|newest| newest.change_set.is_empty()));
    site.settled(third, &[]).await?;
    ensure!(store.inventory(*cluster, *new).await?.is_empty());
    Ok(())
}

/// So many objects that what looks at each of them for each of them takes ten seconds.
#[tokio::test]
async fn a_large_inventory_is_settled_compared_and_handed_over_at_once() -> Result<()> {
    const MANY: usize = 5_000;
    let names: Vec<String> = (0..MANY).map(|number| format!("map-{number}")).collect();
    let site = Site::new(&[]).await?;
    let owned: Vec<ObjectRef> = names.iter().map(|name| map(name)).collect();
    let objects: Vec<Value> = names
        .iter()
        .map(|name| json!({ "g": "", "k": "ConfigMap", "ns": "apps", "n": name, "l": { "team": "red" } }))
        .collect();
    let build = site.stored(&json!(objects)).await?;
    // Announced and settled, and all of it but one again.
    for owned in [&owned[..], &owned[1..]] {
        let mut tx = site.store.begin().await?;
        ensure!(tx.announce(site.cluster, site.old, owned).await?.is_empty());
        let began = Instant::now();
        tx.settle(site.cluster, site.old, Attempt(1), owned, &[build]).await?;
        ensure!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
        tx.commit().await?;
    }
    ensure!(site.store.inventory(site.cluster, site.old).await?.len() == MANY - 1);
    // One of what is built is another's, or nobody's; so all that may move is asked for.
    let began = Instant::now();
    let moves = site.store.moves(site.cluster, site.old, &built(&[build])).await?;
    ensure!(moves == Moves::default(), "{moves:?}");
    ensure!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    let red = "SELECT count(*) FROM inventory WHERE labels = '{\"team\": \"red\"}' AND NOT intended";
    let count: i64 = sqlx::query_scalar(red).fetch_one(&mut site.database.connect().await?).await?;
    ensure!(count == MANY as i64 - 1, "{count} have their labels");
    // All but one of them go to another owner.
    let kept = site.build(&["map-1"], true).await?;
    let began = Instant::now();
    let moves = site.store.moves(site.cluster, site.old, &built(&[kept])).await?;
    ensure!(moves.leaves && moves.owners.is_empty(), "{moves:?}");
    ensure!(!site.store.deletes_what_moves(&site.old(Some(built(&[kept]))), &built(&[build])).await?);
    ensure!(site.moved(&site.old(Some(built(&[kept]))), &built(&[build])).await?.len() == MANY - 2);
    ensure!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn what_stays_gets_the_labels_of_what_was_written() -> Result<()> {
    let site = Site::new(&["a", "b", "c"]).await?;
    let mut connection = site.database.connect().await?;
    let objects = json!([
        { "g": "", "k": "ConfigMap", "ns": "apps", "n": "a", "l": { "team": "red" } },
        // In the namespace that the agent chose.
        { "g": "", "k": "ConfigMap", "ns": "", "n": "b", "l": { "team": "blue" } },
        { "g": "", "k": "ConfigMap", "ns": "apps", "n": "gone", "l": { "team": "red" } },
    ]);
    let build = site.stored(&objects).await?;
    let owned = [map("a"), map("b"), map("c")];
    let blue = json!({ "team": "blue" });
    for (written, labels) in [
        (&[] as &[Digest], [json!({}), json!({}), json!({})]),
        (&[build], [json!({ "team": "red" }), blue.clone(), json!({})]),
        (&[], [json!({ "team": "red" }), blue, json!({})]),
    ] {
        let mut tx = site.store.begin().await?;
        tx.settle(site.cluster, site.old, Attempt(1), &owned, written).await?;
        tx.commit().await?;
        let found: Vec<(String, Value, bool)> =
            sqlx::query_as("SELECT name, labels, intended FROM inventory ORDER BY name")
                .fetch_all(&mut connection)
                .await?;
        let wanted: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(str::to_owned)
            .zip(labels)
            .map(|(name, label)| (name, label, false))
            .collect();
        ensure!(found == wanted, "{found:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_the_old_owner_builds_or_may_build_stays_its_own() -> Result<()> {
    let site = Site::new(&["a", "b", "web-prod"]).await?;
    let kept = [site.build(&["a", "web-${env}"], false).await?];
    let wanted = [site.build(&["a", "b", "web-prod"], true).await?];
    // Whoever owns just what it builds has nothing to give or to take, whether or not the build says the namespace.
    for (names, says_namespace, moves) in [
        (&["a", "b", "web-prod"] as &[&str], true, Moves::default()),
        (&["web-prod", "b", "a"], false, Moves::default()),
        (&["a", "b", "web-prod", "new"], true, Moves::default()),
        (&["a", "b"], true, Moves { leaves: true, ..Moves::default() }),
    ] {
        let builds = [site.build(names, says_namespace).await?];
        ensure!(site.store.moves(site.cluster, site.old, &built(&builds)).await? == moves, "{names:?}");
    }
    // As long as variables are not known, no ConfigMap is known to be left out.
    let substituted = BuiltObjects { substituted: true, ..built(&kept) };
    let moves = site.store.moves(site.cluster, site.old, &substituted).await?;
    ensure!(!moves.leaves && moves.owners.is_empty(), "{moves:?}");
    ensure!(site.moved(&site.old(Some(substituted)), &built(&wanted)).await?.is_empty());
    // Without variables it is a name like any other, which nothing has.
    let moves = site.store.moves(site.cluster, site.old, &built(&kept)).await?;
    ensure!(moves.leaves, "{moves:?}");
    let theirs = site.store.moves(site.cluster, site.new, &built(&wanted)).await?;
    ensure!(theirs.owners == [site.old] && !theirs.leaves, "{theirs:?}");
    ensure!(site.moved(&site.old(Some(built(&kept))), &built(&wanted)).await? == ["b", "web-prod"]);
    let after = site.store.moves(site.cluster, site.new, &built(&wanted)).await?;
    ensure!(after.owners == [site.old], "of `a` it is the owner still: {after:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_being_deleted_is_not_handed_over() -> Result<()> {
    let site = Site::new(&["a", "b"]).await?;
    let wanted = [site.build(&["b"], true).await?];
    let deletes = async || site.store.deletes_what_moves(&site.old(None), &built(&wanted)).await;
    ensure!(!deletes().await?, "nothing is under way");
    let both = site.build(&["a", "b"], true).await?;
    site.opened(site.old, both).await?;
    ensure!(!deletes().await?, "what is under way applies it");
    let one = site.build(&["a"], true).await?;
    site.opened(site.old, one).await?;
    ensure!(deletes().await?, "what is under way prunes it");
    sqlx::query("UPDATE reconciliation SET deletes = true, dispatch = dispatch - 'groups'")
        .execute(&mut site.database.connect().await?)
        .await?;
    ensure!(deletes().await?, "what is under way deletes everything");
    Ok(())
}
