//! To be taken for somebody else (`kubectl --as`): each part of the other identity needs a right of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use roadstead_api::rules::{is_dns_label, is_dns_subdomain};
use roadstead_oidc::check_name;
use roadstead_rbac::Resource;

use crate::HubError;
use crate::identity::audit::AuditImpersonation;
use crate::identity::auth::AUTHENTICATED;
use crate::identity::{Authenticator, Identity, account_user};

const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// Whom somebody wants to be taken for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// The user's name; that of a service account is `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// The user's uid, where one is wanted.
    pub uid: String,
    /// Groups; without any a service account is in its own.
    pub groups: Vec<String>,
    /// What else is to be known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// Nobody is in the audit log under a name that only looks like another one.
    fn check(&self) -> Result<(), HubError> {
        let names = self.groups.iter().map(|group| ("impersonate-group", group));
        for (header, name) in
            [("impersonate-user", &self.user), ("impersonate-uid", &self.uid)].into_iter().chain(names)
        {
            check_name(header, name).map_err(|why| HubError::BadRequest(why.to_string()))?;
        }
        Ok(())
    }
}

/// Who asked to be taken for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) who: Identity,
    wanted: Impersonation,
    /// As the audit log tells of it.
    pub(super) told: Option<String>,
}

impl Behind {
    /// Whether that is allowed.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], as Kubernetes says it.
    pub(super) fn may_be(&self) -> Result<(), HubError> {
        let Self { who, wanted, .. } = self;
        may_be(who, &wanted.user, &wanted.groups)?;
        for (key, values) in &wanted.extra {
            for name in values {
                let (resource, subresource) = ("userextras", key.as_str());
                who.authorize_resource(&Resource {
                    resource,
                    subresource,
                    name,
                    ..impersonate("authentication.k8s.io")
                })?;
            }
        }
        if !wanted.uid.is_empty() {
            let name = &wanted.uid;
            who.authorize_resource(&Resource {
                resource: "uids",
                name,
                ..impersonate("authentication.k8s.io")
            })?;
        }
        Ok(())
    }
}

impl Authenticator {
    /// Whom somebody is taken for from here on.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where that one may not be taken for the other, as Kubernetes says it; [`HubError::BadRequest`] for names
    /// that none is.
    pub async fn impersonate(&self, who: Identity, wanted: Impersonation) -> Result<Identity, HubError> {
        wanted.check()?;
        let behind = Behind { told: AuditImpersonation::told(&wanted), who, wanted };
        behind.may_be()?;
        let Behind { who, wanted, .. } = behind.clone();
        let mut taken = match account(&wanted.user) {
            Some((namespace, name)) if wanted.groups.is_empty() => account_user(namespace, name),
            _ => Identity::user(&wanted.user, wanted.groups),
        };
        let (class, others) = match taken.username.as_str() {
            ANONYMOUS => (UNAUTHENTICATED, [UNAUTHENTICATED].as_slice()),
            _ => (AUTHENTICATED, [AUTHENTICATED, UNAUTHENTICATED].as_slice()),
        };
        if !taken.groups.iter().any(|group| others.contains(&group.as_str())) {
            taken.groups.push(class.to_owned());
        }
        (taken.uid, taken.extra) = (wanted.uid, wanted.extra);
        (taken.impersonator, taken.origin) = (Some(who.username), who.origin);
        taken.origin.administrator |= taken.is_master();
        taken.old_token = who.old_token;
        taken.behind = Some(Arc::new(behind));
        self.permitted(taken).await
    }

    /// Who has not shown who he is.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn anonymous(&self) -> Result<Identity, HubError> {
        self.permitted(Identity::user(ANONYMOUS, vec![UNAUTHENTICATED.to_owned()])).await
    }

    /// A user by name and groups, for questions about what others may do.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn somebody(&self, user: &str, groups: Vec<String>) -> Result<Identity, HubError> {
        self.permitted(Identity::user(user, groups)).await
    }
}

/// Whether somebody may act as a user with these groups.
pub(super) fn may_be(who: &Identity, user: &str, groups: &[String]) -> Result<(), HubError> {
    let account = account(user);
    let user = match account {
        Some((namespace, name)) => {
            Resource { resource: "serviceaccounts", namespace, name, ..impersonate("") }
        }
        None => Resource { resource: "users", name: user, ..impersonate("") },
    };
    who.authorize_resource(&user)?;
    groups.iter().try_for_each(|name| {
        who.authorize_resource(&Resource { resource: "groups", name, ..impersonate("") })
    })
}

fn impersonate(group: &str) -> Resource<'_> {
    Resource { verb: "impersonate", group, ..Resource::default() }
}

/// The namespace and the name of the service account that a user is, where it is one.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::account;

    #[test]
    fn users_that_are_service_accounts() {
        for (user, want) in [
            ("system:serviceaccount:apps:robot", Some(("apps", "robot"))),
            ("system:serviceaccount:apps:robot.v2", Some(("apps", "robot.v2"))),
            ("system:serviceaccount:apps:robot:x", None),
            ("system:serviceaccount:apps:", None),
            ("system:serviceaccount::robot", None),
            ("system:serviceaccount:Apps:robot", None),
            ("apps:robot", None),
        ] {
            assert_eq!(account(user), want, "{user}");
        }
    }
}
