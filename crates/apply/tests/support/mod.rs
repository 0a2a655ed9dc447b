//! A real cluster, a namespace of its own for each test, and an engine whose requests are counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Request, StatusCode};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use roadstead_apply::{
    Desired, Engine, Event, IgnoreRules, Manifest, Options, Outcome, Prepared, Run, Waited,
};
use roadstead_model::{Action, ApplierUid, IgnoreRule, ObjectRef};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::{MapRequestLayer, MapResponseLayer, ThenLayer};

/// How long any step of a test may take.
const STEP: Duration = Duration::from_secs(60);

/// A namespace on the cluster, and what one Kustomization does in it.
pub(crate) struct Fixture {
    pub(crate) client: kube::Client,
    pub(crate) engine: Engine,
    pub(crate) namespace: String,
    pub(crate) owner: ApplierUid,
    pub(crate) cancel: CancellationToken,
    pub(crate) counted: Arc<Mutex<Vec<String>>>,
    /// Merge patches by path. After each dry-run of the engine, and before it hears the answer, somebody else sends one.
    pub(crate) meddling: Meddling,
}

pub(crate) type Meddling = Arc<Mutex<Vec<(String, Value)>>>;

impl Fixture {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Result<Self> {
        Self::failing(options, Vec::new()).await
    }

    /// With an apiserver whose first answers to the engine have these statuses, the last one first.
    pub(crate) async fn failing(options: Options, faults: Vec<StatusCode>) -> Result<Self> {
        let faults = Arc::new(Mutex::new(faults));
        // Whichever test is first installs it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let path = std::env::var("ROADSTEAD_TEST_KUBECONFIG_1").context(
            "ROADSTEAD_TEST_KUBECONFIG_1 is not set: it names the kubeconfig of a cluster for tests; `make test` sets \
             it, and `tests/devcluster` makes such a cluster",
        )?;
        let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("reading {path}"))?;
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let client = kube::Client::try_from(config.clone())?;
        let counted = Arc::new(Mutex::new(Vec::new()));
        let counter = Arc::clone(&counted);
        let count = MapRequestLayer::new(move |request: Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri());
            counter.lock().expect("no test panicked here").push(line);
            request
        });
        // A failing apiserver is a real one with some of its answers' status replaced.
        let failing = MapResponseLayer::new(move |mut response: http::Response<Box<DynBody>>| {
            if let Some(status) = faults.lock().expect("no test panicked here").pop() {
                *response.status_mut() = status;
            }
            response
        });
        let meddling = Meddling::default();
        let (other, patches, lines) = (client.clone(), Arc::clone(&meddling), Arc::clone(&counted));
        let meddle = ThenLayer::new(move |answer: Result<http::Response<Box<DynBody>>, BoxError>| {
            let last = lines.lock().expect("no test panicked here").last().cloned().unwrap_or_default();
            let is_dry_run = last.contains("dryRun=All");
            let patch = patches.lock().expect("no test panicked here").pop_if(|_| is_dry_run);
            let other = other.clone();
            async move {
                if let Some((path, patch)) = patch {
                    let patch = Request::patch(path)
                        .header("content-type", "application/merge-patch+json")
                        .body(patch.to_string().into_bytes())?;
                    other.request::<Value>(patch).await?;
                }
                answer
            }
        });
        let counting = ClientBuilder::try_from(config)?
            .with_layer(&failing)
            .with_layer(&meddle)
            .with_layer(&count)
            .build();
        Self::over(client, counting, counted, meddling, options).await
    }

    /// The fixture over an engine whose client is given.
    async fn over(
        client: kube::Client,
        engine: kube::Client,
        counted: Arc<Mutex<Vec<String>>>,
        meddling: Meddling,
        options: Options,
    ) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let suffix = &uuid::Uuid::new_v4().to_string()[..8];
        let fixture = Self {
            client,
            engine: Engine::new(engine, options),
            namespace: format!("apply-{number}-{suffix}"),
            owner: ApplierUid::random(),
            cancel: CancellationToken::new(),
            counted,
            meddling,
        };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": fixture.namespace}});
        fixture.request("POST", "/api/v1/namespaces", Some(&namespace)).await?;
        Ok(fixture)
    }

    /// A request by the cluster's administrator, past the engine.
    pub(crate) async fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.request_as(method, path, "application/json", body).await
    }

    pub(crate) async fn request_as(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body)?;
        self.client.request(request).await.with_context(|| format!("{method} {path}"))
    }

    /// The path of something of the core group in the test's namespace.
    pub(crate) fn core(&self, plural: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}/{name}", self.namespace)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None).await
    }

    /// Waits until an object has something at a pointer.
    pub(crate) async fn until(&self, path: &str, pointer: &str) -> Result<()> {
        let deadline = Instant::now() + STEP;
        while self.get(path).await?.pointer(pointer).is_none() {
            anyhow::ensure!(Instant::now() < deadline, "{path} has nothing at {pointer}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The requests since this was last asked.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.counted.lock().expect("no test panicked here"))
    }

    pub(crate) async fn prepare(&self, objects: &[Value]) -> Result<Prepared, roadstead_apply::Error> {
        self.prepare_ignoring(&[], objects).await
    }

    /// Prepares with some fields ignored.
    pub(crate) async fn prepare_ignoring(
        &self,
        rules: &[IgnoreRule],
        objects: &[Value],
    ) -> Result<Prepared, roadstead_apply::Error> {
        let mut events = |_| ();
        let mut run = Run::new(Instant::now() + STEP, self.cancel.clone(), &mut events);
        let desired = Desired {
            owner: self.owner,
            manifests: objects.iter().cloned().map(Manifest::from).collect(),
            default_namespace: self.namespace.clone(),
            adopt_flux: false,
            adopt_managers: Vec::new(),
            force: false,
            ignore: IgnoreRules::new(rules).expect("rules that are right"),
            tenant: String::new(),
        };
        self.engine.prepare(desired, &mut run).await
    }

    /// Prepares and applies; what was told is checked against the outcome.
    pub(crate) async fn apply(&self, objects: &[Value]) -> Outcome {
        self.apply_after(&[], objects).await
    }

    pub(crate) async fn apply_after(&self, previous: &[ObjectRef], objects: &[Value]) -> Outcome {
        self.apply_ignoring(&[], previous, objects).await
    }

    /// Applies with some fields ignored.
    pub(crate) async fn apply_ignoring(
        &self,
        rules: &[IgnoreRule],
        previous: &[ObjectRef],
        objects: &[Value],
    ) -> Outcome {
        let prepared = self.prepare_ignoring(rules, objects).await.expect("prepared");
        let mut told = Vec::new();
        let mut events = |event| {
            if let Event::Applied(result) = event {
                told.push(result);
            }
        };
        let mut run = Run::new(Instant::now() + STEP, self.cancel.clone(), &mut events);
        let outcome = self.engine.apply(&prepared, previous, &mut run).await;
        assert_eq!(told, outcome.changes, "what is told is what is reported");
        outcome
    }

    pub(crate) async fn prune(&self, inventory: &[ObjectRef], keep: &[ObjectRef]) -> Outcome {
        let mut events = |_| ();
        let mut run = Run::new(Instant::now() + STEP, self.cancel.clone(), &mut events);
        self.engine.prune(self.owner, inventory, keep, &mut run).await
    }

    pub(crate) async fn wait(&self, objects: &[ObjectRef], limit: Duration) -> Waited {
        let mut events = |_| ();
        let mut run = Run::new(Instant::now() + limit, self.cancel.clone(), &mut events);
        self.engine.wait(objects, &mut run).await
    }
}

/// `Kind/name action`, sorted: what an outcome did.
pub(crate) fn actions(outcome: &Outcome) -> Vec<String> {
    let mut actions: Vec<String> = outcome
        .changes
        .iter()
        .map(|change| format!("{}/{} {}", change.object.kind, change.object.name, change.action.as_str()))
        .collect();
    actions.sort();
    actions
}

/// The action of the only change.
pub(crate) fn only_action(outcome: &Outcome) -> Action {
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.changes.len(), 1, "{:?}", outcome.changes);
    outcome.changes[0].action
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

pub(crate) fn deployment(name: &str, replicas: u32, pod_annotations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}, "annotations": pod_annotations},
            "spec": {"containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}]},
        }},
    })
}

pub(crate) fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

pub(crate) fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"] = json!({format!("kustomize.toolkit.fluxcd.io/{key}"): value});
    object
}
