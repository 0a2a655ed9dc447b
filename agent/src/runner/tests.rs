//! The runner over a cluster that does what a test says.

mod finishing;
mod flux;
mod guarding;
mod hooks_and_reads;
mod places;
mod returned;
mod told;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use roadstead_agent_policy::{Account, Policy, Rights};
use roadstead_apply::{Desired, Error, HealthRules, Ledger, Manifest, Outcome, Run, Scope, Sight, Waited};
use roadstead_model::{
    Action, ApplierRef, ApplierUid, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, FluxKustomization,
    Generation, Group, Guard, HookPolicy, HubEpoch, ObjectRef, ObjectResult, PendingDeletion, Position,
    Purpose, ReadObject, ServiceAccount, Stage, StageTiming, Step, StepKind,
};
use roadstead_places::Limits;
use roadstead_proto::v1::BuildChunk;
use roadstead_proto::{Backlog, Finished, InventoryAck, OwnedByAnother};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::{NotTaken, Runner, Verdict};
use crate::cluster::{Cluster, Until};
use crate::outbox::{Next, Outbox, Outgoing};

const WITH_VARIABLE: &[u8] = br#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"dev"},"data":{"word":"${word}"}}]"#;
const BUILD: &[u8] = br#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"dev"}}]"#;

/// Notes what is asked of it. Waits last until they are cancelled where `waits_long`.
#[derive(Clone, Default)]
struct Fake {
    log: Arc<Mutex<Vec<String>>>,
    waits_long: bool,
    /// What runs fails.
    never_done: bool,
    /// What is deleted stays.
    never_gone: bool,
    /// What was to be applied last.
    manifests: Arc<Mutex<Vec<Manifest>>>,
    /// What the groups hold, in the order in which they are applied; `a` where nothing is said.
    names: Vec<&'static str>,
    /// Applying takes a permit of this, where there is one, and keeps it from others.
    gate: Option<Arc<Semaphore>>,
    /// Volumes that would have to be recreated.
    volumes: Vec<PendingDeletion>,
}

impl Fake {
    fn note(&self, line: impl Into<String>) {
        self.log.lock().expect("no panic").push(line.into());
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }

    fn count(&self, line: &str) -> usize {
        self.log().iter().filter(|noted| *noted == line).count()
    }
}

fn config_map(name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "dev".to_owned(),
        name: name.to_owned(),
    }
}

fn names(objects: &[ObjectRef]) -> String {
    objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl Cluster for Fake {
    type Ready = Vec<ObjectRef>;

    fn acting_as(&self, account: Option<&ServiceAccount>) -> Self {
        if let Some(account) = account {
            self.note(format!("as {}/{}", account.namespace, account.name));
        }
        self.clone()
    }

    async fn policy(&self) -> Result<Arc<Policy>, String> {
        Ok(Arc::new(Policy::open("roadstead-system")))
    }

    fn guarded(&self, _policy: Arc<Policy>, _account: Option<Account>) -> Self {
        self.clone()
    }

    fn with_health(&self, _rules: Arc<HealthRules>) -> Self {
        self.note("health by rules");
        self.clone()
    }

    fn with_ledger(&self, _ledger: Arc<dyn Ledger>) -> Self {
        self.clone()
    }

    fn under(&self, _guard: Option<&Guard>) -> Self {
        self.clone()
    }

    fn observing(&self) -> Self {
        self.clone()
    }

    fn each_by_itself(&self) -> Self {
        self.clone()
    }

    async fn watch_owned(&self, _scope: &Scope, _tell: &mut (dyn FnMut(Sight) + Send)) -> String {
        std::future::pending().await
    }

    async fn watch_whole(
        &self,
        _scope: &Scope,
        _tell: &mut (dyn FnMut(Sight<serde_json::Value>) + Send),
    ) -> String {
        std::future::pending().await
    }

    async fn scope_of(&self, _object: &ObjectRef) -> Result<Option<Scope>, String> {
        Ok(None)
    }

    fn only(ready: &Self::Ready, wanted: &BTreeSet<ObjectRef>) -> Self::Ready {
        ready.iter().filter(|object| wanted.contains(object)).cloned().collect()
    }

    async fn rights(&self, _account: &Account, _run: &mut Run<'_>) -> Result<Rights, String> {
        Ok(Rights::default())
    }

    fn inspect(ready: &Self::Ready, take: &mut dyn FnMut(&ObjectRef, &serde_json::Value)) {
        ready.iter().for_each(|reference| take(reference, &serde_json::Value::Null));
    }

    async fn has_account(&self, account: &ServiceAccount, _run: &mut Run<'_>) -> Result<bool, Error> {
        Ok(account.name != "missing")
    }

    async fn prepare(&self, desired: Desired, _run: &mut Run<'_>) -> Result<Self::Ready, Error> {
        let before = self.log().iter().filter(|line| line.starts_with("prepare")).count();
        self.note(format!("prepare {}", desired.manifests.len()));
        let is_empty = desired.manifests.is_empty();
        *self.manifests.lock().expect("no panic") = desired.manifests;
        if is_empty {
            return Ok(Vec::new());
        }
        Ok(vec![config_map(self.names.get(before).unwrap_or(&"a"))])
    }

    fn objects(ready: &Self::Ready) -> Vec<ObjectRef> {
        ready.clone()
    }

    async fn volumes_held(
        &self,
        _ready: &Self::Ready,
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        Ok(self.volumes.clone())
    }

    async fn apply(&self, ready: &Self::Ready, previous: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        self.note("apply");
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("open").forget();
        }
        let changes: Vec<ObjectResult> =
            ready.iter().map(|object| ObjectResult::new(object.clone(), Action::Created)).collect();
        for change in &changes {
            (run.events)(roadstead_apply::Event::Applied(change.clone()));
        }
        let inventory = previous.iter().chain(ready).cloned().collect();
        Outcome {
            changes,
            inventory,
            timings: vec![StageTiming { stage: Stage::Apply, micros: 5 }],
            held: Vec::new(),
            error: None,
        }
    }

    async fn deletions(
        &self,
        _owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        let gone = inventory.iter().filter(|object| !keep.contains(object)).cloned();
        Ok(gone.map(|object| PendingDeletion { object, uid: "u".to_owned(), risk: None }).collect())
    }

    async fn claimable(
        &self,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        self.note(format!("look for {} of {of}", objects.len()));
        let found =
            |object: &ObjectRef| PendingDeletion { object: object.clone(), uid: "u".to_owned(), risk: None };
        Ok(objects.iter().map(found).collect())
    }

    async fn claim(
        &self,
        _owner: ApplierUid,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Outcome {
        self.note(format!("claim {} of {of}", names(objects)));
        let changes =
            objects.iter().map(|object| ObjectResult::new(object.clone(), Action::Adopted)).collect();
        Outcome { changes, inventory: objects.to_vec(), ..Outcome::default() }
    }

    async fn give_back(&self, _owner: ApplierUid, inventory: &[ObjectRef], _run: &mut Run<'_>) -> Outcome {
        self.note(format!("give back {}", names(inventory)));
        let changes =
            inventory.iter().map(|object| ObjectResult::new(object.clone(), Action::Configured)).collect();
        Outcome { changes, ..Outcome::default() }
    }

    async fn prune(
        &self,
        _owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Outcome {
        let gone: Vec<_> = inventory.iter().filter(|object| !keep.contains(object)).cloned().collect();
        self.note(format!("delete {}", names(&gone)));
        let changes = gone.into_iter().map(|object| ObjectResult::new(object, Action::Deleted)).collect();
        Outcome { changes, inventory: keep.to_vec(), ..Outcome::default() }
    }

    async fn tell(
        &self,
        event: &ObjectRef,
        content: &serde_json::Value,
        _run: &mut Run<'_>,
    ) -> Result<(), Error> {
        let message = content["message"].as_str().unwrap_or_default();
        self.note(format!("tell {}: {message}", event.namespace));
        Ok(())
    }

    async fn read(&self, object: &ObjectRef, _run: &mut Run<'_>) -> Result<Option<serde_json::Value>, Error> {
        self.note(format!("read {}", object.name));
        let metadata = serde_json::json!({ "name": object.name, "managedFields": [1], "uid": "u" });
        let mut read = serde_json::json!({ "metadata": metadata });
        if object.name == "vars" {
            read["data"] = serde_json::json!({ "word": "c2hl" });
        }
        if object.kind == "Kustomization" {
            let entries = ["a", "old", "dropped"].map(|name| format!("dev_{name}__ConfigMap"));
            let entries = entries.map(|id| serde_json::json!({ "id": id, "v": "v1" }));
            read["spec"] = serde_json::json!({ "suspend": object.name == "suspended" });
            read["status"] = serde_json::json!({ "inventory": { "entries": entries } });
        }
        Ok((object.name != "missing").then_some(read))
    }

    async fn wait(&self, objects: &[ObjectRef], until: Until, run: &mut Run<'_>) -> Waited {
        self.note(match until {
            Until::Healthy => format!("wait {}", objects.len()),
            until => format!("wait {} {until:?}", objects.len()),
        });
        let mut waited =
            Waited { health: Vec::new(), timing: StageTiming { stage: Stage::Wait, micros: 1 }, error: None };
        if (self.never_done && until == Until::Done) || (self.never_gone && until == Until::Gone) {
            waited.error = Some(Error::NotHealthy {
                stage: Stage::Wait,
                unhealthy: Vec::new(),
                total: 1,
                timed_out: false,
            });
        }
        if self.waits_long {
            run.cancel.cancelled().await;
            waited.error = Some(Error::Cancelled { stage: Stage::Wait });
        }
        waited
    }
}

fn dispatch(attempt: i64) -> Dispatch {
    Dispatch {
        key: DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(uuid::Uuid::nil()),
            generation: Generation(1),
            attempt: Attempt(attempt),
            digest: Some(Digest::of(b"a dispatch")),
        },
        spec: spec(vec![
            StepKind::Apply { group: 0 },
            StepKind::Prune,
            StepKind::Wait { objects: vec![], groups: vec![0] },
        ]),
        inventory: vec![config_map("old")],
        given: Vec::new(),
        data_keys: Vec::new(),
        trace: None,
    }
}

fn spec(steps: Vec<StepKind>) -> DispatchSpec {
    DispatchSpec {
        applier: ApplierRef::kustomization("team", "web"),
        purpose: Purpose::Reconcile,
        full: false,
        drift: roadstead_model::DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: roadstead_model::Offline::default(),
        health: Vec::new(),
        guard: None,
        default_namespace: None,
        service_account: None,
        timeout: Duration::from_secs(60),
        groups: vec![Group::of(Digest::of(BUILD))],
        steps: steps.into_iter().map(Step::from).collect(),
    }
}

fn runner(fake: &Fake) -> Runner<Fake> {
    let runner = Runner::new(fake.clone(), Arc::new(Outbox::default()));
    runner.outbox().begin_session();
    runner
}

/// What the hub would get next, progress apart.
async fn told(runner: &Runner<Fake>) -> Outgoing {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match runner.outbox().next(Instant::now()) {
            Next::Message(message) if matches!(*message, Outgoing::Progress(_)) => {}
            Next::Message(message) => return *message,
            Next::At(_) | Next::Nothing => {
                assert!(Instant::now() < deadline, "nothing was told");
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn give_build(runner: &Runner<Fake>) {
    give(runner, BUILD);
    give(runner, WITH_VARIABLE);
}

/// Gives a build; one that nobody waits for is dropped.
fn give(runner: &Runner<Fake>, build: &[u8]) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(build).expect("in memory");
    let data = encoder.finish().expect("in memory");
    runner.builds().take(&BuildChunk {
        digest: Digest::of(build).to_string(),
        total_bytes: data.len() as u64,
        offset: 0,
        data,
        last: true,
        error: String::new(),
    });
}

/// Plays the hub until `found` something in what it is told, builds and intents apart.
async fn play<T>(runner: &Runner<Fake>, mut found: impl FnMut(Outgoing) -> Option<T>) -> T {
    loop {
        match told(runner).await {
            Outgoing::Build(_) => give_build(runner),
            Outgoing::Intent(intent) => {
                let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![] };
                runner.outbox().answer_intent(&intent.key, Ok(ack));
            }
            other => {
                if let Some(found) = found(other) {
                    return found;
                }
            }
        }
    }
}

/// Plays the hub until a dispatch ends.
async fn to_the_end(runner: &Runner<Fake>) -> Finished {
    play(runner, |told| if let Outgoing::Finished(finished) = told { Some(finished) } else { None }).await
}

#[tokio::test]
async fn all_steps_in_their_order_and_nothing_written_before_the_hub_knows() {
    let fake = Fake::default();
    let runner = runner(&fake);
    assert_eq!(runner.dispatch(dispatch(1)), Ok(Verdict::Start));
    assert_eq!(runner.dispatch(dispatch(1)), Ok(Verdict::UnderWay));
    assert!(matches!(told(&runner).await, Outgoing::Build(_)));
    give_build(&runner);
    let Outgoing::Intent(intent) = told(&runner).await else { panic!("an intent") };
    assert_eq!(intent.objects, [config_map("a")]);
    assert_eq!(fake.log(), ["prepare 1"], "something was written before the inventory was");
    let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![] };
    runner.outbox().answer_intent(&intent.key, Ok(ack));
    let finished = to_the_end(&runner).await;
    assert_eq!(fake.log(), ["prepare 1", "apply", "delete ConfigMap/dev/old", "wait 1"]);
    assert_eq!(finished.failure, None);
    assert_eq!(finished.inventory, [config_map("a")]);
    assert_eq!(finished.change_set.len(), 2);
    let timings: Vec<_> = finished.timings.iter().map(|timing| (timing.step, timing.stage)).collect();
    let applied = [Stage::Finish, Stage::Validate, Stage::Apply].map(|stage| (Some(0), stage));
    assert_eq!(timings, [applied.as_slice(), &[(Some(2), Stage::Wait)]].concat());

    // Asked again: told again, nothing done. Then a newer one, and the older one is stale.
    assert_eq!(runner.dispatch(dispatch(1)), Ok(Verdict::Done));
    assert_eq!(to_the_end(&runner).await, finished);
    assert_eq!(runner.dispatch(dispatch(2)), Ok(Verdict::Start));
    assert!(matches!(runner.dispatch(dispatch(1)), Err(NotTaken::Stale { .. })));
    assert_eq!(to_the_end(&runner).await.key.attempt, Attempt(2));
}

/// A dispatch of two groups, of which the second is waited for.
fn two_groups() -> Dispatch {
    let steps = vec![
        StepKind::Apply { group: 0 },
        StepKind::Apply { group: 1 },
        StepKind::Prune,
        StepKind::Wait { objects: vec![], groups: vec![1] },
    ];
    let group = |label: &str| Group { label: label.to_owned(), ..Group::of(Digest::of(BUILD)) };
    let groups = vec![group("first"), group("second")];
    Dispatch { spec: DispatchSpec { groups, ..spec(steps) }, ..dispatch(1) }
}

#[tokio::test]
async fn groups_are_announced_before_they_are_written_and_pruned_once() {
    let fake = Fake { names: vec!["a", "b"], ..Fake::default() };
    let runner = runner(&fake);
    runner.dispatch(two_groups()).expect("taken");
    let mut intended = Vec::new();
    let finished = loop {
        match told(&runner).await {
            Outgoing::Build(_) => give_build(&runner),
            Outgoing::Intent(intent) => {
                intended.push((intent.objects, fake.log().len()));
                let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![] };
                runner.outbox().answer_intent(&intent.key, Ok(ack));
            }
            Outgoing::Finished(finished) => break finished,
            other => panic!("{other:?}"),
        }
    };
    // The second intent holds what was applied before, and comes before anything of its group is written.
    let (a, b) = (config_map("a"), config_map("b"));
    assert_eq!(intended, [(vec![a.clone()], 1), (vec![a.clone(), b.clone()], 3)]);
    let log = ["prepare 1", "apply", "prepare 1", "apply", "delete ConfigMap/dev/old", "wait 1"];
    assert_eq!(fake.log(), log);
    assert_eq!((finished.failure, finished.inventory), (None, vec![a, b]));
    let applied = finished.timings.iter().filter(|timing| timing.stage == Stage::Apply);
    assert_eq!(applied.map(|timing| timing.step).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[tokio::test]
async fn an_object_in_two_groups_is_refused_before_it_is_written_twice() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(two_groups()).expect("taken");
    let finished = to_the_end(&runner).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.position, Position { step: Some(1), stage: Stage::Validate });
    assert_eq!(
        failure.message,
        "ConfigMap/dev/a is in two groups, 'first' and 'second': remove it from one of them"
    );
    assert_eq!(fake.log(), ["prepare 1", "apply", "prepare 1"]);
    // What was owned stays owned: nothing was pruned.
    assert_eq!(finished.inventory, [config_map("old"), config_map("a")]);
}

/// The hub may send a group that became empty, so that what it held before is pruned.
#[tokio::test]
async fn an_empty_group_is_applied_as_nothing_and_holds_nothing_up() {
    const EMPTY: &[u8] = b"[]";
    let fake = Fake::default();
    let runner = runner(&fake);
    let mut empty = two_groups();
    empty.spec.groups[0] = Group { label: "first".to_owned(), ..Group::of(Digest::of(EMPTY)) };
    runner.dispatch(empty).expect("taken");
    let finished = loop {
        match told(&runner).await {
            Outgoing::Build(digest) => give(&runner, if digest == Digest::of(EMPTY) { EMPTY } else { BUILD }),
            Outgoing::Intent(intent) => {
                let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![] };
                runner.outbox().answer_intent(&intent.key, Ok(ack));
            }
            Outgoing::Finished(finished) => break finished,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(finished.failure, None);
    assert_eq!(fake.log()[..4], ["prepare 0", "apply", "prepare 1", "apply"]);
    assert_eq!(fake.log()[4..], ["delete ConfigMap/dev/old", "wait 1"]);
    assert_eq!(finished.inventory, [config_map("a")]);
}

#[tokio::test]
async fn nothing_is_pruned_before_all_groups_were_applied() {
    let fake = Fake::default();
    let runner = runner(&fake);
    let early = spec(vec![StepKind::Apply { group: 0 }, StepKind::Prune]);
    let groups = two_groups().spec.groups;
    runner.dispatch(Dispatch { spec: DispatchSpec { groups, ..early }, ..dispatch(1) }).expect("taken");
    let failure = to_the_end(&runner).await.failure.expect("a failure");
    assert_eq!(failure.position, Position { step: Some(1), stage: Stage::Prune });
    assert_eq!(fake.log(), ["prepare 1", "apply"]);
}

#[tokio::test]
async fn what_another_owns_is_named_and_nothing_is_written() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(dispatch(1)).expect("taken");
    let intent = loop {
        match told(&runner).await {
            Outgoing::Build(_) => give_build(&runner),
            Outgoing::Intent(intent) => break intent,
            other => panic!("{other:?}"),
        }
    };
    let owned = OwnedByAnother { object: config_map("a"), owner: ApplierRef::kustomization("team", "other") };
    let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![owned] };
    runner.outbox().answer_intent(&intent.key, Ok(ack));
    let finished = to_the_end(&runner).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.object, Some(config_map("a")));
    assert_eq!(
        failure.message,
        "ConfigMap/dev/a is owned by Kustomization team/other; nothing was applied: remove it from one of the two"
    );
    assert_eq!(fake.log(), ["prepare 1"]);
    assert_eq!(finished.inventory, [config_map("old")]);
}

#[tokio::test]
async fn an_owner_of_many_objects_is_named_once() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(dispatch(1)).expect("taken");
    let intent = loop {
        match told(&runner).await {
            Outgoing::Build(_) => give_build(&runner),
            Outgoing::Intent(intent) => break intent,
            other => panic!("{other:?}"),
        }
    };
    let owned = |name: String, owner| OwnedByAnother {
        object: config_map(&name),
        owner: ApplierRef::kustomization("team", owner),
    };
    let mut owned_by_another: Vec<_> = (10..50).map(|number| owned(format!("a-{number}"), "other")).collect();
    owned_by_another.push(owned("b".to_owned(), "third"));
    let ack = InventoryAck { key: intent.key.clone(), owned_by_another };
    runner.outbox().answer_intent(&intent.key, Ok(ack));
    assert_eq!(
        to_the_end(&runner).await.failure.expect("a failure").message,
        "ConfigMap/dev/a-10 is owned by Kustomization team/other (the same for 39 more objects); ConfigMap/dev/b is owned by \
         Kustomization team/third; nothing was applied: remove it from one of the two"
    );
}

#[tokio::test]
async fn a_newer_dispatch_ends_the_older_ones_wait() {
    let fake = Fake { waits_long: true, ..Fake::default() };
    let runner = runner(&fake);
    runner.dispatch(dispatch(1)).expect("taken");
    let playing = tokio::spawn({
        let runner = runner.clone();
        async move { to_the_end(&runner).await }
    });
    while !fake.log().contains(&"wait 1".to_owned()) {
        sleep(Duration::from_millis(1)).await;
    }
    let newer = Dispatch { spec: spec(vec![StepKind::Delete]), ..dispatch(2) };
    assert_eq!(runner.dispatch(newer.clone()), Ok(Verdict::Supersede));
    assert_eq!(runner.dispatch(newer), Ok(Verdict::UnderWay));
    let first = playing.await.expect("no panic");
    // The older one's end is told only where the newer one has not ended before it could be sent.
    if first.key.attempt == Attempt(1) {
        assert!(first.failure.expect("cancelled").cancelled);
        let second = to_the_end(&runner).await;
        assert_eq!((second.key.attempt, second.failure), (Attempt(2), None));
    }
    assert_eq!(fake.log().last().map(String::as_str), Some("delete ConfigMap/dev/old"));
}

#[tokio::test]
async fn a_cancelled_dispatch_says_so_and_one_that_the_end_of_the_agent_cut_says_nothing() {
    let fake = Fake { waits_long: true, ..Fake::default() };
    let runner = runner(&fake);
    let waits = spec(vec![StepKind::Wait { objects: vec![config_map("x")], groups: vec![] }]);
    let waiting = Dispatch { spec: waits, ..dispatch(1) };
    runner.dispatch(waiting.clone()).expect("taken");
    assert_eq!(runner.unfinished(), std::slice::from_ref(&waiting.key));
    runner.cancel(&dispatch(7).key);
    runner.cancel(&waiting.key);
    let failure = to_the_end(&runner).await.failure.expect("a failure");
    assert!(failure.cancelled && failure.position.stage == Stage::Wait, "{failure:?}");

    // What was cancelled is not done: the same dispatch is begun again, as the hub sends it in its next session.
    runner.outbox().confirm_finished(&waiting.key);
    assert_eq!(runner.dispatch(waiting), Ok(Verdict::Start));
    runner.stop(Duration::from_secs(5)).await;
    assert_eq!(runner.dispatch(dispatch(3)), Err(NotTaken::Stopping));
    assert!(runner.outbox().unconfirmed().is_empty(), "an end was told though the agent cut it");
}

#[tokio::test]
async fn a_prune_without_a_build_deletes_nothing() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(Dispatch { spec: spec(vec![StepKind::Prune]), ..dispatch(1) }).expect("taken");
    let finished = to_the_end(&runner).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.position, Position { step: Some(0), stage: Stage::Prune });
    assert!(fake.log().is_empty());
    assert_eq!(finished.inventory, [config_map("old")]);
}

#[tokio::test]
async fn the_service_account_is_acted_as() {
    let fake = Fake::default();
    let runner = runner(&fake);
    let account = ServiceAccount { namespace: "dev".to_owned(), name: "deployer".to_owned() };
    let as_account = DispatchSpec { service_account: Some(account), ..spec(vec![StepKind::Delete]) };
    let with_account = Dispatch { spec: as_account, ..dispatch(1) };
    runner.dispatch(with_account).expect("taken");
    assert_eq!(to_the_end(&runner).await.failure, None);
    assert_eq!(fake.log()[0], "as dev/deployer");
}

#[tokio::test]
async fn nothing_is_deleted_for_an_account_that_is_gone_and_nothing_stays_owned() {
    let fake = Fake::default();
    let runner = runner(&fake);
    let account = ServiceAccount { namespace: "dev".to_owned(), name: "missing".to_owned() };
    let as_account = DispatchSpec { service_account: Some(account), ..spec(vec![StepKind::Delete]) };
    let with_account = Dispatch { spec: as_account, ..dispatch(1) };
    runner.dispatch(with_account).expect("taken");
    let finished = to_the_end(&runner).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.position.stage, Stage::Prune);
    assert!(failure.message.contains("dev/missing"), "{}", failure.message);
    assert_eq!(finished.inventory, []);
    assert_eq!(fake.log(), ["as dev/missing"]);
}
