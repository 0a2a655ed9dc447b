//! The cluster that is asked.

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use hyper::Request as HttpRequest;
use kube::config::{KubeConfigOptions, Kubeconfig};
use roadstead_api::KindId;
use roadstead_rbac::{Change, Policy};
use serde_json::{Value, json};

use crate::generate::{Asked, Granted, Request, Stored, World};

const API: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(crate) struct Cluster {
    client: kube::Client,
}

impl Cluster {
    pub(crate) async fn connect() -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let path = std::env::var("ROADSTEAD_TEST_KUBECONFIG_1")
            .context("ROADSTEAD_TEST_KUBECONFIG_1 names no cluster: run the tests by `cargo xtask test`")?;
        let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("read {path}"))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { client: kube::Client::try_from(config)? })
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = HttpRequest::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body)?;
        self.client.request(request).await.with_context(|| format!("{method} {path}"))
    }

    async fn store(&self, stored: &Stored) -> Result<()> {
        let mut object = stored.object.clone();
        object["metadata"]["name"] = stored.name.as_str().into();
        self.send("POST", &collection(stored.kind, &stored.namespace), Some(&object)).await?;
        Ok(())
    }

    /// Creates all of a world.
    pub(crate) async fn create(&self, world: &World) -> Result<()> {
        for name in world.namespaces() {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.send("POST", "/api/v1/namespaces", Some(&namespace)).await?;
        }
        for stored in world.objects() {
            self.store(stored).await?;
        }
        Ok(())
    }

    pub(crate) async fn create_last(&self, world: &World) -> Result<()> {
        for stored in world.last() {
            self.store(stored).await?;
        }
        Ok(())
    }

    /// Deletes all of a world, as far as it is there.
    pub(crate) async fn delete(&self, world: &World) {
        let all = world.objects().iter().chain(world.last()).filter(|stored| stored.namespace.is_empty());
        let paths = all.map(|stored| format!("{}/{}", collection(stored.kind, ""), stored.name));
        let namespaces = world.namespaces().iter().map(|name| format!("/api/v1/namespaces/{name}"));
        let paths: Vec<String> = paths.chain(namespaces).collect();
        futures::stream::iter(&paths)
            .for_each_concurrent(8, |path| async move {
                let _ = self.send("DELETE", path, None).await;
            })
            .await;
    }

    /// What SubjectAccessReview says, and why.
    pub(crate) async fn review(&self, request: &Request) -> Result<(bool, String)> {
        let mut spec = json!({ "user": request.name, "groups": request.groups });
        match &request.asked {
            Asked::Resource { verb, group, resource, subresource, namespace, name } => {
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                });
            }
            Asked::Path { verb, path } => {
                spec["nonResourceAttributes"] = json!({ "verb": verb, "path": path });
            }
        }
        let review =
            json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        Ok(reviewed(&self.send("POST", path, Some(&review)).await?))
    }

    /// A policy of all that is stored, and the stored ClusterRoles.
    pub(crate) async fn policy(&self) -> Result<(Policy, Vec<Value>)> {
        let mut policy = Policy::default();
        let mut cluster_roles = Vec::new();
        for kind in [KindId::ClusterRole, KindId::Role, KindId::ClusterRoleBinding, KindId::RoleBinding] {
            let mut list = self.send("GET", &collection(kind, ""), None).await?;
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let text = |object: &Value, field: &str| {
                object["metadata"][field].as_str().unwrap_or_default().to_owned()
            };
            let named: Vec<(String, String, &Value)> =
                items.iter().map(|item| (text(item, "namespace"), text(item, "name"), item)).collect();
            let errors = policy.apply(named.iter().map(|(namespace, name, object)| Change::Put {
                kind,
                namespace,
                name,
                object,
            }));
            ensure!(errors.is_empty(), "{errors:?}");
            if kind == KindId::ClusterRole {
                cluster_roles = items;
            }
        }
        Ok((policy, cluster_roles))
    }

    /// Has a user try to create an object. Returns the code and what is said of it.
    pub(crate) async fn try_write(&self, granted: &Granted) -> Result<(u16, String)> {
        let path = format!("{}?dryRun=All", collection(granted.kind, &granted.namespace));
        let mut object = granted.object.clone();
        object["metadata"]["name"] = "tried".into();
        let mut request = HttpRequest::builder()
            .method("POST")
            .uri(path)
            .header("content-type", "application/json")
            .header("impersonate-user", &granted.name);
        for group in &granted.groups {
            request = request.header("impersonate-group", group);
        }
        match self.client.request::<Value>(request.body(object.to_string().into_bytes())?).await {
            Ok(_) => Ok((201, String::new())),
            Err(kube::Error::Api(status)) => Ok((status.code, status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }
}

fn collection(kind: KindId, namespace: &str) -> String {
    let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{API}{place}/{}", kind.get().plural)
}

/// Whether a review allows, and why.
pub(crate) fn reviewed(review: &Value) -> (bool, String) {
    let status = &review["status"];
    (status["allowed"] == true, status["reason"].as_str().unwrap_or_default().to_owned())
}
