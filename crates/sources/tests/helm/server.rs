//! A server of files in memory, as a Helm repository is one; it lies on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION,
};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::helm::HelmServer;
use roadstead_test_gitserver::Authority;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::serving::{Reply, authority, listen};

/// What it does wrong at a path.
#[derive(Clone)]
pub(crate) enum Fault {
    /// It is elsewhere.
    At(String),
    /// It is answered so.
    Status(u16),
    /// The request is taken, and nothing said.
    Hang,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    faults: BTreeMap<String, Fault>,
    /// Who may ask, by the `Authorization` header; anyone where there is none.
    wants: Option<String>,
    /// Whether it says when files were changed, in the place of entity tags.
    dates: bool,
    seen: Vec<Seen>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl Seen {
    pub(crate) fn has_credentials(&self) -> bool {
        self.headers.contains_key(AUTHORIZATION)
    }
}

/// A server that serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Option<Authority>,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(tls: bool) -> Self {
        let (authority, config) = authority(tls);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let task = listen(listener, config, || (), move |request| answer(Arc::clone(&shared), request));
        Self { address, authority, state, task }
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn put(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.state(|state| state.files.insert(path.to_owned(), content.into()));
    }

    pub(crate) fn fault(&self, path: &str, fault: Fault) {
        self.state(|state| state.faults.insert(path.to_owned(), fault));
    }

    pub(crate) fn wants(&self, authorization: &str) {
        self.state(|state| state.wants = Some(authorization.to_owned()));
    }

    pub(crate) fn dates(&self) {
        self.state(|state| state.dates = true);
    }

    /// The requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state(|state| std::mem::take(&mut state.seen))
    }

    /// Their paths.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The repository at its root, which trusts it.
    pub(crate) fn repository(&self) -> HelmServer {
        HelmServer {
            ca: self.authority.as_ref().map(|authority| authority.pem().as_bytes().to_vec()),
            guard: way_to(&[self.address]),
            ..HelmServer::new(self.url())
        }
    }
}

/// A way out to these servers.
pub(crate) fn way_to(servers: &[SocketAddr]) -> Guard {
    let rules = servers.iter().map(|server| server.to_string().parse().unwrap()).collect();
    Guard::new(Arc::new(Policy::new(rules)), Purpose::Helm)
}

fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let headers = request.headers();
    let (fault, file, wants, dates) = {
        let mut state = state.lock().unwrap();
        state.seen.push(Seen { path: path.clone(), headers: headers.clone() });
        let bare = path.split('?').next().unwrap().to_owned();
        (state.faults.get(&bare).cloned(), state.files.get(&bare).cloned(), state.wants.clone(), state.dates)
    };
    match fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Status(status)) => return Ok(reply(status, "")),
        Some(Fault::At(to)) => {
            let mut moved = reply(302, "");
            moved.headers_mut().insert(LOCATION, to.parse().unwrap());
            return Ok(moved);
        }
        None => {}
    }
    let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
    if wants.is_some_and(|wants| authorization != Some(&wants)) {
        return Ok(reply(401, ""));
    }
    let Some(bytes) = file else { return Ok(reply(404, "")) };
    let (name, given, value) = if dates {
        (LAST_MODIFIED, IF_MODIFIED_SINCE, format!("Thu, 26 Nov 2026 12:00:{:02} GMT", bytes.len() % 60))
    } else {
        (ETAG, IF_NONE_MATCH, format!("\"{}\"", roadstead_model::Digest::of(&bytes).hex()))
    };
    let is_known = headers.get(given).is_some_and(|given| given == value.as_str());
    let mut reply = if is_known { reply(304, "") } else { reply(200, bytes) };
    reply.headers_mut().insert(name, value.parse().unwrap());
    Ok(reply)
}
