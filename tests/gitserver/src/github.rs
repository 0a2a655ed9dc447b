//! The API of a GitHub that knows one App, as far as it gives out tokens and takes statuses of commits: over TLS, with the authority of a Git
//! server, and as moody as a test tells it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::tls::Authority;

/// The private key of the App, which is published in RFC 7515.
pub const APP_KEY: &str = include_str!("../../../crates/kms/tests/rfc7515-a2.pem");
/// Its id, its name, and the number of its only installation, which user `fleet` has.
const APP: &str = "7";
const SLUG: &str = "fleet-app";
const INSTALLATION: u64 = 42;

/// How it answers who asks for a token.
#[derive(Debug, Clone)]
pub enum Mood {
    /// As it should.
    Well,
    /// With this status, these headers and this body.
    Says(u16, String, String),
    /// Not at all.
    Hangs,
    /// Without an end.
    Floods,
}

/// Is told a user and a password.
type Told = Box<dyn Fn(&str, &str) + Send + Sync>;

struct State {
    mood: Mutex<Mood>,
    lasts: Mutex<Duration>,
    /// The token that counts.
    token: Mutex<String>,
    given: Mutex<usize>,
    asked: Mutex<Vec<(String, Value)>>,
    /// Is told each token that is given out.
    told: Told,
}

/// The API, until it is dropped.
pub struct GitHubApi {
    address: SocketAddr,
    authority: Authority,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for GitHubApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GitHubApi {
    /// Serves on the runtime of the caller; `told` is told the user and the password of each token.
    ///
    /// # Errors
    /// If there is no free port, or no certificate can be made.
    pub async fn start(told: impl Fn(&str, &str) + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let authority = Authority::new()?;
        let acceptor = TlsAcceptor::from(authority.server_config(&["127.0.0.1".to_owned()])?);
        let state = Arc::new(State {
            mood: Mutex::new(Mood::Well),
            lasts: Mutex::new(Duration::from_secs(3_600)),
            token: Mutex::default(),
            given: Mutex::default(),
            asked: Mutex::default(),
            told: Box::new(told),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                // A client that goes ends it.
                tokio::spawn(async move { serve(&state, &acceptor, stream).await.ok() });
            }
        });
        Ok(Self { address, authority, state, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL of the API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/api/v3", self.address)
    }

    /// Its authority, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// How it answers from now on.
    pub fn mood(&self, mood: Mood) {
        *lock(&self.state.mood) = mood;
    }

    /// How long tokens last from now on.
    pub fn tokens_last(&self, lasts: Duration) {
        *lock(&self.state.lasts) = lasts;
    }

    /// How many tokens it gave out.
    #[must_use]
    pub fn given(&self) -> usize {
        *lock(&self.state.given)
    }

    /// What it was asked, and with which body.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Value)> {
        lock(&self.state.asked).clone()
    }
}

async fn serve(state: &State, acceptor: &TlsAcceptor, stream: TcpStream) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head)?;
        let header = |name: &str| {
            let of = |line: &str| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            };
            head.lines().find_map(of).unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or_default()];
        stream.read_exact(&mut body).await?;
        let line = head.lines().next().unwrap_or_default().replace("/api/v3", "");
        let line = line.trim_end_matches(" HTTP/1.1").to_owned();
        lock(&state.asked).push((line.clone(), serde_json::from_slice(&body).unwrap_or_default()));
        let bearer = header("authorization");
        let bearer = bearer.strip_prefix("Bearer ").unwrap_or_default();
        let mood = lock(&state.mood).clone();
        let (status, headers, body) = match mood {
            Mood::Hangs => std::future::pending().await,
            Mood::Floods => {
                stream.write_all(b"HTTP/1.1 201 X\r\ncontent-length: 1000000000\r\n\r\n").await?;
                loop {
                    stream.write_all(&[b'x'; 16 << 10]).await?;
                }
            }
            Mood::Says(status, headers, body) => (status, headers, body),
            Mood::Well => {
                let (status, body) = answer(state, &line, bearer);
                (status, String::new(), body.to_string())
            }
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn answer(state: &State, line: &str, bearer: &str) -> (u16, Value) {
    let (method, path) = line.split_once(' ').unwrap_or_default();
    if path.starts_with("/repos/") || path.starts_with("/users/fleet-app") {
        let token = lock(&state.token).clone();
        return match (method, bearer == token && !token.is_empty()) {
            (_, false) => (401, json!({ "message": "Bad credentials" })),
            ("GET", true) if path.starts_with("/users/") => (200, json!({ "id": 9 })),
            ("GET", true) => (200, json!([])),
            _ => (201, json!({})),
        };
    }
    if let Err(why) = verified(bearer) {
        return (401, json!({ "message": why.to_string() }));
    }
    match (method, path) {
        ("GET", "/app") => (200, json!({ "slug": SLUG })),
        ("GET", "/users/fleet/installation") => (200, json!({ "id": INSTALLATION })),
        ("POST", path) if path == format!("/app/installations/{INSTALLATION}/access_tokens") => {
            let mut given = lock(&state.given);
            *given += 1;
            let token = format!("ghs_CANARY{given}");
            (state.told)("x-access-token", &token);
            lock(&state.token).clone_from(&token);
            let until = Timestamp::now() + *lock(&state.lasts);
            (201, json!({ "token": token, "expires_at": until.to_string() }))
        }
        _ => (404, json!({ "message": "Not Found" })),
    }
}

/// Fails unless it is a token that the App's key signed just now, and that ends soon.
fn verified(token: &str) -> Result<()> {
    let (text, signature) = token.rsplit_once('.').context("no token")?;
    let key = match PrivateKeyDer::from_pem_slice(APP_KEY.as_bytes())? {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der())?,
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der())?,
        _ => anyhow::bail!("another kind of key"),
    };
    let signature = URL_SAFE_NO_PAD.decode(signature)?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref())
        .verify(text.as_bytes(), &signature)
        .ok()
        .context("another key signed it")?;
    let (header, claims) = text.split_once('.').context("no claims")?;
    let read =
        |part: &str| Ok::<Value, anyhow::Error>(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part)?)?);
    let (header, claims) = (read(header)?, read(claims)?);
    ensure!(header["alg"] == "RS256" && claims["iss"] == APP, "{header} {claims}");
    let now = Timestamp::now().as_second();
    let (iat, exp) = (claims["iat"].as_i64().context("iat")?, claims["exp"].as_i64().context("exp")?);
    ensure!(iat <= now - 30 && iat > now - 120, "iat {iat} at {now}");
    ensure!(exp > now && exp <= now + 600, "exp {exp} at {now}");
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
