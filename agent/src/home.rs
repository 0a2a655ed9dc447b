//! The agent's namespace in its cluster, and what it keeps there: its identity, in a Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use roadstead_model::KubeSystemUid;

use crate::identity::{Identity, IdentityError, PrivateKey, check_certificate};
use crate::join::{Join, JoinError};

/// The Secret that keeps the identity.
pub const IDENTITY_SECRET: &str = "roadstead-agent-identity";

/// The Secret in which a join token is looked for.
pub const JOIN_SECRET: &str = "roadstead-join";

const IDENTITY_TYPE: &str = "fleet.roadstead.dev/agent-identity";

/// Why something in the agent's namespace could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The apiserver refused, or is away.
    #[error("{doing}")]
    Kube {
        /// What was attempted, and on what.
        doing: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// `kube-system` has no uid that is one.
    #[error("the namespace kube-system of this cluster has no uid")]
    NoUid,
    /// There is no Deployment that runs the agent.
    #[error("Deployment {0} not found")]
    NoDeployment(String),
    /// Somebody changes the Deployment all the time.
    #[error("another client keeps changing Deployment {0} at the same time")]
    Contended(String),
    /// The count of deletions cannot be read.
    #[error("the count of deletions in this namespace is malformed: delete the ConfigMap to start over")]
    NoCount,
    /// The namespace is not the agent's own.
    #[error(
        "namespace {0} has no label app.kubernetes.io/part-of=roadstead, so it may hold objects that are not the agent's: nothing \
         was removed"
    )]
    NotOwn(String),
    /// The join Secret is not usable.
    #[error("Secret {JOIN_SECRET}: {0}")]
    Join(#[from] JoinError),
}

impl HomeError {
    /// Whether the apiserver said no, as against being away, or busy.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Kube { source, .. } => {
                matches!(&**source, kube::Error::Api(status)
                    if (400..500).contains(&status.code) && !matches!(status.code, 408 | 429))
            }
            Self::NoUid | Self::Join(_) | Self::NoDeployment(_) | Self::NotOwn(_) | Self::NoCount => true,
            Self::Contended(_) => false,
        }
    }
}

/// The agent's namespace.
#[derive(Clone)]
pub struct Home {
    client: kube::Client,
    namespace: String,
}

/// What the identity Secret held.
#[derive(Debug)]
pub enum Kept {
    /// No Secret, or nothing usable in it.
    Nothing,
    /// A key, made before an enrolment whose answer never came.
    Key(PrivateKey),
    /// An identity.
    Identity(Box<Identity>),
}

pub(crate) fn failed(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> HomeError {
    move |source| HomeError::Kube { doing: doing.into(), source: Box::new(source) }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

impl Home {
    /// `namespace` of the cluster behind `client`.
    #[must_use]
    pub fn new(client: kube::Client, namespace: String) -> Self {
        Self { client, namespace }
    }

    /// The client that acts as the agent itself.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Its name.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes the namespace if it is not there.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn ensure_namespace(&self) -> Result<(), HomeError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let look = failed(format!("read namespace {}", self.namespace));
        if api.get_opt(&self.namespace).await.map_err(look)?.is_some() {
            return Ok(());
        }
        let metadata = ObjectMeta { name: Some(self.namespace.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            // Someone else made it meanwhile.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(failed(format!("create namespace {}", self.namespace))(error)),
        }
    }

    /// What makes this cluster this cluster.
    ///
    /// # Errors
    /// [`HomeError::Kube`], [`HomeError::NoUid`].
    pub async fn kube_system_uid(&self) -> Result<KubeSystemUid, HomeError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = api.get("kube-system").await.map_err(failed("read namespace kube-system"))?;
        namespace.metadata.uid.and_then(|uid| uid.parse().ok()).ok_or(HomeError::NoUid)
    }

    /// The apiserver's version, as `v1.35.3`.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn kubernetes_version(&self) -> Result<String, HomeError> {
        let version =
            self.client.apiserver_version().await.map_err(failed("ask the apiserver for its version"))?;
        Ok(version.git_version)
    }

    /// Fails where the apiserver does not answer, or says that it is not ready, as it does without its etcd.
    ///
    /// # Errors
    /// [`HomeError::Kube`]. An answer that refuses the question is an answer.
    pub async fn is_ready(&self) -> Result<(), HomeError> {
        let what = "ask the apiserver whether it is ready";
        let request = http::Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|error| failed(what)(kube::Error::HttpError(error)))?;
        match self.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code < 500 => Ok(()),
            answer => answer.map(drop).map_err(failed(what)),
        }
    }

    /// The join Secret of this namespace, if there is one.
    ///
    /// # Errors
    /// [`HomeError::Kube`], or [`HomeError::Join`] where it is there and not usable.
    pub async fn join(&self) -> Result<Option<Join>, HomeError> {
        let look = failed(format!("read Secret {}/{JOIN_SECRET}", self.namespace));
        let secret = self.secrets().get_opt(JOIN_SECRET).await.map_err(look)?;
        Ok(secret.as_ref().map(Join::from_secret).transpose()?)
    }

    /// What was kept.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn kept(&self) -> Result<Kept, HomeError> {
        let look = failed(format!("read Secret {}/{IDENTITY_SECRET}", self.namespace));
        let Some(secret) = self.secrets().get_opt(IDENTITY_SECRET).await.map_err(look)? else {
            return Ok(Kept::Nothing);
        };
        let data = secret.data.unwrap_or_default();
        match parse(&data) {
            Ok(kept) => Ok(kept),
            Err(error) => {
                tracing::warn!(secret = IDENTITY_SECRET, %error, "the stored identity is not usable: a new one is needed");
                Ok(Kept::Nothing)
            }
        }
    }

    /// Keeps a key before it is used, so that an answer that is lost on its way can be asked for again.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn keep_key(&self, key: &PrivateKey) -> Result<(), HomeError> {
        self.keep(BTreeMap::from([text("tls.key", key.expose())])).await
    }

    /// Keeps an identity.
    ///
    /// # Errors
    /// [`HomeError::Kube`].
    pub async fn keep_identity(&self, identity: &Identity) -> Result<(), HomeError> {
        self.keep(BTreeMap::from([
            text("tls.key", identity.key.expose()),
            text("tls.crt", &identity.certificate),
            text("ca.crt", &identity.ca),
            text("link", &identity.link),
            text("cluster-uid", &identity.cluster_uid.to_string()),
            text("cluster", &identity.cluster_name),
            text("token-digest", &identity.token.to_string()),
        ]))
        .await
    }

    async fn keep(&self, data: BTreeMap<String, ByteString>) -> Result<(), HomeError> {
        let metadata = ObjectMeta { name: Some(IDENTITY_SECRET.to_owned()), ..ObjectMeta::default() };
        let secret =
            Secret { metadata, data: Some(data), type_: Some(IDENTITY_TYPE.to_owned()), ..Secret::default() };
        let api = self.secrets();
        let doing = || failed(format!("write Secret {}/{IDENTITY_SECRET}", self.namespace));
        // A PUT without a resourceVersion replaces whatever is there; it does not create.
        match api.create(&PostParams::default(), &secret).await {
            Err(error) if is_conflict(&error) => {
                api.replace(IDENTITY_SECRET, &PostParams::default(), &secret).await.map_err(doing())?;
                Ok(())
            }
            created => created.map(drop).map_err(doing()),
        }
    }
}

fn text(key: &str, value: &str) -> (String, ByteString) {
    (key.to_owned(), ByteString(value.as_bytes().to_vec()))
}

fn parse(data: &BTreeMap<String, ByteString>) -> Result<Kept, IdentityError> {
    let get = |key: &'static str| {
        let bytes =
            data.get(key).ok_or_else(|| IdentityError::Certificate(format!("was stored without `{key}`")))?;
        String::from_utf8(bytes.0.clone())
            .map_err(|_| IdentityError::Certificate(format!("was stored with an invalid `{key}`")))
    };
    let key = PrivateKey::from_pem(get("tls.key")?)?;
    if !data.contains_key("tls.crt") {
        return Ok(Kept::Key(key));
    }
    let bad = |what| move |_| IdentityError::Certificate(format!("was stored with an invalid `{what}`"));
    let cluster_uid = get("cluster-uid")?.parse().map_err(bad("cluster-uid"))?;
    let certificate = get("tls.crt")?;
    let validity = check_certificate(&certificate, &key, cluster_uid)?;
    Ok(Kept::Identity(Box::new(Identity {
        certificate,
        ca: get("ca.crt")?,
        link: get("link")?,
        cluster_uid,
        cluster_name: get("cluster")?,
        token: get("token-digest")?.parse().map_err(|_| {
            IdentityError::Certificate("was stored with an invalid `token-digest`".to_owned())
        })?,
        validity,
        key,
    })))
}
