//! An object store in memory, which speaks all three protocols, serves what it is given and lies on demand. It checks no signature: that
//! is for real stores (`tests/tests/e2e/bucket.rs`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, ETAG, HeaderMap, IF_MATCH, LOCATION};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::BucketRequest;
use roadstead_sources::bucket::BucketStore;
use roadstead_test_gitserver::Authority;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use crate::serving::{Reply, authority, listen};

/// What it does wrong.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// All lists are this text.
    List(String),
    /// Lists are this long, of pages of an object each.
    Endless,
    /// A list goes on where it went on before.
    Circle,
    /// Objects hold something else than is listed.
    Content(Vec<u8>),
    /// Objects are elsewhere.
    ObjectsAt(String),
    /// After a list this object is put, or removed where it holds nothing; so many times.
    After(String, Option<&'static str>, usize),
    /// All requests are answered so.
    Status(u16, String),
    /// The bucket is in this region; others are told.
    Region(String),
    /// It takes the request, and says nothing.
    Hang,
}

struct Object {
    etag: String,
    generation: u64,
    bytes: Vec<u8>,
}

struct State {
    store: BucketStore,
    objects: BTreeMap<String, Object>,
    fault: Fault,
    page: usize,
    /// Who may ask, by the `Authorization` header; anyone where there is none.
    wants: Option<String>,
    /// What token services answer.
    token: String,
    puts: u64,
    seen: Vec<Seen>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// `GET /bucket/key`.
    pub(crate) what: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn authorization(&self) -> &str {
        self.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// A store that serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Option<Authority>,
    state: Arc<Mutex<State>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(store: BucketStore, tls: bool) -> Self {
        let (authority, config) = authority(tls);
        Self::with(store, config, authority).await
    }

    pub(crate) async fn with(
        store: BucketStore,
        config: Option<Arc<rustls::ServerConfig>>,
        authority: Option<Authority>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            store,
            objects: BTreeMap::new(),
            fault: Fault::None,
            page: 1_000,
            wants: None,
            token: String::new(),
            puts: 0,
            seen: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let connected = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let task = listen(listener, config, connected, move |request| answer(Arc::clone(&shared), request));
        Self { address, authority, state, connections, task }
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn fault(&self, fault: Fault) {
        self.state(|state| state.fault = fault);
    }

    pub(crate) fn page(&self, objects: usize) {
        self.state(|state| state.page = objects);
    }

    pub(crate) fn wants(&self, authorization: &str) {
        self.state(|state| state.wants = Some(authorization.to_owned()));
    }

    pub(crate) fn token(&self, answer: &str) {
        self.state(|state| state.token = answer.to_owned());
    }

    pub(crate) fn put(&self, key: &str, content: &str) {
        self.state(|state| state.put(key, content));
    }

    pub(crate) fn remove(&self, key: &str) {
        self.state(|state| state.objects.remove(key));
    }

    /// The requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state(|state| std::mem::take(&mut state.seen))
    }

    /// Their methods and URLs.
    pub(crate) fn whats(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    /// How many there were.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A request for its bucket `apps`, which trusts its server.
    pub(crate) fn request(&self) -> BucketRequest {
        let store = self.state(|state| state.store);
        BucketRequest {
            store,
            ca: self.authority.as_ref().map(|authority| authority.pem().as_bytes().to_vec()),
            insecure: self.authority.is_none(),
            timeout: Duration::from_secs(30),
            guard: way_to(&[self.address]),
            ..BucketRequest::new(self.address.to_string(), "apps")
        }
    }
}

/// A way out to these servers.
pub(crate) fn way_to(servers: &[SocketAddr]) -> Guard {
    let rules = servers.iter().map(|server| server.to_string().parse().unwrap()).collect();
    Guard::new(Arc::new(Policy::new(rules)), Purpose::Bucket)
}

impl State {
    fn put(&mut self, key: &str, content: &str) {
        self.puts += 1;
        let generation = self.puts;
        let object = Object { etag: format!("e{generation}"), generation, bytes: content.into() };
        self.objects.insert(key.to_owned(), object);
    }

    fn list(&mut self, url: &Url) -> String {
        let given =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let prefix = given("prefix").unwrap_or_default();
        let after = ["continuation-token", "pageToken", "marker"].into_iter().find_map(given);
        match &self.fault {
            Fault::List(text) => return text.clone(),
            Fault::Endless => {
                let number = after.map_or(0, |after| after.parse::<u64>().unwrap() + 1);
                return s3(&[(format!("k{number:09}"), "e".to_owned(), 1)], Some(&number.to_string()));
            }
            Fault::Circle => return s3(&[], Some("again")),
            _ => {}
        }
        let all = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| *key > after));
        let all: Vec<(String, String, usize, u64)> = all
            .map(|(key, object)| (key.clone(), object.etag.clone(), object.bytes.len(), object.generation))
            .collect();
        let page = &all[..all.len().min(self.page)];
        let next = (page.len() < all.len()).then(|| page[page.len() - 1].0.clone());
        match self.store {
            BucketStore::S3 => {
                let page: Vec<(String, String, usize)> =
                    page.iter().map(|(key, etag, size, _)| (key.clone(), etag.clone(), *size)).collect();
                s3(&page, next.as_deref())
            }
            BucketStore::Gcs => {
                let items: Vec<_> = page
                    .iter()
                    .map(|(key, etag, size, generation)| {
                        json!({ "name": key, "etag": etag, "size": size.to_string(), "generation": generation.to_string() })
                    })
                    .collect();
                json!({ "items": items, "nextPageToken": next }).to_string()
            }
            BucketStore::Azure => {
                let blobs: String = page
                    .iter()
                    .map(|(key, etag, size, _)| {
                        format!(
                            "<Blob><Name>{key}</Name><Properties><Etag>{etag}</Etag><Content-Length>{size}</Content-Length>\
                             </Properties></Blob>"
                        )
                    })
                    .collect();
                let next = next.unwrap_or_default();
                format!(
                    "<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
                )
            }
        }
    }
}

fn s3(page: &[(String, String, usize)], next: Option<&str>) -> String {
    let contents: String = page
        .iter()
        .map(|(key, etag, size)| {
            let key: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
            format!("<Contents><Key>{key}</Key><ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size></Contents>")
        })
        .collect();
    let more = next.map_or_else(String::new, |next| {
        format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>")
    });
    format!("<ListBucketResult><EncodingType>url</EncodingType>{contents}{more}</ListBucketResult>")
}

fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let fault = {
        let mut state = state.lock().unwrap();
        state.seen.push(Seen {
            what: format!("{} {path}", parts.method),
            headers: parts.headers.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        state.fault.clone()
    };
    match fault {
        Fault::Hang => std::future::pending().await,
        Fault::Status(status, text) => return Ok(reply(status, text)),
        Fault::Region(region) => {
            let authorization = parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
            if !authorization.unwrap_or_default().contains(&format!("/{region}/s3/")) {
                let mut moved = reply(400, "<Error><Code>AuthorizationHeaderMalformed</Code></Error>");
                moved.headers_mut().insert("x-amz-bucket-region", region.parse().unwrap());
                return Ok(moved);
            }
        }
        _ => {}
    }
    let mut state = state.lock().unwrap();
    if parts.uri.path().ends_with("/token") {
        let status = if state.token.is_empty() { 401 } else { 200 };
        return Ok(reply(status, state.token.clone()));
    }
    let authorization = parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
    if state.wants.as_deref().is_some_and(|wants| authorization != Some(wants)) {
        return Ok(reply(403, "<Error><Code>AccessDenied</Code></Error>"));
    }
    Ok(serve(&mut state, &path, &parts.headers))
}

fn serve(state: &mut State, path: &str, headers: &HeaderMap) -> Reply {
    let url = Url::parse(&format!("http://host{path}")).unwrap();
    let root = match state.store {
        BucketStore::S3 | BucketStore::Azure => "/apps",
        BucketStore::Gcs => "/storage/v1/b/apps/o",
    };
    let Some(rest) = url.path().strip_prefix(root) else { return reply(404, "<Error/>") };
    let Some(key) = rest.strip_prefix('/') else {
        let list = state.list(&url);
        if let Fault::After(key, content, times) = state.fault.clone() {
            match content {
                Some(content) => state.put(&key, content),
                None => drop(state.objects.remove(&key)),
            }
            state.fault = if times > 1 { Fault::After(key, content, times - 1) } else { Fault::None };
        }
        return reply(200, list);
    };
    let key = url::form_urlencoded::parse(format!("k={}", key.replace('+', "%2B")).as_bytes())
        .next()
        .unwrap()
        .1
        .into_owned();
    if let Fault::ObjectsAt(base) = &state.fault {
        let mut moved = reply(307, "");
        moved.headers_mut().insert(LOCATION, format!("{base}{path}").parse().unwrap());
        return moved;
    }
    let Some(object) = state.objects.get(&key) else { return reply(404, "<Error/>") };
    let asked = headers.get(IF_MATCH).map(|value| value.to_str().unwrap().trim_matches('"').to_owned());
    let generation = url.query_pairs().find(|(name, _)| name == "ifGenerationMatch");
    let generation = generation.map(|(_, value)| value.parse::<u64>().unwrap());
    if asked.is_some_and(|etag| etag != object.etag) || generation.is_some_and(|own| own != object.generation)
    {
        return reply(412, "");
    }
    let bytes = match &state.fault {
        Fault::Content(other) if key != ".sourceignore" => other.clone(),
        _ => object.bytes.clone(),
    };
    let mut answer = reply(200, bytes);
    answer.headers_mut().insert(ETAG, format!("\"{}\"", object.etag).parse().unwrap());
    if state.store == BucketStore::Gcs {
        answer.headers_mut().insert(ETAG, "\"another\"".parse().unwrap());
        answer.headers_mut().insert("x-goog-generation", object.generation.into());
    }
    answer
}
