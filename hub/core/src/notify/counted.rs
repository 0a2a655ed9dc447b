//! Which Kustomizations an Alert counts: those whose events it would hear.

use roadstead_api::{
    AlertGroup, AlertSpec, CrossNamespaceObjectReference, EventSourceKind, KindId, LabelSelector,
};
use roadstead_hub_store::{CountedSource, LabelsByName, Stored};
use roadstead_notify::NO_ENVIRONMENT;

use crate::HubError;
use crate::identity::NAME_LABEL;
use crate::notify::Notifier;

/// The namespace or name that stands for all.
const ALL: &str = "*";
/// Clusters and namespaces whose labels are held, of some 200 bytes each.
const MOST_LABELLED: i64 = 20_000;
/// Namespaces of which it is asked at once whether an Alert may hear of them, where it may not hear of all.
const MOST_NAMESPACES: usize = 200;
/// Objects of a namespace of which that is asked, where it may not hear of all in it.
const MOST_NAMES: i64 = 200;

/// What an Alert counts.
pub(super) struct Counted {
    /// Each object that one of these chooses.
    pub(super) sources: Vec<CountedSource>,
    clusters: LabelsByName,
    label: Option<String>,
}

impl Counted {
    /// The environment of what is on a cluster.
    pub(super) fn environment(&self, cluster: Option<&str>) -> String {
        let Some(label) = &self.label else { return String::new() };
        let labels = cluster.and_then(|cluster| self.clusters.get(cluster));
        let value = labels.and_then(|labels| labels.get(label)).filter(|value| !value.is_empty());
        value.cloned().unwrap_or_else(|| NO_ENVIRONMENT.to_owned())
    }
}

/// Where an Alert may hear of the objects that a source of it means.
enum Places {
    /// Everywhere.
    All,
    /// In all of these namespaces, and of objects of these namespaces and names.
    These(Vec<String>, Vec<(String, String)>),
}

impl Notifier {
    /// What an Alert counts: what its sources choose, as far as it may hear of it.
    pub(super) async fn counted(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        group: &AlertGroup,
    ) -> Result<Counted, HubError> {
        // What a cluster's Flux tells is of no commit that a status could be made for.
        let of_kind = |source: &&CrossNamespaceObjectReference| {
            source.kind == EventSourceKind::Kustomization && source.cluster.is_none()
        };
        let sources: Vec<_> = spec.event_sources.iter().filter(of_kind).collect();
        let keys = |selectors: &mut dyn Iterator<Item = &LabelSelector>| -> Vec<String> {
            selectors.flat_map(LabelSelector::keys).map(str::to_owned).collect()
        };
        let mut of_clusters = keys(&mut sources.iter().filter_map(|source| source.cluster_selector.as_ref()));
        of_clusters.extend(group.environment_label.clone());
        let mut clusters = LabelsByName::new();
        if !of_clusters.is_empty() || sources.iter().any(|source| source.cluster_selector.is_some()) {
            clusters = self.store.all_labels(KindId::Cluster, &of_clusters, MOST_LABELLED).await?;
        }
        let mut namespaces = LabelsByName::new();
        if sources.iter().any(|source| source.namespace.as_deref() == Some(ALL)) {
            let keys = keys(&mut sources.iter().filter_map(|source| source.namespace_selector.as_ref()));
            namespaces = self.store.all_labels(KindId::Namespace, &keys, MOST_LABELLED).await?;
            for (name, labels) in &mut namespaces {
                labels.insert(NAME_LABEL.to_owned(), name.clone());
            }
        }
        let mut chosen = Vec::new();
        for source in sources {
            let on = source.cluster_selector.as_ref().map(|selector| {
                let selected = clusters.iter().filter(|(_, labels)| selector.selects(labels));
                selected.map(|(name, _)| name.clone()).collect()
            });
            let with = |name: &str, namespaces: Option<Vec<String>>| CountedSource {
                name: name.to_owned(),
                labels: source.match_labels.clone(),
                namespaces,
                clusters: on.clone(),
            };
            match self.places(alert, source, &namespaces).await? {
                Places::All => chosen.push(with(&source.name, None)),
                Places::These(namespaces, objects) => {
                    chosen.push(with(&source.name, Some(namespaces)));
                    chosen.extend(
                        objects.into_iter().map(|(namespace, name)| with(&name, Some(vec![namespace]))),
                    );
                }
            }
        }
        Ok(Counted { sources: chosen, clusters, label: group.environment_label.clone() })
    }

    /// Where an Alert may hear of the objects that a source of it means.
    async fn places(
        &self,
        alert: &Stored,
        source: &CrossNamespaceObjectReference,
        namespaces: &LabelsByName,
    ) -> Result<Places, HubError> {
        let namespace = source.namespace.as_deref().unwrap_or(&alert.namespace);
        let kind = source.kind.as_str();
        let mut asked: Vec<&str> = vec![namespace];
        let mut may_all = false;
        if namespace == ALL {
            may_all = self.may_be_told_of(alert, kind, ALL, &source.name).await?;
            if may_all && source.namespace_selector.is_none() {
                return Ok(Places::All);
            }
            let is_chosen = |labels| source.namespace_selector.as_ref().is_none_or(|one| one.selects(labels));
            asked = namespaces
                .iter()
                .filter(|(_, labels)| is_chosen(labels))
                .map(|(name, _)| name.as_str())
                .collect();
        }
        if may_all {
            return Ok(Places::These(asked.into_iter().map(str::to_owned).collect(), Vec::new()));
        }
        let (mut whole, mut objects, mut left) = (Vec::new(), Vec::new(), MOST_NAMESPACES);
        for namespace in asked {
            if namespace == alert.namespace {
                whole.push(namespace.to_owned());
                continue;
            }
            let Some(fewer) = left.checked_sub(1) else { continue };
            left = fewer;
            if self.may_be_told_of(alert, kind, namespace, &source.name).await? {
                whole.push(namespace.to_owned());
            } else if source.name == ALL && self.access.may_use_in(alert, namespace).await?.is_ok() {
                for name in self.store.names_in(KindId::Kustomization, namespace, MOST_NAMES).await? {
                    if self.may_be_told_of(alert, kind, namespace, &name).await? {
                        objects.push((namespace.to_owned(), name));
                    }
                }
            }
        }
        Ok(Places::These(whole, objects))
    }
}
