//! A server that is the key services of AWS, Google and Azure with what they exchange tokens by, AWS's API of registries, and the transit
//! engine of a Vault, as far as a hub asks them. What it wrapped, it remembers: nothing of the plaintext is in what it gives out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use crate::registry::LOGIN;

/// What it has for AWS: an access key that may use all keys.
pub const ACCESS_KEY: &str = "AKIDROADSTEAD";
/// The token that its Vault takes.
pub const VAULT_TOKEN: &str = "s.key-services-of-tests";

/// The key of a service, as files that are encrypted to it name it.
#[derive(Debug, Clone, Copy)]
pub enum ServiceKey<'k> {
    /// Of AWS, by its ARN.
    Aws(&'k str),
    /// Of Google, by its resource.
    Google(&'k str),
    /// Of Azure, by its name and version.
    Azure(&'k str, &'k str),
    /// Of a Vault, by its engine and name.
    Vault(&'k str, &'k str),
}

impl ServiceKey<'_> {
    fn binding(self) -> String {
        match self {
            Self::Aws(arn) => format!("aws {arn} {{}}"),
            Self::Google(resource) => format!("google {resource}"),
            Self::Azure(name, version) => format!("azure {name} {version}"),
            Self::Vault(engine, name) => format!("vault {engine} {name}"),
        }
    }
}

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
    /// Who may use keys by an identity: the sessions that were given out.
    sessions: Vec<String>,
    /// What was shown for one: as whom, and the token.
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

    /// A field of a form.
    fn field(&self, name: &str) -> String {
        let mut fields = url::form_urlencoded::parse(&self.body);
        fields.find(|(field, _)| field == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
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

    /// What was shown for sessions: as whom (a role, an audience or a client), and the token.
    #[must_use]
    pub fn web_identities(&self) -> Vec<(String, String)> {
        self.locked().web_identities.clone()
    }

    /// The newest session that was given out.
    ///
    /// # Errors
    /// When it gave out none.
    pub fn session(&self) -> Result<String> {
        self.locked().sessions.last().cloned().context("no session was given out")
    }

    /// Wraps what was wrapped by one key by another too.
    ///
    /// # Errors
    /// When it was not wrapped here by that key.
    pub fn wrapped_again(&self, by: ServiceKey<'_>, wrapped: &str, to: ServiceKey<'_>) -> Result<String> {
        let mut state = self.locked();
        let plain = state.unwrap(&by.binding(), wrapped).context("it was not wrapped here")?;
        state.unwrapped -= 1;
        Ok(state.wrap(to.binding(), &plain))
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
        let path = asked.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (status, answer) = match (asked.header("x-amz-target"), parts.as_slice()) {
            ("", ["v1", "token"]) => state.google_exchange(asked),
            ("", ["v1", "projects", ..]) => state.google(path, asked),
            ("", [tenant, "oauth2", "v2.0", "token"]) => state.azure_login(tenant, asked),
            ("", ["keys", name, version, "decrypt"]) => state.azure(name, version, asked),
            ("", ["v1", "auth", "jwt", "login"]) => state.vault_login(asked),
            ("", _) => state.vault(asked),
            (target, _) => state.aws(target, asked),
        };
        (status, answer.to_string())
    }
}

impl State {
    /// Wraps what is given in base64.
    fn wrap(&mut self, binding: String, plain: &str) -> String {
        let name = Uuid::new_v4();
        self.wrapped.insert(name.to_string(), (binding, plain.to_owned()));
        STANDARD.encode(name.to_string())
    }

    /// A session for who shows a token.
    fn session(&mut self, whose: String, token: String, kind: &str) -> Option<String> {
        self.web_identities.push((whose, token));
        self.given(kind)
    }

    fn given(&mut self, kind: &str) -> Option<String> {
        let session = format!("{kind}-{}", Uuid::new_v4());
        if self.denies {
            return None;
        }
        self.sessions.push(session.clone());
        Some(session)
    }

    /// Whether it is asked with a session of this kind.
    fn is_known(&self, asked: &Asked, kind: &str) -> bool {
        let shown = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        shown.starts_with(kind) && self.sessions.iter().any(|given| given == shown)
    }

    fn unwrap(&mut self, binding: &str, wrapped: &str) -> Option<String> {
        let name = String::from_utf8(STANDARD.decode(wrapped).ok()?).ok()?;
        let (of, plain) = self.wrapped.get(&name)?;
        self.unwrapped += 1;
        (of == binding).then(|| plain.clone())
    }

    fn vault(&mut self, asked: &Asked) -> (u16, Value) {
        let token = asked.header("x-vault-token");
        let is_known = token == VAULT_TOKEN || self.sessions.iter().any(|given| given == token);
        if self.denies || !is_known {
            return (403, json!({ "errors": ["1 error occurred:\n\t* permission denied\n\n"] }));
        }
        let parts: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
        let ["v1", engine, what, key] = parts.as_slice() else { return (404, json!({ "errors": [] })) };
        let (binding, body) = (ServiceKey::Vault(engine, key).binding(), asked.json());
        if *what == "encrypt" {
            let wrapped = self.wrap(binding, body["plaintext"].as_str().unwrap_or_default());
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
            return (
                200,
                json!({ "KeyId": key, "CiphertextBlob": self.wrap(binding, body["Plaintext"].as_str().unwrap_or_default()) }),
            );
        }
        let wrapped = body["CiphertextBlob"].as_str().unwrap_or_default();
        match self.unwrap(&binding, wrapped) {
            Some(plain) => (200, json!({ "KeyId": key, "Plaintext": plain })),
            None => (400, json!({ "__type": "InvalidCiphertextException" })),
        }
    }

    fn web_identity(&mut self, asked: &Asked) -> (u16, String) {
        let (role, token) = (asked.field("RoleArn"), asked.field("WebIdentityToken"));
        let Some(session) = self.session(role, token, "aws") else {
            return (403, "<Error><Code>AccessDenied</Code></Error>".to_owned());
        };
        let given = format!(
            "<Credentials><AccessKeyId>ASIAROADSTEAD</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>{session}\
             </SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
        );
        (200, given)
    }

    fn google_exchange(&mut self, asked: &Asked) -> (u16, Value) {
        match self.session(asked.field("audience"), asked.field("subject_token"), "google-federated") {
            Some(token) => (200, json!({ "access_token": token, "expires_in": 3600 })),
            None => (403, json!({ "error": "access_denied", "error_description": "not you" })),
        }
    }

    fn google(&mut self, path: &str, asked: &Asked) -> (u16, Value) {
        let denied = (403, json!({ "error": { "status": "PERMISSION_DENIED" } }));
        let path = path.trim_start_matches("/v1/");
        if path.ends_with(":generateAccessToken") {
            let given =
                if self.is_known(asked, "google-federated") { self.given("google-acting") } else { None };
            let answer = |token| json!({ "accessToken": token, "expireTime": "2099-01-01T00:00:00Z" });
            return given.map_or(denied, |token| (200, answer(token)));
        }
        let Some(key) = path.strip_suffix(":decrypt") else { return (404, json!({})) };
        if self.denies || !self.is_known(asked, "google-acting") {
            return denied;
        }
        let body = asked.json();
        match self.unwrap(&ServiceKey::Google(key).binding(), body["ciphertext"].as_str().unwrap_or_default())
        {
            Some(plain) => (200, json!({ "plaintext": plain })),
            None => (400, json!({ "error": { "status": "INVALID_ARGUMENT" } })),
        }
    }

    fn azure_login(&mut self, tenant: &str, asked: &Asked) -> (u16, Value) {
        let whose = format!("{tenant} {} {}", asked.field("client_id"), asked.field("scope"));
        match self.session(whose, asked.field("client_assertion"), "azure") {
            Some(token) => (200, json!({ "access_token": token, "expires_in": "3599" })),
            None => (401, json!({ "error": "invalid_client" })),
        }
    }

    fn azure(&mut self, name: &str, version: &str, asked: &Asked) -> (u16, Value) {
        if self.denies || !self.is_known(asked, "azure") {
            return (403, json!({ "error": { "code": "Forbidden" } }));
        }
        let (binding, body) = (ServiceKey::Azure(name, version).binding(), asked.json());
        let plain = self.unwrap(&binding, body["value"].as_str().unwrap_or_default());
        match plain.and_then(|plain| STANDARD.decode(plain).ok()) {
            Some(plain) => (200, json!({ "kid": name, "value": URL_SAFE_NO_PAD.encode(plain) })),
            None => (400, json!({ "error": { "code": "BadParameter" } })),
        }
    }

    fn vault_login(&mut self, asked: &Asked) -> (u16, Value) {
        let body = asked.json();
        let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        match self.session(text("role"), text("jwt"), "vault") {
            Some(token) => (200, json!({ "auth": { "client_token": token, "lease_duration": 3600 } })),
            None => (400, json!({ "errors": ["role could not be found"] })),
        }
    }
}
