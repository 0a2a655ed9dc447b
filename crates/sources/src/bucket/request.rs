//! What is asked of a bucket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::Pool;
use roadstead_cloud::CloudIdentity;
use roadstead_model::Revision;
use roadstead_outbound::{ClientIdentity, Guard, Policy, Purpose, Secret};
use serde::{Deserialize, Serialize};

use super::known::KnownBucket;
use crate::attempt::Room;
use crate::tree::TreeLimits;

/// Which protocol the object store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketStore {
    /// Amazon's S3, and all that speak it.
    S3,
    /// Google Cloud Storage, its JSON API.
    Gcs,
    /// Azure Blob Storage, where buckets are called containers.
    Azure,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum BucketLogin {
    /// Anyone: of a bucket that is public.
    Anonymous,
    /// An access key of S3.
    AccessKey {
        /// Its id.
        id: String,
        /// Its secret.
        secret: Secret,
    },
    /// A name and a password, which a security token service like MinIO's changes for an access key.
    Ldap(Box<LdapLogin>),
    /// A service account of Google's.
    GoogleAccount(GoogleKey),
    /// An application of Azure's.
    AzureApplication {
        /// The directory that it is in.
        tenant: String,
        /// Its id.
        client_id: String,
        /// How it shows who it is.
        proof: AzureProof,
        /// Where it does; Azure's public cloud where it is not said.
        authority: Option<String>,
    },
    /// The identity of a cloud.
    Cloud {
        /// Whose.
        identity: CloudIdentity,
        /// Of AWS: where its token service is, if not in its own place.
        sts: Option<String>,
    },
    /// The key of a storage account.
    AzureAccountKey(Secret),
    /// A shared access signature, as it stands in a URL's query.
    AzureSas(Secret),
}

/// A service account of Google's, with a key of it.
#[derive(Debug, Clone)]
pub struct GoogleKey {
    /// The account.
    pub email: String,
    /// Which of its keys.
    pub key_id: String,
    /// That key, in PEM.
    pub private_key: Secret,
    /// Where tokens are had.
    pub token_uri: String,
}

/// How an application shows who it is.
#[derive(Debug, Clone)]
pub enum AzureProof {
    /// By a secret.
    Secret(Secret),
    /// By a certificate with its key, in PEM.
    Certificate {
        /// Both of them.
        pem: Secret,
        /// Whether the certificate is sent, so that it is trusted by its authority.
        send_chain: bool,
    },
}

/// A name and a password for a security token service.
#[derive(Debug, Clone)]
pub struct LdapLogin {
    /// The service's URL.
    pub endpoint: String,
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
    /// PEM of certificate authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// The certificate that is shown to it.
    pub identity: Option<ClientIdentity>,
}

/// How much a bucket may make us read, keep and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketLimits {
    /// Objects that are looked at, also those that are left out.
    pub keys: usize,
    /// Bytes of all pages of the list of objects.
    pub list_bytes: u64,
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages.
    pub pages: usize,
    /// Bytes of the keys and etags of those objects that are taken.
    pub index_bytes: u64,
    /// Objects that are received at once: each is a connection, and a hub with few open files fetches many sources at once.
    pub at_once: usize,
    /// What the artifact may hold.
    pub tree: TreeLimits,
    /// Bytes of the artifact as it is packed.
    pub artifact_bytes: u64,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self {
            keys: 250_000,
            list_bytes: 64 << 20,
            page_bytes: 8 << 20,
            pages: 1_000,
            index_bytes: 8 << 20,
            at_once: 4,
            tree: TreeLimits::default(),
            artifact_bytes: 256 << 20,
        }
    }
}

/// One fetch of one bucket.
#[derive(Debug, Clone)]
pub struct BucketRequest {
    /// Which protocol.
    pub store: BucketStore,
    /// The server: `host[:port]`, or its URL.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// Its region; found out where it is not said.
    pub region: Option<String>,
    /// Only objects whose keys begin with this are taken.
    pub prefix: Option<String>,
    /// Who asks.
    pub login: BucketLogin,
    /// Whether the server is spoken to without TLS (`spec.insecure`).
    pub insecure: bool,
    /// Whether credentials may be sent over plain HTTP, where anyone on the way can read them. A signature is none.
    pub plain_http_credentials: bool,
    /// PEM of certificate authorities to trust besides the system's.
    pub ca: Option<Vec<u8>>,
    /// The certificate that this client shows.
    pub identity: Option<ClientIdentity>,
    /// The way out, which decides what may be connected to.
    pub guard: Guard,
    /// For the whole attempt, from the first packet to the packed artifact.
    pub timeout: Duration,
    /// Bounds.
    pub limits: BucketLimits,
    /// Where room for the artifact is reserved, before its first byte is taken. Without, none is asked for.
    pub room: Option<Room>,
    /// What all fetches may have of the disk for what servers send; unbounded without.
    pub disk: Option<Pool>,
    /// The revision whose artifact the caller has. Leave it out to get the artifact in any case: when `ignore` changed.
    pub known: Option<Revision>,
    /// The only revision that is of use.
    pub pinned: Option<Revision>,
    /// What is known of the server from earlier looks with the same spec and credentials; what this one learns is kept there.
    pub known_bucket: KnownBucket,
    /// `spec.ignore`.
    pub ignore: Option<String>,
    /// Where temporary folders are made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
}

impl BucketRequest {
    /// A request for a public bucket of a server that speaks S3, with default limits and a timeout of 60 seconds, which reaches the
    /// public internet alone.
    #[must_use]
    pub fn new(endpoint: impl Into<String>, bucket: impl Into<String>) -> Self {
        Self {
            store: BucketStore::S3,
            endpoint: endpoint.into(),
            bucket: bucket.into(),
            region: None,
            prefix: None,
            login: BucketLogin::Anonymous,
            insecure: false,
            plain_http_credentials: false,
            ca: None,
            identity: None,
            guard: Guard::new(Arc::new(Policy::default()), Purpose::Bucket),
            timeout: Duration::from_secs(60),
            limits: BucketLimits::default(),
            room: None,
            disk: None,
            known: None,
            pinned: None,
            known_bucket: KnownBucket::default(),
            ignore: None,
            scratch: None,
        }
    }

    /// The identity that asks, where it is one of a cloud.
    pub(super) fn cloud(&self) -> Option<&CloudIdentity> {
        match &self.login {
            BucketLogin::Cloud { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// The bucket's URL, fit for messages: whatever looks like credentials is left out.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let server = crate::attempt::shown_url(&super::place::server_url(&self.endpoint, self.insecure));
        format!("{}/{}", server.trim_end_matches('/'), crate::tree::shown(&self.bucket))
    }
}
