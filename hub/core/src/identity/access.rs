//! As whom a Kustomization acts: where its rights come from, which cluster and account it may have by them, and which
//! credentials its sources may send where. What it may refer to is in [`super::references`]. The rules themselves are pure, in
//! `hub/plan`; here is what they are asked about.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_api::kustomization::{KubeConfig, SecretKeyReference};
use roadstead_api::{AnyApplier, ApplierSpec, Cluster, ClusterAccessGrant, KindId};
use roadstead_hub_plan::{Account, Asked, ClusterAccess, Delegation, Denial, Grant, Rights, may_deploy};
use roadstead_hub_store::{Descent, Store, StoreError, Stored};
use roadstead_model::Reason;
use serde::Deserialize as _;
use serde_json::Value;

use crate::HubError;
use crate::context::Context;

/// How deep Kustomizations may be nested.
pub(crate) const MAX_DEPTH: usize = 16;

/// Names the Kustomization that may take over an object which no Kustomization made. Set by people.
pub(crate) const ADOPTED_BY: &str = "fleet.roadstead.dev/adopted-by";
/// The namespace that Git names, of an object that lies in another one on the hub. Of a Kustomization that a person made: the
/// namespace of the cluster in which it looks its service account up.
pub(crate) const GIT_NAMESPACE: &str = "fleet.roadstead.dev/git-namespace";
/// Of a Secret: the hosts to which sources that Git made may send it.
pub(crate) const ALLOWED_HOSTS: &str = "fleet.roadstead.dev/allowed-hosts";
/// A namespace's label that is its name, whatever is stored.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Whence a Kustomization has its rights.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// The namespace of the cluster that it bears: its account is looked up there.
    pub(crate) home: String,
    /// The namespace of the cluster for objects that name none; none is the cluster's `default`.
    pub(crate) default_namespace: Option<String>,
    /// Another Kustomization made it.
    pub(crate) is_child: bool,
    /// How many Kustomizations are above it.
    pub(crate) depth: usize,
    /// What it may, or what it asks for beyond that.
    pub(crate) rights: Result<Rights, String>,
    asked: Option<Account>,
    /// The account to act as if neither it nor the Kustomization that made it names one. Set by the operator.
    default: Option<Account>,
}

impl Standing {
    /// As whom it acts; none is the agent itself.
    pub(crate) fn account(&self) -> Option<&Account> {
        match &self.rights {
            Ok(rights) => rights.account.as_ref(),
            // It applies nothing, and deletes what it owns as whoever it named.
            Err(_) => self.asked.as_ref(),
        }
        .or(self.default.as_ref())
    }

    /// `namespace/name` of the account; empty for none.
    pub(crate) fn account_text(&self) -> String {
        self.account().map(ToString::to_string).unwrap_or_default()
    }
}

/// By which rights a Kustomization acts, and a source sends credentials.
pub struct AccessRules {
    pub(super) store: Store,
    /// Whether references across namespaces are off altogether, dependencies included.
    pub(super) no_cross_namespace_refs: bool,
    /// The default service account.
    default_service_account: Option<String>,
}

impl AccessRules {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            no_cross_namespace_refs: context.options.no_cross_namespace_refs,
            default_service_account: context.options.default_service_account.clone(),
        }
    }

    /// Whence a Kustomization has its rights; `cluster` is the one that its spec chooses.
    pub(crate) async fn standing(
        &self,
        stored: &Stored,
        spec: &ApplierSpec,
        cluster: Option<&Stored>,
    ) -> Result<Standing, HubError> {
        let descent = self.store.descent(stored.kind, &stored.namespace, &stored.name, MAX_DEPTH + 1).await?;
        let home = home(stored, descent.as_ref());
        let named = spec.impersonated(&home).map(account);
        let asked = Asked {
            name: (stored.namespace.clone(), stored.name.clone()),
            cluster: cluster.map(|cluster| cluster.name.clone()),
            account: named
                .clone()
                .or_else(|| descent.as_ref().and_then(|descent| parse_account(&descent.account))),
            delegation: spec.delegation.as_ref().map(delegation),
        };
        let depth = descent.as_ref().map_or(0, |descent| descent.ancestors.len());
        let remembered = asked.account.clone();
        let rights = match &descent {
            // What a Kustomization that is gone left behind goes on as it was.
            None => Ok(Rights::of_root(asked)),
            Some(descent) if descent.is_alone() => Ok(Rights::of_root(asked)),
            Some(_) if depth > MAX_DEPTH => Err(too_deep()),
            Some(descent) => match self.rights_above(descent).await? {
                Ok(above) => above.of_child(Asked { account: named, ..asked }),
                Err(why) => Err(why),
            },
        };
        let bears_one = home != stored.namespace
            || descent.as_ref().is_some_and(|descent| !descent.git_namespace.is_empty());
        Ok(Standing {
            default: self.default_account(&home, cluster)?,
            default_namespace: bears_one.then(|| home.clone()),
            home,
            is_child: descent.is_some(),
            depth,
            rights,
            asked: remembered,
        })
    }

    /// The default account on this cluster: the cluster's own, or the hub's.
    fn default_account(&self, home: &str, cluster: Option<&Stored>) -> Result<Option<Account>, StoreError> {
        let of_cluster = match cluster {
            Some(cluster) => cluster.decode::<Cluster>()?.spec.default_service_account,
            None => None,
        };
        let named = of_cluster.as_ref().or(self.default_service_account.as_ref());
        Ok(named.map(|named| {
            let (namespace, name) = named.split_once('/').unwrap_or((home, named));
            Account { namespace: namespace.to_owned(), name: name.to_owned() }
        }))
    }

    /// The rights of the parent.
    async fn rights_above(&self, descent: &Descent) -> Result<Result<Rights, String>, HubError> {
        let mut rights: Option<Rights> = None;
        for ancestor in descent.ancestors.iter().rev() {
            let home =
                if ancestor.git_namespace.is_empty() { &ancestor.namespace } else { &ancestor.git_namespace };
            let spec: Partial = serde_json::from_value(ancestor.spec.clone()).map_err(|error| {
                HubError::Internal(format!("Kustomization {}/{}: {error}", ancestor.namespace, ancestor.name))
            })?;
            let cluster = match ancestor.spec.pointer("/clusterRef/name").and_then(Value::as_str) {
                Some(name) => Some(name.to_owned()),
                None => self.cluster_by_config(&ancestor.namespace, &ancestor.spec["kubeConfig"]).await?,
            };
            let mut asked = Asked {
                name: (ancestor.namespace.clone(), ancestor.name.clone()),
                cluster,
                account: spec.account(home),
                delegation: spec.delegation.as_ref().map(delegation),
            };
            rights = Some(match rights {
                Some(above) => match above.of_child(asked) {
                    Ok(rights) => rights,
                    Err(why) => {
                        let (namespace, name) = (&ancestor.namespace, &ancestor.name);
                        return Ok(Err(format!(
                            "Kustomization {namespace}/{name}, which created it, is itself refused: {why}"
                        )));
                    }
                },
                None => {
                    asked.account = asked.account.or_else(|| parse_account(&ancestor.account));
                    Rights::of_root(asked)
                }
            });
        }
        Ok(rights.ok_or_else(|| "the Kustomization that created it no longer exists".to_owned()))
    }

    /// The name of the cluster that a `spec.kubeConfig` of this namespace chooses; none where it chooses none.
    pub(crate) async fn cluster_by_config(
        &self,
        namespace: &str,
        config: &Value,
    ) -> Result<Option<String>, HubError> {
        let Ok(config) = KubeConfig::deserialize(config) else { return Ok(None) };
        Ok(self.chosen_cluster(namespace, &config).await?.ok().map(|cluster| cluster.name))
    }

    /// The cluster that a `spec.kubeConfig` of this namespace chooses; or why it chooses none, for a condition.
    pub(crate) async fn chosen_cluster(
        &self,
        namespace: &str,
        config: &KubeConfig,
    ) -> Result<Result<Stored, String>, StoreError> {
        if let Some(secret) = &config.secret_ref {
            return self.cluster_by_secret(namespace, secret).await;
        }
        let Some(reference) = &config.config_map_ref else {
            return Ok(Err("spec.kubeConfig names neither a Secret nor a ConfigMap".to_owned()));
        };
        let shown = format!("ConfigMap {namespace}/{} of spec.kubeConfig.configMapRef", reference.name);
        let Some(found) = self.store.get(KindId::ConfigMap, namespace, &reference.name).await? else {
            return Ok(Err(format!("{shown} not found")));
        };
        self.cluster_by_map(&shown, &found.object["data"]).await
    }

    /// The cluster that was onboarded by this key of a Secret. Who names no key means the usual one, and where there is no Cluster of that,
    /// any other of the Secret's.
    async fn cluster_by_secret(
        &self,
        namespace: &str,
        secret: &SecretKeyReference,
    ) -> Result<Result<Stored, String>, StoreError> {
        let (shown, key) = (format!("Secret {namespace}/{}", secret.name), secret.key.as_deref());
        let mut other = None;
        for uid in self.store.clusters_of_secret(namespace, &secret.name).await? {
            let Some(found) = self.store.get_by_uid(uid).await? else { continue };
            let config = found.decode::<Cluster>()?.spec.kube_config;
            if config.is_some_and(|config| config.is_of_key(key)) {
                return Ok(Ok(found));
            }
            other = other.or(Some(found));
        }
        Ok(match (other, key) {
            (Some(other), None) => Ok(other),
            (Some(other), Some(key)) => Err(format!(
                "spec.kubeConfig.secretRef names key '{key}' of {shown}, and Cluster '{}' was onboarded by another key of it: create a \
                 Cluster whose spec.kubeConfig names this Secret and this key",
                other.name
            )),
            (None, _) => Err(format!(
                "no cluster was onboarded by {shown}, which spec.kubeConfig.secretRef names: see the Secret's events, and kubectl get \
                 clusters"
            )),
        })
    }

    /// The onboarded cluster that a ConfigMap names: by the address of its apiserver, else by the last part of its name in the cloud
    /// (`arn:…:cluster/edge-1` is Cluster `edge-1`). No cloud API is called.
    async fn cluster_by_map(&self, shown: &str, data: &Value) -> Result<Result<Stored, String>, StoreError> {
        let text = |key: &str| data[key].as_str().map(str::trim).filter(|text| !text.is_empty());
        let (address, cluster) = (text("address"), text("cluster"));
        if let Some(address) = address {
            let at = self.store.clusters_at(address.trim_end_matches('/')).await?;
            match at.as_slice() {
                [] => {}
                [only] => {
                    let found = self.store.get_by_uid(*only).await?;
                    return Ok(found.ok_or_else(|| format!("{shown} names a cluster that was just deleted")));
                }
                _ if cluster.is_none() => {
                    return Ok(Err(format!(
                        "{shown} names address '{address}', which several Clusters have: add the entry 'cluster'"
                    )));
                }
                _ => {}
            }
        }
        let name = cluster.and_then(|cluster| cluster.rsplit(['/', ':']).next());
        let Some(name) = name else {
            let why = match address {
                Some(address) => format!("address '{address}', which no onboarded Cluster has"),
                None => "neither 'cluster' nor 'address'".to_owned(),
            };
            return Ok(Err(format!("{shown} has {why}: see kubectl get clusters")));
        };
        let found = self.store.get(KindId::Cluster, "", name).await?;
        Ok(found.ok_or_else(|| {
            format!(
                "{shown} names a cluster that is not onboarded as Cluster '{name}': see kubectl get clusters"
            )
        }))
    }

    /// Who may use a Cluster, as far as it concerns a namespace of the hub.
    async fn cluster_access(&self, cluster: &Stored, namespace: &str) -> Result<ClusterAccess, StoreError> {
        let spec = cluster.decode::<Cluster>()?.spec;
        if let Some(grants) = spec.access {
            let labels = match grants.iter().any(|grant| grant.namespace_selector.is_some()) {
                true => self.labels_of(namespace).await?,
                false => None,
            };
            let meant = |grant: &ClusterAccessGrant| match (&grant.namespace, &grant.namespace_selector) {
                (Some(name), _) => Some(name.clone()),
                (None, Some(selector)) if selector.selects_all() => Some("*".to_owned()),
                (None, Some(selector)) => labels
                    .as_ref()
                    .is_some_and(|labels| selector.selects(labels))
                    .then(|| namespace.to_owned()),
                (None, None) => None,
            };
            let grants = grants.into_iter().filter_map(|grant| {
                Some(Grant {
                    namespace: meant(&grant)?,
                    service_accounts: grant.service_accounts,
                    agent_rights: grant.agent_rights,
                })
            });
            return Ok(ClusterAccess::Granted(grants.collect()));
        }
        let mut namespaces: BTreeSet<String> =
            self.store.access_before(cluster.uid).await?.into_iter().collect();
        namespaces.extend(spec.kube_config.map(|config| config.secret_ref.namespace));
        Ok(ClusterAccess::Onboarded(namespaces))
    }

    /// The labels of a namespace of the hub, and the one that every namespace has in Kubernetes; none where there is no such namespace.
    async fn labels_of(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        let found = self.store.get(KindId::Namespace, "", namespace).await?;
        Ok(found.map(|found| {
            let mut labels = found.labels();
            labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
            labels
        }))
    }

    /// What of its target a Kustomization may not have.
    pub(crate) async fn denials_of(
        &self,
        standing: &Standing,
        cluster: Option<&Stored>,
    ) -> Result<Vec<Denial>, StoreError> {
        let denied = |message: String| Denial { reason: Reason::AccessDenied, message };
        let rights = match &standing.rights {
            Ok(rights) => rights,
            Err(why) => return Ok(vec![denied(why.clone())]),
        };
        let Some(cluster) = cluster else { return Ok(Vec::new()) };
        let access = self.cluster_access(cluster, &rights.root.0).await?;
        let may = may_deploy(&rights.root.0, &cluster.name, &access, standing.account());
        Ok(may.err().map(denied).into_iter().collect())
    }

    /// Whether a Kustomization made an object, or took it over from a person.
    pub(crate) async fn is_written_by_git(&self, stored: &Stored) -> Result<bool, StoreError> {
        Ok(self.store.descent(stored.kind, &stored.namespace, &stored.name, 1).await?.is_some())
    }

    /// Whether a Kustomization made an object, so that no person put anything into it.
    async fn is_made_by_git(&self, stored: &Stored) -> Result<bool, StoreError> {
        let descent = self.store.descent(stored.kind, &stored.namespace, &stored.name, 1).await?;
        Ok(descent.is_some_and(|descent| !descent.adopted))
    }

    /// Whether a source may send a Secret's credentials to its URL. One that Git made sends only what Git itself holds, what a
    /// person used for that server, or what the Secret's annotation names it for.
    pub(crate) async fn may_send(
        &self,
        source: &Stored,
        secret: &Stored,
        url: &str,
    ) -> Result<Result<(), String>, HubError> {
        let by_git = self.is_written_by_git(source).await?;
        self.may_send_if(by_git, source, secret, url).await
    }

    /// The same of a source of which it is known whether a Kustomization made it, or took it over from a person: of one that is no more, nothing else says so.
    pub(crate) async fn may_send_if(
        &self,
        by_git: bool,
        source: &Stored,
        secret: &Stored,
        url: &str,
    ) -> Result<Result<(), String>, HubError> {
        if !by_git || self.is_made_by_git(secret).await? {
            return Ok(Ok(()));
        }
        let origin = origin(url);
        let listed = secret.object["metadata"]["annotations"][ALLOWED_HOSTS].as_str().unwrap_or_default();
        let allows = |entry: &str| {
            entry == "*"
                || entry == origin
                || (!origin.starts_with("http://") && origin.ends_with(&format!("://{entry}")))
        };
        if listed.split([',', ' ']).filter(|entry| !entry.is_empty()).any(allows) {
            return Ok(Ok(()));
        }
        let used = match secret.kind {
            KindId::Secret => self.store.urls_of_secret(&source.namespace, &secret.name).await?,
            _ => Vec::new(),
        };
        if used.iter().any(|url| self::origin(url) == origin) {
            return Ok(Ok(()));
        }
        let what = secret.kind.get().kind;
        let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
        Ok(Err(format!(
            "a Kustomization wrote this {}, and {what} '{}/{}' was not used for {origin} before: to allow it to be \
             sent there, annotate the {what}: {ALLOWED_HOSTS}={host}",
            if source.kind.is_source() { "source" } else { source.kind.get().kind },
            source.namespace,
            secret.name
        )))
    }
}

/// The parts of a spec that say as whom it acts.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Partial {
    service_account: Option<roadstead_api::kustomization::ServiceAccount>,
    service_account_name: Option<String>,
    delegation: Option<roadstead_api::Delegation>,
}

impl Partial {
    fn account(&self, home: &str) -> Option<Account> {
        let own = home.to_owned();
        match (&self.service_account, &self.service_account_name) {
            (Some(named), _) => {
                Some(Account { namespace: named.namespace.clone().unwrap_or(own), name: named.name.clone() })
            }
            (None, Some(name)) => Some(Account { namespace: own, name: name.clone() }),
            (None, None) => None,
        }
    }
}

pub(crate) fn too_deep() -> String {
    format!("it is nested more than {MAX_DEPTH} Kustomizations deep")
}

/// The namespace of the cluster that a Kustomization bears.
fn home(stored: &Stored, descent: Option<&Descent>) -> String {
    let annotated = stored.object["metadata"]["annotations"][GIT_NAMESPACE].as_str();
    let git = match descent {
        // Of what a person has taken back the annotation is the person's again.
        Some(descent) if !(descent.adopted && descent.is_alone()) => Some(descent.git_namespace.as_str()),
        _ => annotated,
    };
    git.filter(|name| roadstead_api::rules::is_dns_label(name)).unwrap_or(&stored.namespace).to_owned()
}

/// What a Kustomization of a build asks for, as it would be stored.
pub(crate) fn asked(stored: &Stored, home: &str, cluster: Option<String>) -> Result<Asked, StoreError> {
    let spec = stored.decode::<AnyApplier>()?.spec;
    Ok(Asked {
        name: (stored.namespace.clone(), stored.name.clone()),
        account: spec.impersonated(home).map(account),
        cluster: spec.cluster_ref.map(|cluster| cluster.name).or(cluster),
        delegation: spec.delegation.as_ref().map(delegation),
    })
}

fn account((namespace, name): (&str, &str)) -> Account {
    Account { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn parse_account(text: &str) -> Option<Account> {
    text.split_once('/').map(account)
}

fn delegation(delegation: &roadstead_api::Delegation) -> Delegation {
    Delegation {
        clusters: delegation.clusters.clone(),
        service_accounts: delegation.service_accounts.clone(),
        namespaces: delegation.namespaces.clone(),
        secrets: delegation.secrets.clone(),
    }
}

/// Scheme, host and port of a URL, in small letters and without a scheme's own port. Of a URL with user information, which is no
/// valid one here, all of it stays, so that it is like no other.
pub(crate) fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let scheme = scheme.to_ascii_lowercase();
    let authority = match scheme.as_str() {
        // The name before it is Git's, and part of no host.
        "ssh" => authority.rsplit_once('@').map_or(authority.as_str(), |(_, host)| host).to_owned(),
        _ => authority,
    };
    let port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => ":22",
    };
    format!("{scheme}://{}", authority.strip_suffix(port).unwrap_or(&authority).trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn servers_are_told_apart_by_scheme_host_and_port() {
        for (one, other, same) in [
            ("https://Git.example.com/a", "https://git.example.com:443/b?c", true),
            ("https://git.example.com/a", "https://git.example.com./b", true),
            ("https://git.example.com/a", "http://git.example.com/a", false),
            ("https://git.example.com/a", "https://git.example.com:8443/a", false),
            ("https://git.example.com/a", "https://git.example.com.evil.test/a", false),
            ("https://git.example.com/a", "https://evil.test/git.example.com", false),
            ("https://git.example.com/a", "https://git.example.com@evil.test/a", false),
            ("https://git.example.com/a", "https://evil.test\\@git.example.com/a", false),
            ("ssh://git@git.example.com/a", "ssh://other@git.example.com:22/b", true),
        ] {
            assert_eq!(origin(one) == origin(other), same, "{one} {other}");
        }
    }
}
