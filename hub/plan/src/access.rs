//! Who may deploy where: pure functions, asked at each reconciliation and before each write of a
//! child. All is denied that nothing allows, and each refusal names the field that would allow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A service account of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Its namespace on the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// Whether `NAMESPACE/NAME`, `NAMESPACE/*` or `*` stands for this account.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        pattern == "*"
            || pattern.split_once('/').is_some_and(|(namespace, name)| {
                namespace == self.namespace && (name == "*" || name == self.name)
            })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An entry of `spec.access` of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// A namespace of the hub; `*` is all of them.
    pub namespace: String,
    /// Service accounts of the cluster, as [`Account::matches`] reads them, beside those of the namespace of the same name.
    pub service_accounts: Vec<String>,
    /// Whether it may do without an account, with the rights of the agent; any account is less.
    pub agent_rights: bool,
}

/// Who may use a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterAccess {
    /// `spec.access` says.
    Granted(Vec<Grant>),
    /// There is no `spec.access`: these namespaces have all rights, and no other has any. They are the one that onboarded the
    /// cluster, and those that deployed there before there was `spec.access`.
    Onboarded(BTreeSet<String>),
}

/// Whether what lies in `namespace` of the hub may deploy to a cluster as `account`, or, without one, with the agent's rights.
///
/// # Errors
/// What is denied and which field would allow it, for a condition.
pub fn may_deploy(
    namespace: &str,
    cluster: &str,
    access: &ClusterAccess,
    account: Option<&Account>,
) -> Result<(), String> {
    let grants: Vec<&Grant> = match access {
        ClusterAccess::Onboarded(namespaces) if namespaces.contains(namespace) => return Ok(()),
        ClusterAccess::Onboarded(_) => Vec::new(),
        ClusterAccess::Granted(grants) => {
            let is_meant = |grant: &&Grant| grant.namespace == "*" || grant.namespace == namespace;
            grants.iter().filter(is_meant).collect()
        }
    };
    if grants.is_empty() {
        let entry = match account {
            Some(account) => format!("{{namespace: {namespace}, serviceAccounts: [{account}]}}"),
            None => format!(
                "{{namespace: {namespace}, agentRights: true}}, or leave agentRights out and set spec.serviceAccountName"
            ),
        };
        return Err(format!(
            "namespace '{namespace}' may not deploy to cluster '{cluster}': add it to spec.access of Cluster {cluster} as {entry}"
        ));
    }
    if grants.iter().any(|grant| grant.agent_rights) {
        return Ok(());
    }
    let Some(account) = account else {
        return Err(format!(
            "namespace '{namespace}' may deploy to cluster '{cluster}' as a service account only, and none is named: set \
             spec.serviceAccountName, or agentRights of the namespace's entry in spec.access of Cluster {cluster}"
        ));
    };
    let named = |grant: &&Grant| grant.service_accounts.iter().any(|pattern| account.matches(pattern));
    // Where all of the hub's namespaces are meant, no namespace of the cluster is anybody's by its name.
    let own = |grant: &&Grant| {
        grant.service_accounts.is_empty() && grant.namespace == namespace && account.namespace == namespace
    };
    if grants.iter().any(|grant| named(grant) || own(grant)) {
        return Ok(());
    }
    Err(format!(
        "namespace '{namespace}' may not act as service account '{account}' on cluster '{cluster}': add '{account}' to \
         serviceAccounts of the namespace's entry in spec.access of Cluster {cluster}"
    ))
}

/// `spec.delegation` of a Kustomization: what it passes on to its children beyond its own cluster and account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delegation {
    /// Clusters; `*` is all.
    pub clusters: Vec<String>,
    /// Service accounts, as [`Account::matches`] reads them.
    pub service_accounts: Vec<String>,
    /// Where children lie on the hub, by the namespace that Git names.
    pub namespaces: BTreeMap<String, String>,
    /// Secrets and ConfigMaps of the hub.
    pub secrets: Vec<String>,
}

/// A Kustomization with what its spec asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its namespace and name on the hub.
    pub name: (String, String),
    /// The cluster that its spec chooses; none where it names none.
    pub cluster: Option<String>,
    /// The account that its spec names.
    pub account: Option<Account>,
    /// Its `spec.delegation`.
    pub delegation: Option<Delegation>,
}

/// What a Kustomization may do, and so what its children may: at most this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Its namespace and name on the hub.
    pub name: (String, String),
    /// The Kustomization that no other made, from which the rights come.
    pub root: (String, String),
    /// Its cluster.
    pub cluster: Option<String>,
    /// As whom it acts there; none is the agent itself.
    pub account: Option<Account>,
    delegation: Delegation,
}

impl Rights {
    /// Those of a Kustomization that no other made.
    #[must_use]
    pub fn of_root(asked: Asked) -> Self {
        Self {
            root: asked.name.clone(),
            name: asked.name,
            cluster: asked.cluster,
            account: asked.account,
            delegation: asked.delegation.unwrap_or_default(),
        }
    }

    /// The namespace of the hub where a child lies that Git puts into `git_namespace`.
    #[must_use]
    pub fn place(&self, git_namespace: &str) -> &str {
        self.delegation.namespaces.get(git_namespace).unwrap_or(&self.root.0)
    }

    /// Whether Git's namespace has a place of its own on the hub.
    #[must_use]
    pub fn maps(&self, git_namespace: &str) -> bool {
        self.delegation.namespaces.contains_key(git_namespace)
    }

    /// Whether what comes from the root may lie in this namespace of the hub.
    #[must_use]
    pub fn reaches(&self, namespace: &str) -> bool {
        self.root.0 == namespace || self.delegation.namespaces.values().any(|place| place == namespace)
    }

    /// Whether children may use this Secret, or ConfigMap, of the hub's namespace for what stays inside; `named` are those that
    /// the Kustomization uses itself.
    #[must_use]
    pub fn may_use_secret(&self, secret: &str, named: &[&str]) -> bool {
        self.account.is_none()
            || named.contains(&secret)
            || self.delegation.secrets.iter().any(|passed| passed == "*" || passed == secret)
    }

    /// The rights of a child that asks for this.
    ///
    /// # Errors
    /// What of it is more than this Kustomization may pass on, and the field that would allow it.
    pub fn of_child(&self, asked: Asked) -> Result<Self, String> {
        let by = format!("Kustomization {}/{}", self.name.0, self.name.1);
        let root = format!("Kustomization {}/{}", self.root.0, self.root.1);
        if let Some(cluster) =
            asked.cluster.as_ref().filter(|cluster| Some(*cluster) != self.cluster.as_ref())
            && !listed(&self.delegation.clusters, cluster)
        {
            let own = self.cluster.as_deref().unwrap_or("none");
            return Err(format!(
                "cluster '{cluster}' is not the cluster of {by} ('{own}'), which made it: add it to \
                 spec.delegation.clusters of {root}"
            ));
        }
        if let (Some(account), Some(own)) = (&asked.account, &self.account)
            && account != own
            && !self.delegation.service_accounts.iter().any(|pattern| account.matches(pattern))
        {
            return Err(format!(
                "service account '{account}' is not the one of {by} ('{own}'), which made it: add it to \
                 spec.delegation.serviceAccounts of {root}"
            ));
        }
        let delegation = match asked.delegation {
            None => self.delegation.clone(),
            Some(delegation) => {
                self.check_delegation(&delegation, &root)?;
                // Where children lie is the root's to say.
                Delegation { namespaces: self.delegation.namespaces.clone(), ..delegation }
            }
        };
        Ok(Self {
            name: asked.name,
            root: self.root.clone(),
            cluster: asked.cluster.or_else(|| self.cluster.clone()),
            account: asked.account.or_else(|| self.account.clone()),
            delegation,
        })
    }

    /// A child passes on no more than it was given.
    fn check_delegation(&self, child: &Delegation, root: &str) -> Result<(), String> {
        let own = &self.delegation;
        let excess = |field: &str, what: &str| {
            Err(format!(
                "spec.delegation.{field} has '{what}', which is not delegated to it: add it to spec.delegation.{field} of {root}"
            ))
        };
        for cluster in &child.clusters {
            if Some(cluster) != self.cluster.as_ref() && !listed(&own.clusters, cluster) {
                return excess("clusters", cluster);
            }
        }
        for account in &child.service_accounts {
            let covers = |pattern: &String| match account.split_once('/') {
                _ if pattern == "*" || pattern == account => true,
                Some((namespace, _)) => pattern.strip_suffix("/*") == Some(namespace),
                None => false,
            };
            if self.account.is_some() && !own.service_accounts.iter().any(covers) {
                return excess("serviceAccounts", account);
            }
        }
        for (from, to) in &child.namespaces {
            if own.namespaces.get(from) != Some(to) {
                return excess("namespaces", &format!("{from}: {to}"));
            }
        }
        for secret in &child.secrets {
            if self.account.is_some() && !listed(&own.secrets, secret) {
                return excess("secrets", secret);
            }
        }
        Ok(())
    }
}

fn listed(list: &[String], name: &str) -> bool {
    list.iter().any(|one| one == "*" || one == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(text: &str) -> Account {
        let (namespace, name) = text.split_once('/').unwrap();
        Account { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn asked(name: &str, cluster: &str, of: &str) -> Asked {
        Asked {
            name: ("team-a".to_owned(), name.to_owned()),
            cluster: (!cluster.is_empty()).then(|| cluster.to_owned()),
            account: (!of.is_empty()).then(|| account(of)),
            delegation: None,
        }
    }

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    fn grant(namespace: &str, accounts: &[&str], agent_rights: bool) -> Grant {
        Grant { namespace: namespace.to_owned(), service_accounts: list(accounts), agent_rights }
    }

    #[test]
    fn a_namespace_deploys_only_where_it_was_let_and_as_whom_it_was_let() {
        let onboarded = ClusterAccess::Onboarded(BTreeSet::from(["team-a".to_owned()]));
        let may = |namespace: &str, access: &ClusterAccess, of: &str| {
            let account = (!of.is_empty()).then(|| account(of));
            may_deploy(namespace, "edge", access, account.as_ref())
        };
        assert_eq!(may("team-a", &onboarded, ""), Ok(()));
        assert_eq!(may("team-a", &onboarded, "kube-system/any"), Ok(()));
        let refusal = may("team-b", &onboarded, "team-b/own").unwrap_err();
        let line =
            "add it to spec.access of Cluster edge as {namespace: team-b, serviceAccounts: [team-b/own]}";
        assert!(refusal.ends_with(line), "{refusal}");
        let nobody = ClusterAccess::Granted(Vec::new());
        let refusal = may("team-a", &nobody, "").unwrap_err();
        assert!(refusal.contains(" as {namespace: team-a, agentRights: true}, or "), "{refusal}");

        let granted = ClusterAccess::Granted(vec![
            grant("team-a", &[], false),
            grant("team-b", &["apps/*", "ci/deployer"], false),
            grant("team-c", &[], true),
        ]);
        // Without more, the accounts of the namespace that it bears: not those of any other one.
        assert_eq!(may("team-a", &granted, "team-a/deployer"), Ok(()));
        assert!(may("team-a", &granted, "kube-system/root").unwrap_err().contains("serviceAccounts"));
        assert!(may("team-a", &granted, "").unwrap_err().contains("spec.serviceAccountName"));
        for (of, is) in [("apps/x", true), ("ci/deployer", true), ("ci/other", false), ("team-b/own", false)]
        {
            assert_eq!(may("team-b", &granted, of).is_ok(), is, "{of}");
        }
        assert_eq!(may("team-c", &granted, ""), Ok(()));
        assert_eq!(may("team-c", &granted, "kube-system/root"), Ok(()));
        assert!(may("team-d", &granted, "team-d/own").is_err());
        let all = ClusterAccess::Granted(vec![grant("*", &[], false)]);
        assert!(may("kube-system", &all, "kube-system/root").is_err());
    }

    #[test]
    fn a_child_has_its_parents_cluster_and_account_and_nothing_else() {
        let parent = Rights::of_root(asked("app", "staging", "team-a/restricted"));
        let same = parent.of_child(asked("web", "staging", "team-a/restricted")).unwrap();
        let bare = parent.of_child(asked("web", "", "")).unwrap();
        assert_eq!((&same.cluster, &same.account), (&bare.cluster, &bare.account));
        assert_eq!(bare.account, Some(account("team-a/restricted")));
        assert_eq!(bare.root.1, "app");
        let other = parent.of_child(asked("web", "prod", "")).unwrap_err();
        assert!(other.contains("spec.delegation.clusters of Kustomization team-a/app"), "{other}");
        let other = parent.of_child(asked("web", "", "kube-system/root")).unwrap_err();
        assert!(other.contains("spec.delegation.serviceAccounts of Kustomization team-a/app"), "{other}");
        // Nor does a chain of them get any further.
        assert!(bare.of_child(asked("deep", "", "kube-system/root")).is_err());
        assert!(bare.of_child(asked("deep", "prod", "")).is_err());
        // A parent without an account allows any account of its cluster.
        let free = Rights::of_root(asked("app", "staging", ""));
        assert!(free.of_child(asked("web", "", "kube-system/root")).is_ok());
        let narrowed = free.of_child(asked("web", "", "apps/web")).unwrap();
        assert!(narrowed.of_child(asked("deep", "", "apps/other")).is_err());
    }

    #[test]
    fn a_childs_delegation_is_within_its_parents() {
        let delegation = Delegation {
            clusters: list(&["prod"]),
            service_accounts: list(&["apps/*"]),
            namespaces: BTreeMap::from([("apps".to_owned(), "edge-apps".to_owned())]),
            secrets: list(&["shared"]),
        };
        let root = Rights::of_root(Asked {
            delegation: Some(delegation.clone()),
            ..asked("app", "staging", "team-a/restricted")
        });
        assert_eq!((root.place("apps"), root.place("infra")), ("edge-apps", "team-a"));
        assert!(root.of_child(asked("web", "prod", "apps/web")).is_ok());
        // What is not said is inherited, and what is said narrows.
        let child = root.of_child(asked("web", "", "")).unwrap();
        assert!(child.of_child(asked("deep", "prod", "apps/web")).is_ok());
        assert_eq!(child.place("apps"), "edge-apps");
        let narrow = Delegation { service_accounts: list(&["apps/web"]), ..Delegation::default() };
        let child = root.of_child(Asked { delegation: Some(narrow), ..asked("web", "", "") }).unwrap();
        assert!(child.of_child(asked("deep", "", "apps/web")).is_ok());
        assert!(child.of_child(asked("deep", "", "apps/other")).is_err());
        assert!(child.of_child(asked("deep", "prod", "")).is_err());
        assert_eq!(child.place("apps"), "edge-apps");
        for (excess, field) in [
            (Delegation { clusters: list(&["other"]), ..Delegation::default() }, "clusters"),
            (Delegation { service_accounts: list(&["*"]), ..Delegation::default() }, "serviceAccounts"),
            (
                Delegation { service_accounts: list(&["kube-system/*"]), ..Delegation::default() },
                "serviceAccounts",
            ),
            (Delegation { secrets: list(&["*"]), ..Delegation::default() }, "secrets"),
            (
                Delegation {
                    namespaces: BTreeMap::from([("x".to_owned(), "team-b".to_owned())]),
                    ..Delegation::default()
                },
                "namespaces",
            ),
        ] {
            let why = root.of_child(Asked { delegation: Some(excess), ..asked("web", "", "") }).unwrap_err();
            assert!(why.contains(&format!("spec.delegation.{field} of Kustomization team-a/app")), "{why}");
        }
    }

    #[test]
    fn secrets_of_the_hub_are_passed_on_by_name_where_the_parent_has_an_account() {
        let root = Rights::of_root(asked("app", "staging", ""));
        assert!(root.may_use_secret("any", &[]));
        let delegation = Delegation { secrets: list(&["shared"]), ..Delegation::default() };
        let bound = Rights::of_root(Asked { delegation: Some(delegation), ..asked("app", "staging", "a/b") });
        assert!(bound.may_use_secret("shared", &[]));
        assert!(bound.may_use_secret("own", &["own"]));
        assert!(!bound.may_use_secret("other", &["own"]));
    }
}
