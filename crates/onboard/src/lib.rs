//! Reaches an untrusted cluster by what its kubeconfig says, tells which cluster it is, and installs the agent there.
//!
//! The cluster is as hostile as its kubeconfig: every connection is opened by a guard that checks its address, answers are bounded in size and time, redirects are not followed.

mod connect;
mod management;
mod objects;

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use roadstead_kubeconfig::Access;
use roadstead_model::{KubeSystemUid, chain};
use roadstead_outbound::{Guard, Refusal, Veil};
use serde_json::Value;

pub use management::Shown;
pub use objects::Unplaced;

/// Who writes what is installed.
pub const FIELD_MANAGER: &str = "roadstead-hub";

/// For one request and its answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names and versions that a cluster tells are no longer than this, in bytes.
const MAX_TEXT: usize = 256;

/// Why a cluster is not on board yet.
#[derive(Debug, thiserror::Error)]
pub enum OnboardError {
    /// Where it leads is not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kubeconfig's certificates or names are not usable.
    #[error("the kubeconfig cannot be used: {0}")]
    Unusable(String),
    /// It does not answer.
    #[error("{what} at {server}: {why}")]
    Unreachable {
        /// What was attempted.
        what: String,
        /// Where.
        server: String,
        /// Why not.
        why: String,
    },
    /// It answered, with a refusal or with what cannot be understood.
    #[error("{what}: the cluster answered: {why}")]
    Answer {
        /// What was attempted.
        what: String,
        /// The answer.
        why: String,
    },
    /// An object of a kind that is not installed.
    #[error(transparent)]
    Unplaced(#[from] Unplaced),
}

impl OnboardError {
    /// Whether the same may succeed later, without another kubeconfig.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::Unusable(_))
    }
}

/// Which cluster it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The uid of its `kube-system` namespace.
    pub kube_system: KubeSystemUid,
    /// The version of its apiserver.
    pub version: String,
}

/// A cluster that can be asked.
pub struct Cluster {
    client: Client,
    server: String,
    veil: Veil,
}

impl Cluster {
    /// Gets ready to ask; nothing is asked yet.
    ///
    /// # Errors
    /// [`OnboardError::Unusable`].
    pub fn new(access: &Access, guard: &Guard) -> Result<Self, OnboardError> {
        let (client, veil) = connect::client(access, guard)?;
        Ok(Self { client, server: access.server.to_string(), veil })
    }

    /// Which cluster it is.
    ///
    /// # Errors
    /// [`OnboardError`], with what was asked.
    pub async fn identify(&self) -> Result<Identity, OnboardError> {
        let what = "read namespace kube-system";
        let namespace = self.ask(what, Method::GET, "/api/v1/namespaces/kube-system", Vec::new()).await?;
        let uid = namespace["metadata"]["uid"].as_str().and_then(|uid| uid.parse().ok());
        let no_uid = || OnboardError::Answer { what: what.to_owned(), why: "it has no uid".to_owned() };
        let kube_system = uid.ok_or_else(no_uid)?;
        let version = self.ask("read the version", Method::GET, "/version", Vec::new()).await?;
        let version = version["gitVersion"].as_str().unwrap_or("unknown");
        Ok(Identity { kube_system, version: version.chars().take(MAX_TEXT).collect() })
    }

    /// Applies an object, and takes its fields from whoever has them.
    ///
    /// # Errors
    /// [`OnboardError`], with the object.
    pub async fn apply(&self, object: &Value) -> Result<(), OnboardError> {
        let place = objects::place(object)?;
        let what = format!("apply {}", objects::shown(object));
        let path = format!("{place}?fieldManager={FIELD_MANAGER}&force=true");
        self.ask(&what, Method::PATCH, &path, object.to_string().into_bytes()).await.map(drop)
    }

    async fn ask_for(&self, what: &str, path: &str, accept: &str) -> Result<Value, OnboardError> {
        let request = Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new());
        self.answer(what, request.map_err(|error| OnboardError::Unusable(error.to_string()))?).await
    }

    async fn ask(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Value, OnboardError> {
        let mut request = Request::builder().method(&method).uri(path);
        // An apiserver refuses a type of what is not there.
        if method == Method::PATCH {
            request = request.header(http::header::CONTENT_TYPE, "application/apply-patch+yaml");
        }
        let request = request.body(body).map_err(|error| OnboardError::Unusable(error.to_string()))?;
        self.answer(what, request).await
    }

    /// What is told of a failure at an address that is not public: the same whatever is there, so that nobody can look
    /// around in the hub's network by it. The operator's log has the rest.
    fn veiled(&self, what: &str, why: &str) -> String {
        tracing::info!(
            server = self.server,
            what,
            why,
            "a cluster at an address that is not public cannot be reached"
        );
        "at that address, which is not public, connections are refused or not answered in time, or its certificate is not \
         that of the kubeconfig, or what answers is not an apiserver; the hub's log says which"
            .to_owned()
    }

    async fn answer(&self, what: &str, request: Request<Vec<u8>>) -> Result<Value, OnboardError> {
        let unreachable = |why: String| {
            let why = if self.veil.is_drawn() { self.veiled(what, &why) } else { why };
            OnboardError::Unreachable { what: what.to_owned(), server: self.server.clone(), why }
        };
        match tokio::time::timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Err(_) => Err(unreachable(format!("no answer within {} s", PATIENCE.as_secs()))),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => {
                let why: String = status.message.chars().take(2 * MAX_TEXT).collect();
                Err(OnboardError::Answer { what: what.to_owned(), why })
            }
            Ok(Err(error)) => match connect::refusal(&error) {
                Some(refusal) => Err(refusal.into()),
                None => Err(unreachable(chain(&error))),
            },
        }
    }
}
