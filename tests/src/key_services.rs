//! A server that is AWS KMS and STS and its API of registries, and the transit engine of a Vault, as far as a hub asks them. What it wrapped, it remembers: nothing
//! of the plaintext is in what it gives out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use crate::registry::LOGIN;

/// What it has for AWS: an access key that may use all keys.
pub const ACCESS_KEY: &str = "AKIDROADSTEAD";
/// The token that its Vault takes.
pub const VAULT_TOKEN: &str = "s.key-services-of-tests";

/// The server. Clones share it.
#[derive(Debug, Clone)]
pub struct KeyServices {
    /// Its address.
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// What was wrapped, by what was given out for it: for what, and the plaintext in base64.
    wrapped: HashMap<String, (String, String)>,
    /// Who may use keys by a role: the sessions that were given out.
    sessions: Vec<String>,
    /// What STS was sent: the role and the token.
    web_identities: Vec<(String, String)>,
    unwrapped: usize,
    denies: bool,
}

struct Asked {
    path: String,
    head: String,
    body: Vec<u8>,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim()).next().unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl KeyServices {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> Result<Self> {
        Self::start_with(0, Arc::default()).await
    }

    /// Has it listen on this port as well.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn also_at(&self, port: u16) -> Result<Self> {
        Self::start_with(port, Arc::clone(&self.state)).await
    }

    async fn start_with(port: u16, state: Arc<Mutex<State>>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.context("listen as key services")?;
        let server = Self { url: format!("http://{}", listener.local_addr()?), state };
        let shared = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = shared.clone();
                // A client that goes ends it.
                tokio::spawn(async move { server.serve(stream).await.ok() });
            }
        });
        Ok(server)
    }

    /// Refuses everybody from now on, or nobody who has a credential.
    pub fn deny(&self, denies: bool) {
        self.locked().denies = denies;
    }

    /// How often something was unwrapped.
    #[must_use]
    pub fn unwrapped(&self) -> usize {
        self.locked().unwrapped
    }

    /// What STS was sent: roles, and the tokens that were shown for them.
    #[must_use]
    pub fn web_identities(&self) -> Vec<(String, String)> {
        self.locked().web_identities.clone()
    }

    /// The newest session that STS gave out.
    ///
    /// # Errors
    /// When it gave out none.
    pub fn session(&self) -> Result<String> {
        self.locked().sessions.last().cloned().context("no session was given out")
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            let head = String::from_utf8(head)?;
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let mut asked = Asked { path, head, body: Vec::new() };
            asked.body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
            stream.read_exact(&mut asked.body).await?;
            let (status, body) = self.answer(&asked);
            let length = body.len();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await?;
        }
    }

    fn answer(&self, asked: &Asked) -> (u16, String) {
        let mut state = self.locked();
        if asked.body.starts_with(b"Action=AssumeRoleWithWebIdentity") {
            return state.web_identity(asked);
        }
        let (status, answer) = match asked.header("x-amz-target") {
            "" => state.vault(asked),
            target => state.aws(target, asked),
        };
        (status, answer.to_string())
    }
}

impl State {
    fn wrap(&mut self, binding: String, plain: &Value) -> String {
        let name = Uuid::new_v4();
        self.wrapped.insert(name.to_string(), (binding, plain.as_str().unwrap_or_default().to_owned()));
        STANDARD.encode(name.to_string())
    }

    fn unwrap(&mut self, binding: &str, wrapped: &str) -> Option<String> {
        let name = String::from_utf8(STANDARD.decode(wrapped).ok()?).ok()?;
        let (of, plain) = self.wrapped.get(&name)?;
        self.unwrapped += 1;
        (of == binding).then(|| plain.clone())
    }

    fn vault(&mut self, asked: &Asked) -> (u16, Value) {
        if self.denies || asked.header("x-vault-token") != VAULT_TOKEN {
            return (403, json!({ "errors": ["1 error occurred:\n\t* permission denied\n\n"] }));
        }
        let parts: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
        let ["v1", engine, what, key] = parts.as_slice() else { return (404, json!({ "errors": [] })) };
        let (binding, body) = (format!("vault {engine} {key}"), asked.json());
        if *what == "encrypt" {
            let wrapped = self.wrap(binding, &body["plaintext"]);
            return (200, json!({ "data": { "ciphertext": format!("vault:v1:{wrapped}") } }));
        }
        let wrapped = body["ciphertext"].as_str().and_then(|text| text.strip_prefix("vault:v1:"));
        match wrapped.and_then(|wrapped| self.unwrap(&binding, wrapped)) {
            Some(plain) => (200, json!({ "data": { "plaintext": plain } })),
            None => (400, json!({ "errors": ["invalid ciphertext: could not decrypt"] })),
        }
    }

    fn aws(&mut self, target: &str, asked: &Asked) -> (u16, Value) {
        let authorization = asked.header("authorization");
        let session = asked.header("x-amz-security-token");
        let known = authorization.contains(&format!("Credential={ACCESS_KEY}/"))
            || authorization.contains("Credential=ASIAROADSTEAD/")
                && self.sessions.iter().any(|given| given == session);
        if !known {
            return (400, json!({ "__type": "UnrecognizedClientException" }));
        }
        if self.denies {
            return (400, json!({ "__type": "AccessDeniedException" }));
        }
        if target == "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken" {
            let token = STANDARD.encode(format!("AWS:{}", LOGIN.1));
            return (
                200,
                json!({ "authorizationData": [{ "authorizationToken": token, "expiresAt": 4_102_444_800.0 }] }),
            );
        }
        let body = asked.json();
        let (key, context) = (body["KeyId"].as_str().unwrap_or_default(), &body["EncryptionContext"]);
        let context = if context.is_null() { "{}".to_owned() } else { context.to_string() };
        let binding = format!("aws {key} {context}");
        if target == "TrentService.Encrypt" {
            return (200, json!({ "KeyId": key, "CiphertextBlob": self.wrap(binding, &body["Plaintext"]) }));
        }
        let wrapped = body["CiphertextBlob"].as_str().unwrap_or_default();
        match self.unwrap(&binding, wrapped) {
            Some(plain) => (200, json!({ "KeyId": key, "Plaintext": plain })),
            None => (400, json!({ "__type": "InvalidCiphertextException" })),
        }
    }

    fn web_identity(&mut self, asked: &Asked) -> (u16, String) {
        let form = String::from_utf8_lossy(&asked.body).into_owned();
        let part = |name: &str| {
            let found = form.split('&').filter_map(|pair| pair.split_once('='));
            let value = found.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
            value.unwrap_or_default().replace("%3A", ":").replace("%2F", "/")
        };
        self.web_identities.push((part("RoleArn"), part("WebIdentityToken")));
        if self.denies {
            return (403, "<Error><Code>AccessDenied</Code></Error>".to_owned());
        }
        let session = Uuid::new_v4().to_string();
        self.sessions.push(session.clone());
        let given = format!(
            "<Credentials><AccessKeyId>ASIAROADSTEAD</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>{session}\
             </SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
        );
        (200, given)
    }
}
