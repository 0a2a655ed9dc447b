//! An apiserver in memory, over plain HTTP: it keeps what it is given, allows everything, and tells what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const RESOURCES: [(&str, &str, &str, bool); 16] = [
    ("", "configmaps", "ConfigMap", true),
    ("", "secrets", "Secret", true),
    ("", "pods", "Pod", true),
    ("", "serviceaccounts", "ServiceAccount", true),
    ("", "namespaces", "Namespace", false),
    ("apps", "deployments", "Deployment", true),
    ("apps", "daemonsets", "DaemonSet", true),
    ("batch", "cronjobs", "CronJob", true),
    ("rbac.authorization.k8s.io", "roles", "Role", true),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", true),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", false),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false),
    ("apiregistration.k8s.io", "apiservices", "APIService", false),
    ("kustomize.toolkit.fluxcd.io", "kustomizations", "Kustomization", true),
];

/// What is asked of it.
#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// Writes that would last, as `METHOD path as USER`.
    writes: Vec<String>,
    /// The rules of a user in every namespace, where it has any.
    rules: BTreeMap<String, Value>,
    version: u64,
    /// The User-Agents of its clients.
    user_agents: BTreeSet<String>,
    /// The paths that were asked for, with their queries.
    targets: BTreeSet<String>,
}

/// The apiserver. Cheap to clone.
#[derive(Clone)]
pub struct Apiserver {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Apiserver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = Self { address, state: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = serving.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        server
    }

    /// How a client finds it.
    pub fn kubeconfig(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub fn put(&self, path: &str, object: Value) {
        self.state().keep(path, object);
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// What a service account may do.
    pub fn allow(&self, account: &str, rules: Value) {
        self.state().rules.insert(format!("system:serviceaccount:{account}"), rules);
    }

    /// The writes since this was last asked, but for what an agent keeps of itself.
    pub fn writes(&self) -> Vec<String> {
        let writes = std::mem::take(&mut self.state().writes);
        let kept = [
            "roadstead-agent-identity",
            "/secrets ",
            "/leases",
            "roadstead-agent-deletions",
            "/configmaps as agent",
        ];
        // What it goes by after a restart: it writes that as itself, and whoever it acts as does not.
        let is_kept =
            |line: &String| line.contains("/secrets/roadstead-agent-kept-") && line.ends_with(" as agent");
        let is_own = |line: &String| is_kept(line) || kept.iter().any(|own| line.contains(own));
        writes.into_iter().filter(|line| !is_own(line)).collect()
    }

    /// The paths that were asked for so far, with their queries.
    pub fn targets(&self) -> BTreeSet<String> {
        self.state().targets.clone()
    }

    /// The User-Agents of its clients so far.
    pub fn user_agents(&self) -> BTreeSet<String> {
        self.state().user_agents.clone()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let (head, length) = loop {
            if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes);
            let Some(end) = text.find("\r\n\r\n") else { continue };
            let head = text[..end].to_owned();
            let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            break (head, end + 4 + length);
        };
        while bytes.len() < length {
            if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
                return;
            }
        }
        let start = head.len() + 4;
        let body = serde_json::from_slice(&bytes[start..length]).unwrap_or(Value::Null);
        let mut words = head.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let user = header(&head, "impersonate-user").unwrap_or("agent");
        self.state().user_agents.insert(header(&head, "user-agent").unwrap_or_default().to_owned());
        self.state().targets.insert(target.to_owned());
        let (status, answer) = self.state().answer(method, target, user, body);
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            answer.len()
        );
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": reason, "details": {"name": "x"}}),
    )
}

impl State {
    fn keep(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn answer(&mut self, method: &str, target: &str, user: &str, body: Value) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/version" {
            return (
                200,
                json!({"major": "1", "minor": "35", "gitVersion": "v1.35.4", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            );
        }
        if path.ends_with("/selfsubjectrulesreviews") {
            let rules = self.rules.get(user).cloned().unwrap_or_else(|| json!([]));
            return (
                201,
                json!({"status": {"resourceRules": rules, "nonResourceRules": [], "incomplete": false}}),
            );
        }
        if let Some(list) = discovery(path) {
            return (200, list);
        }
        let is_dry = query.contains("dryRun=All");
        if method != "GET" && !is_dry {
            self.writes.push(format!("{method} {path} as {user}"));
        }
        let found = self.objects.get(path).cloned();
        match (method, found) {
            ("GET", Some(object)) => (200, object),
            ("GET", None) if path.rsplit('/').next().is_some_and(|last| last == "pods") => {
                let within = format!("{path}/");
                let items: Vec<Value> = self
                    .objects
                    .range(within.clone()..)
                    .take_while(|(path, _)| path.starts_with(&within))
                    .map(|(_, object)| object.clone())
                    .collect();
                (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let path = format!("{path}/{name}");
                if self.objects.contains_key(&path) {
                    return status(409, "AlreadyExists");
                }
                (201, self.keep(&path, body))
            }
            ("PUT", Some(_)) => (200, self.keep(path, body)),
            ("PATCH", found) => {
                let code = if found.is_some() { 200 } else { 201 };
                let mut object = found.unwrap_or(Value::Null);
                merge(&mut object, body);
                if is_dry { (code, object) } else { (code, self.keep(path, object)) }
            }
            ("DELETE", Some(_)) => {
                self.objects.remove(path);
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => status(404, "NotFound"),
        }
    }
}

/// A group-version's resources.
fn discovery(path: &str) -> Option<Value> {
    let group_version = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api/"))?;
    let group = match group_version.split_once('/') {
        None if group_version == "v1" => "",
        Some((group, "v1")) => group,
        _ => return None,
    };
    let listed = RESOURCES.iter().filter(|(of, ..)| *of == group);
    let listed: Vec<Value> = listed
        .map(|(_, name, kind, namespaced)| json!({"name": name, "kind": kind, "namespaced": namespaced}))
        .collect();
    Some(json!({"kind": "APIResourceList", "resources": listed}))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        (into, from) => *into = from,
    }
}
