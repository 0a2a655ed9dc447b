//! The engine: a client, an identity, and what its clones share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use roadstead_model::{ApplierUid, Digest, GroupKind, ObjectRef, PendingDeletion, ServiceAccount, Stage};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::discovery::{Discovery, Resource, get};
use crate::failure::explain;
use crate::run::{Outcome, Run};
use crate::transport::{Call, Form, Refusal, Transport};
use crate::wait::Waited;
use crate::{
    Desired, Error, FailureKind, Gate, HashKey, HealthRules, Ledger, ObjectFailure, Prepared, Scope, Sight,
};

/// How an engine works.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many requests one step has under way at most.
    pub concurrency: usize,
    /// How many requests an engine and all its clones have under way at most, watches apart.
    pub in_flight: usize,
    /// How many watches one wait has open at most.
    pub watches: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How long a request is retried that the apiserver answers with 429 or 5xx, or not at all.
    pub retry_for: Duration,
    /// Kinds that are applied after the classes and before everything else.
    pub custom_stage_kinds: Vec<GroupKind>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 8,
            in_flight: 32,
            watches: 64,
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(30),
            custom_stage_kinds: Vec::new(),
        }
    }
}

/// The apply engine for one cluster. Clones share connections, discovery and the bound on requests under way.
#[derive(Clone)]
pub struct Engine {
    pub(crate) transport: Transport,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) options: Arc<Options>,
    pub(crate) gate: Option<Arc<dyn Gate>>,
    pub(crate) health: Option<Arc<HealthRules>>,
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    /// Volumes are not recreated, but for these; none: all are.
    pub(crate) volumes: Option<Arc<[Digest]>>,
    /// Nothing is applied: how objects differ is told.
    pub(crate) observes: bool,
    /// An object that cannot be applied keeps no other from it.
    pub(crate) each_by_itself: bool,
    /// Who lists what was applied.
    pub(crate) listing: Arc<Semaphore>,
    pub(crate) hashes: Hashes,
}

/// Keys of hashes.
#[derive(Clone)]
pub(crate) struct Hashes {
    /// Each tenant's is derived from it, for values that may be secret.
    pub(crate) values: HashKey,
    /// For footprints.
    pub(crate) footprints: HashKey,
}

impl Hashes {
    fn of(key: &HashKey) -> Self {
        Self { values: key.derive("values", ""), footprints: key.derive("footprints", "") }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("identity", &self.transport.identity()).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over a client that is there already; it acts as whoever the client is. The client should not retry
    /// by itself (`Config::default_retry`), the engine does.
    #[must_use]
    pub fn new(client: kube::Client, options: Options) -> Self {
        Self {
            transport: Transport::new(client, &options),
            discovery: Arc::new(Discovery::default()),
            options: Arc::new(options),
            gate: None,
            health: None,
            ledger: None,
            volumes: None,
            observes: false,
            each_by_itself: false,
            listing: Arc::new(Semaphore::new(1)),
            hashes: Hashes::of(&HashKey::random()),
        }
    }

    /// The same engine acting as `account`: user `system:serviceaccount:NAMESPACE:NAME`, with the groups that the
    /// apiserver gives every service account.
    #[must_use]
    pub fn impersonate(&self, account: ServiceAccount) -> Self {
        Self { transport: self.transport.impersonate(account), ..self.clone() }
    }

    /// The same engine with a key that lasts: its footprints, and its hashes of values that may be secret, can be compared with those of
    /// other engines that have it.
    #[must_use]
    pub fn hashing_with(&self, key: &HashKey) -> Self {
        Self { hashes: Hashes::of(key), ..self.clone() }
    }

    /// The same engine asking `gate` before it deletes anything.
    #[must_use]
    pub fn gated(&self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }

    /// The same engine telling health by `rules`, where they have one for an object's kind.
    #[must_use]
    pub fn with_health(&self, rules: Arc<HealthRules>) -> Self {
        Self { health: Some(rules), ..self.clone() }
    }

    /// The same engine with a ledger of how objects were applied: it asks nothing about those that stand so.
    #[must_use]
    pub fn with_ledger(&self, ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger: Some(ledger), ..self.clone() }
    }

    /// The same engine that applies nothing: an object that differs is [drifted](roadstead_model::Action::Drifted) in the outcome, and the
    /// ledger is told how. What is pruned is pruned.
    #[must_use]
    pub fn observing(&self) -> Self {
        Self { observes: true, ..self.clone() }
    }

    /// The same engine [applying](Self::apply) each object by itself: one that cannot be applied keeps no other from it, and what is being
    /// deleted, or stands in a namespace that is, is skipped. The outcome's error has all that could not be applied.
    #[must_use]
    pub fn each_by_itself(&self) -> Self {
        Self { each_by_itself: true, ..self.clone() }
    }

    /// Watches the metadata of all in `scope` that bears an owner's label, and tells what it sees, for as long as it may.
    /// Returns where that is not allowed, and why.
    pub async fn watch_owned(&self, scope: &Scope, tell: &mut (dyn FnMut(Sight) + Send)) -> String {
        crate::owned::watch::<crate::owned::Metadata>(self, scope, tell).await
    }

    /// The same of all that the objects are. Their content is given away at once and kept nowhere.
    pub async fn watch_whole(&self, scope: &Scope, tell: &mut (dyn FnMut(Sight<Value>) + Send)) -> String {
        crate::owned::watch::<crate::owned::Whole>(self, scope, tell).await
    }

    /// The scope of an object's kind in its namespace; none where the cluster does not know its kind.
    ///
    /// # Errors
    /// What the apiserver said, for people.
    pub async fn scope_of(&self, object: &ObjectRef) -> Result<Option<Scope>, String> {
        let resource = self.resource(object).await.map_err(|failure| failure.message)?;
        Ok(resource.map(|resource| Scope::of(object, &resource)))
    }

    /// What the identity in use may do in `namespace`: the `status` of a SelfSubjectRulesReview.
    ///
    /// # Errors
    /// What the apiserver said, where it does not answer that.
    pub async fn own_rules(&self, namespace: &str, run: &mut Run<'_>) -> Result<Value, String> {
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
        });
        let call = Call {
            method: Method::POST,
            path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews".to_owned(),
            content_type: "application/json",
            body: Bytes::from(review.to_string()),
            form: Form::Whole,
        };
        let engine = self.until(run);
        let answer = run.within(Stage::Validate, engine.transport.send(&call)).await;
        match answer.map_err(|error| error.to_string())? {
            Ok(mut answer) => Ok(answer.value["status"].take()),
            Err(Refusal::Status(status)) => Err(status.message),
            Err(Refusal::Unreachable(why) | Refusal::TooLarge(why)) => Err(why),
        }
    }

    /// Checks, normalises and orders what is desired. Reads discovery only.
    ///
    /// # Errors
    /// [`Error::Input`] when the set of objects is not one that can be applied, [`Error::Objects`] with
    /// [`crate::FailureKind::UnknownKind`] for kinds that neither the cluster nor a CRD among the objects knows.
    pub async fn prepare(&self, desired: Desired, run: &mut Run<'_>) -> Result<Prepared, Error> {
        let engine = self.until(run);
        let work = crate::prepare::prepare(&engine, desired);
        run.within(Stage::Validate, work).await?
    }

    /// Applies what was prepared, stage by stage. `previous` is the inventory so far; the outcome's inventory holds it
    /// and every object of the stages whose writing began, so nothing that may have been written is missing from it
    /// after a failure.
    pub async fn apply(&self, prepared: &Prepared, previous: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        crate::stage::apply(&self.until(run), prepared, previous, run).await
    }

    /// The volumes, and claims on them, that [applying](Self::apply) would not delete to create them again, as nobody has confirmed
    /// [that](Self::holding_volumes). Writes nothing.
    ///
    /// # Errors
    /// [`Error::Timeout`] and [`Error::Cancelled`].
    pub async fn volumes_held(
        &self,
        prepared: &Prepared,
        run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        let engine = self.until(run);
        run.within(Stage::Validate, crate::volumes::volumes_held(&engine, prepared)).await
    }

    /// Deletes what stands in `inventory` and not in `keep`, in reverse order of applying: only what bears the owner's
    /// label, is not annotated otherwise, and is still the object that was looked at. The outcome's inventory is what
    /// is left: `keep`'s share and what could not be deleted.
    pub async fn prune(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Outcome {
        crate::prune::prune(&self.until(run), owner, inventory, keep, run).await
    }

    /// What [pruning](Self::prune) would delete, sorted, and what would be lost with it. Writes nothing.
    ///
    /// # Errors
    /// [`Error::Objects`] where an object, or what depends on it, cannot be read.
    pub async fn deletions(
        &self,
        owner: ApplierUid,
        inventory: &[ObjectRef],
        keep: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        crate::deletions::deletions(&self.until(run), owner, inventory, keep, run).await
    }

    /// The same engine leaving a bound volume, or a claim on one, as it is that would have to be recreated, unless the digest of that
    /// alone is among those `confirmed`. It is skipped, and among what the outcome says is held.
    #[must_use]
    pub fn holding_volumes(&self, confirmed: Arc<[Digest]>) -> Self {
        Self { volumes: Some(confirmed), ..self.clone() }
    }

    /// Deletes everything of an owner that goes away.
    pub async fn delete_all(&self, owner: ApplierUid, inventory: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        self.prune(owner, inventory, &[], run).await
    }

    /// Waits until every object is healthy, as a Kustomization counts it; ends early when one has failed for good.
    /// An object that is not there is waited for.
    pub async fn wait(&self, objects: &[ObjectRef], run: &mut Run<'_>) -> Waited {
        crate::wait::wait(&self.until(run), objects, crate::wait::Goal::Healthy, run).await
    }

    /// Waits until none of the objects is there any more (deletion policy `WaitForTermination`).
    pub async fn wait_terminated(&self, objects: &[ObjectRef], run: &mut Run<'_>) -> Waited {
        crate::wait::wait(&self.until(run), objects, crate::wait::Goal::Gone, run).await
    }

    /// Waits until every object is healthy and, where it is a Job or a Pod, has run to its end; ends early when one has failed.
    pub async fn wait_done(&self, objects: &[ObjectRef], run: &mut Run<'_>) -> Waited {
        crate::wait::wait(&self.until(run), objects, crate::wait::Goal::Done, run).await
    }

    /// Reads one object; `None` if it, or its kind, is not there.
    ///
    /// # Errors
    /// [`Error::Objects`] with what the apiserver said.
    pub async fn get(&self, object: &ObjectRef, run: &mut Run<'_>) -> Result<Option<Value>, Error> {
        let engine = self.until(run);
        let found = run.within(Stage::Validate, engine.find(object)).await?;
        let found = found.map_err(|failure| Error::objects(Stage::Validate, vec![failure]))?;
        Ok(found.map(|(_, value)| value))
    }

    /// Writes an Event into a namespace. One of this name that is there already is the same news, and stays.
    ///
    /// # Errors
    /// [`Error::Objects`] with what the apiserver said.
    pub async fn tell(&self, event: &ObjectRef, content: &Value, run: &mut Run<'_>) -> Result<(), Error> {
        let call = Call {
            method: Method::POST,
            path: format!("/api/v1/namespaces/{}/events", event.namespace),
            content_type: "application/json",
            body: Bytes::from(content.to_string()),
            form: Form::Whole,
        };
        let engine = self.until(run);
        match run.within(Stage::Apply, engine.transport.send(&call)).await? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code() == Some(409) => Ok(()),
            Err(refusal) => Err(Error::objects(Stage::Apply, vec![explain(event, &refusal, false)])),
        }
    }

    /// The same engine for one run: bound to its deadline and cancellation.
    pub(crate) fn until(&self, run: &Run<'_>) -> Self {
        Self { transport: self.transport.until(run.deadline, run.cancel.clone()), ..self.clone() }
    }

    /// How `object` is reached, in its own version or another one; `None` if the cluster does not know its kind.
    pub(crate) async fn resource(&self, object: &ObjectRef) -> Result<Option<Resource>, ObjectFailure> {
        let found = self.discovery.resource_in_any_version(&self.transport, object).await;
        found.map_err(|refusal| explain(object, &refusal, is_secret(object)))
    }

    /// Reads one object, whatever version of its kind is served, and gives how it is reached; `None` only if the object, or its kind, is not
    /// there: a version that is known from before may not be served any more.
    pub(crate) async fn find(&self, object: &ObjectRef) -> Result<Option<(Resource, Value)>, ObjectFailure> {
        let Some(known) = self.resource(object).await? else { return Ok(None) };
        let refusal = match self.transport.send(&get(known.path(object))).await {
            Ok(answer) => return Ok(Some((known, answer.value))),
            Err(refusal) => refusal,
        };
        if !refusal.is_not_served() {
            return unless_not_found(object, &refusal).map_or(Ok(None), Err);
        }
        self.discovery.forget(&object.group);
        let Some(resource) = self.resource(object).await? else { return Ok(None) };
        match self.transport.send(&get(resource.path(object))).await {
            Ok(answer) => Ok(Some((resource, answer.value))),
            Err(refusal) if refusal.is_not_served() => {
                let message = "its discovery lists this kind, but a request for the object is answered as for an unknown path".to_owned();
                Err(ObjectFailure { object: object.clone(), kind: FailureKind::Unavailable, message })
            }
            Err(refusal) => unless_not_found(object, &refusal).map_or(Ok(None), Err),
        }
    }

    /// Reads one object at its path, where it is going to be written.
    pub(crate) async fn read_at(
        &self,
        object: &ObjectRef,
        path: String,
    ) -> Result<Option<Value>, ObjectFailure> {
        match self.transport.send(&get(path)).await {
            Ok(answer) => Ok(Some(answer.value)),
            Err(refusal) => {
                if refusal.is_not_served() {
                    // The next one asks what is served now.
                    self.discovery.forget(&object.group);
                }
                unless_not_found(object, &refusal).map_or(Ok(None), Err)
            }
        }
    }
}

/// What was said of an object; none if it is that there is no such object.
fn unless_not_found(object: &ObjectRef, refusal: &Refusal) -> Option<ObjectFailure> {
    (!refusal.is_not_found()).then(|| explain(object, refusal, is_secret(object)))
}

/// Whether what is said of an object may hold a Secret's values.
pub(crate) fn is_secret(object: &ObjectRef) -> bool {
    object.group.is_empty() && object.kind == "Secret"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use kube::client::Body;
    use roadstead_model::{ApplierUid, ObjectRef};
    use serde_json::{Value, json};

    use super::{Engine, Options};
    use crate::{Desired, Prepared, Run};

    /// Callers spawn the steps on a runtime of several threads. It compiles or it does not.
    #[expect(dead_code, reason = "only its types matter")]
    fn steps_can_be_spawned(engine: &Engine, desired: Desired, prepared: &Prepared, run: &mut Run<'_>) {
        fn is_send<T: Send>(_: T) {}
        is_send(engine.prepare(desired, run));
        is_send(engine.apply(prepared, &[], run));
        is_send(engine.prune(ApplierUid::random(), &[], &[], run));
        is_send(engine.wait(&[], run));
    }

    /// What is served, by path; all else is answered as an apiserver, or a proxy, answers a path that it does not know.
    type Served = Arc<Mutex<BTreeMap<String, (u16, Value)>>>;

    fn serving(served: &Served) -> Engine {
        let served = Arc::clone(served);
        let answer = move |request: http::Request<Body>| {
            let found = served.lock().expect("no panic").get(request.uri().path()).cloned();
            let (status, body) = match found {
                Some((status, body)) => (status, body.to_string()),
                None => (404, "404 page not found".to_owned()),
            };
            let response = http::Response::builder().status(status).body(Body::from(body.into_bytes()));
            std::future::ready(response.map_err(tower::BoxError::from))
        };
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let options = Options { retry_for: Duration::from_millis(1), ..Options::default() };
        Engine::new(client, options)
    }

    fn put(served: &Served, path: &str, status: u16, body: Value) {
        served.lock().expect("no panic").insert(path.to_owned(), (status, body));
    }

    #[tokio::test]
    async fn only_what_an_apiserver_says_is_gone_is_gone() {
        let served = Served::default();
        let engine = serving(&served);
        let buoy = ObjectRef {
            group: "example.com".to_owned(),
            version: "v1alpha1".to_owned(),
            kind: "Buoy".to_owned(),
            namespace: "dev".to_owned(),
            name: "one".to_owned(),
        };
        let kinds =
            json!({"resources": [{"name": "buoys", "kind": "Buoy", "namespaced": true, "verbs": ["get"]}]});
        let (old, new) = ("/apis/example.com/v1alpha1", "/apis/example.com/v1");
        let object = "/namespaces/dev/buoys/one";
        let found =
            || async { engine.find(&buoy).await.map(|found| found.map(|(resource, _)| resource.version)) };
        put(
            &served,
            "/apis",
            200,
            json!({"groups": [{"name": "example.com", "preferredVersion": {"version": "v1"}}]}),
        );
        put(&served, old, 200, kinds.clone());
        put(&served, &format!("{old}{object}"), 200, json!({}));
        assert_eq!(found().await.expect("it is read").as_deref(), Some("v1alpha1"));

        // The version goes: it is found in the other one.
        served.lock().expect("no panic").retain(|path, _| !path.starts_with(old));
        put(&served, "/apis/example.com", 200, json!({"versions": [{"version": "v1"}]}));
        put(&served, new, 200, kinds);
        put(&served, &format!("{new}{object}"), 200, json!({}));
        assert_eq!(found().await.expect("it is read").as_deref(), Some("v1"));

        // The object goes.
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "one", "kind": "buoys"}});
        put(&served, &format!("{new}{object}"), 404, status);
        assert_eq!(found().await.expect("it is read"), None);

        // Its kind is said to be served, and is not; then its group cannot be served; then somebody on the way knows nothing at all.
        served.lock().expect("no panic").remove(&format!("{new}{object}"));
        assert!(found().await.is_err());
        engine.discovery.forget("example.com");
        served.lock().expect("no panic").remove("/apis/example.com");
        assert!(found().await.is_err(), "it is among all groups");
        let all = served.lock().expect("no panic").remove("/apis");
        assert!(found().await.is_err(), "who does not know the groups knows nothing");
        // The group goes.
        assert!(all.is_some());
        put(&served, "/apis", 200, json!({"groups": []}));
        assert_eq!(found().await.expect("it is read"), None);
    }
}
