//! What programs read of the hub as of kube-apiserver: what it says of itself as an issuer of tokens, the keys by which others verify its
//! service accounts' tokens, and metrics. Who may read that is decided by roles, also for those who come without a token; but profiles of the
//! process are for members of system:masters.

use axum::body::Body;
use axum::http::{Method, header};
use axum::response::Response;
use bytes::Bytes;
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::{Attributes, Identity, authorize_path};
use roadstead_hub_core::views::{CPU_PROFILE, METRICS, METRICS_TYPE};

use crate::Api;

/// What is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// What the issuer says of itself.
    Configuration,
    /// Its keys.
    Keys,
    /// Its metrics.
    Metrics,
    /// Where its CPU time goes.
    CpuProfile,
}

/// Where it is.
pub(crate) const PUBLISHED: [(&str, Published); 4] = [
    ("/.well-known/openid-configuration", Published::Configuration),
    ("/openid/v1/jwks", Published::Keys),
    (METRICS, Published::Metrics),
    (CPU_PROFILE, Published::CpuProfile),
];

/// A gzipped protocol buffer, as of Go's profiles.
const PROFILE_TYPE: &str = "application/octet-stream";

impl Published {
    /// What is at this path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        PUBLISHED.iter().find(|(known, _)| *known == path).map(|(_, published)| *published)
    }

    fn path(self) -> &'static str {
        PUBLISHED.iter().find(|(_, published)| *published == self).map_or("", |(path, _)| path)
    }

    /// Gives it to whom a role lets read it. `query` is that of the URL.
    pub(crate) async fn answer(
        self,
        api: &Api,
        who: &Identity,
        query: Option<&str>,
    ) -> Result<Response, HubError> {
        let path = self.path();
        authorize_path(who, "get", path)?;
        let (bytes, form): (Bytes, _) = match self {
            Self::Configuration => (api.hub.identity.issuer_configuration(), "application/json"),
            Self::Keys => (api.hub.identity.issuer_keys().await?, "application/jwk-set+json"),
            Self::Metrics => (api.hub.metrics.read(who).await?, METRICS_TYPE),
            Self::CpuProfile => (api.hub.profiles.cpu(who, query).await?.into(), PROFILE_TYPE),
        };
        let response = Response::builder().header(header::CONTENT_TYPE, form).body(Body::from(bytes));
        response.map_err(|error| HubError::Internal(format!("answer {path}: {error}")))
    }
}

/// Who comes without a token to read that, where a role lets everybody; none is somebody who has to show one.
pub(crate) async fn anonymous(api: &Api, method: &Method, path: &str) -> Result<Option<Identity>, HubError> {
    let path = path.trim_end_matches('/');
    if method != Method::GET || Published::at(path).is_none() {
        return Ok(None);
    }
    let nobody = api.hub.identity.anonymous().await?;
    Ok(nobody.may(&Attributes::Path { verb: "get", path }).then_some(nobody))
}
