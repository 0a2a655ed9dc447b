//! An issuer of tokens over HTTPS that can misbehave.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How its keys are answered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    Serves,
    /// It takes the request and says nothing.
    Hangs,
    /// It answers once it serves again, by the keys that it has then.
    Waits,
    /// It fails.
    Fails,
    /// It sends whoever asks elsewhere.
    Redirects(String),
    /// It sends 100 MB.
    Huge,
    /// It says to be another one.
    Another,
    /// Its keys are elsewhere, over plain HTTP.
    InTheClear,
    /// What it sends is not a set of keys.
    Page,
}

/// How it answers for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    /// By this status and this body.
    Answer(u16, String),
    /// It takes the request and says nothing.
    Hangs,
    /// It sends 1 GB, as far as that is taken.
    Huge,
}

struct State {
    mode: Mode,
    given: Given,
    /// The forms that tokens were asked for with, and the head of each.
    forms: Vec<(String, String)>,
    keys: Value,
    /// How often its keys were asked for, or would have been.
    asked: usize,
    /// Bytes of its answers that were taken.
    sent: usize,
}

/// The issuer.
#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    pub(crate) ca_pem: String,
    state: Arc<Mutex<State>>,
}

/// A key of an issuer's.
pub(crate) struct SigningKey {
    name: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok().context("make a key")?;
        Ok(Self { name: name.to_owned(), pair })
    }

    fn published(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "crv": "P-256", "kid": self.name, "x": part(&point[1..33]), "y": part(&point[33..]) })
    }

    pub(crate) fn sign(&self, claims: &Value) -> Result<String> {
        self.sign_as(&self.name, claims)
    }

    /// As if it had this name.
    pub(crate) fn sign_as(&self, name: &str, claims: &Value) -> Result<String> {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let text = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": name })), part(claims));
        let signed = self.pair.sign(&SystemRandom::new(), text.as_bytes()).ok().context("sign")?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref())))
    }
}

impl Issuer {
    pub(crate) async fn start(keys: &[&SigningKey]) -> Result<Self> {
        // Another test may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let given = Given::Answer(400, json!({ "error": "invalid_grant" }).to_string());
        let state =
            State { mode: Mode::Serves, given, forms: Vec::new(), keys: json!({}), asked: 0, sent: 0 };
        let issuer = Self {
            url: format!("https://{}", listener.local_addr()?),
            ca_pem: own.cert.pem(),
            state: Arc::new(Mutex::new(state)),
        };
        issuer.publish(keys);
        let serving = issuer.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                // Whoever has gone needs no answer.
                tokio::spawn(async move { drop(serving.answer(stream, acceptor).await) });
            }
        });
        Ok(issuer)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it has these keys.
    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        self.lock().keys = json!({ "keys": keys.iter().map(|key| key.published()).collect::<Vec<_>>() });
    }

    /// From now on it does this.
    pub(crate) fn turn(&self, mode: Mode) {
        self.lock().mode = mode;
    }

    /// From now on it answers so for tokens.
    pub(crate) fn give(&self, given: Given) {
        self.lock().given = given;
    }

    /// The heads and the forms that tokens were asked for with.
    pub(crate) fn forms(&self) -> Vec<(String, String)> {
        self.lock().forms.clone()
    }

    /// Whether the request was for tokens, and what is to be done then.
    async fn give_tokens(&self, stream: &mut TlsStream<TcpStream>, request: &mut Vec<u8>) -> Result<bool> {
        if !request.starts_with(b"POST /token ") {
            return Ok(false);
        }
        loop {
            let text = String::from_utf8_lossy(request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
                });
                if body.len() >= length.unwrap_or(0_usize) {
                    self.lock().forms.push((head.to_owned(), body.to_owned()));
                    break;
                }
            }
            let mut more = vec![0; 4096];
            let read = stream.read(&mut more).await?;
            anyhow::ensure!(read > 0, "the request ends early");
            request.extend_from_slice(&more[..read]);
        }
        let given = self.lock().given.clone();
        match given {
            Given::Answer(status, body) => {
                let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(text.as_bytes()).await?;
            }
            Given::Hangs => tokio::time::sleep(Duration::from_secs(60)).await,
            Given::Huge => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await?;
                for _ in 0..10_000 {
                    stream.write_all(&[b' '; 100_000]).await?;
                    self.lock().sent += 100_000;
                }
            }
        }
        Ok(true)
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.lock().asked
    }

    /// How many bytes of its answers were taken.
    pub(crate) fn sent(&self) -> usize {
        self.lock().sent
    }

    async fn answer(&self, stream: TcpStream, acceptor: TlsAcceptor) -> Result<()> {
        let mut stream = acceptor.accept(stream).await?;
        loop {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await?;
            if read == 0 {
                return Ok(());
            }
            request.truncate(read);
            if self.give_tokens(&mut stream, &mut request).await? {
                continue;
            }
            let is_keys = request[..read].starts_with(b"GET /keys ");
            {
                let mut state = self.lock();
                let ends_early = matches!(state.mode, Mode::Another | Mode::InTheClear);
                state.asked += usize::from(is_keys != ends_early);
            }
            while is_keys && self.lock().mode == Mode::Waits {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let (mode, keys) = {
                let state = self.lock();
                (state.mode.clone(), state.keys.to_string())
            };
            let url = &self.url;
            let answer = |status: &str, body: &str| {
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            };
            let configuration = |issuer: &str, keys: &str| {
                let said = json!({
                    "issuer": issuer, "jwks_uri": keys, "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"), "end_session_endpoint": format!("{url}/end"),
                });
                answer("200 OK", &said.to_string())
            };
            let at = format!("{url}/keys");
            let text = match mode {
                Mode::Another => configuration("https://issuer.test", &at),
                Mode::InTheClear => configuration(url, "http://127.0.0.1:9/keys"),
                _ if !is_keys => configuration(url, &at),
                Mode::Serves | Mode::Waits => answer("200 OK", &keys),
                Mode::Page => answer("200 OK", "<html>"),
                Mode::Fails => answer("503 Service Unavailable", ""),
                Mode::Redirects(to) => {
                    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
                }
                Mode::Hangs => {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    return Ok(());
                }
                Mode::Huge => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n").await?;
                    for _ in 0..1000 {
                        stream.write_all(&[b' '; 100_000]).await?;
                        self.lock().sent += 100_000;
                    }
                    return Ok(());
                }
            };
            stream.write_all(text.as_bytes()).await?;
        }
    }
}
