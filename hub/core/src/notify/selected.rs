//! Labels of namespaces and clusters, by which sources of an Alert select: as they are when its news is sorted.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_api::{AlertSpec, KindId, LabelSelector};
use roadstead_hub_store::{LabelsByName, Tx};
use roadstead_notify::Labels;

use crate::HubError;
use crate::identity::NAME_LABEL;

/// The labels that an Alert asks for, of what its news is about.
#[derive(Default)]
pub(super) struct Selected {
    namespaces: LabelsByName,
    clusters: LabelsByName,
}

impl Selected {
    /// Of news that is `about` these namespaces, and clusters where there are any. What an Alert does not ask for is not read.
    pub(super) async fn read<'a>(
        tx: &mut Tx,
        spec: &AlertSpec,
        about: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<Self, HubError> {
        let (namespaces, clusters): (BTreeSet<_>, BTreeSet<_>) = about.unzip();
        let mut selected = Self::default();
        let by_namespace = asked(spec.event_sources.iter().map(|source| &source.namespace_selector));
        if let Some(keys) = by_namespace {
            let names = namespaces.into_iter().map(str::to_owned).collect();
            selected.namespaces = tx.labels_of(KindId::Namespace, &names, &keys).await?;
            for (name, labels) in &mut selected.namespaces {
                // As in Kubernetes, whether it is written there or not.
                labels.insert(NAME_LABEL.to_owned(), name.clone());
            }
        }
        let by_cluster = asked(spec.event_sources.iter().map(|source| &source.cluster_selector));
        if let Some(keys) = by_cluster {
            let names = clusters.into_iter().flatten().map(str::to_owned).collect();
            selected.clusters = tx.labels_of(KindId::Cluster, &names, &keys).await?;
        }
        Ok(selected)
    }

    /// With those of the object that news is of.
    pub(super) fn labels<'a>(
        &'a self,
        object: &'a BTreeMap<String, String>,
        namespace: &str,
        cluster: Option<&str>,
    ) -> Labels<'a> {
        Labels {
            object,
            namespace: self.namespaces.get(namespace),
            cluster: cluster.and_then(|cluster| self.clusters.get(cluster)),
        }
    }
}

/// The labels that selectors ask for, each once; none where there is no selector.
fn asked<'a>(selectors: impl Iterator<Item = &'a Option<LabelSelector>>) -> Option<Vec<String>> {
    let mut selectors = selectors.flatten().peekable();
    selectors.peek()?;
    let keys: BTreeSet<&str> = selectors.flat_map(LabelSelector::keys).collect();
    Some(keys.into_iter().map(str::to_owned).collect())
}
