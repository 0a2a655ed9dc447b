//! What the hub has an agent do: a dispatch and its steps. The hub stores it, the protocol carries it, the agent does it; this
//! is its one form in all three.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ApplierRef, Capabilities, Capability, Decrypt, Digest, DispatchKey, DriftMode, GivenKey, GivenVariables,
    Guard, HealthExpr, IgnoreRule, ObjectRef, Offline, Substitute, TraceContext,
};

/// The namespace of a cluster for objects that name none, where nothing else is said.
pub const DEFAULT_NAMESPACE: &str = "default";

/// An ordered list of steps for one applier on one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// What makes it that dispatch.
    pub key: DispatchKey,
    /// What to do.
    pub spec: DispatchSpec,
    /// What the applier owned on this cluster before.
    pub inventory: Vec<ObjectRef>,
    /// The variables of those objects of the hub that the groups' [`Substitute`] name.
    pub given: Vec<GivenVariables>,
    /// The data keys of encrypted objects whose groups are decrypted by keys of the hub ([`Decrypt::on_hub`]).
    pub data_keys: Vec<GivenKey>,
    /// What it is part of, for the agent's log lines. Like the timeout, not what is to be done.
    pub trace: Option<TraceContext>,
}

/// The part of a dispatch that does not change from session to session. The hub stores it as JSON, of which replicas of two
/// versions must read each other's: a field that is added here has a default, and is left out where it has that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchSpec {
    /// The applier: for messages.
    #[serde(flatten)]
    pub applier: ApplierRef,
    /// What it is carried out for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub purpose: Purpose,
    /// Every object is asked about, also one that is seen to stand as it was applied: somebody wants to be sure. Like the timeout, not
    /// what is to be done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub full: bool,
    /// What is done about changes that others make to the objects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: DriftMode,
    /// What is done about such changes while the hub is away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offline: Offline,
    /// What differs is told and not written: all of it was applied before, and drift is only reported. Like `full`, not what is to be done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observe: bool,
    /// What it changes is told by an Event in the cluster, too. Like `full`, not what is to be done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_events: bool,
    /// What of what it was rendered from somebody should look at: for the hub itself, which tells it with the result. It is not sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The hub's master keys that it is decrypted with, by kind and name: for people, like the warnings. They are not sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decrypted_with: Vec<String>,
    /// The namespace of the cluster for namespaced objects that name none; see [`DispatchSpec::default_namespace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_namespace: Option<String>,
    /// Impersonated for every read and write; none: the agent's own rights.
    pub service_account: Option<ServiceAccount>,
    /// For validation, apply and health together.
    #[serde(rename = "timeoutMillis", with = "millis")]
    pub timeout: Duration,
    /// How the health of objects of some kinds is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthExpr>,
    /// How much may be deleted without a person's confirmation; none: everything. Not what is to be done, but what of it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// What the steps apply. Empty where they apply nothing.
    pub groups: Vec<Group>,
    /// What to do, in this order.
    pub steps: Vec<Step>,
}

impl DispatchSpec {
    /// Where a namespaced object goes that names no namespace.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.default_namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// The digest of all that an agent is to do, without how long it may take: who has read a dispatch and finds another one has
    /// not read all of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        /// What is digested, in this order.
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Canonical<'a> {
            // An agent that does not know of kinds is sent Kustomizations only, of which it is left out.
            #[serde(skip_serializing_if = "Option::is_none")]
            kind: Option<&'a str>,
            #[serde(skip_serializing_if = "is_default")]
            purpose: Purpose,
            #[serde(skip_serializing_if = "is_default")]
            drift: DriftMode,
            #[serde(skip_serializing_if = "is_default")]
            offline: Offline,
            namespace: &'a str,
            name: &'a str,
            default_namespace: &'a str,
            service_account: &'a Option<ServiceAccount>,
            // An agent that does not know of it is sent none.
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            health: &'a [HealthExpr],
            groups: &'a [Group],
            steps: &'a [Step],
        }
        // Without a pattern, a field that is added above would be forgotten here.
        let Self {
            applier,
            purpose,
            full: _,
            drift,
            offline,
            observe: _,
            cluster_events: _,
            warnings: _,
            decrypted_with: _,
            default_namespace: _,
            service_account,
            timeout: _,
            health,
            guard: _,
            groups,
            steps,
        } = self;
        let ApplierRef { kind, namespace, name } = applier;
        let kind = (!applier.is_kustomization()).then_some(kind.as_str());
        let default_namespace = self.default_namespace();
        let (purpose, drift, offline) = (*purpose, *drift, *offline);
        let canonical = Canonical {
            kind,
            purpose,
            drift,
            offline,
            namespace,
            name,
            default_namespace,
            service_account,
            health,
            groups,
            steps,
        };
        #[expect(
            clippy::expect_used,
            reason = "texts, numbers and lists of them are JSON whatever they hold, and memory takes all of it"
        )]
        let encoded = serde_json::to_vec(&canonical).expect("a dispatch is JSON");
        Digest::of(&encoded)
    }

    /// Whether it only reads: nothing is written, and what is owned stays as it is.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|step| matches!(step.kind, StepKind::Read { .. }))
    }

    /// What an agent must be able to do to take this step.
    #[must_use]
    pub fn needs(&self, step: &Step) -> BTreeSet<Capability> {
        let mut needs = BTreeSet::new();
        if !self.applier.is_kustomization() {
            needs.insert(Capability::Appliers);
        }
        if self.purpose == Purpose::Plan {
            needs.insert(Capability::Plans);
        }
        if self.groups.len() > 1 {
            needs.insert(Capability::Groups);
        }
        if !self.health.is_empty() {
            needs.insert(Capability::HealthExpressions);
        }
        match &step.kind {
            StepKind::Apply { group } => {
                needs.extend(self.cluster_events.then_some(Capability::ClusterEvents));
                needs.extend(self.says_more_of_drift().then_some(Capability::DriftReports));
                needs.extend(self.groups.get(*group).into_iter().flat_map(Group::needs));
            }
            StepKind::Hook { group, .. } => {
                needs.insert(Capability::Hooks);
                needs.extend(self.groups.get(*group).into_iter().flat_map(Group::needs));
            }
            StepKind::Read { .. } => {
                needs.insert(Capability::Reads);
            }
            StepKind::Terminate => {
                needs.insert(Capability::Termination);
            }
            StepKind::AdoptInventory { .. } | StepKind::GiveBack => {
                needs.insert(Capability::FluxHandover);
            }
            StepKind::Prune | StepKind::Delete => {
                needs.extend(self.guard.as_ref().filter(|guard| guard.required).map(|_| Capability::Guard));
            }
            StepKind::Wait { .. } => {}
        }
        needs
    }

    /// Whether a hub that knew of groups, and of nothing that was added to them since, reads all of it. Another one would store and
    /// send it without what it does not know.
    #[must_use]
    pub fn is_of_groups_only(&self) -> bool {
        self.groups.iter().all(|group| {
            !group.sealed
                && !group.adopt_flux
                && group.decrypt.is_none()
                && group.substitute.is_none()
                && group.ignore.is_empty()
        }) && self.health.is_empty()
            && !self.says_more_of_drift()
            && self.steps.iter().all(|step| !matches!(step.kind, StepKind::Terminate))
            && !self.hands_over_with_flux()
            && !self.cluster_events
    }

    /// Whether more is done between a Flux and us than that built objects are taken over: a hub that does not know of that would store
    /// and send it without, or not read it.
    #[must_use]
    pub fn hands_over_with_flux(&self) -> bool {
        let is_step = |step: &Step| matches!(step.kind, StepKind::AdoptInventory { .. } | StepKind::GiveBack);
        self.steps.iter().any(is_step) || self.groups.iter().any(|group| !group.adopt_managers.is_empty())
    }

    /// Whether objects may become the applier's that no group has: those that a Flux has applied.
    #[must_use]
    pub fn adopts_inventories(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, StepKind::AdoptInventory { .. }))
    }

    /// Whether anything of it was encrypted: a hub that does not know of that would store and send it without.
    #[must_use]
    pub fn decrypts(&self) -> bool {
        self.groups.iter().any(|group| group.sealed || group.decrypt.is_some())
    }

    /// Whether objects are taken over from Flux: a hub that does not know of that would store and send it without.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.groups.iter().any(|group| group.adopt_flux)
    }

    /// Whether drift is not simply corrected: a hub that does not know of that would store and send it without.
    #[must_use]
    pub fn says_more_of_drift(&self) -> bool {
        self.drift != DriftMode::default() || self.offline != Offline::default()
    }

    /// The first step that an agent which can do `capabilities` cannot take, and what it lacks.
    #[must_use]
    pub fn lacking(&self, capabilities: &Capabilities) -> Option<Lacking<'_>> {
        self.steps.iter().enumerate().find_map(|(index, step)| {
            let lacks = |capability: &Capability| !capabilities.has(*capability);
            let capability = self.needs(step).into_iter().find(lacks)?;
            Some(Lacking { index, label: &step.label, capability })
        })
    }
}

/// A step that an agent cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking<'a> {
    /// Its index, from 0.
    pub index: usize,
    /// Its label.
    pub label: &'a str,
    /// What the agent would have to be able to do.
    pub capability: Capability,
}

/// What a dispatch is carried out for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// To bring the cluster to what is wanted.
    #[default]
    Reconcile,
    /// To tell what that would do: it ends before its first write.
    Plan,
}

/// What an attempt is to do on its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptKind {
    /// To apply what was rendered.
    Apply,
    /// To delete what is owned, and to apply nothing.
    Delete,
    /// To read what a render needs, and to write nothing.
    Read,
}

/// Objects that are applied together, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its name, for people. Empty where it is the only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The objects: the digest of a build.
    pub objects: Digest,
    /// In which order they are written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub order: Order,
    /// What happens to fields that other managers have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conflicts: Conflicts,
    /// What happens to an object whose change the apiserver calls immutable.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_immutable: OnImmutable,
    /// Any value of the objects may be secret: they were made of what the hub decrypted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sealed: bool,
    /// How the objects are decrypted, before all else is done with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decrypt: Option<Decrypt>,
    /// The variables that are substituted in the objects before they are applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute: Option<Substitute>,
    /// Fields that whoever changed them on the cluster may keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// Objects that a Flux in the cluster keeps are taken over from it; else they fail.
    #[serde(default, skip_serializing_if = "is_default")]
    pub adopt_flux: bool,
    /// Managers of fields, besides Flux's, whose fields are taken over with that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopt_managers: Vec<String>,
}

impl Group {
    /// A group as a Kustomization has it: the only one, in stages, and fields of other managers are taken over.
    #[must_use]
    pub fn of(objects: Digest) -> Self {
        Self {
            label: String::new(),
            objects,
            order: Order::default(),
            conflicts: Conflicts::default(),
            on_immutable: OnImmutable::default(),
            sealed: false,
            decrypt: None,
            substitute: None,
            ignore: Vec::new(),
            adopt_flux: false,
            adopt_managers: Vec::new(),
        }
    }

    fn needs(&self) -> impl Iterator<Item = Capability> + use<> {
        let order = match self.order {
            Order::Staged => None,
            Order::AsGiven => Some(Capability::AsGivenOrder),
            Order::Helm => Some(Capability::HelmOrder),
        };
        let conflicts = match self.conflicts {
            Conflicts::Force => None,
            Conflicts::KeepOthers => Some(Capability::KeepOthers),
        };
        let on_immutable = match self.on_immutable {
            OnImmutable::Fail | OnImmutable::Recreate => None,
            OnImmutable::Replace => Some(Capability::Replace),
        };
        let substitute = self.substitute.as_ref().map(|_| Capability::Substitution);
        let decrypt = (self.sealed || self.decrypt.is_some()).then_some(Capability::Decryption);
        let ignore = (!self.ignore.is_empty()).then_some(Capability::IgnoreRules);
        let adopt = self.adopt_flux.then_some(Capability::Adoption);
        let managers = (!self.adopt_managers.is_empty()).then_some(Capability::FluxHandover);
        [order, conflicts, on_immutable, decrypt, substitute, ignore, adopt, managers].into_iter().flatten()
    }
}

/// In which order a group's objects are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// What others depend on first: definitions, namespaces and cluster roles; webhooks last.
    #[default]
    Staged,
    /// As they are listed.
    AsGiven,
    /// By kind, as Helm does.
    Helm,
}

/// What happens to fields that other managers have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Conflicts {
    /// They are taken over.
    #[default]
    Force,
    /// They stay as they are.
    KeepOthers,
}

/// What happens to an object whose change the apiserver calls immutable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnImmutable {
    /// The step fails.
    #[default]
    Fail,
    /// It is deleted and recreated.
    Recreate,
    /// It is replaced as a whole.
    Replace,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A service account of the workload cluster. Its JSON is `[NAMESPACE, NAME]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct ServiceAccount {
    /// Its namespace there.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl From<(String, String)> for ServiceAccount {
    fn from((namespace, name): (String, String)) -> Self {
        Self { namespace, name }
    }
}

impl From<ServiceAccount> for (String, String) {
    fn from(account: ServiceAccount) -> Self {
        (account.namespace, account.name)
    }
}

/// One step of a dispatch. Progress, timings and failures name it by its index and its label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name, for people.
    pub label: String,
    /// What it does.
    pub kind: StepKind,
}

impl From<StepKind> for Step {
    /// A step that is named after what it does.
    fn from(kind: StepKind) -> Self {
        Self { label: kind.as_str().to_owned(), kind }
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// Validate and apply a group's objects.
    Apply {
        /// The group's index.
        group: usize,
    },
    /// Delete what is in the inventory and in no group.
    Prune,
    /// Wait until objects are healthy.
    Wait {
        /// These …
        objects: Vec<ObjectRef>,
        /// … and all of these groups, by their indices.
        groups: Vec<usize>,
    },
    /// Delete everything in the inventory.
    Delete,
    /// Wait until everything that was deleted is gone.
    Terminate,
    /// Own what these Kustomizations of a Flux in the cluster have applied and no group has.
    AdoptInventory {
        /// These.
        of: Vec<FluxKustomization>,
    },
    /// Let go of everything in the inventory, so that a Flux has it as if it had applied it itself.
    GiveBack,
    /// Apply a group's objects, wait until they have run to their end, and remove them.
    Hook {
        /// The group's index.
        group: usize,
        /// When they are removed.
        policy: HookPolicy,
    },
    /// Read objects, for what the hub renders next.
    Read {
        /// These.
        objects: Vec<ObjectRef>,
    },
}

impl StepKind {
    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "apply",
            Self::Prune => "prune",
            Self::Wait { .. } => "wait",
            Self::Delete => "delete",
            Self::Terminate => "terminate",
            Self::AdoptInventory { .. } => "adopt inventory",
            Self::GiveBack => "give back",
            Self::Hook { .. } => "hook",
            Self::Read { .. } => "read",
        }
    }
}

/// A Kustomization of a Flux in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FluxKustomization {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for FluxKustomization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object that a step was to read. It may be a Secret, so its content does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadObject {
    /// Which one.
    pub object: ObjectRef,
    /// The object as JSON; none where it is not there.
    pub json: Option<Vec<u8>>,
}

impl fmt::Debug for ReadObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, json } = self;
        f.debug_struct("ReadObject")
            .field("object", object)
            .field("bytes", &json.as_ref().map(Vec::len))
            .finish()
    }
}

/// When the objects of a hook are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookPolicy {
    /// Before the hook runs again.
    #[default]
    BeforeCreation,
    /// When it has succeeded.
    Succeeded,
    /// When it has failed.
    Failed,
}

/// A duration as a number of milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> ObjectRef {
        ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "apps".to_owned(),
            name: "web".to_owned(),
        }
    }

    fn spec() -> DispatchSpec {
        DispatchSpec {
            applier: ApplierRef::kustomization("team-a", "app"),
            purpose: Purpose::Reconcile,
            full: false,
            drift: DriftMode::Correct,
            observe: false,
            cluster_events: false,
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
            offline: Offline::default(),
            health: Vec::new(),
            guard: None,
            default_namespace: None,
            service_account: Some(("apps".to_owned(), "deployer".to_owned()).into()),
            timeout: Duration::from_secs(90),
            groups: vec![Group { on_immutable: OnImmutable::Recreate, ..Group::of(Digest::of(b"build")) }],
            steps: vec![
                StepKind::Apply { group: 0 }.into(),
                StepKind::Prune.into(),
                StepKind::Wait { objects: vec![object()], groups: vec![0] }.into(),
            ],
        }
    }

    #[test]
    fn is_stored_as_replicas_of_the_version_before_read_it() {
        let stored = json!({
            "namespace": "team-a",
            "name": "app",
            "serviceAccount": ["apps", "deployer"],
            "timeoutMillis": 90_000,
            "groups": [{ "objects": Digest::of(b"build"), "onImmutable": "recreate" }],
            "steps": [
                { "label": "apply", "kind": { "apply": { "group": 0 } } },
                { "label": "prune", "kind": "prune" },
                { "label": "wait", "kind": { "wait": { "objects": [object()], "groups": [0] } } },
            ],
        });
        assert_eq!(serde_json::to_value(spec()).unwrap(), stored);
        assert_eq!(serde_json::from_value::<DispatchSpec>(stored).unwrap(), spec());
        assert_eq!(spec().default_namespace(), "default");
        let elsewhere = DispatchSpec { default_namespace: Some("apps".to_owned()), ..spec() };
        assert_eq!(elsewhere.default_namespace(), "apps");
    }

    #[test]
    fn the_digest_is_of_all_that_is_to_be_done() {
        let digest = spec().digest();
        // Agents of other versions compute it too: what was the same must stay so.
        assert_eq!(
            digest.to_string(),
            "sha256:d04eff50d0ef135570aebc821481b35dfef69bfae63861a7651357db20da0fcc"
        );
        let same = DispatchSpec {
            default_namespace: Some("default".to_owned()),
            timeout: Duration::from_secs(1),
            cluster_events: true,
            warnings: vec!["look at it".to_owned()],
            decrypted_with: vec!["age age1".to_owned()],
            ..spec()
        };
        assert_eq!(same.digest(), digest);
        let changes: [fn(&mut DispatchSpec); 17] = [
            |spec| spec.purpose = Purpose::Plan,
            |spec| spec.applier.kind.push('x'),
            |spec| spec.applier.namespace.push('x'),
            |spec| spec.applier.name.push('x'),
            |spec| spec.default_namespace = Some("apps".to_owned()),
            |spec| spec.service_account = None,
            |spec| spec.groups[0].order = Order::Helm,
            |spec| spec.groups[0].on_immutable = OnImmutable::Fail,
            |spec| spec.groups[0].substitute = Some(Substitute::default()),
            |spec| spec.groups[0].sealed = true,
            |spec| spec.groups[0].decrypt = Some(Decrypt::default()),
            |spec| spec.groups[0].ignore.push(IgnoreRule::default()),
            |spec| spec.groups[0].adopt_managers.push("helm".to_owned()),
            |spec| spec.steps.insert(1, StepKind::AdoptInventory { of: Vec::new() }.into()),
            |spec| spec.steps.push(StepKind::GiveBack.into()),
            |spec| spec.health.push(HealthExpr::default()),
            |spec| drop(spec.steps.pop()),
        ];
        for change in changes {
            let mut changed = spec();
            change(&mut changed);
            assert_ne!(changed.digest(), digest, "{changed:?}");
        }
    }

    #[test]
    fn a_step_says_what_it_needs() {
        let none = Capabilities::default();
        assert_eq!(spec().lacking(&none), None, "what a Kustomization asks for was in the first version");
        let mut two = spec();
        two.groups.push(Group { label: "second".to_owned(), ..Group::of(Digest::of(b"other")) });
        let lacking = two.lacking(&none).map(|lacking| (lacking.index, lacking.capability));
        assert_eq!(lacking, Some((0, Capability::Groups)));
        assert_eq!(two.lacking(&Capabilities::of_this_agent()), None);
        let mut other = spec();
        other.applier.kind = "HelmRelease".to_owned();
        let lacking = other.lacking(&none).map(|lacking| (lacking.index, lacking.capability));
        assert_eq!(lacking, Some((0, Capability::Appliers)));
        assert_eq!(other.lacking(&Capabilities::of_this_agent()), None);
        let mut told = spec();
        told.cluster_events = true;
        let lacking = told.lacking(&none).map(|lacking| (lacking.index, lacking.capability));
        assert_eq!(lacking, Some((0, Capability::ClusterEvents)));
        assert!(!told.is_of_groups_only());
        told.steps = vec![StepKind::Delete.into()];
        assert_eq!(told.lacking(&none), None, "a deletion does not wait for another agent");
        let mut substituted = spec();
        assert!(substituted.is_of_groups_only());
        substituted.groups[0].substitute = Some(Substitute::default());
        let lacking = substituted.lacking(&none).map(|lacking| (lacking.index, lacking.capability));
        assert_eq!(lacking, Some((0, Capability::Substitution)));
        assert!(!substituted.is_of_groups_only());
        two.steps.push(Step {
            label: "migrate".to_owned(),
            kind: StepKind::Hook { group: 1, policy: HookPolicy::default() },
        });
        // An agent that applies groups, and runs no hooks.
        let some = Capabilities::named(&["groups"]);
        let lacking = Lacking { index: 3, label: "migrate", capability: Capability::Hooks };
        assert_eq!(two.lacking(&some), Some(lacking));
        assert_eq!(two.lacking(&Capabilities::of_this_agent()), None);
        two.groups[0].conflicts = Conflicts::KeepOthers;
        let lacking = two.lacking(&Capabilities::of_this_agent()).map(|lacking| lacking.capability);
        assert_eq!(lacking, Some(Capability::KeepOthers));
    }
}
