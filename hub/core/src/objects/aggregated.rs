//! Aggregated ClusterRoles as they are shown: the rules that one is made of are written into it, as kube-controller-manager does,
//! so that `kubectl describe clusterrole view` lists them. Decisions do not wait for that: they go by what the parts say now.

use roadstead_api::KindId;
use roadstead_api::rbac::PolicyRule;
use serde_json::json;

use crate::HubError;
use crate::address::Address;
use crate::identity::Identity;
use crate::objects::resources::WriteOptions;
use crate::objects::{Objects, forms};

/// As whom the rules are written; kube-controller-manager's name for it.
const MANAGER: &str = "clusterrole-aggregation-controller";

impl Objects {
    /// Writes the rules that each of these ClusterRoles is made of into it. One that is gone, or that somebody else writes at the same
    /// time, is left for the next time.
    ///
    /// # Errors
    /// That of the first one that could not be written; the others are.
    pub async fn write_aggregated(&self, roles: Vec<(String, Vec<PolicyRule>)>) -> Result<(), HubError> {
        let mut failed = Ok(());
        for (name, rules) in roles {
            let written = self.write_rules(&name, &rules).await;
            failed = failed.and(written);
        }
        failed
    }

    async fn write_rules(&self, name: &str, rules: &[PolicyRule]) -> Result<(), HubError> {
        let kind = KindId::ClusterRole;
        let version = kind.get().storage_version();
        let Some(stored) = self.store.get(kind, "", name).await? else { return Ok(()) };
        let mut object = forms::show(&stored, version);
        // Somebody may have made it one that is not aggregated.
        if object["aggregationRule"].is_null() {
            return Ok(());
        }
        object["rules"] = json!(rules);
        let address = Address { kind, version, namespace: String::new(), name: name.to_owned() };
        let options = WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() };
        match self.update(&Identity::hub(), &address, object, options).await {
            Ok(_) | Err(HubError::Conflict { .. } | HubError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
