//! What a unit of work puts is written at once or with its version: either way it sees its own changes, and so does who comes after it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use roadstead_api::KindId;
use roadstead_hub_store::{EventType, Filter, Key, Part, Sealer, Store, Stored};
use roadstead_model::ResourceUid;
use roadstead_tests::{PATIENCE, TestDatabase};
use serde_json::{Value, json};

const KIND: KindId = KindId::Kustomization;
const OBJECTS: u8 = 3;
/// The last object of a case.
const END: &str = "end";
/// Steps of a case at most.
const STEPS: usize = 24;

#[derive(Debug, Clone)]
enum Step {
    /// Writes a status, which waits; makes the object where it is not there.
    Status(u8),
    /// Writes a spec, which does not.
    Spec(u8),
    Remove(u8),
    /// Reads it by its name, or by its uid.
    Read(u8, bool),
    List,
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let object = || 0..OBJECTS;
    prop_oneof![
        5 => object().prop_map(Step::Status),
        3 => object().prop_map(Step::Spec),
        1 => object().prop_map(Step::Remove),
        3 => (object(), any::<bool>()).prop_map(|(of, by_name)| Step::Read(of, by_name)),
        1 => proptest::strategy::Just(Step::List),
        2 => proptest::strategy::Just(Step::Commit),
    ]
}

/// What an object holds: of its spec and of its status.
type Held = (u64, u64);

fn held(stored: &Stored) -> Held {
    let of = |part: &str| stored.object[part]["value"].as_u64().unwrap_or_default();
    (of("spec"), of("status"))
}

fn name(object: u8) -> String {
    format!("app-{object}")
}

fn content((spec, status): Held) -> Value {
    // Longer than what a row holds within itself.
    let filling = "x".repeat(4000);
    json!({ "spec": { "value": spec }, "status": { "value": status, "filling": filling } })
}

type Told = (EventType, u8, Held);

/// What watches are told of an object that was so before a commit, and is so after it.
fn between(of: u8, before: Option<&(ResourceUid, Held)>, after: Option<&(ResourceUid, Held)>) -> Vec<Told> {
    match (before, after) {
        (Some((old, before)), Some((new, after))) if old == new => {
            if before == after {
                Vec::new()
            } else {
                vec![(EventType::Modified, of, *after)]
            }
        }
        (before, after) => {
            let gone = before.map(|(_, held)| (EventType::Deleted, of, *held));
            gone.into_iter().chain(after.map(|(_, held)| (EventType::Added, of, *held))).collect()
        }
    }
}

/// Makes the steps, and holds each answer against what it has to be.
async fn check(store: &Store, namespace: &str, steps: Vec<Step>) -> Result<()> {
    let mut now: BTreeMap<u8, Held> = BTreeMap::new();
    let mut uids: BTreeMap<u8, ResourceUid> = BTreeMap::new();
    let mut committed = BTreeMap::new();
    let mut changes = Vec::new();
    let first = store.last_version().await?;
    let mut watch = store.watch(KIND, first).await?;
    let mut tx = store.begin().await?;
    // Each value is another one: what is put back as it was is a change to watches.
    for (value, step) in (1..).zip(steps.into_iter().chain([Step::Commit])) {
        match step {
            Step::Status(of) | Step::Spec(of) => {
                let is_spec = matches!(step, Step::Spec(..));
                let Some(mut stored) = tx.get(KIND, namespace, &name(of)).await? else {
                    let fresh = if is_spec { (value, 0) } else { (0, value) };
                    let stored =
                        Stored::new(KIND, namespace, &name(of), Timestamp::UNIX_EPOCH, content(fresh));
                    uids.insert(of, stored.uid);
                    ensure!(tx.put_new(stored).await?, "there is one already");
                    now.insert(of, fresh);
                    continue;
                };
                let mut next = held(&stored);
                ensure!(Some(&next) == now.get(&of), "{of}: {next:?} was read for {now:?}");
                *(if is_spec { &mut next.0 } else { &mut next.1 }) = value;
                stored.generation += i64::from(is_spec);
                let metadata = stored.object["metadata"].take();
                stored.object = content(next);
                stored.object["metadata"] = metadata;
                tx.put(stored).await?;
                now.insert(of, next);
            }
            Step::Remove(of) => {
                if let Some(uid) = uids.remove(&of) {
                    tx.remove(uid).await?;
                    now.remove(&of);
                }
            }
            Step::Read(of, by_name) => {
                let found = match uids.get(&of) {
                    Some(uid) if !by_name => tx.get_by_uid(*uid).await?,
                    _ => tx.get(KIND, namespace, &name(of)).await?,
                };
                let found = found.as_ref().map(held);
                ensure!(found == now.get(&of).copied(), "{of}: {found:?} for {now:?}");
            }
            Step::List => {
                let listed: Vec<_> = tx.list(KIND, namespace).await?.iter().map(held).collect();
                ensure!(listed == now.values().copied().collect::<Vec<_>>(), "{listed:?} for {now:?}");
            }
            Step::Commit => {
                tx.commit().await?;
                let after: BTreeMap<u8, (ResourceUid, Held)> =
                    now.iter().map(|(of, held)| (*of, (uids[of], *held))).collect();
                changes.extend((0..OBJECTS).flat_map(|of| between(of, committed.get(&of), after.get(&of))));
                committed = after;
                let mut listed = Vec::new();
                let filter = Filter { namespace: namespace.to_owned(), ..Filter::default() };
                store
                    .list_each(KIND, &filter, Part::default(), 100, |stored| listed.push(held(&stored)))
                    .await?;
                ensure!(listed == now.values().copied().collect::<Vec<_>>(), "{listed:?} for {now:?}");
                tx = store.begin().await?;
            }
        }
    }
    let mut told = BTreeMap::<u8, Vec<(String, Held)>>::new();
    for (type_, of, held) in changes {
        told.entry(of).or_default().push((format!("{type_:?}"), held));
    }
    // Whatever else watches are told comes before this.
    tx.put_new(Stored::new(KIND, namespace, END, Timestamp::UNIX_EPOCH, json!({}))).await?;
    tx.commit().await?;
    let mut seen = BTreeMap::<u8, Vec<(String, Held)>>::new();
    loop {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await.context("an event")??;
        let (type_, object) = (format!("{:?}", event.type_()), event.object());
        if object.name == END {
            break;
        }
        let of = object.name.strip_prefix("app-").context("a name")?.parse()?;
        seen.entry(of).or_default().push((type_, held(object)));
    }
    ensure!(seen == told, "watches were told {seen:?} of {told:?}");
    Ok(())
}

#[test]
fn a_unit_of_work_sees_what_it_put_and_so_does_who_comes_after_it() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (database, store) = runtime.block_on(async {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        Ok::<_, anyhow::Error>((database, store))
    })?;
    let case = std::cell::Cell::new(0_u32);
    let steps = proptest::collection::vec(step(), 1..STEPS);
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let checked = runtime.block_on(check(&store, &format!("case-{}", case.get()), steps));
        checked.map_err(|error| TestCaseError::fail(format!("{error:?}")))
    })?;
    drop(database);
    Ok(())
}
