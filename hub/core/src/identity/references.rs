//! References to objects of other namespaces: by whose leave they are, at each reconciliation and when they are written.

use roadstead_api::{KindId, Reference, ReferenceGrantSpec};
use roadstead_hub_plan::{Leave, may_refer, refer_by_namespace};
use roadstead_hub_store::{StoreError, Stored, Tx};

use crate::HubError;
use crate::identity::Identity;
use crate::identity::access::{AccessRules, MAX_DEPTH, Standing};
use crate::identity::auth::wants_the_same;

/// Of a namespace's ReferenceGrants for one kind of another namespace so many are read, in the order of their names: some KiB each.
const MAX_GRANTS: i64 = 100;
/// The name by which a Receiver or an Alert means all objects of a kind, and the namespace by which an Alert means all namespaces.
const ALL: &str = "*";

impl AccessRules {
    /// Whether an applier may refer to this; what lies in its family's namespaces is not another namespace's.
    pub(crate) async fn may_refer_to(
        &self,
        from: &Stored,
        standing: &Standing,
        kind: KindId,
        to: (&str, &str),
    ) -> Result<Result<(), String>, HubError> {
        if let Some(said) = self.by_namespace(from, to.0) {
            return Ok(said);
        }
        if let Ok(rights) = &standing.rights
            && (standing.is_child || rights.reaches(to.0))
        {
            // A child may use what lies beside its root, as its siblings there do.
            if standing.is_child && to.0 == rights.root.0 {
                return Ok(Ok(()));
            }
            if self.root_of(kind, to.0, to.1).await?.as_ref() == Some(&rights.root) {
                return Ok(Ok(()));
            }
        }
        let root = standing.rights.as_ref().ok().filter(|_| standing.is_child).map(|rights| &rights.root);
        let leave = self.leave(from, root, kind, to).await?;
        Ok(may_refer(&from.namespace, to.0, leave))
    }

    /// Whether a Receiver, an Alert or an ArtifactGenerator may ever refer to objects of this namespace: to those of its own, to those that it
    /// has leave for, and, where a Kustomization made it, to those that its family lies in ([`Self::may_use`] says which).
    pub(crate) async fn may_use_in(
        &self,
        from: &Stored,
        namespace: &str,
    ) -> Result<Result<(), String>, StoreError> {
        if let Some(said) = self.by_namespace(from, namespace) {
            return Ok(said);
        }
        let own = (from.kind, from.namespace.as_str(), from.name.as_str());
        if self.root_of(from.kind, &from.namespace, &from.name).await?.is_some() {
            return Ok(Ok(()));
        }
        let leave = Leave {
            written: self.store.is_namespace_granted(own, namespace).await?,
            granted: self.is_granted(from, namespace, |_| true).await?,
        };
        Ok(may_refer(&from.namespace, namespace, leave))
    }

    /// Whether a Receiver, an Alert or an ArtifactGenerator may refer to this very object.
    pub(crate) async fn may_use(
        &self,
        from: &Stored,
        object: &Stored,
    ) -> Result<Result<(), String>, StoreError> {
        self.may_use_named(from, object.kind, (&object.namespace, &object.name)).await
    }

    /// The same of an object that may or may not be there; and of what a GitRepository includes.
    pub(crate) async fn may_use_named(
        &self,
        from: &Stored,
        kind: KindId,
        to: (&str, &str),
    ) -> Result<Result<(), String>, StoreError> {
        if let Some(said) = self.by_namespace(from, to.0) {
            return Ok(said);
        }
        let root = self.root_of(from.kind, &from.namespace, &from.name).await?;
        if let Some(root) = &root {
            // What lies beside the root, or is the root's own, as for its other children.
            let is_family = root.0 == to.0 || self.root_of(kind, to.0, to.1).await?.as_ref() == Some(root);
            if is_family {
                return Ok(Ok(()));
            }
        }
        let leave = self.leave(from, root.as_ref(), kind, to).await?;
        Ok(may_refer(&from.namespace, to.0, leave))
    }

    /// Whether an Alert may be told of what a cluster's Flux tells: its writer could get the Cluster's events, or the Cluster says so.
    pub(crate) async fn may_hear_of_cluster(
        &self,
        alert: &Stored,
        cluster: &str,
    ) -> Result<Result<(), String>, StoreError> {
        let of =
            |name: &str| Reference { kind: KindId::Cluster, namespace: String::new(), name: name.to_owned() };
        let own = (alert.kind, alert.namespace.as_str(), alert.name.as_str());
        if self.store.is_reference_granted(own, &[of(cluster), of(ALL)]).await?
            || self.store.reads_events_of(&alert.namespace, cluster).await?
        {
            return Ok(Ok(()));
        }
        Ok(Err(format!(
            "may not receive events that Flux reports in cluster '{cluster}': whoever writes the Alert needs the right to get clusters/events \
             of that name, or spec.eventReaders of the Cluster must name namespace '{}'",
            alert.namespace
        )))
    }

    /// What the two namespaces alone decide; it comes before a family's rights.
    fn by_namespace(&self, from: &Stored, namespace: &str) -> Option<Result<(), String>> {
        refer_by_namespace(&from.namespace, namespace, !self.no_cross_namespace_refs)
    }

    /// By whose leave `from` refers to this: what was written with the right to it, by itself or by the `root` that it comes from,
    /// and what the other namespace grants.
    async fn leave(
        &self,
        from: &Stored,
        root: Option<&(String, String)>,
        kind: KindId,
        to: (&str, &str),
    ) -> Result<Leave, StoreError> {
        let named = |namespace: &str, name: &str| Reference {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        // An Alert's source may mean all of that name, or all.
        let references = [named(to.0, to.1), named(to.0, ALL), named(ALL, to.1), named(ALL, ALL)];
        let own = (from.kind, from.namespace.as_str(), from.name.as_str());
        let mut written = self.store.is_reference_granted(own, &references).await?;
        if let Some((namespace, name)) = root
            && !written
        {
            for root in KindId::of_role(roadstead_api::PipelineRole::Applier) {
                written |= self.store.is_reference_granted((root, namespace, name), &references).await?;
            }
        }
        let names = |grant: &ReferenceGrantSpec| grant.allows((from.kind, &from.namespace), (kind, to.1));
        let granted = !written && self.is_granted(from, to.0, names).await?;
        Ok(Leave { written, granted })
    }

    /// Whether one of a namespace's ReferenceGrants that are for `from` is such.
    async fn is_granted(
        &self,
        from: &Stored,
        namespace: &str,
        is_such: impl Fn(&ReferenceGrantSpec) -> bool,
    ) -> Result<bool, StoreError> {
        let specs = self.store.reference_grants((from.kind, &from.namespace), namespace, MAX_GRANTS).await?;
        // One that is stored otherwise grants nothing.
        let specs = specs.into_iter().filter_map(|spec| serde_json::from_value(spec).ok());
        Ok(specs.into_iter().any(|spec| is_such(&spec)))
    }

    /// The namespace and the name of the Kustomization from which all that is above an object comes.
    async fn root_of(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(String, String)>, StoreError> {
        let descent = self.store.descent(kind, namespace, name, MAX_DEPTH + 1).await?;
        let root = descent.and_then(|descent| descent.ancestors.into_iter().next_back());
        Ok(root.map(|root| (root.namespace, root.name)))
    }
}

/// Notes with an object, which is stored already, which of its references to other namespaces its writer may have: those to what the
/// writer may get. What was noted before stays for dependencies, and where nothing of the references changes. A Secret is referred to by
/// a ReferenceGrant only, and what a build holds by what its root may.
///
/// # Errors
/// [`HubError::Forbidden`] where a noted reference would be lost: the writer may not get what it names.
pub(crate) async fn note(
    tx: &mut Tx,
    who: &Identity,
    before: Option<&Stored>,
    after: &Stored,
) -> Result<(), HubError> {
    let across = |stored: &Stored| stored.kind.references_across(&stored.object, &stored.namespace);
    let (had, wanted) = (before.map(across).unwrap_or_default(), across(after));
    if had.is_empty() && wanted.is_empty() {
        return Ok(());
    }
    // Somebody else's label or status gives no leave, and takes none; nor does it to suspend and to resume.
    if had == wanted && before.is_some_and(|before| wants_the_same(before, after, Some("suspend"))) {
        return Ok(());
    }
    let noted = if before.is_some() { tx.granted_references(after.uid).await? } else { Vec::new() };
    let mut leave = Vec::with_capacity(wanted.len());
    for reference in wanted {
        let is_noted = noted.contains(&reference);
        if may_get(who, &reference) || is_noted && (who.is_applier() || reference.kind.is_applier()) {
            leave.push(reference);
        } else if is_noted {
            let Reference { kind, namespace, name } = &reference;
            let what = match kind {
                KindId::Cluster => format!("the events of Cluster {name}"),
                _ => format!("{kind} {namespace}/{name}"),
            };
            return Err(HubError::Forbidden(format!(
                "{} is forbidden: it refers to {what}, which {:?} may not get: who changes it needs that right, \
                 or has to take the reference out",
                crate::address::named(after.kind.get(), &after.name),
                who.username,
            )));
        }
    }
    if leave.len() == noted.len() && leave.iter().all(|one| noted.contains(one)) {
        return Ok(());
    }
    Ok(tx.grant_references(after.uid, &leave).await?)
}

fn may_get(who: &Identity, reference: &Reference) -> bool {
    let Reference { kind, namespace, name } = reference;
    if who.is_applier() || *kind == KindId::Secret {
        return false;
    }
    // An Alert refers to what the Flux of a Cluster tells.
    if *kind == KindId::Cluster {
        let (verb, name) = if name == ALL { ("list", "") } else { ("get", name.as_str()) };
        return who.authorize(verb, kind.get(), "events", "", name).is_ok();
    }
    // In all namespaces: whoever has that right in each of them by itself, and not in those that are to come, has it not.
    let namespace = if namespace == ALL { "" } else { namespace.as_str() };
    match name.as_str() {
        ALL => who.authorize("list", kind.get(), "", namespace, "").is_ok(),
        name => who.authorize("get", kind.get(), "", namespace, name).is_ok(),
    }
}
