//! What one side of the link can read that an older one cannot.
//!
//! The hub names its capabilities in its first message, and is sent nothing that needs one which it did not name: a field that it
//! would drop without a word, or a value that it would refuse. (An agent names none yet: so far nothing that a hub sends needs
//! one.) A table in this file's tests says for each field of the protocol and each value of its enums whether it needs one; it
//! is compared with `link.proto`, so that nothing is added without a decision.

use std::collections::BTreeSet;

use crate::v1::{self, agent_message};

/// Most names that are read of a first message; there are far fewer.
const MAX_NAMES: usize = 256;

/// Something that was added to the protocol after its first version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// The agent tells `recreated` and `adopted` apart from `configured`.
    RecreatedAndAdopted,
    /// The agent tells that its policy refused an upgrade apart from an upgrade that failed.
    RefusedUpgrades,
}

impl Capability {
    const ALL: [Self; 2] = [Self::RecreatedAndAdopted, Self::RefusedUpgrades];

    /// Its name in the protocol, which never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RecreatedAndAdopted => "recreated-and-adopted",
            Self::RefusedUpgrades => "refused-upgrades",
        }
    }
}

/// What one side can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// Those of this version.
    #[must_use]
    pub fn own() -> Self {
        Self(Capability::ALL.into())
    }

    /// Their names, for a first message.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|capability| capability.name().to_owned()).collect()
    }

    /// What the other side named. Those that this version does not know are of no use to it.
    #[must_use]
    pub fn of(names: &[String]) -> Self {
        let is_named =
            |capability: &Capability| names.iter().take(MAX_NAMES).any(|name| name == capability.name());
        Self(Capability::ALL.into_iter().filter(is_named).collect())
    }

    /// Whether the other side can do this.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Takes out of an agent's message what a hub with these capabilities cannot read, and says it in the older words.
    pub fn fit_to_hub(&self, body: &mut agent_message::Body) {
        use agent_message::Body;
        match body {
            Body::Progress(progress) => self.fit_results(&mut progress.results),
            Body::Finished(finished) => self.fit_results(&mut finished.change_set),
            Body::UpgradeReport(report)
                if report.state() == v1::UpgradeState::Refused && !self.has(Capability::RefusedUpgrades) =>
            {
                report.set_state(v1::UpgradeState::Failed);
            }
            _ => {}
        }
    }

    fn fit_results(&self, results: &mut [v1::ObjectResult]) {
        if self.has(Capability::RecreatedAndAdopted) {
            return;
        }
        for result in results {
            if matches!(result.action(), v1::Action::Recreated | v1::Action::Adopted) {
                result.set_action(v1::Action::Configured);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        Entry { name: "AgentMessage", fields: 12, added: &[] },
        Entry { name: "HubMessage", fields: 12, added: &[] },
        Entry { name: "Hello", fields: 7, added: &[] },
        // The names of capabilities are read by those that know them.
        Entry { name: "Welcome", fields: 7, added: &[("capabilities", Since::First)] },
        Entry { name: "Heartbeat", fields: 0, added: &[] },
        Entry { name: "DispatchKey", fields: 5, added: &[] },
        Entry { name: "ObjectRef", fields: 5, added: &[] },
        Entry { name: "Dispatch", fields: 8, added: &[] },
        Entry { name: "ServiceAccount", fields: 2, added: &[] },
        Entry { name: "Step", fields: 4, added: &[] },
        Entry { name: "Apply", fields: 1, added: &[] },
        Entry { name: "Prune", fields: 0, added: &[] },
        Entry { name: "Wait", fields: 2, added: &[] },
        Entry { name: "Delete", fields: 0, added: &[] },
        Entry { name: "BuildRequest", fields: 1, added: &[] },
        Entry { name: "BuildChunk", fields: 6, added: &[] },
        Entry { name: "InventoryIntent", fields: 2, added: &[] },
        Entry { name: "InventoryAck", fields: 2, added: &[] },
        Entry { name: "OwnedByAnother", fields: 2, added: &[] },
        Entry { name: "Stage", fields: 6, added: &[] },
        Entry {
            name: "Action",
            fields: 8,
            added: &[
                ("ACTION_RECREATED", Since::With(Capability::RecreatedAndAdopted)),
                ("ACTION_ADOPTED", Since::With(Capability::RecreatedAndAdopted)),
            ],
        },
        Entry { name: "ObjectResult", fields: 2, added: &[] },
        Entry { name: "Progress", fields: 4, added: &[] },
        Entry { name: "ObjectHealth", fields: 3, added: &[] },
        Entry { name: "StageTiming", fields: 2, added: &[] },
        Entry { name: "Finished", fields: 5, added: &[] },
        Entry { name: "Failure", fields: 4, added: &[] },
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
    fn every_capability_is_needed_for_something_and_read_by_its_name() {
        let needed: BTreeSet<Capability> = FIELDS
            .iter()
            .flat_map(|entry| entry.added)
            .filter_map(|(_, since)| match since {
                Since::First => None,
                Since::With(capability) => Some(*capability),
            })
            .collect();
        assert_eq!(needed, Capability::ALL.into());
        assert_eq!(Capabilities::of(&Capabilities::own().names()), Capabilities::own());
        let mixed = ["of-the-future".to_owned(), "refused-upgrades".to_owned()];
        assert_eq!(Capabilities::of(&mixed), Capabilities([Capability::RefusedUpgrades].into()));
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
            Capabilities::own().fit_to_hub(&mut body);
            assert_eq!(said(&body), before);
            Capabilities::default().fit_to_hub(&mut body);
            assert_eq!(said(&body), [v1::Action::Configured, v1::Action::Configured, v1::Action::Deleted]);
        }
        let mut report =
            v1::UpgradeReport { image: "a".to_owned(), message: "b".to_owned(), ..Default::default() };
        report.set_state(v1::UpgradeState::Refused);
        let mut body = agent_message::Body::UpgradeReport(report);
        Capabilities::default().fit_to_hub(&mut body);
        let agent_message::Body::UpgradeReport(report) = body else { panic!("{body:?}") };
        assert_eq!((report.state(), report.message.as_str()), (v1::UpgradeState::Failed, "b"));
    }
}
