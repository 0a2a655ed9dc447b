//! An API server as the bench's clients reach it: HTTP/2 over TLS, a connection for each client.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use roadstead_tests::{Kubectl, eventually};
use serde_json::{Value, json};

/// The kind that is measured.
pub(crate) const GROUP_VERSION: &str = "kustomize.toolkit.fluxcd.io/v1";
/// Where its objects are.
pub(crate) const NAMESPACES: usize = 10;

/// A server and who asks it.
#[derive(Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    ca: Vec<u8>,
    identity: Option<Vec<u8>>,
    server: String,
    token: Option<String>,
}

impl Api {
    pub(crate) async fn of(kubectl: &Kubectl) -> Result<Self> {
        let text = kubectl.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&text).context("read a kubeconfig")?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let decoded = |value: &Value| value.as_str().map(|text| STANDARD.decode(text)).transpose();
        let ca = decoded(&cluster["certificate-authority-data"])?.context("the kubeconfig has a CA")?;
        let certificate = decoded(&user["client-certificate-data"])?;
        let identity = match (certificate, decoded(&user["client-key-data"])?) {
            (Some(mut pem), Some(key)) => {
                pem.extend(key);
                Some(pem)
            }
            _ => None,
        };
        Ok(Self {
            http: client(&ca, identity.as_deref())?,
            ca,
            identity,
            server: cluster["server"].as_str().context("the kubeconfig has a server")?.to_owned(),
            token: user["token"].as_str().map(str::to_owned),
        })
    }

    /// Where it is, as `https://host:port`.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The client that asks, and trusts it.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Who asks, where it is by a token.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The same server, on the same connection, asked by somebody else.
    pub(crate) fn by(&self, token: String) -> Self {
        Self { token: Some(token), identity: None, ..self.clone() }
    }

    /// The same with a connection of its own.
    pub(crate) fn another(&self) -> Result<Self> {
        Ok(Self { http: client(&self.ca, self.identity.as_deref())?, ..self.clone() })
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.server));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Asks, reads the answer to its end, and fails where it is not a success. Returns its length.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: String,
    ) -> Result<usize> {
        let mut request = self.request(method, path);
        if !body.is_empty() {
            request = request.header("content-type", media_type).body(body);
        }
        let answer = request.send().await?;
        let code = answer.status();
        let bytes = answer.bytes().await?;
        if !code.is_success() {
            bail!("{path}: {code}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(500)]));
        }
        Ok(bytes.len())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(self.request(Method::POST, path).json(body).send().await?.error_for_status()?.json().await?)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.request(Method::GET, path).send().await?.error_for_status()?.json().await?)
    }

    /// Makes a kind of the cluster's own, and waits until it is served.
    pub(crate) async fn install(&self, definition: &Value) -> Result<()> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.ask(Method::POST, path, "application/json", definition.to_string()).await?;
        let list = format!("/apis/{GROUP_VERSION}/kustomizations?limit=1");
        eventually("the kind is served", std::time::Duration::from_secs(60), || self.get(&list)).await?;
        Ok(())
    }
}

fn client(ca: &[u8], identity: Option<&[u8]>) -> Result<reqwest::Client> {
    let mut http =
        reqwest::Client::builder().tls_certs_only([reqwest::Certificate::from_pem(ca)?]).no_proxy();
    if let Some(pem) = identity {
        http = http.identity(reqwest::Identity::from_pem(pem)?);
    }
    http.build().context("set up HTTPS")
}

fn namespace(index: usize) -> String {
    format!("bench-{}", index % NAMESPACES)
}

/// The path of an object; without an index, of all of them.
pub(crate) fn path(index: Option<usize>) -> String {
    match index {
        Some(index) => format!("{}/{}", folder(index), name(index)),
        None => format!("/apis/{GROUP_VERSION}/kustomizations"),
    }
}

/// The path that an object is created at.
pub(crate) fn folder(index: usize) -> String {
    format!("/apis/{GROUP_VERSION}/namespaces/{}/kustomizations", namespace(index))
}

pub(crate) fn name(index: usize) -> String {
    format!("app-{index:05}")
}

/// An object as teams write it; `value` is what changes. It is suspended, so the hub has nothing to do for it but to say
/// so.
pub(crate) fn object(index: usize, value: &str) -> Value {
    json!({
        "apiVersion": GROUP_VERSION, "kind": "Kustomization",
        "metadata": {
            "name": name(index), "namespace": namespace(index),
            "labels": { "app.kubernetes.io/name": format!("app-{}", index % 100), "tier": format!("t{}", index % 7) },
            "annotations": { "bench/value": value, "bench/text": "what a team writes about its application" },
        },
        "spec": {
            "interval": "10m", "path": format!("./apps/{}", name(index)), "prune": true, "suspend": true,
            "timeout": "5m", "retryInterval": "1m", "targetNamespace": namespace(index),
            "sourceRef": { "kind": "GitRepository", "name": "apps" },
            "dependsOn": [{ "name": "infrastructure" }, { "name": "certificates" }],
            "images": [{ "name": "registry/app", "newTag": "1.2.3" }],
            "patches": [{ "patch": "- op: replace\n  path: /spec/replicas\n  value: 3\n",
                          "target": { "kind": "Deployment", "name": "app" } }],
            "commonMetadata": { "labels": { "team": format!("team-{}", index % 20) } },
            "healthChecks": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "app", "namespace": "apps" }],
        },
    })
}

/// A namespace.
pub(crate) fn namespace_object(index: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(index) } })
}
