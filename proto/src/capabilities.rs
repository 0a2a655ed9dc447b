//! What an older side of the link cannot read is not sent to it.
//!
//! The hub names what it can read in its first message, and the agent what it can do in its own ([`Capabilities`]). Neither is sent
//! a field that it would drop without a word, or a value that it would refuse: an agent says it in older words, and the hub sends
//! no dispatch at all. A table in this file's tests says for each field of the protocol and each value of its enums whether it
//! needs a capability; it is compared with `link.proto`, so that nothing is added without a decision.

use roadstead_model::{Capabilities, Capability};

use crate::v1::{self, agent_message};

/// Takes out of an agent's message what a hub with these capabilities cannot read, and says it in the older words.
pub fn fit_to_hub(hub: &Capabilities, body: &mut agent_message::Body) {
    use agent_message::Body;
    match body {
        Body::Progress(progress) => fit_results(hub, &mut progress.results),
        Body::Finished(finished) => fit_results(hub, &mut finished.change_set),
        Body::UpgradeReport(report)
            if report.state() == v1::UpgradeState::Refused && !hub.has(Capability::RefusedUpgrades) =>
        {
            report.set_state(v1::UpgradeState::Failed);
        }
        _ => {}
    }
}

fn fit_results(hub: &Capabilities, results: &mut [v1::ObjectResult]) {
    if hub.has(Capability::RecreatedAndAdopted) {
        return;
    }
    for result in results {
        if matches!(result.action(), v1::Action::Recreated | v1::Action::Adopted) {
            result.set_action(v1::Action::Configured);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// What a field, or a value of an enum, needs of the side that reads it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Since {
        /// It was in the first version, or is of no consequence where it is dropped.
        First,
        /// It is sent only to a side that has this.
        With(Capability),
    }

    /// A message or an enum of the protocol.
    #[derive(Debug, Clone, Copy)]
    struct Entry {
        /// Its name in `link.proto`.
        name: &'static str,
        /// How many fields or values it has, so that one more is noticed.
        fields: usize,
        /// Those that were added after the first version, and what each needs.
        added: &'static [(&'static str, Since)],
    }

    /// Each message and enum of `link.proto`.
    const FIELDS: &[Entry] = &[
        Entry {
            name: "AgentMessage",
            fields: 21,
            added: &[
                ("relayed_events", Since::With(Capability::RelayedEvents)),
                ("agent_state", Since::With(Capability::DriftReports)),
                ("drift_report", Since::With(Capability::DriftReports)),
                ("keys_changed", Since::With(Capability::KeyChanges)),
                ("backlog", Since::With(Capability::Backlog)),
                ("api_server", Since::With(Capability::ApiServer)),
                ("correction", Since::With(Capability::Corrections)),
                ("tended", Since::With(Capability::Corrections)),
                ("health_report", Since::With(Capability::HealthAfterReady)),
            ],
        },
        Entry { name: "HubMessage", fields: 13, added: &[("rest", Since::With(Capability::Corrections))] },
        // The names of capabilities are read by those that know them.
        Entry {
            name: "Hello",
            fields: 9,
            // A hub that does not know what was seen goes by its database, as ever.
            added: &[("capabilities", Since::First), ("seen", Since::First)],
        },
        Entry { name: "Welcome", fields: 7, added: &[("capabilities", Since::First)] },
        Entry { name: "Heartbeat", fields: 0, added: &[] },
        Entry { name: "DispatchKey", fields: 5, added: &[] },
        Entry { name: "ObjectRef", fields: 5, added: &[] },
        // One group as the first version has it is told in the older fields too.
        Entry {
            name: "Dispatch",
            fields: 21,
            added: &[
                // Log lines of one that does not know it are without it.
                ("traceparent", Since::First),
                ("offline", Since::With(Capability::DriftReports)),
                ("report_drift", Since::With(Capability::DriftReports)),
                // It is set only where drift is only reported.
                ("observe", Since::With(Capability::DriftReports)),
                ("cluster_events", Since::With(Capability::ClusterEvents)),
                ("guard", Since::With(Capability::Guard)),
                // One that does not know it asks about every object anyway.
                ("full", Since::First),
                ("health", Since::With(Capability::HealthExpressions)),
                ("data_keys", Since::With(Capability::Decryption)),
                ("given", Since::With(Capability::Substitution)),
                ("groups", Since::With(Capability::Groups)),
                ("kind", Since::With(Capability::Appliers)),
                ("purpose", Since::With(Capability::Plans)),
            ],
        },
        Entry { name: "Guard", fields: 4, added: &[] },
        Entry { name: "Offline", fields: 3, added: &[] },
        Entry { name: "OfflinePolicy", fields: 3, added: &[] },
        Entry { name: "Purpose", fields: 2, added: &[] },
        Entry {
            name: "Group",
            fields: 11,
            added: &[
                ("adopt_managers", Since::With(Capability::FluxHandover)),
                ("adopt_flux", Since::With(Capability::Adoption)),
                ("sealed", Since::With(Capability::Decryption)),
                ("decrypt", Since::With(Capability::Decryption)),
                ("substitute", Since::With(Capability::Substitution)),
                ("ignore", Since::With(Capability::IgnoreRules)),
            ],
        },
        Entry { name: "HealthExpr", fields: 5, added: &[] },
        Entry { name: "IgnoreRule", fields: 2, added: &[] },
        Entry { name: "IgnoreTarget", fields: 7, added: &[] },
        Entry { name: "Decrypt", fields: 4, added: &[] },
        Entry { name: "GivenKey", fields: 2, added: &[] },
        Entry { name: "Substitute", fields: 5, added: &[] },
        Entry { name: "VariablesFrom", fields: 4, added: &[] },
        Entry { name: "VariablesKind", fields: 3, added: &[] },
        Entry { name: "GivenVariables", fields: 3, added: &[] },
        Entry { name: "FoundVariables", fields: 2, added: &[] },
        Entry {
            name: "Order",
            fields: 4,
            added: &[
                ("ORDER_AS_GIVEN", Since::With(Capability::AsGivenOrder)),
                ("ORDER_HELM", Since::With(Capability::HelmOrder)),
            ],
        },
        Entry {
            name: "Conflicts",
            fields: 3,
            added: &[("CONFLICTS_KEEP_OTHERS", Since::With(Capability::KeepOthers))],
        },
        Entry {
            name: "OnImmutable",
            fields: 4,
            added: &[("ON_IMMUTABLE_REPLACE", Since::With(Capability::Replace))],
        },
        Entry { name: "ServiceAccount", fields: 2, added: &[] },
        Entry {
            name: "Step",
            fields: 11,
            added: &[
                ("adopt_inventory", Since::With(Capability::FluxHandover)),
                ("give_back", Since::With(Capability::FluxHandover)),
                ("hook", Since::With(Capability::Hooks)),
                ("read", Since::With(Capability::Reads)),
                ("terminate", Since::With(Capability::Termination)),
                // For people, and for agents that know of needs.
                ("label", Since::First),
                ("needs", Since::First),
            ],
        },
        Entry { name: "Apply", fields: 2, added: &[("group", Since::With(Capability::Groups))] },
        Entry { name: "Prune", fields: 0, added: &[] },
        Entry { name: "Wait", fields: 3, added: &[("groups", Since::With(Capability::Groups))] },
        Entry { name: "Hook", fields: 2, added: &[] },
        Entry { name: "HookPolicy", fields: 4, added: &[] },
        Entry { name: "Read", fields: 1, added: &[] },
        Entry { name: "Delete", fields: 0, added: &[] },
        Entry { name: "Terminate", fields: 0, added: &[] },
        Entry { name: "AdoptInventory", fields: 1, added: &[] },
        Entry { name: "FluxKustomization", fields: 2, added: &[] },
        Entry { name: "GiveBack", fields: 0, added: &[] },
        Entry { name: "BuildRequest", fields: 1, added: &[] },
        Entry { name: "BuildChunk", fields: 6, added: &[] },
        Entry { name: "InventoryIntent", fields: 2, added: &[] },
        Entry { name: "InventoryAck", fields: 2, added: &[] },
        // An agent that does not know of kinds takes every owner for a Kustomization: its message is wrong in that word.
        Entry { name: "OwnedByAnother", fields: 3, added: &[("owner_kind", Since::First)] },
        Entry { name: "Stage", fields: 6, added: &[] },
        Entry {
            name: "Action",
            fields: 9,
            added: &[
                // A dispatch that observes comes from a hub that knows it.
                ("ACTION_DRIFTED", Since::With(Capability::DriftReports)),
                ("ACTION_RECREATED", Since::With(Capability::RecreatedAndAdopted)),
                ("ACTION_ADOPTED", Since::With(Capability::RecreatedAndAdopted)),
            ],
        },
        Entry { name: "Backlog", fields: 2, added: &[] },
        Entry { name: "ApiServer", fields: 1, added: &[] },
        Entry {
            name: "AgentState",
            fields: 5,
            added: &[("corrected", Since::First), ("watched", Since::First)],
        },
        Entry { name: "Unwatched", fields: 3, added: &[] },
        // A hub that does not know how many are not told shows those that are; the rest is in the agent's log.
        Entry { name: "Correction", fields: 5, added: &[("forgotten", Since::First)] },
        // A hub that does not know the values is told the fields.
        Entry { name: "CorrectedObject", fields: 5, added: &[("drift", Since::First)] },
        Entry { name: "FieldDrift", fields: 4, added: &[] },
        Entry { name: "DriftReport", fields: 3, added: &[] },
        Entry { name: "DriftedObject", fields: 7, added: &[] },
        Entry { name: "DriftState", fields: 4, added: &[] },
        Entry { name: "Tended", fields: 2, added: &[] },
        Entry { name: "KeysChanged", fields: 1, added: &[] },
        Entry { name: "RelayedEvents", fields: 1, added: &[] },
        Entry { name: "RelayedEvent", fields: 9, added: &[] },
        // An agent that does not know it tells nothing of health that could go on.
        Entry { name: "Rest", fields: 2, added: &[("health_goes_on", Since::First)] },
        Entry { name: "HealthReport", fields: 5, added: &[] },
        Entry { name: "HealthState", fields: 5, added: &[] },
        Entry { name: "Started", fields: 2, added: &[] },
        Entry { name: "ObjectResult", fields: 2, added: &[] },
        // Which step it is, is of no consequence to a hub that shows stages only.
        Entry { name: "Progress", fields: 5, added: &[("step", Since::First)] },
        Entry { name: "ObjectHealth", fields: 3, added: &[] },
        Entry { name: "StageTiming", fields: 3, added: &[("step", Since::First)] },
        // It comes of a read only, which a hub that does not know of it never asks for.
        // The same goes for what was found: only an agent that substitutes finds anything.
        // And only one that was sent a guard holds anything.
        // A hub that does not know of warnings shows none: they are in the agent's log as well. Nor does one show which keys were used.
        Entry {
            name: "Finished",
            fields: 10,
            added: &[
                ("reads", Since::First),
                ("found", Since::First),
                ("held", Since::First),
                ("warnings", Since::First),
                ("decrypted_with", Since::First),
            ],
        },
        Entry { name: "Held", fields: 4, added: &[] },
        Entry { name: "ReadObject", fields: 2, added: &[] },
        Entry { name: "Failure", fields: 5, added: &[("step", Since::First)] },
        Entry { name: "Cancel", fields: 1, added: &[] },
        Entry { name: "Refused", fields: 4, added: &[] },
        Entry { name: "CertificateRequest", fields: 1, added: &[] },
        Entry { name: "Certificate", fields: 2, added: &[] },
        // An agent that does not know signatures has no policy that could ask for one.
        Entry { name: "Upgrade", fields: 3, added: &[("signatures", Since::First)] },
        Entry { name: "ImageSignature", fields: 2, added: &[] },
        Entry {
            name: "UpgradeState",
            fields: 4,
            added: &[("UPGRADE_STATE_REFUSED", Since::With(Capability::RefusedUpgrades))],
        },
        Entry { name: "UpgradeReport", fields: 3, added: &[] },
        Entry { name: "Remove", fields: 0, added: &[] },
        Entry { name: "RemovalReport", fields: 1, added: &[] },
    ];

    /// Each message and enum of the protocol with the names of its fields or values.
    fn protocol() -> BTreeMap<String, Vec<String>> {
        let file = protox::compile(
            ["roadstead/link/v1/link.proto"],
            [concat!(env!("CARGO_MANIFEST_DIR"), "/proto")],
        )
        .unwrap()
        .file
        .remove(0);
        let messages = file.message_type.into_iter().map(|message| {
            let fields = message.field.into_iter().map(|field| field.name.unwrap()).collect();
            (message.name.unwrap(), fields)
        });
        let enums = file.enum_type.into_iter().map(|one| {
            let values = one.value.into_iter().map(|value| value.name.unwrap()).collect();
            (one.name.unwrap(), values)
        });
        messages.chain(enums).collect()
    }

    #[test]
    fn every_field_has_an_entry() {
        let mut protocol = protocol();
        for Entry { name, fields: count, added } in FIELDS {
            let fields = protocol.remove(*name).unwrap_or_else(|| panic!("{name} is not in link.proto"));
            assert_eq!(
                fields.len(),
                *count,
                "{name} has {fields:?}: say in FIELDS of what was added whether it needs a capability"
            );
            for (field, _) in *added {
                assert!(fields.iter().any(|one| one == field), "{name} has no {field}");
            }
        }
        assert!(protocol.is_empty(), "not in FIELDS: {:?}", protocol.keys());
    }

    #[test]
    fn every_capability_is_needed_for_something() {
        let needed: BTreeSet<Capability> = FIELDS
            .iter()
            .flat_map(|entry| entry.added)
            .filter_map(|(_, since)| match since {
                Since::First => None,
                Since::With(capability) => Some(*capability),
            })
            .collect();
        assert_eq!(needed, Capability::ALL.into());
    }

    fn results() -> Vec<v1::ObjectResult> {
        [v1::Action::Recreated, v1::Action::Adopted, v1::Action::Deleted]
            .map(|action| v1::ObjectResult { object: None, action: action.into() })
            .into()
    }

    fn said(body: &agent_message::Body) -> Vec<v1::Action> {
        let results = match body {
            agent_message::Body::Progress(progress) => &progress.results,
            agent_message::Body::Finished(finished) => &finished.change_set,
            _ => panic!("{body:?}"),
        };
        results.iter().map(v1::ObjectResult::action).collect()
    }

    #[test]
    fn an_older_hub_is_told_in_its_own_words() {
        let bodies = || {
            [
                agent_message::Body::Progress(v1::Progress { results: results(), ..Default::default() }),
                agent_message::Body::Finished(v1::Finished { change_set: results(), ..Default::default() }),
            ]
        };
        for mut body in bodies() {
            let before = said(&body);
            fit_to_hub(&Capabilities::of_this_hub(), &mut body);
            assert_eq!(said(&body), before);
            fit_to_hub(&Capabilities::default(), &mut body);
            assert_eq!(said(&body), [v1::Action::Configured, v1::Action::Configured, v1::Action::Deleted]);
        }
        let mut report =
            v1::UpgradeReport { image: "a".to_owned(), message: "b".to_owned(), ..Default::default() };
        report.set_state(v1::UpgradeState::Refused);
        let mut body = agent_message::Body::UpgradeReport(report);
        fit_to_hub(&Capabilities::default(), &mut body);
        let agent_message::Body::UpgradeReport(report) = body else { panic!("{body:?}") };
        assert_eq!((report.state(), report.message.as_str()), (v1::UpgradeState::Failed, "b"));
    }
}
