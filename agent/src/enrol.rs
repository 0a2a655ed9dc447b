//! Enrolment: a token and a certificate request go to the hub's API port, a certificate comes back.

use std::time::Duration;

use roadstead_model::{ClusterUid, KubeSystemUid, chain};
use serde::{Deserialize, Serialize};

use crate::identity::{Identity, IdentityError, PrivateKey, check_certificate};
use crate::join::Join;
use crate::proxy::{Proxy, UnusableProxy};

const TIMEOUT: Duration = Duration::from_secs(15);

/// How large the hub's answer may be.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// Why the hub did not take this agent in.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The hub refused; trying again with the same token would not help.
    #[error("the hub at {hub} refused to enrol this agent as cluster `{cluster}` ({status}): {message}")]
    Refused {
        /// The hub.
        hub: String,
        /// The Cluster.
        cluster: String,
        /// The HTTP status.
        status: u16,
        /// What the hub said.
        message: String,
    },
    /// The hub could not be reached, or not do it now.
    #[error("enrol at {hub}: {why}")]
    Unavailable {
        /// The hub.
        hub: String,
        /// Why.
        why: String,
    },
    /// The join Secret's CA is not usable.
    #[error("the join Secret's `ca.crt` is not a PEM certificate: {0}")]
    Ca(String),
    /// The way to the hub leads through a proxy that is not spoken to.
    #[error(transparent)]
    Proxy(#[from] UnusableProxy),
    /// What the hub gave is not for this agent.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl EnrolError {
    /// Whether another try may go better.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    token: &'a str,
    csr: &'a str,
    kube_system_uid: KubeSystemUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    certificate: String,
    cluster_uid: ClusterUid,
    cluster_name: String,
    ca: String,
}

/// The part of a Kubernetes `Status` that is for people.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

/// Asks the hub once. The same key may be used again after a failure: where the answer was lost, the hub knows it.
///
/// # Errors
/// [`EnrolError`]; [`EnrolError::is_passing`] tells whether to try again.
pub async fn enrol(join: &Join, key: PrivateKey, kube_system: KubeSystemUid) -> Result<Identity, EnrolError> {
    let (status, body) = ask(join, &key.csr()?, kube_system).await?;
    let unavailable = |why: String| EnrolError::Unavailable { hub: join.hub.clone(), why };
    if !status.is_success() {
        let message =
            serde_json::from_slice::<Status>(&body).map(|status| status.message).unwrap_or_default();
        let message =
            roadstead_proto::limits::bounded(if message.is_empty() { "no reason given" } else { &message });
        let passing = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
        return Err(if passing {
            unavailable(format!("the hub answered {status}: {message}"))
        } else {
            let (hub, cluster) = (join.hub.clone(), join.cluster.clone());
            EnrolError::Refused { hub, cluster, status: status.as_u16(), message }
        });
    }
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|error| unavailable(format!("the hub's answer is malformed: {error}")))?;
    let Answer { certificate, cluster_uid, cluster_name, ca } = answer;
    let validity = check_certificate(&certificate, &key, cluster_uid)?;
    reqwest::Certificate::from_pem_bundle(ca.as_bytes())
        .map_err(|error| IdentityError::Answer { what: "ca", why: error.to_string() })?;
    Ok(Identity {
        key,
        certificate,
        ca,
        // Not what the hub calls itself: whoever wrote the manifest knows the way from here, through whatever lies between.
        link: join.link.clone(),
        cluster_uid,
        cluster_name,
        token: join.token.digest(),
        validity,
    })
}

async fn ask(
    join: &Join,
    csr: &str,
    kube_system_uid: KubeSystemUid,
) -> Result<(reqwest::StatusCode, Vec<u8>), EnrolError> {
    let unavailable = |error: reqwest::Error| EnrolError::Unavailable {
        hub: join.hub.clone(),
        why: with_the_time(chain(&error)),
    };
    let roots = reqwest::Certificate::from_pem_bundle(join.ca.as_bytes())
        .map_err(|error| EnrolError::Ca(chain(&error)))?;
    let url = format!("{}/fleet/v1/enrol", join.hub.trim_end_matches('/'));
    let mut builder = reqwest::Client::builder().tls_certs_only(roots).https_only(true).no_proxy();
    let server = url.parse().map_err(|_| EnrolError::Unavailable {
        hub: join.hub.clone(),
        why: "its address is not a URL".to_owned(),
    })?;
    if let Some(proxy) = Proxy::to(&server)? {
        builder = builder.proxy(proxy.for_requests().map_err(unavailable)?);
    }
    let client = builder
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        .pool_max_idle_per_host(0)
        .build()
        .map_err(unavailable)?;
    let request = Request { token: join.token.expose(), csr, kube_system_uid };
    let mut answer = client.post(url).json(&request).send().await.map_err(unavailable)?;
    let mut body = Vec::new();
    while let Some(bytes) = answer.chunk().await.map_err(unavailable)? {
        if body.len() + bytes.len() > MAX_ANSWER_BYTES {
            let why = format!("the hub's answer has more than {MAX_ANSWER_BYTES} bytes");
            return Err(EnrolError::Unavailable { hub: join.hub.clone(), why });
        }
        body.extend_from_slice(&bytes);
    }
    Ok((answer.status(), body))
}

/// By which rustls says that a certificate is not good yet, or not any more.
pub(crate) const UNTIMELY: &str = "invalid peer certificate: certificate";

/// `why`, with what this node takes for the time where the hub's certificate is not good at that.
pub(crate) fn with_the_time(why: String) -> String {
    if why.contains(UNTIMELY) {
        format!("{why}; is this node's clock right? It says {}", jiff::Timestamp::now())
    } else {
        why
    }
}
