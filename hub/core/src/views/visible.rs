//! What of the fleet somebody may see: a view shows the rows that the same person could list in the resource API, and the
//! statement behind it is told which these are, so that pages and counts are right.

use roadstead_api::{KindId, PipelineRole};
use roadstead_model::Visible;

use crate::HubError;
use crate::identity::{Attributes, Identity, Named, Reach, Resource};

/// Namespaces that somebody may see and not all: a statement is given no more of them.
const MOST_PLACES: usize = 1000;

/// What `who` may list of appliers: in the namespace of this name, or wherever it is empty. None where that is all.
///
/// # Errors
/// [`HubError::Forbidden`] where that is nothing.
pub(super) fn appliers(who: &Identity, namespace: &str) -> Result<Option<Visible>, HubError> {
    let kinds: Vec<KindId> = KindId::of_role(PipelineRole::Applier).collect();
    of_kinds(who, &kinds, namespace)
}

/// What `who` may list of these kinds, which are namespaced: in the namespace of this name, or wherever it is empty. None where that
/// is all.
///
/// # Errors
/// [`HubError::Forbidden`] where that is nothing.
pub(super) fn of_kinds(
    who: &Identity,
    kinds: &[KindId],
    namespace: &str,
) -> Result<Option<Visible>, HubError> {
    let mut visible = Visible::default();
    for kind in kinds {
        add(&mut visible, who, *kind, namespace)?;
    }
    if visible.kinds.len() == kinds.len() {
        return Ok(None);
    }
    if visible.kinds.is_empty() && visible.places.is_empty() {
        for kind in kinds {
            who.authorize("list", kind.get(), "", namespace, "")?;
        }
    }
    Ok(Some(visible))
}

/// What `who` may list of appliers and sources, and get of Clusters. None where that is all.
///
/// # Errors
/// [`HubError::Forbidden`] where that is nothing.
pub(super) fn everything(who: &Identity) -> Result<Option<Visible>, HubError> {
    let kinds: Vec<KindId> =
        [PipelineRole::Applier, PipelineRole::Source].into_iter().flat_map(KindId::of_role).collect();
    let clusters = clusters(who);
    let mut visible = match (of_kinds(who, &kinds, ""), &clusters) {
        (Ok(None), None) => return Ok(None),
        // Whoever sees Clusters only sees these.
        (Err(HubError::Forbidden(_)), names) if names.as_ref().is_none_or(|names| !names.is_empty()) => {
            Visible::default()
        }
        (Err(error), _) => return Err(error),
        (Ok(Some(visible)), _) => visible,
        (Ok(None), Some(_)) => {
            Visible { kinds: kinds.iter().map(ToString::to_string).collect(), ..Visible::default() }
        }
    };
    match clusters {
        None => visible.kinds.push(KindId::Cluster.to_string()),
        Some(names) => visible.clusters = names,
    }
    Ok(Some(visible))
}

/// The names of the Clusters that `who` may see: those that they may get, where they may not list all. None where that is all.
pub(super) fn clusters(who: &Identity) -> Option<Vec<String>> {
    clusters_with(who, "")
}

/// The names of the Clusters of which `who` may see what Flux's controllers report there, as above.
pub(super) fn clusters_events(who: &Identity) -> Option<Vec<String>> {
    clusters_with(who, "events")
}

fn clusters_with(who: &Identity, subresource: &str) -> Option<Vec<String>> {
    let kind = KindId::Cluster.get();
    if who.named_in("list", kind, subresource) == Named::All {
        return None;
    }
    match who.named_in("get", kind, subresource) {
        Named::All => None,
        Named::Names(names) => Some(names),
    }
}

/// Whether `who` may be told of a change of this object.
pub(super) fn may_watch(who: &Identity, kind: KindId, namespace: &str, name: &str) -> bool {
    let kind = kind.get();
    let name = if kind.namespaced() { "" } else { name };
    let (group, resource) = (kind.group(), kind.plural);
    who.may(&Attributes::Resource(Resource {
        verb: "watch",
        group,
        resource,
        subresource: "",
        namespace,
        name,
    }))
}

/// Whether `who` may watch any objects of this kind.
pub(super) fn may_watch_some(who: &Identity, kind: KindId) -> bool {
    let kind = kind.get();
    if kind.namespaced() {
        who.reach("watch", kind) != Reach::Namespaces(Vec::new())
    } else {
        who.named("watch", kind) != Named::Names(Vec::new())
    }
}

fn add(visible: &mut Visible, who: &Identity, kind: KindId, namespace: &str) -> Result<(), HubError> {
    let within = if namespace.is_empty() {
        who.reach("list", kind.get())
    } else if who.authorize("list", kind.get(), "", namespace, "").is_ok() {
        Reach::Namespaces(vec![namespace.to_owned()])
    } else {
        Reach::Namespaces(Vec::new())
    };
    match within {
        Reach::All => visible.kinds.push(kind.to_string()),
        Reach::Namespaces(names) => visible.places.extend(places(who, kind, names)?),
    }
    Ok(())
}

fn places(who: &Identity, kind: KindId, names: Vec<String>) -> Result<Vec<String>, HubError> {
    if names.len() > MOST_PLACES {
        return Err(HubError::Forbidden(format!(
            "{} is forbidden: User \"{}\" may list it in {} namespaces and not in all: a view shows {MOST_PLACES} at most; ask for one \
             namespace, or for the right to list it in all",
            kind.get().qualified(),
            who.username,
            names.len()
        )));
    }
    Ok(names.into_iter().map(|name| format!("{kind}/{name}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_given_so_many_namespaces() {
        let who = Identity::user("jane", Vec::new());
        let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
        let given = |count| places(&who, KindId::Kustomization, names(count));
        assert_eq!(given(2).unwrap(), ["Kustomization/n0", "Kustomization/n1"]);
        assert!(given(MOST_PLACES).is_ok());
        let refused = given(MOST_PLACES + 1).unwrap_err();
        assert!(
            matches!(&refused, HubError::Forbidden(why) if why.contains("in 1001 namespaces")),
            "{refused}"
        );
    }

    /// Nobody without a binding sees anything, and the masters see all, whatever is stored.
    #[test]
    fn nothing_and_all() {
        let nobody = Identity::user("nobody", vec!["system:authenticated".to_owned()]);
        assert!(matches!(appliers(&nobody, ""), Err(HubError::Forbidden(_))));
        assert!(matches!(appliers(&nobody, "apps"), Err(HubError::Forbidden(_))));
        assert!(matches!(everything(&nobody), Err(HubError::Forbidden(_))));
        assert_eq!(clusters(&nobody), Some(Vec::new()));
        let master = Identity::user("m", vec!["system:masters".to_owned()]);
        assert!(matches!(appliers(&master, ""), Ok(None)) && matches!(everything(&master), Ok(None)));
        assert_eq!(clusters(&master), None);
        assert!(may_watch_some(&master, KindId::Cluster) && !may_watch_some(&nobody, KindId::Cluster));
    }
}
