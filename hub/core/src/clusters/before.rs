//! Who deploys to a cluster since before Clusters said who may.

use std::fmt;

use serde_json::json;

use super::Onboarding;
use crate::HubError;

/// A Cluster without `spec.access`, to which namespaces of the hub deployed before an upgrade: they keep all rights there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessBefore {
    /// The Cluster.
    pub cluster: String,
    /// The namespaces.
    pub namespaces: Vec<String>,
}

impl fmt::Display for AccessBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, namespaces } = self;
        let all = |namespace| json!({"namespace": namespace, "serviceAccounts": ["*"], "agentRights": true});
        let access: Vec<_> = namespaces.iter().map(all).collect();
        let patch = json!({"spec": {"access": access}});
        write!(
            f,
            "Cluster {cluster} has no spec.access: namespaces that deployed there before the upgrade keep all rights ({}). To say so in the \
             Cluster, and take away what is not needed: kubectl patch cluster {cluster} --type=merge -p '{patch}'",
            namespaces.join(", ")
        )
    }
}

impl Onboarding {
    /// The Clusters of that kind, in order.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn access_before(&self) -> Result<Vec<AccessBefore>, HubError> {
        let found = self.store.clusters_with_access_before().await?;
        Ok(found.into_iter().map(|(cluster, namespaces)| AccessBefore { cluster, namespaces }).collect())
    }
}
