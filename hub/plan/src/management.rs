//! What becomes of the Clusters that a management cluster of Cluster API shows: which come on board, are followed, go.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_model::{Digest, ManagedCluster};

/// Labels of these domains say something to this hub: a management cluster does not set them.
const OWN_LABELS: &str = "fleet.roadstead.dev/";

/// Everything that a decision about one management cluster depends on.
#[derive(Debug, Clone, Default)]
pub struct ManagementSituation {
    /// Its Clusters, of those namespaces that are followed.
    pub shown: Vec<ManagedCluster>,
    /// The Clusters of this hub.
    pub present: BTreeMap<String, PresentCluster>,
    /// The namespaces that are followed; none: all.
    pub namespaces: Vec<String>,
}

/// A Cluster of this hub.
#[derive(Debug, Clone, Default)]
pub struct PresentCluster {
    /// Where it comes from; none where no management cluster has shown it.
    pub origin: Option<Origin>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// It is being deleted.
    pub deleting: bool,
    /// The kubeconfig that was used last.
    pub used: Option<Digest>,
    /// The kubeconfig that is in its Secret now.
    pub offered: Option<Digest>,
}

/// Where a Cluster of this hub comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Whose it is.
    pub owner: Owner,
    /// The ManagementCluster that it comes from, as `namespace/name`.
    pub management: String,
    /// Whether this management cluster may take Clusters over from that one.
    pub accepted: bool,
    /// Its namespace in the management cluster.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// It was paused when it was last seen.
    pub paused: bool,
    /// The keys of the labels that were carried over.
    pub labels: Vec<String>,
}

/// The management cluster that a Cluster of this hub comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The one that is planned for.
    This,
    /// Another one.
    Other,
    /// One that this hub does not look after any more.
    Gone,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagementStep {
    /// The Cluster is made, or made as it is shown.
    Apply(ManagedCluster),
    /// The Cluster is taken over from another management cluster, if its kubeconfig leads to the cluster that it is known
    /// to be.
    Move(ManagedCluster),
    /// The kubeconfig is put into the Cluster's Secret.
    Offer {
        /// Of the Cluster and of its kubeconfig's Secret in the management cluster.
        namespace: String,
        /// The Cluster.
        name: String,
    },
    /// The Cluster is deleted, by its own deletionPolicy, and its Secret.
    Retire {
        /// The Cluster.
        name: String,
        /// What happened to it.
        why: String,
    },
}

/// What is to be done for one management cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagementPlan {
    /// The steps.
    pub steps: Vec<ManagementStep>,
    /// `namespace/name` of those that have no control plane or no kubeconfig yet.
    pub waiting: Vec<String>,
    /// Those that do not come on board, or are not retired, with the reason.
    pub refused: Vec<String>,
}

/// Decides.
#[must_use]
pub fn follow(situation: &ManagementSituation) -> ManagementPlan {
    let mut plan = ManagementPlan::default();
    let mut shown: Vec<&ManagedCluster> = situation.shown.iter().collect();
    // Of two with one name, the one that is on board, or moves here, goes first, and else the first by namespace.
    shown.sort_by_key(|shown| {
        (!situation.is_of(shown), !situation.is_in_place(shown), &shown.namespace, &shown.name)
    });
    let mut names = BTreeSet::new();
    for shown in shown {
        if names.insert(shown.name.as_str()) {
            plan.one(shown, situation.present.get(&shown.name));
        } else {
            plan.refused.push(format!(
                "{}/{}: a Cluster of that name in another namespace is already onboarded",
                shown.namespace, shown.name
            ));
        }
    }
    for (name, present) in &situation.present {
        let Some(origin) = &present.origin else { continue };
        let looked_at = situation.namespaces.is_empty() || situation.namespaces.contains(&origin.namespace);
        if origin.owner != Owner::This || !looked_at || present.deleting || names.contains(name.as_str()) {
            continue;
        }
        if origin.paused {
            plan.refused.push(format!(
                "{}/{name}: it was deleted while it was paused, as happens when it is moved to another management cluster; delete Cluster '{name}' if it was not moved",
                origin.namespace
            ));
        } else {
            plan.retire(name, "it is no longer in its management cluster");
        }
    }
    plan
}

impl ManagementSituation {
    fn is_of(&self, shown: &ManagedCluster) -> bool {
        let origin = self.present.get(&shown.name).and_then(|present| present.origin.as_ref());
        origin.is_some_and(|origin| origin.owner == Owner::This && origin.namespace == shown.namespace)
    }

    fn is_in_place(&self, shown: &ManagedCluster) -> bool {
        let origin = self.present.get(&shown.name).and_then(|present| present.origin.as_ref());
        origin.is_some_and(|origin| origin.namespace == shown.namespace)
    }
}

/// The labels of a Cluster that are carried over.
pub fn carried_labels(shown: &ManagedCluster) -> impl Iterator<Item = (&String, &String)> {
    shown.labels.iter().filter(|(key, _)| !key.starts_with(OWN_LABELS))
}

impl ManagementPlan {
    fn one(&mut self, shown: &ManagedCluster, present: Option<&PresentCluster>) {
        let Some(present) = present else {
            if !shown.deleting {
                self.adopt(shown);
            }
            return;
        };
        if present.deleting {
            self.waiting.push(format!("{}/{}", shown.namespace, shown.name));
            return;
        }
        let Some(origin) = &present.origin else {
            self.refused.push(format!(
                "{}/{}: Cluster '{}' is already onboarded, and not by a management cluster; delete it to have the \
                 management cluster manage it",
                shown.namespace, shown.name, shown.name
            ));
            return;
        };
        let same = origin.uid == shown.uid && origin.namespace == shown.namespace;
        // Moved: to here, or put back from a backup.
        let moved = origin.paused && !shown.paused && !shown.deleting;
        match origin.owner {
            Owner::This if same && shown.deleting && !shown.paused => {
                self.retire(&shown.name, "it is being deleted from its management cluster");
            }
            Owner::This if same => self.keep_up(shown, present, origin),
            Owner::This if origin.namespace == shown.namespace && !moved => {
                self.retire(&shown.name, "another Cluster has taken its name in its management cluster");
            }
            Owner::This if origin.namespace == shown.namespace => self.adopt(shown),
            Owner::This | Owner::Other | Owner::Gone => {
                // Nobody is there any more to say that it is paused. Its uid alone says little: whoever runs a management
                // cluster chooses what it shows.
                let left = origin.owner == Owner::Gone && same && !shown.deleting;
                self.moves(shown, origin, moved || left);
            }
        }
    }

    /// One that is somebody else's until now. To be paused there is not enough to be had here: whoever can make Clusters in
    /// any management cluster could take it over, and delete it.
    fn moves(&mut self, shown: &ManagedCluster, origin: &Origin, moved: bool) {
        let (namespace, name, from) = (&shown.namespace, &shown.name, &origin.management);
        let refusal = if origin.namespace != *namespace {
            format!(
                "{namespace}/{name}: Cluster '{name}' comes from namespace {} of ManagementCluster {from}; a move keeps the \
                 namespace",
                origin.namespace
            )
        } else if !origin.accepted {
            format!(
                "{namespace}/{name}: Cluster '{name}' comes from ManagementCluster {from}; to let it move here, name that one \
                 in spec.acceptMovesFrom"
            )
        } else if !moved {
            format!(
                "{namespace}/{name}: Cluster '{name}' comes from ManagementCluster {from}; it moves here once it is paused \
                 there and no longer here"
            )
        } else {
            return self.take(shown, ManagementStep::Move(shown.clone()));
        };
        self.refused.push(refusal);
    }

    fn adopt(&mut self, shown: &ManagedCluster) {
        self.take(shown, ManagementStep::Apply(shown.clone()));
    }

    fn take(&mut self, shown: &ManagedCluster, step: ManagementStep) {
        if !shown.initialized || shown.kubeconfig.is_none() {
            self.waiting.push(format!("{}/{}", shown.namespace, shown.name));
            return;
        }
        self.steps.push(step);
        self.offer(shown);
    }

    fn keep_up(&mut self, shown: &ManagedCluster, present: &PresentCluster, origin: &Origin) {
        let labelled = carried_labels(shown).all(|(key, value)| present.labels.get(key) == Some(value))
            && carried_labels(shown).map(|(key, _)| key).eq(origin.labels.iter());
        if !labelled || origin.paused != shown.paused {
            self.steps.push(ManagementStep::Apply(shown.clone()));
        }
        let known = [present.used, present.offered];
        if shown.kubeconfig.is_some() && !known.contains(&shown.kubeconfig) {
            self.offer(shown);
        }
    }

    fn offer(&mut self, shown: &ManagedCluster) {
        let (namespace, name) = (shown.namespace.clone(), shown.name.clone());
        self.steps.push(ManagementStep::Offer { namespace, name });
    }

    fn retire(&mut self, name: &str, why: &str) {
        self.steps.push(ManagementStep::Retire { name: name.to_owned(), why: why.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> ManagedCluster {
        ManagedCluster {
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            uid: "1".to_owned(),
            labels: [("region", "north"), ("fleet.roadstead.dev/x", "forged")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            initialized: true,
            kubeconfig: Some(Digest::of(b"first")),
            ..ManagedCluster::default()
        }
    }

    fn origin() -> Origin {
        Origin {
            owner: Owner::This,
            management: "default/north".to_owned(),
            accepted: false,
            namespace: "fleet".to_owned(),
            uid: "1".to_owned(),
            paused: false,
            labels: vec!["region".to_owned()],
        }
    }

    fn present(origin: Option<Origin>) -> PresentCluster {
        PresentCluster {
            origin,
            labels: [("region".to_owned(), "north".to_owned()), ("mine".to_owned(), "yes".to_owned())].into(),
            used: Some(Digest::of(b"first")),
            ..PresentCluster::default()
        }
    }

    fn situation(shown: Vec<ManagedCluster>, present: Option<PresentCluster>) -> ManagementSituation {
        let present = present.map(|present| ("edge".to_owned(), present)).into_iter().collect();
        ManagementSituation { shown, present, namespaces: Vec::new() }
    }

    /// The plan as a line: what a reader wants to compare.
    fn told(shown: Vec<ManagedCluster>, present: Option<PresentCluster>) -> String {
        let plan = follow(&situation(shown, present));
        let mut words: Vec<String> = plan
            .steps
            .iter()
            .map(|step| match step {
                ManagementStep::Apply(shown) => format!("apply {}/{}", shown.namespace, shown.name),
                ManagementStep::Move(shown) => format!("move {}/{}", shown.namespace, shown.name),
                ManagementStep::Offer { name, .. } => format!("offer {name}"),
                ManagementStep::Retire { name, .. } => format!("retire {name}"),
            })
            .collect();
        words.extend(plan.waiting.iter().map(|name| format!("wait {name}")));
        words.extend(
            plan.refused.iter().map(|why| format!("refuse {}", why.split(':').next().unwrap_or(why))),
        );
        words.join(", ")
    }

    #[test]
    fn a_new_one_waits_until_it_can_be_reached() {
        let edge = shown("edge");
        assert_eq!(told(vec![edge.clone()], None), "apply fleet/edge, offer edge");
        assert_eq!(
            told(vec![ManagedCluster { initialized: false, ..edge.clone() }], None),
            "wait fleet/edge"
        );
        assert_eq!(told(vec![ManagedCluster { kubeconfig: None, ..edge.clone() }], None), "wait fleet/edge");
        assert_eq!(told(vec![ManagedCluster { deleting: true, ..edge }], None), "");
    }

    #[test]
    fn one_that_is_on_board_is_followed_and_else_left_alone() {
        let (edge, there) = (shown("edge"), present(Some(origin())));
        assert_eq!(told(vec![edge.clone()], Some(there.clone())), "");
        let rotated = ManagedCluster { kubeconfig: Some(Digest::of(b"second")), ..edge.clone() };
        assert_eq!(told(vec![rotated.clone()], Some(there.clone())), "offer edge");
        let offered = PresentCluster { offered: rotated.kubeconfig, ..there.clone() };
        assert_eq!(told(vec![rotated], Some(offered)), "", "it is being used, or was refused");
        let labelled =
            ManagedCluster { labels: [("region".to_owned(), "south".to_owned())].into(), ..edge.clone() };
        assert_eq!(told(vec![labelled], Some(there.clone())), "apply fleet/edge");
        let bare = ManagedCluster { labels: BTreeMap::new(), ..edge.clone() };
        assert_eq!(told(vec![bare], Some(there.clone())), "apply fleet/edge", "a label is gone");
        // A control plane that is away for a moment changes nothing.
        assert_eq!(told(vec![ManagedCluster { initialized: false, ..edge }], Some(there)), "");
    }

    #[test]
    fn what_is_deleted_is_retired() {
        let (edge, there) = (shown("edge"), present(Some(origin())));
        assert_eq!(told(vec![], Some(there.clone())), "retire edge");
        assert_eq!(
            told(vec![ManagedCluster { deleting: true, ..edge.clone() }], Some(there.clone())),
            "retire edge"
        );
        let again = ManagedCluster { uid: "2".to_owned(), ..edge.clone() };
        assert_eq!(told(vec![again.clone()], Some(there.clone())), "retire edge");
        let going = PresentCluster { deleting: true, ..there };
        assert_eq!(told(vec![again], Some(going.clone())), "wait fleet/edge");
        assert_eq!(told(vec![], Some(going)), "");
    }

    #[test]
    fn what_is_not_looked_at_is_not_missed() {
        let there = present(Some(origin()));
        let mut elsewhere = situation(vec![], Some(there.clone()));
        elsewhere.namespaces = vec!["other".to_owned()];
        assert_eq!(follow(&elsewhere), ManagementPlan::default());
        for owner in [Owner::Other, Owner::Gone] {
            assert_eq!(told(vec![], Some(present(Some(Origin { owner, ..origin() })))), "");
        }
        assert_eq!(told(vec![], Some(present(None))), "");
    }

    #[test]
    fn one_that_moves_is_not_retired_and_is_followed_where_it_comes_to() {
        let edge = shown("edge");
        let paused = ManagedCluster { paused: true, ..edge.clone() };
        assert_eq!(told(vec![paused.clone()], Some(present(Some(origin())))), "apply fleet/edge");
        let marked = present(Some(Origin { paused: true, ..origin() }));
        assert_eq!(told(vec![ManagedCluster { deleting: true, ..paused }], Some(marked.clone())), "");
        assert_eq!(told(vec![], Some(marked.clone())), "refuse fleet/edge");
        // Put back from a backup: another uid, in the same management cluster.
        let again = ManagedCluster { uid: "2".to_owned(), ..edge.clone() };
        assert_eq!(told(vec![again.clone()], Some(marked.clone())), "apply fleet/edge, offer edge");
        let elsewhere =
            present(Some(Origin { owner: Owner::Other, accepted: true, paused: true, ..origin() }));
        assert_eq!(told(vec![again.clone()], Some(elsewhere.clone())), "move fleet/edge, offer edge");
        assert_eq!(
            told(vec![ManagedCluster { paused: true, ..again.clone() }], Some(elsewhere)),
            "refuse fleet/edge",
            "the move is under way"
        );
        let others = present(Some(Origin { owner: Owner::Other, ..origin() }));
        assert_eq!(told(vec![again], Some(others)), "refuse fleet/edge");
    }

    #[test]
    fn one_whose_management_cluster_is_gone_is_followed_where_it_is_accepted() {
        let edge = shown("edge");
        let orphan = Origin { owner: Owner::Gone, ..origin() };
        let plan = follow(&situation(vec![edge.clone()], Some(present(Some(orphan.clone())))));
        assert_eq!(plan.steps, vec![], "whoever knows its uid takes it over");
        assert!(plan.refused[0].contains("spec.acceptMovesFrom"), "{plan:?}");
        // And then only where its kubeconfig leads to the same cluster.
        let accepted = present(Some(Origin { accepted: true, ..orphan }));
        assert_eq!(told(vec![edge.clone()], Some(accepted.clone())), "move fleet/edge, offer edge");
        let other = ManagedCluster { uid: "2".to_owned(), ..edge };
        assert_eq!(told(vec![other], Some(accepted)), "refuse fleet/edge");
    }

    #[test]
    fn a_paused_cluster_is_not_taken_over_without_permission() {
        let theirs = ManagedCluster { uid: "2".to_owned(), ..shown("edge") };
        let elsewhere = ManagedCluster { namespace: "mine".to_owned(), ..theirs.clone() };
        for owner in [Owner::Other, Owner::Gone] {
            let paused = Origin { owner, paused: true, ..origin() };
            let plan = follow(&situation(vec![theirs.clone()], Some(present(Some(paused.clone())))));
            assert_eq!(plan.steps, vec![]);
            assert!(plan.refused[0].contains("spec.acceptMovesFrom"), "{plan:?}");
            assert!(plan.refused[0].contains("ManagementCluster default/north"), "{plan:?}");
            let accepted = Origin { accepted: true, ..paused };
            assert_eq!(
                told(vec![theirs.clone()], Some(present(Some(accepted.clone())))),
                "move fleet/edge, offer edge"
            );
            // A tenant of the management cluster that is trusted, in a namespace of its own.
            assert_eq!(
                told(vec![elsewhere.clone()], Some(present(Some(accepted.clone())))),
                "refuse mine/edge"
            );
            let both = vec![ManagedCluster { namespace: "a".to_owned(), ..theirs.clone() }, theirs.clone()];
            assert_eq!(
                told(both, Some(present(Some(accepted)))),
                "move fleet/edge, offer edge, refuse a/edge"
            );
        }
        // Another namespace of the same management cluster, while the Cluster is on its way.
        let gone = Origin { paused: true, accepted: true, ..origin() };
        assert_eq!(told(vec![elsewhere], Some(present(Some(gone)))), "refuse mine/edge");
    }

    #[test]
    fn one_name_is_one_cluster() {
        let (edge, other) = (shown("edge"), ManagedCluster { namespace: "a".to_owned(), ..shown("edge") });
        let both = vec![edge.clone(), other.clone()];
        assert_eq!(told(both.clone(), None), "apply a/edge, offer edge, refuse fleet/edge");
        assert_eq!(told(both, Some(present(Some(origin())))), "refuse a/edge");
        assert_eq!(told(vec![edge], Some(present(None))), "refuse fleet/edge");
        assert_eq!(told(vec![other], Some(present(Some(origin())))), "refuse a/edge");
    }

    #[test]
    fn labels_that_mean_something_to_this_hub_are_not_carried_over() {
        let edge = shown("edge");
        let carried: Vec<_> = carried_labels(&edge).map(|(key, _)| key.clone()).collect();
        assert_eq!(carried, ["region"]);
    }
}
