//! Traces: one leads from a webhook to the cluster and to what is told of it; a collector holds nothing up, and sees nothing secret.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use reqwest::StatusCode;
use roadstead_otlp::wire::{Any, ExportTraceServiceRequest, Span};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::sink::{Answer, Sink};
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, kustomization};
use serde_json::{Value, json};

const TOKEN: &str = "what-GitHub-was-given";
const CANARY: &str = "canary-in-a-secret";
const HEADER_CANARY: &str = "canary-in-a-header";
/// What callers say that they are part of.
const PUSHED: &str = "00-11111111111111111111111111111111-1111111111111111-01";
const GUESSED: &str = "00-22222222222222222222222222222222-2222222222222222-01";
const ASKED: &str = "00-33333333333333333333333333333333-3333333333333333-01";
const ANONYMOUS: &str = "00-44444444444444444444444444444444-4444444444444444-01";

/// A collector.
struct Collector(Sink);

impl Collector {
    async fn start() -> Result<Self> {
        Ok(Self(Sink::start().await?))
    }

    fn spans(&self) -> Result<Vec<Span>> {
        let mut spans = Vec::new();
        for (_, body) in self.0.posts() {
            let request = ExportTraceServiceRequest::decode(body.as_slice())?;
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        Ok(spans)
    }

    /// The spans of a trace.
    fn trace(&self, of: &str) -> Result<Trace> {
        let spans = self.spans()?.into_iter().filter(|span| hex(&span.trace_id) == trace_id(of));
        Ok(Trace(spans.map(|span| (hex(&span.span_id), span)).collect()))
    }
}

/// The spans of a trace, by their ids.
struct Trace(BTreeMap<String, Span>);

impl Trace {
    fn named(&self, name: &str) -> Result<&Span> {
        let known = || self.0.values().map(|span| span.name.clone()).collect::<Vec<_>>();
        self.0.values().find(|span| span.name == name).with_context(|| format!("no {name} in {:?}", known()))
    }

    /// Fails unless one of the spans of this name is under these, from the nearest to the first.
    fn is_under(&self, name: &str, above: &[&str]) -> Result<()> {
        let all: Vec<Vec<&str>> =
            self.0.values().filter(|span| span.name == name).map(|span| self.above(span)).collect();
        let names: Vec<&str> = self.0.values().map(|span| span.name.as_str()).collect();
        ensure!(all.iter().any(|found| found == above), "{name} is under {all:?}; there are {names:?}");
        Ok(())
    }

    fn above<'a>(&'a self, mut span: &'a Span) -> Vec<&'a str> {
        let mut above = Vec::new();
        while let Some(next) = self.0.get(&hex(&span.parent_span_id)) {
            above.push(next.name.as_str());
            span = next;
        }
        above
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn trace_id(context: &str) -> &str {
    &context[3..35]
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()).and_then(|value| value.value) {
        Some(Any::Text(text)) => text,
        Some(Any::Number(number)) => number.to_string(),
        Some(Any::Truth(truth)) => truth.to_string(),
        None => String::new(),
    }
}

/// Who calls the hub: with its authority, and an administrator's token.
struct Caller {
    http: reqwest::Client,
    server: String,
    token: String,
}

impl Caller {
    async fn of(fleet: &Fleet) -> Result<Self> {
        let config = fleet.kubectl().run(&["config", "view", "--raw", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&config)?;
        let cluster = &config["clusters"][0]["cluster"];
        let ca = STANDARD.decode(cluster["certificate-authority-data"].as_str().context("a CA")?)?;
        let ca = reqwest::Certificate::from_pem_bundle(&ca)?;
        let http = reqwest::Client::builder().tls_certs_only(ca).no_proxy().timeout(PATIENCE).build()?;
        let server = cluster["server"].as_str().context("a server")?.to_owned();
        let token = config["users"][0]["user"]["token"].as_str().context("a token")?.to_owned();
        Ok(Self { http, server, token })
    }

    /// A push, as GitHub tells it.
    async fn push(&self, path: &str, token: &str, trace: &str) -> Result<StatusCode> {
        let body = json!({ "ref": "refs/heads/main" }).to_string();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), body.as_bytes());
        let request = self
            .http
            .post(format!("{}{path}", self.server))
            .header("x-hub-signature-256", format!("sha256={}", hex(tag.as_ref())))
            .header("x-github-event", "push")
            .header("content-type", "application/json")
            .header("traceparent", trace)
            .body(body);
        Ok(request.send().await?.status())
    }

    /// Asks for a reconciliation of a Kustomization.
    async fn ask(&self, name: &str, token: Option<&str>, trace: &str) -> Result<StatusCode> {
        let path = format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations/{name}");
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": trace });
        let request = self
            .http
            .patch(format!("{}{path}", self.server))
            .header("content-type", "application/merge-patch+json")
            .header("traceparent", trace)
            .body(json!({ "metadata": { "annotations": annotations } }).to_string());
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        Ok(request.send().await?.status())
    }
}

fn files(namespace: &str, word: &str) -> Commit {
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: traced, namespace: {namespace}}}\nstringData: {{key: {CANARY}}}\n"
    );
    Commit::new().file("config.yaml", config_map(namespace, "traced", word)).file("secret.yaml", secret)
}

/// Objects by which a push is heard of, and what comes of it is told.
async fn hooks(fleet: &Fleet, sink: &Sink) -> Result<String> {
    let token = format!("--from-literal=token={TOKEN}");
    let made = ["create", "secret", "generic", "hook", &token, "--dry-run=client", "-o", "yaml"];
    let manifest = fleet.run(&made).await?;
    fleet.apply(&manifest).await?;
    let url = &sink.url;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {{name: github}}\nspec:\n  type: github\n  \
             events: [push]\n  secretRef: {{name: hook}}\n  resources: [{{kind: GitRepository, name: app}}]\n---\n\
             apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: sink}}\nspec: {{type: generic, \
             address: '{url}/'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: all}}\n\
             spec:\n  providerRef: {{name: sink}}\n  eventSources: [{{kind: Kustomization, name: '*'}}]\n"
        ))
        .await?;
    fleet.ready("receiver/github").await?;
    fleet.ready("alert/all").await?;
    let receiver = fleet.get("receiver/github").await?;
    receiver["status"]["webhookPath"].as_str().map(str::to_owned).context("a path")
}

#[tokio::test]
async fn one_trace_leads_from_a_webhook_to_the_cluster_and_to_what_is_told() -> Result<()> {
    let (collector, sink) = (Collector::start().await?, Sink::start().await?);
    let setup = HubSetup::new("traces")
        .await?
        .arg(&format!("--otlp-endpoint={}", collector.0.url))
        .arg("--allow-network=notify=127.0.0.1/32")
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{HEADER_CANARY}"));
    let fleet = Fleet::start_on(setup).await?;
    let caller = Caller::of(&fleet).await?;
    let space = fleet.cluster.namespace("traces").await?;
    let repository = fleet.repository("app", &files(space.name(), "one")).await?;
    fleet.apply(&kustomization("app", "app", ".", &["wait: true"])).await?;
    fleet.cluster.has_word(space.name(), "traced", Some("one")).await?;
    fleet.ready("kustomization/app").await?;
    let path = hooks(&fleet, &sink).await?;

    let commit = repository.commit("main", "two", &files(space.name(), "two"))?;
    ensure!(caller.push(&path, "a guess", GUESSED).await? == StatusCode::BAD_REQUEST, "a guess was taken");
    ensure!(caller.push(&path, TOKEN, PUSHED).await? == StatusCode::OK, "a push was not taken");
    fleet.applied("app", &commit).await?;
    let steps = ["step apply", "step wait", "queue", "status"];
    eventually("the whole trace is there", PATIENCE, || async {
        let trace = collector.trace(PUSHED)?;
        trace.is_under("fetch", &["source", "webhook"])?;
        trace.is_under("build", &["reconcile", "source", "webhook"])?;
        for name in steps.iter().chain(&["notification"]) {
            trace.is_under(name, &["dispatch", "reconcile", "source", "webhook"])?;
        }
        Ok(())
    })
    .await?;
    let trace = collector.trace(PUSHED)?;
    ensure!(hex(&trace.named("webhook")?.parent_span_id) == PUSHED[36..52], "the caller's span is not above");
    let dispatch = trace.named("dispatch")?;
    ensure!(attribute(dispatch, "revision") == format!("main@sha1:{commit}"), "{dispatch:?}");
    for (key, value) in
        [("kind", "Kustomization"), ("namespace", "apps"), ("name", "app"), ("cluster", "edge")]
    {
        ensure!(attribute(dispatch, key) == value, "{key}: {dispatch:?}");
    }
    ensure!(attribute(dispatch, "result") == "ReconciliationSucceeded", "{dispatch:?}");
    for name in steps {
        let span = trace.named(name)?;
        let within = span.start_time_unix_nano >= dispatch.start_time_unix_nano
            && span.end_time_unix_nano <= dispatch.end_time_unix_nano;
        ensure!(within, "{name} is not within its dispatch: {span:?} {dispatch:?}");
    }
    let mut builds = trace.0.values().filter(|span| span.name == "build");
    ensure!(builds.any(|span| attribute(span, "cached") == "false"), "nothing was built");
    // All of that commit is in this one.
    let of_commit =
        collector.spans()?.into_iter().filter(|span| attribute(span, "revision").ends_with(&commit));
    let traces: BTreeSet<String> = of_commit.map(|span| hex(&span.trace_id)).collect();
    ensure!(traces == [trace_id(PUSHED).to_owned()].into(), "{traces:?}");
    let lines = trace.0.len();
    ensure!(lines < 40, "{lines} spans of one commit");

    // Whoever sees how long a stage took is led to it.
    let metrics = fleet.run(&["get", "--raw", "/metrics"]).await?;
    let exemplar = format!("# {{trace_id=\"{}\"}}", trace_id(PUSHED));
    for stage in ["fetch", "build", "apply"] {
        let of_stage = format!("stage=\"{stage}\"}}");
        let leads = |line: &str| line.contains(&of_stage) && line.contains(&exemplar);
        ensure!(metrics.lines().any(leads), "{stage}: {metrics}");
    }

    // Who asks for a reconciliation goes on with a trace of his own; who has not shown who he is does not.
    ensure!(caller.ask("app", None, ANONYMOUS).await? == StatusCode::UNAUTHORIZED, "nobody was taken");
    ensure!(caller.ask("app", Some(&caller.token), ASKED).await? == StatusCode::OK, "it was not taken");
    eventually("what was asked for is traced", PATIENCE, || async {
        collector.trace(ASKED)?.is_under("step apply", &["dispatch", "reconcile", "request"])
    })
    .await?;
    for context in [GUESSED, ANONYMOUS] {
        ensure!(collector.trace(context)?.0.is_empty(), "{context} was continued");
    }

    // Lines of both programs have its id, and no colours; nothing secret is in either.
    let id = trace_id(PUSHED);
    let hub = fleet.hub.logs();
    let line = hub.lines().find(|line| line.contains(id) && line.contains("Kustomization applied"));
    let line: Value = serde_json::from_str(line.context("no line of the hub with the trace's id")?)?;
    ensure!(line["trace_id"] == id, "{line}");
    fleet.agent.says(&format!("trace_id={id}"), PATIENCE).await?;
    for logs in [hub, fleet.agent.logs()] {
        ensure!(!logs.contains('\u{1b}'), "colours in a file");
        ensure!(!logs.contains(CANARY) && !logs.contains(HEADER_CANARY), "a secret is in the log");
    }
    for (head, body) in collector.0.posts() {
        let body = String::from_utf8_lossy(&body).into_owned();
        for secret in [CANARY, HEADER_CANARY, TOKEN, STANDARD.encode(CANARY).as_str(), &caller.token] {
            ensure!(!body.contains(secret), "{secret} is in a span");
        }
        ensure!(head.contains(HEADER_CANARY) && head.starts_with("post /v1/traces "), "{head}");
    }
    Ok(())
}

#[tokio::test]
async fn a_collector_that_hangs_or_fails_holds_nothing_up() -> Result<()> {
    let collector = Collector::start().await?;
    let setup = HubSetup::new("hangs").await?.arg("--log-format=text");
    let setup = setup.arg(&format!("--otlp-endpoint={}", collector.0.url));
    let fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("hangs").await?;
    let repository = fleet.repository("app", &files(space.name(), "zero")).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    for (word, answers) in [("one", Answer::Hang), ("two", Answer::Http(500, "", ""))] {
        collector.0.answers_always(answers);
        let commit = repository.commit("main", word, &files(space.name(), word))?;
        fleet.fetch("app").await?;
        fleet.applied("app", &commit).await?;
        fleet.cluster.has_word(space.name(), "traced", Some(word)).await?;
    }
    let told = "the collector does not take spans";
    fleet.hub.says(told, PATIENCE).await?;
    ensure!(!collector.0.posts().is_empty(), "it was sent nothing");
    collector.0.answers_always(Answer::Http(200, "", ""));
    eventually("spans come again", PATIENCE, || async {
        fleet.fetch("app").await?;
        let logs = fleet.hub.logs();
        ensure!(logs.contains("the collector takes spans again"), "not yet");
        ensure!(logs.matches(told).count() == 1, "it was told more than once");
        ensure!(logs.contains(" trace_id="), "no line of text is of a trace");
        ensure!(!logs.contains('\u{1b}'), "colours in a file");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn without_a_collector_there_are_no_traces() -> Result<()> {
    let fleet = Fleet::start("untraced").await?;
    let caller = Caller::of(&fleet).await?;
    let space = fleet.cluster.namespace("untraced").await?;
    fleet.repository("app", &files(space.name(), "one")).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    fleet.ready("kustomization/app").await?;
    ensure!(caller.ask("app", Some(&caller.token), ASKED).await? == StatusCode::OK, "it was not taken");
    eventually("it is handled", PATIENCE, || async {
        let handled = fleet.get("kustomization/app").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == ASKED, "{handled}");
        Ok(())
    })
    .await?;
    let mut database = fleet.setup.database().connect().await?;
    let stored: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(trace) FROM schedule) + (SELECT count(trace) FROM reconciliation)
              + (SELECT count(trace) FROM news) + (SELECT count(trace) FROM delivery)",
    )
    .fetch_one(&mut database)
    .await?;
    ensure!(stored == 0, "{stored} rows are of a trace");
    for logs in [fleet.hub.logs(), fleet.agent.logs()] {
        ensure!(!logs.contains("trace_id"), "a line is of a trace");
    }
    Ok(())
}
