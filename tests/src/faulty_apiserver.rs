//! An apiserver's face that answers some requests with an error, as one does that has too much to do, or whose database is in trouble.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use roadstead_test_gitserver::{Authority, install_crypto};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What is answered in place of the apiserver's own word.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// 429, to be asked again after so many seconds; nothing was done.
    Busy(u64),
    /// 500; nothing was done.
    Broken,
    /// 500, though what was asked for was done: a write whose answer is lost.
    Lost,
}

type Rule = dyn FnMut(&Method, &str) -> Option<Fault> + Send;

/// A face that is there until it is dropped.
pub struct FaultyApiserver {
    rule: Arc<Mutex<Box<Rule>>>,
    task: JoinHandle<()>,
}

impl Drop for FaultyApiserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The apiserver behind it.
struct Real {
    http: reqwest::Client,
    server: String,
}

impl FaultyApiserver {
    /// A face of the apiserver that this kubeconfig (JSON, everything inline) leads to, whose user is who asks, whatever whoever asks shows; and
    /// the kubeconfig that leads to the face.
    ///
    /// # Errors
    /// When the kubeconfig lacks something, or no port is free.
    pub(crate) async fn start(kubeconfig: &str) -> Result<(Self, Value)> {
        install_crypto();
        let mut config: Value = serde_json::from_str(kubeconfig).context("read a kubeconfig")?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let pem =
            |value: &Value| Ok::<_, anyhow::Error>(STANDARD.decode(value.as_str().context("inline data")?)?);
        let identity = [pem(&user["client-certificate-data"])?, pem(&user["client-key-data"])?].concat();
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&pem(&cluster["certificate-authority-data"])?)?])
            .identity(reqwest::Identity::from_pem(&identity)?)
            .no_proxy()
            .build()
            .context("set up HTTPS")?;
        let server = cluster["server"].as_str().context("an apiserver's address")?.to_owned();
        let real = Arc::new(Real { http, server });

        let authority = Authority::new()?;
        let acceptor = TlsAcceptor::from(authority.server_config(&["127.0.0.1".to_owned()])?);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let rule: Arc<Mutex<Box<Rule>>> = Arc::new(Mutex::new(Box::new(|_: &Method, _: &str| None)));
        let shared = Arc::clone(&rule);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (rule, real, acceptor) = (Arc::clone(&shared), Arc::clone(&real), acceptor.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service =
                        service_fn(move |request| answer(Arc::clone(&rule), Arc::clone(&real), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // Who breaks off is of no interest here.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let face = &mut config["clusters"][0]["cluster"];
        face["server"] = format!("https://127.0.0.1:{port}").into();
        face["certificate-authority-data"] = STANDARD.encode(authority.pem()).into();
        Ok((Self { rule, task }, config))
    }

    /// From now on this says which requests, by method and path with query, are answered how; none of it: as the apiserver does.
    pub fn answers(&self, rule: impl FnMut(&Method, &str) -> Option<Fault> + Send + 'static) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// From now on all is answered as the apiserver does.
    pub fn is_well(&self) {
        self.answers(|_, _| None);
    }
}

type Body = BoxBody<Bytes, reqwest::Error>;

async fn answer(
    rule: Arc<Mutex<Box<Rule>>>,
    real: Arc<Real>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let fault = {
        let mut rule = rule.lock().unwrap_or_else(PoisonError::into_inner);
        rule(request.method(), &path)
    };
    match fault {
        Some(Fault::Busy(seconds)) => Ok(status(429, "TooManyRequests", Some(seconds))),
        Some(Fault::Broken) => Ok(status(500, "InternalError", None)),
        fault => {
            let forwarded = forward(&real, &path, request).await;
            Ok(match (fault, forwarded) {
                (None, Ok(answer)) => answer,
                (None, Err(_)) => status(502, "BadGateway", None),
                (Some(_), _) => status(500, "InternalError", None),
            })
        }
    }
}

async fn forward(real: &Real, path: &str, request: Request<Incoming>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let mut forwarded = real.http.request(parts.method, format!("{}{path}", real.server));
    for (name, value) in &parts.headers {
        if ![HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let answered = forwarded.body(body.collect().await?.to_bytes()).send().await?;
    let mut answer = Response::builder().status(answered.status());
    for (name, value) in answered.headers() {
        if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            answer = answer.header(name, value);
        }
    }
    // As it comes: a watch has no end.
    Ok(answer.body(StreamBody::new(answered.bytes_stream().map_ok(Frame::data)).boxed())?)
}

fn status(code: u16, reason: &str, retry_after: Option<u64>) -> Response<Body> {
    let details = retry_after.map_or(json!({}), |seconds| json!({ "retryAfterSeconds": seconds }));
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server is in trouble", "reason": reason, "details": details, "code": code });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed());
    *answer.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}
