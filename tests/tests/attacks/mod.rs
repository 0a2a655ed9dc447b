//! What somebody without rights sends to a hub, as often as it is taken.

mod agent;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_tests::{EnrolledAgent, Fleet};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Connections that say nothing, at each listener.
const SILENT: usize = 400;
/// Enrolments whose bodies never end.
const HALF_SENT: usize = 120;
/// Requests with made-up tokens at once.
const MADE_UP: usize = 200;
/// Sessions at once with one cluster's key; each new one ends the one before.
const SESSIONS: usize = 4;
/// How far attackers step back where the hub wants CPU time.
const NICE: i32 = 5;

/// A list of `scalars` within `depth` nested lists that each have an anchor: a reader that copies what an anchor names
/// makes `depth` copies of it.
pub(crate) fn nested_anchors(depth: usize, scalars: usize) -> String {
    let mut text = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\nbomb: ");
    for number in 0..depth {
        let _ = write!(text, "&a{number} [");
    }
    for _ in 0..scalars {
        text.push_str("0,");
    }
    text.push('0');
    for _ in 0..depth {
        text.push(']');
    }
    text.push('\n');
    text
}

/// One ConfigMap with short entries, `bytes` long.
pub(crate) fn wide_object(bytes: usize) -> String {
    let mut text = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wide}\ndata:\n");
    let mut number = 0;
    while text.len() < bytes {
        let _ = writeln!(text, "  k{number}: v");
        number += 1;
    }
    text
}

pub(crate) fn thicket_name(number: usize) -> String {
    format!("thicket-{number}")
}

/// Depends on all others of a thicket, each named many times.
pub(crate) fn thicket(number: usize, size: usize) -> String {
    let others = (0..size).filter(|other| *other != number).flat_map(|other| std::iter::repeat_n(other, 5));
    let names: Vec<String> = others.map(|other| format!("{{name: {}}}", thicket_name(other))).collect();
    format!("dependsOn: [{}]", names.join(", "))
}

/// The hub as its administrator and as anonymous clients reach it.
#[derive(Clone)]
pub(crate) struct Target {
    server: String,
    api_port: u16,
    link_port: u16,
    /// The administrator's.
    http: reqwest::Client,
    /// That of anonymous clients who stay on one connection: what the hub does to that one is not the administrator's matter.
    shared: reqwest::Client,
    token: String,
    namespace: String,
    /// A cluster whose key an attacker has.
    hostile: EnrolledAgent,
}

impl Target {
    pub(crate) async fn of(fleet: &Fleet) -> Result<Self> {
        let text = fleet.kubectl().run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&text).context("read the administrator's kubeconfig")?;
        let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
        let ca = STANDARD.decode(ca.context("the kubeconfig has a CA")?)?;
        let http = reqwest::Client::builder().tls_certs_only([reqwest::Certificate::from_pem(&ca)?]);
        let map =
            fleet.get("kustomization/honest-0").await?["status"]["inventory"]["entries"][0]["id"].clone();
        let namespace =
            map.as_str().and_then(|id| id.split_once('_')).map(|(namespace, _)| namespace.to_owned());
        let http = http.timeout(Duration::from_secs(20)).build().context("set up HTTPS")?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().context("a server")?.to_owned();
        Ok(Self {
            hostile: agent::hostile_cluster(fleet, &http, &server).await?,
            server,
            api_port: fleet.hub.api_port(),
            link_port: fleet.hub.link_port(),
            http,
            shared: Self::anonymous()?,
            token: config["users"][0]["user"]["token"].as_str().context("a token")?.to_owned(),
            namespace: namespace.context("the inventory names the namespace")?,
        })
    }

    /// Where the honest objects are on the cluster.
    pub(crate) fn namespace_of(&self, _name: &str) -> String {
        self.namespace.clone()
    }

    /// A request of the administrator.
    pub(crate) async fn get(&self, path: &str) -> Result<()> {
        let answer = self.http.get(format!("{}{path}", self.server)).bearer_auth(&self.token).send().await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.bytes().await?;
        Ok(())
    }

    /// Asks for a look at a source.
    pub(crate) async fn request_fetch(&self, name: &str) -> Result<()> {
        let at = roadstead_tests::unique("fetch");
        let patch =
            format!(r#"{{"metadata":{{"annotations":{{"reconcile.fluxcd.io/requestedAt":"{at}"}}}}}}"#);
        let path = format!(
            "{}/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/gitrepositories/{name}",
            self.server
        );
        let request = self.http.patch(path).header("content-type", "application/merge-patch+json");
        request.bearer_auth(&self.token).body(patch).send().await?.error_for_status()?;
        Ok(())
    }

    /// An anonymous client's, with connections of its own; no certificate is checked.
    fn anonymous() -> Result<reqwest::Client> {
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
        client.timeout(Duration::from_secs(30)).build().context("set up HTTPS")
    }
}

/// Attacks that go on until they are ended.
///
/// They come from other machines. Here they have a runtime of their own whose threads step back behind the hub's: what is
/// measured is what they cost the hub, not what sending them costs this machine.
pub(crate) struct Attacks {
    runtime: Runtime,
    tasks: JoinSet<()>,
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Attacks {
    pub(crate) fn start(target: &Target, stop: &Arc<AtomicBool>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(|| {
                // Of the calling thread. That it may always do.
                let _ = rustix::process::setpriority_process(None, NICE);
            })
            .build()
            .context("set up the attackers' runtime")?;
        let mut attacks = Self { runtime, tasks: JoinSet::new(), counts: Vec::new() };
        let bomb = nested_anchors(126, 199_000);
        let mut duplicates = String::from("{");
        for number in 0..200_000 {
            let _ = write!(duplicates, "\"k{}\":0,", number % 10);
        }
        duplicates.push_str("\"k\":0}");
        for (form, body) in [("application/yaml", bomb), ("application/json", duplicates)] {
            let body: Arc<str> = body.into();
            attacks.repeat("bodies", 4, stop, target, move |target| {
                let body = Arc::clone(&body);
                async move { enrol(&target, form, &body).await }
            });
        }
        attacks.repeat("made-up tokens", MADE_UP, stop, target, made_up);
        let (api, link) = (target.api_port, target.link_port);
        attacks.repeat("half-sent enrolments", HALF_SENT, stop, target, half_sent);
        attacks.repeat("silent connections", SILENT, stop, target, move |_| silent(api));
        attacks.repeat("silent links", SILENT, stop, target, move |_| silent(link));
        attacks.repeat("sessions with an agent's key", SESSIONS, stop, target, |target| async move {
            agent::session(&target.hostile).await
        });
        Ok(attacks)
    }

    /// Does something again and again, `at_once` times side by side.
    fn repeat<F>(
        &mut self,
        name: &'static str,
        at_once: usize,
        stop: &Arc<AtomicBool>,
        target: &Target,
        attack: impl Fn(Target) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = Result<()>> + Send,
    {
        let count = Arc::new(AtomicU64::new(0));
        self.counts.push((name, Arc::clone(&count)));
        for _ in 0..at_once {
            let (stop, target, attack, count) =
                (Arc::clone(stop), target.clone(), attack.clone(), Arc::clone(&count));
            let attacking = async move {
                while !stop.load(Ordering::Relaxed) {
                    // A refusal is what is expected; what matters is how the hub bears it.
                    let refused = attack(target.clone()).await.is_err();
                    count.fetch_add(1, Ordering::Relaxed);
                    // Whoever is refused at once would spin, and take the machine's time instead of the hub's.
                    tokio::time::sleep(Duration::from_millis(if refused { 500 } else { 5 })).await;
                }
            };
            self.tasks.spawn_on(attacking, self.runtime.handle());
        }
    }

    /// Ends them all, and says how often each was tried.
    pub(crate) async fn end(mut self) -> String {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.runtime.shutdown_background();
        let counts =
            self.counts.iter().map(|(name, count)| format!("{} {name}", count.load(Ordering::Relaxed)));
        counts.collect::<Vec<_>>().join(", ")
    }
}

async fn enrol(target: &Target, form: &str, body: &str) -> Result<()> {
    let request = Target::anonymous()?.post(format!("{}/fleet/v1/enrol", target.server));
    let answer = request.header("content-type", form).body(body.to_owned()).send().await?;
    ensure!(!answer.status().is_success(), "a bomb was taken for an enrolment");
    Ok(())
}

async fn made_up(target: Target) -> Result<()> {
    let token = roadstead_tests::unique("rst_made-up-token-of-the-usual-length");
    let answer =
        target.shared.get(format!("{}/api/v1/namespaces", target.server)).bearer_auth(token).send().await?;
    ensure!(!answer.status().is_success(), "a made-up token was taken");
    Ok(())
}

/// A TLS connection whose request's body never comes.
async fn half_sent(target: Target) -> Result<()> {
    let (sender, body) = tokio::sync::mpsc::channel::<Result<bytes::Bytes, std::io::Error>>(1);
    sender.send(Ok(bytes::Bytes::from_static(b"{\"token\":"))).await?;
    let body = reqwest::Body::wrap_stream(tokio_stream::wrappers::ReceiverStream::new(body));
    let request = Target::anonymous()?.post(format!("{}/fleet/v1/enrol", target.server));
    let answer = request.header("content-type", "application/json").body(body).send().await;
    drop(sender);
    answer?;
    Ok(())
}

/// A connection that sends a byte and then nothing, for as long as it is left open.
async fn silent(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(&[22]).await?;
    let mut answer = [0];
    let read = tokio::io::AsyncReadExt::read(&mut stream, &mut answer);
    let ended = tokio::time::timeout(Duration::from_secs(20), read).await;
    ensure!(ended.is_err(), "the connection was closed");
    Ok(())
}
