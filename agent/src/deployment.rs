//! The Deployment that runs this agent, and its pods: what runs, and how far a roll-out is.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::home::{Home, HomeError, failed};
use crate::upgrade::{Record, Seen};

/// Its name, and the value of its pods' label `app.kubernetes.io/name`.
pub const DEPLOYMENT: &str = "roadstead-agent";

/// Its container.
const CONTAINER: &str = "agent";

/// The annotation that holds what is known of an upgrade.
const ANNOTATION: &str = "fleet.roadstead.dev/upgrade";

/// The Deployment of the agent in its namespace.
#[derive(Clone)]
pub struct OwnDeployment {
    home: Home,
}

impl OwnDeployment {
    /// The one in the agent's namespace.
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// As messages name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{DEPLOYMENT}", self.home.namespace())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.home.client(), self.home.namespace())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.home.client(), self.home.namespace())
    }

    /// The image of this agent's own pod.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn image_of(&self, pod: &str) -> Result<Option<String>, HomeError> {
        let doing = failed(format!("read the agent's own pod {}/{pod}", self.home.namespace()));
        Ok(self.pods().get_opt(pod).await.map_err(doing)?.as_ref().and_then(image))
    }

    /// What is so of it; none where there is no such Deployment.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn look(&self) -> Result<Option<Seen>, HomeError> {
        let doing = failed(format!("read Deployment {}", self.name()));
        let found = self.deployments().get_opt(DEPLOYMENT).await.map_err(doing)?;
        Ok(found.map(|deployment| seen(&deployment)))
    }

    /// Writes image and record together, if nobody changed the Deployment since `seen`; false where somebody did.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn change(&self, seen: &Seen, image: &str, record: Option<&Record>) -> Result<bool, HomeError> {
        let record = record.and_then(|record| serde_json::to_string(record).ok());
        let patch = json!({
            "metadata": { "resourceVersion": seen.version, "annotations": { ANNOTATION: record } },
            "spec": { "template": { "spec": { "containers": [{ "name": CONTAINER, "image": image }] } } },
        });
        let params = PatchParams { field_manager: Some(DEPLOYMENT.to_owned()), ..PatchParams::default() };
        match self.deployments().patch(DEPLOYMENT, &params, &Patch::Strategic(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(failed(format!("change the image of Deployment {}", self.name()))(error)),
        }
    }

    /// Whether a pod with this image is ready; else what keeps the first such from it, as far as that can be told.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn readiness(&self, wanted: &str) -> Result<Result<(), String>, HomeError> {
        let doing = failed(format!("list the pods of Deployment {}", self.name()));
        let params = ListParams::default().labels(&format!("app.kubernetes.io/name={DEPLOYMENT}"));
        let pods = self.pods().list(&params).await.map_err(doing)?.items;
        let mut why = "it has no pod yet".to_owned();
        for pod in pods.iter().filter(|pod| image(pod).as_deref() == Some(wanted)) {
            let status = pod.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            if conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True") {
                return Ok(Ok(()));
            }
            let containers = status.container_statuses.unwrap_or_default();
            let unscheduled = conditions
                .iter()
                .find(|one| one.type_ == "PodScheduled" && one.status == "False")
                .and_then(|one| one.message.clone());
            why = containers
                .iter()
                .find(|container| container.name == CONTAINER)
                .and_then(stuck)
                .or(unscheduled)
                .unwrap_or_else(|| "it is running but has not connected to the hub".to_owned());
        }
        Ok(Err(why))
    }
}

fn image(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == CONTAINER)?.image.clone()
}

/// What keeps a container from running, in the kubelet's words.
fn stuck(container: &ContainerStatus) -> Option<String> {
    let words = |reason: Option<String>, message: Option<String>| {
        [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
    };
    let state = container.state.clone()?;
    if let Some(waiting) = state.waiting {
        let waiting = words(waiting.reason, waiting.message);
        let ended = container.last_state.clone().and_then(|last| last.terminated);
        return Some(match ended {
            Some(ended) => format!("{waiting} (it ended with exit code {})", ended.exit_code),
            None => waiting,
        });
    }
    let ended = state.terminated?;
    Some(format!("it ended with exit code {}", ended.exit_code))
}

fn seen(deployment: &Deployment) -> Seen {
    let spec = deployment.spec.clone().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let metadata = &deployment.metadata;
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
    let containers = spec.template.spec.map(|spec| spec.containers).unwrap_or_default();
    let own = containers.into_iter().find(|container| container.name == CONTAINER);
    let wanted = spec.replicas.unwrap_or(1);
    let count = |count: Option<i32>| count.unwrap_or_default();
    Seen {
        version: metadata.resource_version.clone().unwrap_or_default(),
        image: own.and_then(|container| container.image).unwrap_or_default(),
        // What is not readable is nothing to act on; the next upgrade writes it again.
        record: annotation.and_then(|text| serde_json::from_str(text).ok()),
        is_complete: status.observed_generation >= metadata.generation
            && [status.updated_replicas, status.replicas, status.available_replicas]
                .into_iter()
                .all(|is| count(is) == wanted),
    }
}
