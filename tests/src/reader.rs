//! What `kubectl get -o json` gives, without starting kubectl: its start costs a tenth of a second of a core, and tests
//! that wait read an object again and again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use kube::api::{GetParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

/// The form of discovery that has all groups and their resources in one answer.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource that a server serves.
#[derive(Debug, Clone)]
struct Resource {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    root: String,
    plural: String,
    /// All names that kubectl takes for it.
    names: Vec<String>,
    is_namespaced: bool,
}

/// Reads the objects of one server. Each read is a connection of its own, as kubectl's are.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    kubeconfig: PathBuf,
    resources: Arc<Mutex<Vec<Resource>>>,
}

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Question {
    resources: Vec<String>,
    name: Option<String>,
    namespace: Option<String>,
    selector: Option<String>,
    show_managed_fields: bool,
}

impl Reader {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), resources: Arc::default() }
    }

    /// `args` are kubectl's: `TYPE NAME`, `TYPE/NAME` or `TYPE[,TYPE…]`, with `-n`, `-l` and
    /// `--show-managed-fields`.
    ///
    /// # Errors
    /// When the server does not answer, or has no such object.
    pub(crate) async fn get(&self, args: &[&str]) -> Result<Value> {
        let question = Question::parse(args)?;
        let config = self.config().await?;
        let namespace = question.namespace.as_deref().unwrap_or(&config.default_namespace).to_owned();
        let client = Client::try_from(config).context("make a client")?;
        let mut items = Vec::new();
        for wanted in &question.resources {
            let resource = self.resource(&client, wanted).await?;
            let request = Request::new(match resource.is_namespaced {
                true => format!("{}/namespaces/{namespace}/{}", resource.root, resource.plural),
                false => format!("{}/{}", resource.root, resource.plural),
            });
            if let Some(name) = &question.name {
                let object = ask(&client, request.get(name, &GetParams::default())).await?;
                return Ok(question.shown(object));
            }
            let parameters =
                ListParams { label_selector: question.selector.clone(), ..ListParams::default() };
            let list = ask(&client, request.list(&parameters)).await?;
            let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                // Items of a list do not say what they are; kubectl's do.
                item["apiVersion"] = list["apiVersion"].clone();
                item["kind"] = kind.into();
                items.push(question.shown(item));
            }
        }
        Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
    }

    /// A client of the server's.
    pub(crate) async fn client(&self) -> Result<Client> {
        Client::try_from(self.config().await?).context("make a client")
    }

    async fn config(&self) -> Result<Config> {
        let read = Kubeconfig::read_from(&self.kubeconfig);
        let kubeconfig = read.with_context(|| format!("read {}", self.kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.with_context(|| format!("use {}", self.kubeconfig.display()))?;
        // Of the environment, as none of the kit's kubeconfigs names one: it would lead elsewhere.
        config.proxy_url = None;
        Ok(config)
    }

    /// The resource of this name; asks again what there is where it is not known.
    async fn resource(&self, client: &Client, name: &str) -> Result<Resource> {
        let known = || {
            let resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
            resources.iter().find(|resource| resource.names.iter().any(|known| known == name)).cloned()
        };
        if let Some(resource) = known() {
            return Ok(resource);
        }
        let mut found = Vec::new();
        for path in ["/api", "/apis"] {
            let request = hyper::Request::get(path).header(hyper::header::ACCEPT, AGGREGATED);
            resources_of(&ask(client, request.body(Vec::new())).await?, &mut found);
        }
        *self.resources.lock().unwrap_or_else(PoisonError::into_inner) = found;
        known().with_context(|| format!("the server doesn't have a resource type {name}"))
    }
}

impl Question {
    fn parse(args: &[&str]) -> Result<Self> {
        let mut question = Self::default();
        let mut args = args.iter();
        let mut positional = Vec::new();
        while let Some(&arg) = args.next() {
            let mut value = || -> Result<Option<String>> {
                let value = args.next().with_context(|| format!("{arg} has no value"))?;
                Ok(Some((*value).to_owned()))
            };
            match arg {
                "-n" | "--namespace" => question.namespace = value()?,
                "-l" => question.selector = value()?,
                "--show-managed-fields" => question.show_managed_fields = true,
                option if option.starts_with('-') => bail!("{option}: use `Kubectl::run` for this"),
                word => positional.push(word),
            }
        }
        let (types, name) = match positional[..] {
            [one] => one.split_once('/').map_or((one, None), |(kind, name)| (kind, Some(name))),
            [types, name] => (types, Some(name)),
            _ => bail!("{positional:?}: use `Kubectl::run` for this"),
        };
        question.resources = types.split(',').map(str::to_owned).collect();
        question.name = name.map(str::to_owned);
        Ok(question)
    }

    /// An object as kubectl prints it.
    fn shown(&self, mut object: Value) -> Value {
        if !self.show_managed_fields
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("managedFields");
        }
        object
    }
}

/// Appends what an answer of aggregated discovery lists, each group's preferred version of a resource first.
fn resources_of(discovery: &Value, into: &mut Vec<Resource>) {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for group in array(&discovery["items"]) {
        let group_name = text(&group["metadata"]["name"]);
        for version in array(&group["versions"]) {
            let version_name = text(&version["version"]);
            let root = match group_name.as_str() {
                "" => format!("/api/{version_name}"),
                group => format!("/apis/{group}/{version_name}"),
            };
            for resource in array(&version["resources"]) {
                let plural = text(&resource["resource"]);
                let mut names = vec![plural.clone(), text(&resource["singularResource"])];
                names.push(text(&resource["responseKind"]["kind"]).to_lowercase());
                names.extend(array(&resource["shortNames"]).iter().map(text));
                for index in 0..names.len() {
                    names.push(format!("{}.{group_name}", names[index]));
                    names.push(format!("{}.{version_name}.{group_name}", names[index]));
                }
                names.retain(|name| !name.is_empty() && !name.starts_with('.'));
                let is_namespaced = resource["scope"] == "Namespaced";
                into.push(Resource { root: root.clone(), plural, names, is_namespaced });
            }
        }
    }
}

/// What a server answers.
async fn ask<E>(client: &Client, request: Result<hyper::Request<Vec<u8>>, E>) -> Result<Value>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let request = request.context("make a request")?;
    let line = format!("GET {}", request.uri());
    client.request(request).await.context(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kubectls_arguments() {
        let parsed = |args: &[&str]| Question::parse(args).unwrap();
        let object = Question {
            resources: vec!["kustomization".into()],
            name: Some("app".into()),
            namespace: Some("apps".into()),
            ..Question::default()
        };
        assert_eq!(parsed(&["kustomization/app", "--namespace", "apps"]), object);
        assert_eq!(parsed(&["kustomization", "app", "-n", "apps"]), object);
        let list = parsed(&["services,deployments", "-l", "a=b,c in (d)"]);
        assert_eq!((list.resources.len(), list.name), (2, None));
        assert!(Question::parse(&["pods", "-A"]).is_err() && Question::parse(&["pods", "-n"]).is_err());
    }

    #[test]
    fn finds_a_resource_by_each_of_its_names() {
        let resource = json!({ "resource": "deployments", "singularResource": "deployment", "scope": "Namespaced",
            "responseKind": { "kind": "Deployment" }, "shortNames": ["deploy"] });
        let version = json!({ "version": "v1", "resources": [resource] });
        let mut found = Vec::new();
        resources_of(
            &json!({ "items": [{ "metadata": { "name": "apps" }, "versions": [version] }] }),
            &mut found,
        );
        assert_eq!((found.len(), found[0].root.as_str(), found[0].is_namespaced), (1, "/apis/apps/v1", true));
        for name in ["deployments", "deployment", "deploy", "deployments.apps", "deployments.v1.apps"] {
            assert!(found[0].names.iter().any(|known| known == name), "{name}");
        }
    }
}
