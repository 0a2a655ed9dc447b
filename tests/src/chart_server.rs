//! A server of files over HTTPS that wants a name and a password, as many a Helm repository is one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use roadstead_test_gitserver::{Authority, install_crypto};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::registry::LOGIN;

#[derive(Default)]
struct State {
    /// Each with what it is called.
    files: BTreeMap<String, (Vec<u8>, u64)>,
    puts: u64,
    /// Status and path of each request.
    seen: Vec<(u16, String)>,
}

/// A server that serves until it is dropped.
pub struct ChartServer {
    authority: Authority,
    port: u16,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for ChartServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ChartServer {
    /// Starts one on a free port; who asks shows [`LOGIN`].
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start() -> Result<Self> {
        install_crypto();
        let authority = Authority::new()?;
        let config = authority.server_config(&["127.0.0.1".to_owned()])?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, acceptor) = (Arc::clone(&state), TlsAcceptor::from(config));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&shared), acceptor.clone());
                tokio::spawn(async move {
                    // Who does not trust it, or breaks off, is of no interest here.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { authority, port, state, task })
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a file.
    pub fn put(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.state(|state| {
            state.puts += 1;
            let file = (content.into(), state.puts);
            state.files.insert(path.to_owned(), file);
        });
    }

    /// Status and path of each request since the last call.
    pub fn seen(&self) -> Vec<(u16, String)> {
        self.state(|state| std::mem::take(&mut state.seen))
    }

    /// Where its files are.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate of its authority, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        self.authority.pem()
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let (name, password) = LOGIN;
    let login = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let is_let_in = request.headers().get(AUTHORIZATION).is_some_and(|given| given == login.as_str());
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = match state.files.get(&path) {
        _ if !is_let_in => StatusCode::UNAUTHORIZED,
        None => StatusCode::NOT_FOUND,
        Some((bytes, number)) => {
            let tag = format!("\"{number}\"");
            let is_known = request.headers().get(IF_NONE_MATCH).is_some_and(|given| given == tag.as_str());
            if let Ok(tag) = tag.parse() {
                answer.headers_mut().insert(ETAG, tag);
            }
            if is_known {
                StatusCode::NOT_MODIFIED
            } else {
                *answer.body_mut() = Full::new(Bytes::from(bytes.clone()));
                StatusCode::OK
            }
        }
    };
    let seen = (answer.status().as_u16(), path);
    state.seen.push(seen);
    Ok(answer)
}
