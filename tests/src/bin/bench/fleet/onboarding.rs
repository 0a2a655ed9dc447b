//! Many clusters that come on board at once by their kubeconfigs. The clusters are simulated: a server that answers what the
//! hub asks of each, takes what it installs, and starts the simulated agent when the join Secret is there.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use roadstead_tests::{HubProcess, HubSetup, eventually};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::agent::{Counts, SimulatedAgent};
use super::{Load, PATIENCE, SERVER, connected};
use crate::api::Api;
use crate::figures::Report;
use crate::memory::Processes;

/// Brings so many clusters on board, all of whose kubeconfigs come at once.
pub(crate) async fn measure(report: &mut Report, count: usize) -> Result<()> {
    let setup = HubSetup::new("bench-onboarding").await?.arg("--allow-cluster-network=127.0.0.0/8");
    let hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let (joins, mut joined) = mpsc::channel(count.max(1));
    let clusters = Clusters::start(joins).await?;
    let counts = Arc::new(Counts::default());
    let (hub_api, counted) = (api.another()?, Arc::clone(&counts));
    let agents = tokio::spawn(async move {
        let mut agents = tokio::task::JoinSet::new();
        while let Some((kube_system, secret)) = joined.recv().await {
            match SimulatedAgent::join(&hub_api, &secret, &kube_system).await {
                Ok(agent) => drop(agents.spawn(agent.keep(Arc::clone(&counted)))),
                Err(error) => eprintln!("an agent could not enrol: {error:#}"),
            }
        }
        agents.join_all().await;
    });

    let processes = Processes::hub(hub.id(), setup.database().url())?;
    let load = Load::begin(&processes)?;
    let began = Instant::now();
    let secrets = futures::future::try_join_all((0..count).map(|index| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": format!("edge-{index}-kubeconfig") },
            "data": { "value": STANDARD.encode(clusters.kubeconfig(index)) },
        });
        let api = &api;
        async move { api.ask(Method::POST, SECRETS, "application/json", secret.to_string()).await }
    }));
    secrets.await?;
    let created = began.elapsed().as_secs_f64();
    connected(&counts, count).await?;
    eventually("all Clusters are Ready, and the kubeconfigs are forgotten", PATIENCE, || async {
        let clusters = api.get("/apis/fleet.roadstead.dev/v1alpha1/clusters").await?;
        let is_ready = |cluster: &&Value| {
            let conditions = cluster["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let ready = clusters["items"].as_array().into_iter().flatten().filter(is_ready).count();
        let secrets = api.get(SECRETS).await?;
        let kept = secrets["items"].as_array().into_iter().flatten();
        let kept = kept.filter(|secret| secret["data"]["value"].is_string()).count();
        ensure!((ready, kept) == (count, 0), "{ready} are ready, {kept} are kept");
        Ok(())
    })
    .await?;
    let mut figure = load.end(&processes, &format!("{count} clusters come on board at once"))?;
    figure.values.insert(0, ("s until all kubeconfigs are taken".into(), created));
    figure.values.insert(1, ("s until all are Ready".into(), began.elapsed().as_secs_f64()));
    figure.values.push(("MiB VmRSS of the hub".into(), processes.front_rss()?));
    report.add(SERVER, figure);
    agents.abort();
    Ok(())
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// The apiservers of all simulated clusters: each has a path of its own.
struct Clusters {
    port: u16,
    ca: String,
}

/// Which cluster it is, and the join Secret that was installed there.
type Join = (String, Value);

impl Clusters {
    async fn start(joins: mpsc::Sender<Join>) -> Result<Self> {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let state = Arc::new(State { joins, uids: Mutex::default() });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(Arc::clone(&state), request));
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // Whoever hangs up has what it wanted.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { port, ca: STANDARD.encode(certificate.cert.pem()) })
    }

    fn kubeconfig(&self, index: usize) -> String {
        let server = format!("https://127.0.0.1:{}/{index}", self.port);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": self.ca } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
            "users": [{ "name": "c", "user": { "token": "simulated" } }],
        })
        .to_string()
    }
}

struct State {
    joins: mpsc::Sender<Join>,
    /// The uid of each cluster's `kube-system`.
    uids: Mutex<BTreeMap<String, String>>,
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match respond(&state, request).await {
        Ok(body) => body,
        Err(error) => {
            let mut refused = Response::new(Full::from(format!("{error:#}")));
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(refused);
        }
    };
    let mut response = Response::new(Full::from(body.to_string()));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}

async fn respond(state: &State, request: Request<Incoming>) -> Result<Value> {
    let path = request.uri().path().to_owned();
    let (cluster, rest) = path.trim_start_matches('/').split_once('/').context("a cluster's path")?;
    let uid = {
        let mut uids = state.uids.lock().unwrap_or_else(PoisonError::into_inner);
        uids.entry(cluster.to_owned()).or_insert_with(|| uuid::Uuid::new_v4().to_string()).clone()
    };
    match (request.method(), rest) {
        (&Method::GET, "version") => Ok(json!({ "gitVersion": "v1.35.0" })),
        (&Method::GET, "api/v1/namespaces/kube-system") => Ok(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system", "uid": uid },
        })),
        (&Method::PATCH, _) => {
            let bytes = request.into_body().collect().await?.to_bytes();
            let object: Value = serde_json::from_slice(&bytes)?;
            if object["kind"] == "Secret" {
                state.joins.send((uid, object.clone())).await?;
            }
            Ok(object)
        }
        (method, path) => anyhow::bail!("{method} {path} is not asked for when a cluster comes on board"),
    }
}
