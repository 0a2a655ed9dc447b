//! What a connection is for.

use std::fmt;
use std::str::FromStr;

/// What a connection is for. Entries of the policy can be limited to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Clusters by their kubeconfigs, management clusters included.
    Clusters,
    /// Git repositories.
    Git,
    /// OCI registries.
    Oci,
    /// Buckets of an object store.
    Bucket,
    /// Helm repositories over HTTP.
    Helm,
    /// Key management services.
    Kms,
    /// What gives out credentials of clouds for sources: token services, and the metadata service of the machine.
    Cloud,
    /// Issuers of OpenID Connect.
    Oidc,
    /// Webhooks, chat and commit statuses.
    Notify,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Clusters,
        Self::Git,
        Self::Oci,
        Self::Bucket,
        Self::Helm,
        Self::Kms,
        Self::Cloud,
        Self::Oidc,
        Self::Notify,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Git => "git",
            Self::Oci => "oci",
            Self::Bucket => "bucket",
            Self::Helm => "helm",
            Self::Kms => "kms",
            Self::Cloud => "cloud",
            Self::Oidc => "oidc",
            Self::Notify => "notify",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Purpose {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text).ok_or(())
    }
}
