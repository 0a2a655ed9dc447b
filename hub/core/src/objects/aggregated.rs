//! Aggregated ClusterRoles as they are shown: the rules that one is made of are written into it, as kube-controller-manager does,
//! so that `kubectl describe clusterrole view` lists them. Decisions do not wait for that: they go by what the parts say now.

use roadstead_api::KindId;
use serde_json::json;

use crate::HubError;
use crate::address::Address;
use crate::identity::{Authenticator, Identity};
use crate::objects::resources::WriteOptions;
use crate::objects::{Objects, forms};

/// As whom the rules are written; kube-controller-manager's name for it.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// Bytes of rules that are written into one: what a request may write, less room for the rest of the object.
const MOST_SHOWN: usize = 2 << 20;

impl Objects {
    /// Writes the rules that each aggregated ClusterRole is made of into it, where it has others. One that is gone, or that somebody else
    /// writes at the same time, is left for the next time.
    ///
    /// # Errors
    /// That of the first one that could not be written; the others are.
    pub async fn write_aggregated(&self, identity: &Authenticator) -> Result<(), HubError> {
        let mut failed = Ok(());
        for name in identity.outdated_roles().await? {
            let written = self.write_rules(identity, &name).await;
            failed = failed.and(written);
        }
        failed
    }

    async fn write_rules(&self, identity: &Authenticator, name: &str) -> Result<(), HubError> {
        let kind = KindId::ClusterRole;
        let version = kind.get().storage_version();
        let Some(rules) = identity.aggregated_rules(name) else { return Ok(()) };
        let rules = json!(rules);
        if rules.to_string().len() > MOST_SHOWN {
            tracing::warn!(
                name,
                "an aggregated ClusterRole has too many rules to show them all in it: it grants them all the same"
            );
            return Ok(());
        }
        let Some(stored) = self.store.get(kind, "", name).await? else { return Ok(()) };
        let mut object = forms::show(&stored, version);
        // Somebody may have made it one that is not aggregated.
        if object["aggregationRule"].is_null() {
            return Ok(());
        }
        object["rules"] = rules;
        let address = Address { kind, version, namespace: String::new(), name: name.to_owned() };
        let options = WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() };
        match self.update(&Identity::hub(), &address, object, options).await {
            Ok(_) | Err(HubError::Conflict { .. } | HubError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
