//! The link against a hub that fails in ways in which a real one cannot be made to: over real mTLS, with a cluster that
//! does what the test says.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and fails")]

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use roadstead_agent::cluster::{Cluster, Until};
use roadstead_agent::identity::Identity;
use roadstead_agent::link::{Facts, Keeper, Link};
use roadstead_agent::outbox::Outbox;
use roadstead_agent::runner::Runner;
use roadstead_agent::upgrade::Report;
use roadstead_agent_policy::{Account, Policy as Rules, Rights, Signature};
use roadstead_apply::{Desired, Error, HealthRules, Ledger, Outcome, Run, Scope, Sight, Waited};
use roadstead_model::{
    Action, ApplierUid, Attempt, Capabilities, ClusterUid, Digest, Dispatch, DispatchKey, DispatchSpec,
    Generation, Guard, HubEpoch, KubeSystemUid, ObjectRef, ObjectResult, PendingDeletion, ServiceAccount,
    Stage, StageTiming, StepKind,
};
use roadstead_proto::AgentState;
use roadstead_proto::limits::MAX_MESSAGE_BYTES;
use roadstead_proto::v1::{self, agent_message::Body as Said, hub_message::Body as Say};
use support::{Between, HEARTBEAT, Hub, HubSession, PATIENCE, Pki, Policy, Wire, spec, welcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

const BUILD: &[u8] = br#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"dev"}}]"#;

/// A cluster that takes everything and counts what was written.
#[derive(Clone, Default)]
struct Fake {
    applied: Arc<Mutex<usize>>,
}

fn config_map() -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "dev".to_owned(),
        name: "a".to_owned(),
    }
}

impl Cluster for Fake {
    type Ready = ();

    fn acting_as(&self, _account: Option<&ServiceAccount>) -> Self {
        self.clone()
    }

    async fn policy(&self) -> Result<Arc<Rules>, String> {
        Ok(Arc::new(Rules::open("roadstead-system")))
    }

    fn guarded(&self, _policy: Arc<Rules>, _account: Option<Account>) -> Self {
        self.clone()
    }

    fn with_health(&self, _rules: Arc<HealthRules>) -> Self {
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

    fn only(_ready: &(), _wanted: &BTreeSet<ObjectRef>) {}

    async fn rights(&self, _account: &Account, _run: &mut Run<'_>) -> Result<Rights, String> {
        Ok(Rights::default())
    }

    fn inspect((): &(), take: &mut dyn FnMut(&ObjectRef, &serde_json::Value)) {
        take(&config_map(), &serde_json::Value::Null);
    }

    async fn has_account(&self, _account: &ServiceAccount, _run: &mut Run<'_>) -> Result<bool, Error> {
        Ok(true)
    }

    async fn prepare(&self, _desired: Desired, _run: &mut Run<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn objects((): &()) -> Vec<ObjectRef> {
        vec![config_map()]
    }

    async fn volumes_held(
        &self,
        _ready: &Self::Ready,
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        Ok(Vec::new())
    }

    async fn apply(&self, (): &(), _previous: &[ObjectRef], _run: &mut Run<'_>) -> Outcome {
        *self.applied.lock().expect("no panic") += 1;
        let changes = vec![ObjectResult::new(config_map(), Action::Adopted)];
        Outcome { changes, inventory: vec![config_map()], ..Outcome::default() }
    }

    async fn deletions(
        &self,
        _owner: ApplierUid,
        _inventory: &[ObjectRef],
        _keep: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        Ok(Vec::new())
    }

    async fn claimable(
        &self,
        _of: &roadstead_model::FluxKustomization,
        _objects: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        Ok(Vec::new())
    }

    async fn claim(
        &self,
        _owner: ApplierUid,
        _of: &roadstead_model::FluxKustomization,
        _objects: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Outcome {
        Outcome::default()
    }

    async fn give_back(&self, _owner: ApplierUid, _inventory: &[ObjectRef], _run: &mut Run<'_>) -> Outcome {
        Outcome::default()
    }

    async fn prune(
        &self,
        _owner: ApplierUid,
        _inventory: &[ObjectRef],
        keep: &[ObjectRef],
        _run: &mut Run<'_>,
    ) -> Outcome {
        Outcome { inventory: keep.to_vec(), ..Outcome::default() }
    }

    async fn tell(
        &self,
        _event: &ObjectRef,
        _content: &serde_json::Value,
        _run: &mut Run<'_>,
    ) -> Result<(), Error> {
        Ok(())
    }

    async fn read(
        &self,
        _object: &ObjectRef,
        _run: &mut Run<'_>,
    ) -> Result<Option<serde_json::Value>, Error> {
        Ok(None)
    }

    async fn wait(&self, _objects: &[ObjectRef], _until: Until, _run: &mut Run<'_>) -> Waited {
        Waited { health: vec![], timing: StageTiming { stage: Stage::Wait, micros: 1 }, error: None }
    }
}

struct TestKeeper {
    identity: Mutex<Arc<Identity>>,
    refused: Mutex<usize>,
    renewed: Mutex<Vec<String>>,
    upgrades: watch::Sender<Option<Report>>,
    told: Mutex<Vec<String>>,
}

impl Keeper for TestKeeper {
    fn identity(&self) -> Arc<Identity> {
        self.identity.lock().expect("no panic").clone()
    }

    async fn may_connect(&self) -> bool {
        true
    }

    async fn renewed(&self, identity: Identity) {
        self.renewed.lock().expect("no panic").push(identity.certificate);
    }

    fn connected(&self, _is_connected: bool) {}

    fn image(&self) -> String {
        "registry.example/agent:1".to_owned()
    }

    fn apiserver(&self) -> watch::Receiver<Option<String>> {
        watch::channel(None).1
    }

    fn state(&self) -> watch::Receiver<AgentState> {
        watch::channel(AgentState::default()).1
    }

    fn upgrade_reports(&self) -> watch::Receiver<Option<Report>> {
        self.upgrades.subscribe()
    }

    async fn upgrade(&self, image: String, timeout: Duration, _signatures: Vec<Signature>) {
        self.told.lock().expect("no panic").push(format!("{image} within {timeout:?}"));
        self.upgrades.send_replace(Some(Report { image, failed: None, is_refused: false }));
    }

    async fn remove(&self) -> Result<(), String> {
        Err("not in this test".to_owned())
    }

    async fn unreachable(&self) {}

    async fn refused(&self) {
        *self.refused.lock().expect("no panic") += 1;
    }
}

struct Agent {
    keeper: Arc<TestKeeper>,
    cluster: Fake,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Agent {
    fn start(identity: Identity) -> Self {
        let keeper = Arc::new(TestKeeper {
            identity: Mutex::new(Arc::new(identity)),
            refused: Mutex::default(),
            renewed: Mutex::default(),
            upgrades: watch::Sender::new(None),
            told: Mutex::default(),
        });
        let (cluster, stop) = (Fake::default(), CancellationToken::new());
        let runner = Runner::new(cluster.clone(), Arc::new(Outbox::default()));
        let facts = Facts { kube_system: KubeSystemUid::random(), kubernetes_version: "v1.35.0".to_owned() };
        let (kept, stopped) = (keeper.clone(), stop.clone());
        let task = tokio::spawn(async move { Link { runner, facts }.keep(&kept, &stopped).await });
        Self { keeper, cluster, stop, task }
    }

    fn applied(&self) -> usize {
        *self.cluster.applied.lock().expect("no panic")
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the agent ends").expect("no panic");
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn key(attempt: i64) -> DispatchKey {
    DispatchKey {
        epoch: HubEpoch(1),
        applier: ApplierUid(uuid::Uuid::from_u128(7)),
        generation: Generation(1),
        attempt: Attempt(attempt),
        digest: Some(applies().digest()),
    }
}

fn applies() -> DispatchSpec {
    spec(Digest::of(BUILD), vec![StepKind::Apply { group: 0 }])
}

fn dispatch(attempt: i64) -> v1::Dispatch {
    Dispatch {
        key: key(attempt),
        spec: applies(),
        inventory: vec![],
        given: vec![],
        data_keys: vec![],
        trace: None,
    }
    .into()
}

fn chunk(json: &[u8]) -> v1::BuildChunk {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(json).expect("in memory");
    let data = encoder.finish().expect("in memory");
    v1::BuildChunk {
        digest: Digest::of(BUILD).to_string(),
        total_bytes: data.len() as u64,
        offset: 0,
        data,
        last: true,
        error: String::new(),
    }
}

/// Dispatches and gives the build; the agent's intent comes next.
async fn to_the_intent(session: &mut HubSession, attempt: i64) {
    session.send(Say::Dispatch(dispatch(attempt))).await;
    loop {
        match session.next_but_progress().await {
            Said::BuildRequest(_) => session.send(Say::BuildChunk(chunk(BUILD))).await,
            Said::InventoryIntent(_) => return,
            other => panic!("{other:?} where an intent was expected"),
        }
    }
}

async fn acknowledge(session: &mut HubSession, attempt: i64) -> v1::Finished {
    let ack = v1::InventoryAck { key: Some(key(attempt).into()), owned_by_another: vec![] };
    session.send(Say::InventoryAck(ack)).await;
    finished(session).await
}

async fn finished(session: &mut HubSession) -> v1::Finished {
    match session.next_but_progress().await {
        Said::Finished(finished) => finished,
        other => panic!("{other:?} where an end was expected"),
    }
}

async fn refusal(session: &mut HubSession) -> v1::Refused {
    match session.next_but_progress().await {
        Said::Refused(refused) => refused,
        other => panic!("{other:?} where a refusal was expected"),
    }
}

#[tokio::test]
async fn a_dispatch_goes_through_and_what_is_not_known_is_refused_by_name() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
    let (mut session, hello) = hub.session().await;
    assert_eq!(hello.kubernetes_version, "v1.35.0");
    assert!(hello.running.is_empty());
    assert_eq!(Capabilities::named(&hello.capabilities), Capabilities::of_this_agent());

    to_the_intent(&mut session, 2).await;
    assert_eq!(agent.applied(), 0, "written before the inventory was stored");
    let ack = v1::InventoryAck { key: Some(key(2).into()), owned_by_another: vec![] };
    session.send(Say::InventoryAck(ack)).await;
    let end = finished(&mut session).await;
    assert_eq!(end.failure, None);
    assert_eq!((end.change_set.len(), end.inventory.len(), agent.applied()), (1, 1, 1));

    let mut later = dispatch(3);
    later.steps.push(v1::Step::default());
    session.send(Say::Dispatch(later)).await;
    let refused = refusal(&mut session).await;
    assert_eq!(refused.what, "steps[1].kind");
    assert_eq!(refused.key, Some(key(3).into()));
    // What the agent cannot read of a dispatch it does not pass over.
    session.send(Say::Dispatch(v1::Dispatch { default_namespace: "x".to_owned(), ..dispatch(3) })).await;
    assert_eq!(refusal(&mut session).await.what, "key.digest");
    session.send(Say::Dispatch(dispatch(1))).await;
    assert_eq!(refusal(&mut session).await.what, "stale");
    session.send_confirming(None, 0).await;
    assert_eq!(refusal(&mut session).await.what, "body");

    agent.stop().await;
    session.ended().await;
}

#[tokio::test]
async fn a_hub_is_told_what_was_done_in_the_words_that_it_knows() {
    let pki = Pki::new();
    for (known, told) in
        [("recreated-and-adopted", v1::Action::Adopted), ("of-the-future", v1::Action::Configured)]
    {
        let mut hub = Hub::start(&pki).await;
        let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
        let (mut session, _) = hub.greeted().await;
        let capabilities = vec![known.to_owned()];
        session.send(Say::Welcome(v1::Welcome { capabilities, ..welcome("edge-1") })).await;
        to_the_intent(&mut session, 1).await;
        let end = acknowledge(&mut session, 1).await;
        assert_eq!(end.change_set.iter().map(v1::ObjectResult::action).collect::<Vec<_>>(), [told]);
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_build_with_another_digest_ends_the_dispatch_and_nothing_is_written() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
    let (mut session, _) = hub.session().await;
    session.send(Say::Dispatch(dispatch(1))).await;
    assert!(matches!(session.next_but_progress().await, Said::BuildRequest(_)));
    session.send(Say::BuildChunk(chunk(b"[]"))).await;
    let failure = finished(&mut session).await.failure.expect("a failure");
    assert_eq!(failure.stage(), v1::Stage::Finish);
    assert!(failure.message.contains("arrived with digest"), "{}", failure.message);
    assert_eq!(agent.applied(), 0);

    // The hub may also not have it, and say why.
    session.send(Say::Dispatch(dispatch(2))).await;
    assert!(matches!(session.next_but_progress().await, Said::BuildRequest(_)));
    let digest = Digest::of(BUILD).to_string();
    session
        .send(Say::BuildChunk(v1::BuildChunk { digest, error: "it was dropped".to_owned(), ..chunk(b"") }))
        .await;
    let failure = finished(&mut session).await.failure.expect("a failure");
    assert!(failure.message.contains("it was dropped"), "{}", failure.message);
    agent.stop().await;
}

#[tokio::test]
async fn what_a_cut_took_is_told_again_until_it_is_confirmed() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let between = Between::start(hub.address).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), between.address));

    let (mut session, _) = hub.session().await;
    to_the_intent(&mut session, 1).await;
    between.strike(Wire::Cut);

    let (mut session, hello) = hub.session().await;
    assert_eq!(hello.running, [key(1).into()], "the hello says what is under way");
    assert!(matches!(session.next_but_progress().await, Said::InventoryIntent(_)));
    assert_eq!(agent.applied(), 0);
    let end = acknowledge(&mut session, 1).await;
    assert_eq!((end.failure.clone(), agent.applied()), (None, 1));
    between.strike(Wire::Cut);

    let (mut session, hello) = hub.session().await;
    assert_eq!(hello.running, [key(1).into()]);
    assert_eq!(finished(&mut session).await, end, "the end is told again");
    let heard = session.heard;
    session.send_confirming(Some(Say::Heartbeat(v1::Heartbeat {})), heard).await;
    // A repeated dispatch is answered with its end; that it was confirmed shows in the next hello.
    session.send(Say::Dispatch(dispatch(1))).await;
    assert_eq!(finished(&mut session).await, end);
    let heard = session.heard;
    session.send_confirming(Some(Say::Heartbeat(v1::Heartbeat {})), heard).await;
    session.send(Say::Dispatch(dispatch(0))).await;
    assert_eq!(refusal(&mut session).await.what, "stale");
    between.strike(Wire::Cut);

    let (_session, hello) = hub.session().await;
    assert!(hello.running.is_empty(), "{:?}", hello.running);
    assert_eq!(agent.applied(), 1, "the work was done twice");
    agent.stop().await;
}

#[tokio::test]
async fn a_link_that_went_dead_without_a_word_is_noticed() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let between = Between::start(hub.address).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), between.address));
    let (mut dead, _) = hub.session().await;
    dead.hears().await;
    let began = Instant::now();
    between.strike(Wire::Stalled);
    let (_alive, _) = hub.session().await;
    let took = began.elapsed();
    assert!(took >= HEARTBEAT, "a new session after {took:?}");
    agent.stop().await;
}

#[tokio::test]
async fn a_hub_that_refuses_is_tried_again_with_waits_in_between() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    hub.set(Policy::Refuse(Status::permission_denied("the Cluster was deleted")));
    let began = Instant::now();
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
    let refusals = hub.refusals.clone();
    until("three tries", || *refusals.lock().expect("no panic") >= 3).await;
    let tries = *hub.refusals.lock().expect("no panic");
    assert!(began.elapsed() > Duration::from_millis(20), "{tries} tries in {:?}", began.elapsed());
    until("the keeper hears of it", || *agent.keeper.refused.lock().expect("no panic") >= 3).await;
    hub.set(Policy::Take);
    let (_session, _) = hub.session().await;
    agent.stop().await;
}

#[tokio::test]
async fn a_certificate_from_another_authority_is_refused_and_the_agent_knows_why() {
    let (pki, other) = (Pki::new(), Pki::new());
    let mut hub = Hub::start(&pki).await;
    let mut identity = other.identity(ClusterUid::random(), hub.address);
    identity.ca = pki.servers.pem();
    let agent = Agent::start(identity);
    until("a refusal", || *agent.keeper.refused.lock().expect("no panic") >= 1).await;
    assert!(!hub.has_session());
    agent.stop().await;
}

#[tokio::test]
async fn a_hub_that_is_not_ours_hears_nothing() {
    let (pki, other) = (Pki::new(), Pki::new());
    let mut hub = Hub::start(&pki).await;
    let mut identity = pki.identity(ClusterUid::random(), hub.address);
    let ours = std::mem::replace(&mut identity.ca, other.servers.pem());
    let agent = Agent::start(identity.clone());
    // Long enough for the first tries; then the right authority, to see that the agent was trying.
    let deadline = Instant::now() + Duration::from_millis(600);
    while Instant::now() < deadline {
        assert!(!hub.has_session(), "the agent spoke to a hub that it cannot trust");
        sleep(Duration::from_millis(20)).await;
    }
    *agent.keeper.identity.lock().expect("no panic") = Arc::new(Identity { ca: ours, ..identity });
    let (_session, _) = hub.session().await;
    agent.stop().await;
}

#[tokio::test]
async fn a_hub_that_breaks_the_protocol_loses_its_session() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));

    let (mut session, _) = hub.greeted().await;
    session.send(Say::Welcome(welcome("edge-2"))).await;
    session.ended().await;

    let (mut session, _) = hub.session().await;
    session.skip();
    session.send(Say::Heartbeat(v1::Heartbeat {})).await;
    session.ended().await;

    let (mut session, _) = hub.session().await;
    session.send_confirming(Some(Say::Heartbeat(v1::Heartbeat {})), 1_000_000).await;
    session.ended().await;

    let (mut session, _) = hub.session().await;
    let message = "x".repeat(MAX_MESSAGE_BYTES + 1);
    session.send(Say::Refused(v1::Refused { message, ..v1::Refused::default() })).await;
    session.ended().await;

    let (mut session, _) = hub.session().await;
    to_the_intent(&mut session, 1).await;
    let end = acknowledge(&mut session, 1).await;
    assert_eq!((end.failure, agent.applied()), (None, 1), "the agent is as sound as before");
    agent.stop().await;
}

#[tokio::test]
async fn an_inventory_that_the_hub_refuses_ends_the_dispatch() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
    let (mut session, _) = hub.session().await;
    to_the_intent(&mut session, 1).await;
    let refused = v1::Refused {
        seq: session.heard,
        what: "objects".to_owned(),
        message: "too many".to_owned(),
        ..v1::Refused::default()
    };
    session.send(Say::Refused(refused)).await;
    let failure = finished(&mut session).await.failure.expect("a failure");
    assert!(failure.message.contains("too many"), "{}", failure.message);
    assert_eq!(agent.applied(), 0);
    agent.stop().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_before_its_end_and_one_for_another_cluster_is_not_taken() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let cluster = ClusterUid::random();
    let mut identity = pki.identity(cluster, hub.address);
    identity.validity.not_after = identity.validity.not_before;
    let agent = Agent::start(identity);
    let (mut session, _) = hub.session().await;
    let Said::CertificateRequest(request) = session.next().await else {
        panic!("a request for a certificate")
    };
    for (subject, kept) in [(ClusterUid::random(), 0), (cluster, 1)] {
        let certificate_pem = pki.agents.sign(&request.csr_pem, subject);
        session.send(Say::Certificate(v1::Certificate { certificate_pem, error: String::new() })).await;
        // The answer to something later tells that this was dealt with.
        session.send_confirming(None, 0).await;
        assert_eq!(refusal(&mut session).await.what, "body");
        until("it is kept", || agent.keeper.renewed.lock().expect("no panic").len() == kept).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn what_the_hub_wants_of_the_agent_itself_is_answered_and_told_again_in_the_next_session() {
    let pki = Pki::new();
    let mut hub = Hub::start(&pki).await;
    let agent = Agent::start(pki.identity(ClusterUid::random(), hub.address));
    let (mut session, hello) = hub.session().await;
    assert_eq!((hello.image.as_str(), hello.upgrade), ("registry.example/agent:1", None));
    assert!(hello.unix_millis > 1_700_000_000_000, "{}", hello.unix_millis);
    let image = "registry.example/agent:2".to_owned();
    session
        .send(Say::Upgrade(v1::Upgrade { image: image.clone(), timeout_millis: 60_000, signatures: vec![] }))
        .await;
    let Said::UpgradeReport(report) = session.next().await else { panic!("no report of the upgrade") };
    assert_eq!((&report.image, report.state()), (&image, v1::UpgradeState::UnderWay));
    assert_eq!(*agent.keeper.told.lock().expect("no panic"), [format!("{image} within 60s")]);
    session.send(Say::Remove(v1::Remove {})).await;
    let Said::RemovalReport(report) = session.next().await else { panic!("no report of the removal") };
    assert_eq!(report.error, "not in this test");

    // It fails while no session is there: the next Hello says so.
    let failed = Some("it ended with exit code 1".to_owned());
    drop(session);
    agent.keeper.upgrades.send_replace(Some(Report { image: image.clone(), failed, is_refused: false }));
    let (_session, hello) = hub.session().await;
    let told = hello.upgrade.expect("what became of the upgrade");
    assert_eq!((told.image.as_str(), told.state()), (image.as_str(), v1::UpgradeState::Failed));
    assert_eq!(told.message, "it ended with exit code 1");
    agent.stop().await;
}
