//! A registry in memory, which serves what it is given and lies on demand.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use flate2::write::GzEncoder;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LINK, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_model::Digest;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::oci::{RegistryLogin, RegistryLogins};
use roadstead_sources::{OciReference, OciRequest};
use roadstead_test_gitserver::Authority;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::serving::{Reply, authority, listen};

pub(crate) const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// How the registry wants to know who asks.
#[derive(Clone)]
pub(crate) enum Wants {
    Nothing,
    /// Name and password, `reader` and `right`.
    Basic,
    /// This name, and `right`.
    BasicAs(&'static str),
    /// A token of its own service, which gives one to this name with `right`.
    BearerAs(&'static str),
    /// A token of its own service, which gives one to `reader`, or to everyone.
    Bearer {
        anonymous: bool,
    },
    /// A token of the service at this URL.
    BearerOf(String),
    /// An identity token is changed for another one.
    Identity,
}

/// What it does wrong.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// `HEAD` is not served.
    NoHead,
    /// `HEAD` does not say the digest.
    NoDigest,
    /// These bytes come for every manifest.
    Manifest(Vec<u8>),
    /// These bytes come for every layer.
    Layer(Vec<u8>),
    /// Layers are elsewhere.
    LayersAt(String),
    /// The list of tags goes on there.
    NextPage(String),
    /// It takes the request, and says nothing.
    Hang,
    /// All requests are answered so.
    Status(u16),
}

struct State {
    wants: Wants,
    fault: Fault,
    page: usize,
    blobs: HashMap<String, (String, Vec<u8>)>,
    /// Repository and tag.
    tags: BTreeMap<(String, String), String>,
    /// Lists of what refers to images, by digest, where the registry has such lists: each its pages.
    referrers: Option<BTreeMap<String, Vec<Vec<u8>>>>,
    seen: Vec<Seen>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `GET /v2/app/manifests/latest`.
    pub(crate) what: String,
    pub(crate) authorization: Option<String>,
}

/// A registry that serves until it is dropped.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Option<Authority>,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registry {
    pub(crate) async fn start(tls: bool, wants: Wants) -> Self {
        let (authority, config) = authority(tls);
        Self::with(config, authority, wants).await
    }

    pub(crate) async fn with(
        config: Option<Arc<rustls::ServerConfig>>,
        authority: Option<Authority>,
        wants: Wants,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if config.is_some() { "https" } else { "http" };
        let home = format!("{scheme}://{address}");
        let state = Arc::new(Mutex::new(State {
            wants,
            fault: Fault::None,
            page: usize::MAX,
            blobs: HashMap::new(),
            tags: BTreeMap::new(),
            referrers: None,
            seen: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let task = listen(
            listener,
            config,
            || (),
            move |request| answer(Arc::clone(&shared), home.clone(), request),
        );
        Self { address, authority, state, task }
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.state(|state| state.fault = fault);
    }

    pub(crate) fn wants(&self, wants: Wants) {
        self.state(|state| state.wants = wants);
    }

    /// Lists of tags have so many at once.
    pub(crate) fn page(&self, tags: usize) {
        self.state(|state| state.page = tags);
    }

    /// The requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state(|state| std::mem::take(&mut state.seen))
    }

    pub(crate) fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes).to_string();
        self.state(|state| state.blobs.insert(digest.clone(), (kind.to_owned(), bytes.to_vec())));
        json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
    }

    /// What a blob that is kept has in it.
    pub(crate) fn kept(&self, digest: &str) -> Vec<u8> {
        self.state(|state| state.blobs[digest].1.clone())
    }

    pub(crate) fn tagged_digest(&self, repository: &str, tag: &str) -> String {
        self.state(|state| state.tags[&(repository.to_owned(), tag.to_owned())].clone())
    }

    /// From now on it has lists of referrers: this one.
    pub(crate) fn refer(&self, digest: &str, pages: Vec<Vec<u8>>) {
        self.state(|state| state.referrers.get_or_insert_default().insert(digest.to_owned(), pages));
    }

    pub(crate) fn tag(&self, repository: &str, tag: &str, digest: &str) {
        let key = (repository.to_owned(), tag.to_owned());
        self.state(|state| state.tags.insert(key, digest.to_owned()));
    }

    pub(crate) fn untag(&self, repository: &str, tag: &str) {
        self.state(|state| state.tags.remove(&(repository.to_owned(), tag.to_owned())));
    }

    /// Keeps a manifest with these layers, and gives its descriptor.
    pub(crate) fn manifest(&self, layers: &[(&str, &[u8])], annotations: &Value) -> Value {
        let layers: Vec<Value> = layers.iter().map(|(kind, bytes)| self.blob(kind, bytes)).collect();
        let config = self.blob("application/vnd.cncf.flux.config.v1+json", b"{}");
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, "annotations": annotations,
        });
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Pushes an artifact of these files; gives its manifest's digest.
    pub(crate) fn push(&self, repository: &str, tag: &str, files: &[(&str, &str)]) -> String {
        let manifest = self.manifest(&[(LAYER, &layer(files))], &json!({}));
        let digest = manifest["digest"].as_str().unwrap().to_owned();
        self.tag(repository, tag, &digest);
        digest
    }

    /// A request for `app`, which trusts its server.
    pub(crate) fn request(&self) -> OciRequest {
        OciRequest {
            ca: self.authority.as_ref().map(|authority| authority.pem().as_bytes().to_vec()),
            insecure: self.authority.is_none(),
            timeout: Duration::from_secs(30),
            guard: way_to(&[self.address]),
            ..OciRequest::new(format!("oci://{}/app", self.address))
        }
    }

    pub(crate) fn tagged(&self, tag: &str) -> OciRequest {
        OciRequest { reference: OciReference::Tag(tag.to_owned()), ..self.request() }
    }
}

/// A way out to these servers.
pub(crate) fn way_to(servers: &[SocketAddr]) -> Guard {
    let rules = servers.iter().map(|server| server.to_string().parse().unwrap()).collect();
    Guard::new(Arc::new(Policy::new(rules)), Purpose::Oci)
}

pub(crate) fn login(password: &str) -> RegistryLogins {
    let password = password.into();
    RegistryLogins::everywhere(RegistryLogin::Basic { username: "reader".to_owned(), password })
}

/// A layer of these files.
pub(crate) fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn reply(status: u16, kind: &str, body: impl Into<Bytes>) -> Reply {
    Response::builder().status(status).header(CONTENT_TYPE, kind).body(Full::new(body.into())).unwrap()
}

async fn answer(
    state: Arc<Mutex<State>>,
    home: String,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let authorization = parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let path = parts.uri.path_and_query().unwrap().to_string();
    let fault = {
        let mut state = state.lock().unwrap();
        let what = format!("{} {path}", parts.method);
        state.seen.push(Seen { what, authorization: authorization.clone() });
        state.fault.clone()
    };
    match fault {
        Fault::Hang => std::future::pending().await,
        Fault::Status(status) => return Ok(reply(status, "text/plain", "no")),
        _ => {}
    }
    let state = state.lock().unwrap();
    let basic = |user: &str, password: &str| {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        format!("Basic {pair}")
    };
    if parts.uri.path() == "/token" {
        let form = String::from_utf8_lossy(&body).into_owned();
        let may = match &state.wants {
            Wants::Bearer { anonymous: true } | Wants::BearerOf(_) => true,
            Wants::Identity => parts.method == Method::POST && form.contains("refresh_token=identity"),
            Wants::BearerAs(name) => authorization == Some(basic(name, "right")),
            _ => authorization == Some(basic("reader", "right")),
        };
        return Ok(if may {
            reply(200, "application/json", json!({ "token": "granted", "expires_in": 300 }).to_string())
        } else {
            reply(401, "text/plain", "no")
        });
    }
    let (may, challenge) = match &state.wants {
        Wants::Nothing => (true, String::new()),
        Wants::Basic => (authorization == Some(basic("reader", "right")), "Basic realm=\"here\"".to_owned()),
        Wants::BasicAs(name) => {
            (authorization == Some(basic(name, "right")), "Basic realm=\"here\"".to_owned())
        }
        Wants::Bearer { .. } | Wants::BearerAs(_) | Wants::Identity => (
            authorization.as_deref() == Some("Bearer granted"),
            format!("Bearer realm=\"{home}/token\",service=\"here\",scope=\"repository:other:push\""),
        ),
        Wants::BearerOf(realm) => (
            authorization.as_deref() == Some("Bearer granted"),
            format!("Bearer realm=\"{realm}\",service=\"here\""),
        ),
    };
    if !may {
        let mut refused = reply(401, "application/json", "{}");
        refused.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
        return Ok(refused);
    }
    Ok(serve(&state, &parts.method, &path))
}

fn serve(state: &State, method: &Method, path: &str) -> Reply {
    let nothing = || reply(404, "application/json", "{}");
    let Some(rest) = path.strip_prefix("/v2/") else { return nothing() };
    if let Some((repository, query)) = rest.split_once("/tags/list") {
        return list(state, repository, query);
    }
    if let Some((repository, reference)) = rest.split_once("/manifests/") {
        let tagged = state.tags.get(&(repository.to_owned(), reference.to_owned()));
        let digest = tagged.map_or(reference, String::as_str);
        let Some((kind, bytes)) = state.blobs.get(digest) else { return nothing() };
        let bytes = match &state.fault {
            Fault::Manifest(other) => other,
            _ => bytes,
        };
        if method == Method::HEAD {
            if state.fault == Fault::NoHead {
                return reply(405, "text/plain", "");
            }
            let mut head = reply(200, kind, "");
            if state.fault != Fault::NoDigest {
                head.headers_mut().insert("docker-content-digest", digest.parse().unwrap());
            }
            return head;
        }
        return reply(200, kind, bytes.clone());
    }
    if let (Some((_, rest)), Some(referrers)) = (rest.split_once("/referrers/"), &state.referrers) {
        let (digest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let number: usize = query.rsplit_once("page=").map_or(0, |(_, page)| page.parse().unwrap());
        let empty =
            json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] }).to_string().into_bytes();
        let pages = referrers.get(digest).cloned().unwrap_or_else(|| vec![empty]);
        let mut answer = reply(200, INDEX, pages[number].clone());
        if number + 1 < pages.len() {
            let next = format!("<{path}&page={}>; rel=\"next\"", number + 1);
            answer.headers_mut().insert(LINK, next.parse().unwrap());
        }
        return answer;
    }
    let Some((_, digest)) = rest.split_once("/blobs/") else { return nothing() };
    match &state.fault {
        Fault::LayersAt(base) => {
            let mut moved = reply(307, "text/plain", "");
            *moved.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            moved.headers_mut().insert(LOCATION, format!("{base}{path}").parse().unwrap());
            moved
        }
        Fault::Layer(other) => reply(200, "application/octet-stream", other.clone()),
        _ => match state.blobs.get(digest) {
            Some((_, bytes)) => reply(200, "application/octet-stream", bytes.clone()),
            None => nothing(),
        },
    }
}

fn list(state: &State, repository: &str, query: &str) -> Reply {
    let last = query.split(['?', '&']).find_map(|one| one.strip_prefix("last=")).unwrap_or_default();
    let all = state.tags.keys().filter(|(of, _)| of == repository).map(|(_, tag)| tag.as_str());
    let tags: Vec<&str> = all.filter(|tag| *tag > last).collect();
    let page = &tags[..tags.len().min(state.page)];
    let mut answer = reply(200, "application/json", json!({ "name": repository, "tags": page }).to_string());
    let next = match &state.fault {
        Fault::NextPage(next) => Some(next.clone()),
        _ if page.len() < tags.len() => {
            Some(format!("</v2/{repository}/tags/list?n=1000&last={}>; rel=\"next\"", page[page.len() - 1]))
        }
        _ => None,
    };
    if let Some(next) = next {
        answer.headers_mut().insert(LINK, next.parse().unwrap());
    }
    answer
}
