//! How this agent removes itself: its namespace, with all that is in it, and its ClusterRole and bindings.
//!
//! An agent that deletes its own rights one by one is out of rights, or ended, before it is done. So what is not in the
//! namespace is first made a dependent of it; then one request deletes the namespace, and the cluster does the rest. Killed
//! in between, the agent begins again when it is asked again.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::deployment::DEPLOYMENT;
use crate::home::{Home, HomeError, failed};

/// The namespace for which the manifests are written; in another one what is not in it has its name as a suffix.
const USUAL: &str = "roadstead-system";

const PART_OF: &str = "app.kubernetes.io/part-of";

/// Begins to remove the agent; after that the cluster goes on by itself.
///
/// # Errors
/// [`HomeError`], also where the namespace is not the agent's own: then nothing was removed.
pub async fn remove(home: &Home) -> Result<(), HomeError> {
    let namespaces: Api<Namespace> = Api::all(home.client());
    let name = home.namespace();
    let look = failed(format!("read namespace {name}"));
    let Some(namespace) = namespaces.get_opt(name).await.map_err(look)? else { return Ok(()) };
    let metadata = namespace.metadata;
    if metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF)).map(String::as_str)
        != Some("roadstead")
    {
        return Err(HomeError::NotOwn(name.to_owned()));
    }
    let owner = json!({
        "metadata": { "ownerReferences": [{
            "apiVersion": "v1", "kind": "Namespace", "name": name, "uid": metadata.uid.clone().unwrap_or_default(),
        }] },
    });
    let suffix = if name == USUAL { String::new() } else { format!("-{name}") };
    let (own, admin) = (format!("{DEPLOYMENT}{suffix}"), format!("{DEPLOYMENT}-cluster-admin{suffix}"));
    depend::<ClusterRole>(&Api::all(home.client()), "ClusterRole", &own, &owner).await?;
    for binding in [&own, &admin] {
        depend::<ClusterRoleBinding>(&Api::all(home.client()), "ClusterRoleBinding", binding, &owner).await?;
    }
    let params = DeleteParams::background();
    match namespaces.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(failed(format!("delete namespace {name}"))(error)),
    }
}

/// Makes an object go with the namespace; one that is not there need not.
async fn depend<K>(api: &Api<K>, kind: &str, name: &str, owner: &Value) -> Result<(), HomeError>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    match api.patch(name, &PatchParams::default(), &Patch::Merge(owner)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(failed(format!("make {kind} {name} a dependent of the agent's namespace"))(error)),
    }
}
