//! Dispatches: the form that all versions read, with what those of the first version read in the places that they know.

use std::time::Duration;

use roadstead_model::{
    ApplierRef, Capabilities, Capability, Conflicts, Decrypt, Dispatch, DispatchSpec, DriftMode,
    FluxKustomization, Group, Guard, HookPolicy, Offline, OfflinePolicy, OnImmutable, Order, Purpose,
    ServiceAccount, Step, StepKind, Substitute,
};

use super::{
    ConvertError, Result, applier_kind, decrypt, digest, dns, filled, index, key, list, messages, number,
    object_name, substitute, text, words,
};
use crate::limits::{
    MAX_ADOPTED_MANAGERS, MAX_DNS_LABEL_BYTES, MAX_FLUX_KUSTOMIZATIONS, MAX_GROUPS, MAX_HEALTH_EXPRS,
    MAX_IGNORE_RULES, MAX_OBJECTS, MAX_READS, MAX_STEPS,
};
use crate::v1;

/// The longest timeout of a dispatch that is taken.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

words!(order: Order { Staged, AsGiven, Helm });
words!(conflicts: Conflicts { Force, KeepOthers });
words!(on_immutable: OnImmutable { Fail, Recreate, Replace });
words!(hook_policy: HookPolicy { BeforeCreation, Succeeded, Failed });

impl From<Group> for v1::Group {
    fn from(group: Group) -> Self {
        let Group {
            label,
            objects,
            order,
            conflicts,
            on_immutable,
            sealed,
            decrypt,
            substitute,
            ignore,
            adopt_flux,
            adopt_managers,
        } = group;
        Self {
            label,
            objects: objects.to_string(),
            order: v1::Order::from(order).into(),
            conflicts: v1::Conflicts::from(conflicts).into(),
            on_immutable: v1::OnImmutable::from(on_immutable).into(),
            sealed,
            adopt_flux,
            adopt_managers,
            decrypt: decrypt.map(Into::into),
            substitute: substitute.map(Into::into),
            ignore: messages(ignore),
        }
    }
}

impl TryFrom<v1::Group> for Group {
    type Error = ConvertError;

    fn try_from(group: v1::Group) -> Result<Self> {
        Ok(Self {
            label: text("label", group.label)?,
            objects: digest("objects", &group.objects)?,
            order: order("order", group.order)?,
            conflicts: conflicts("conflicts", group.conflicts)?,
            on_immutable: on_immutable("on_immutable", group.on_immutable)?,
            sealed: group.sealed,
            adopt_flux: group.adopt_flux,
            adopt_managers: managers(group.adopt_managers)?,
            decrypt: group
                .decrypt
                .map(Decrypt::try_from)
                .transpose()
                .map_err(|error| error.within("decrypt"))?,
            substitute: group
                .substitute
                .map(Substitute::try_from)
                .transpose()
                .map_err(|error| error.within("substitute"))?,
            ignore: list("ignore", group.ignore, MAX_IGNORE_RULES)?,
        })
    }
}

/// Managers of fields, each of which has a name.
fn managers(names: Vec<String>) -> Result<Vec<String>> {
    if names.len() > MAX_ADOPTED_MANAGERS {
        let (length, max) = (names.len(), MAX_ADOPTED_MANAGERS);
        return Err(ConvertError::TooLong {
            field: "adopt_managers".to_owned(),
            length,
            unit: "entries",
            max,
        });
    }
    let name = |name| filled("adopt_managers", text("adopt_managers", name)?);
    names.into_iter().map(name).collect()
}

impl From<FluxKustomization> for v1::FluxKustomization {
    fn from(FluxKustomization { namespace, name }: FluxKustomization) -> Self {
        Self { namespace, name }
    }
}

impl TryFrom<v1::FluxKustomization> for FluxKustomization {
    type Error = ConvertError;

    fn try_from(named: v1::FluxKustomization) -> Result<Self> {
        let namespace = dns("namespace", filled("namespace", named.namespace)?, MAX_DNS_LABEL_BYTES)?;
        Ok(Self { namespace, name: object_name("name", named.name)? })
    }
}

/// A purpose; an agent refuses one that it does not know.
fn purpose(value: i32) -> Result<Purpose> {
    match v1::Purpose::try_from(value) {
        Ok(v1::Purpose::Unspecified) => Ok(Purpose::Reconcile),
        Ok(v1::Purpose::Plan) => Ok(Purpose::Plan),
        Err(_) => Err(ConvertError::Unknown { field: "purpose".to_owned() }),
    }
}

/// Indices of groups as they are sent.
fn numbers(indices: Vec<usize>) -> Vec<u32> {
    indices.into_iter().filter_map(number).collect()
}

/// A step, and what an agent of the first version reads of it.
fn step_message(step: Step, needs: &[Capability], groups: &[Group]) -> v1::Step {
    use v1::step::Kind;
    let kind = match step.kind {
        StepKind::Apply { group } => {
            let force = groups.get(group).is_some_and(|group| group.on_immutable == OnImmutable::Recreate);
            Kind::Apply(v1::Apply { force, group: number(group).unwrap_or(u32::MAX) })
        }
        StepKind::Prune => Kind::Prune(v1::Prune {}),
        StepKind::Wait { objects, groups } => {
            let all = !groups.is_empty();
            Kind::Wait(v1::Wait { objects: messages(objects), all, groups: numbers(groups) })
        }
        StepKind::Delete => Kind::Delete(v1::Delete {}),
        StepKind::Terminate => Kind::Terminate(v1::Terminate {}),
        StepKind::AdoptInventory { of } => Kind::AdoptInventory(v1::AdoptInventory { of: messages(of) }),
        StepKind::GiveBack => Kind::GiveBack(v1::GiveBack {}),
        StepKind::Hook { group, policy } => Kind::Hook(v1::Hook {
            group: number(group).unwrap_or(u32::MAX),
            policy: v1::HookPolicy::from(policy).into(),
        }),
        StepKind::Read { objects } => Kind::Read(v1::Read { objects: messages(objects) }),
    };
    let needs = needs.iter().map(|capability| capability.name().to_owned()).collect();
    v1::Step { kind: Some(kind), label: step.label, needs }
}

/// A step of a dispatch with so many groups; `legacy` where a hub of the first version sent it.
fn step(step: v1::Step, groups: usize, legacy: bool) -> Result<Step> {
    use v1::step::Kind;
    let own = Capabilities::of_this_agent();
    let able = |name: &&String| Capability::parse(name).is_some_and(|capability| own.has(capability));
    if let Some(name) = step.needs.iter().find(|name| !able(name)) {
        let capability = text("needs", name.clone())?;
        return Err(ConvertError::Incapable { field: "kind".to_owned(), capability });
    }
    // A step of a later version arrives as one without a kind.
    let kind = step.kind.ok_or_else(|| ConvertError::Unknown { field: "kind".to_owned() })?;
    let group = |field, value| index(field, value, groups);
    let kind = match kind {
        Kind::Apply(apply) => StepKind::Apply { group: group("apply.group", apply.group)? },
        Kind::Prune(_) => StepKind::Prune,
        Kind::Wait(wait) => {
            let objects = list("wait.objects", wait.objects, MAX_OBJECTS)?;
            // What the first version waits for is everything that was applied: its only group, if it has one.
            let all = if wait.all && groups > 0 { vec![0] } else { Vec::new() };
            let waited = if legacy { all } else { wait.groups };
            if waited.len() > MAX_GROUPS {
                let (length, max) = (waited.len(), MAX_GROUPS);
                let field = "wait.groups".to_owned();
                return Err(ConvertError::TooLong { field, length, unit: "entries", max });
            }
            let waited = waited.into_iter().map(|value| group("wait.groups", value));
            StepKind::Wait { objects, groups: waited.collect::<Result<_>>()? }
        }
        Kind::Delete(_) => StepKind::Delete,
        Kind::Terminate(_) => StepKind::Terminate,
        Kind::AdoptInventory(adopt) => {
            StepKind::AdoptInventory { of: list("adopt_inventory.of", adopt.of, MAX_FLUX_KUSTOMIZATIONS)? }
        }
        Kind::GiveBack(_) => StepKind::GiveBack,
        Kind::Hook(hook) => StepKind::Hook {
            group: group("hook.group", hook.group)?,
            policy: hook_policy("hook.policy", hook.policy)?,
        },
        Kind::Read(read) => StepKind::Read { objects: list("read.objects", read.objects, MAX_READS)? },
    };
    let label = if step.label.is_empty() { kind.as_str().to_owned() } else { text("label", step.label)? };
    Ok(Step { label, kind })
}

impl From<Offline> for v1::Offline {
    fn from(offline: Offline) -> Self {
        let Offline { policy, after, keep_secrets } = offline;
        let policy = match policy {
            OfflinePolicy::Correct => v1::OfflinePolicy::Unspecified,
            OfflinePolicy::Report => v1::OfflinePolicy::Report,
            OfflinePolicy::Stop => v1::OfflinePolicy::Stop,
        };
        let after_millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self { policy: policy.into(), after_millis, keep_secrets }
    }
}

fn offline(offline: Option<v1::Offline>) -> Result<Offline> {
    let Some(offline) = offline else { return Ok(Offline::default()) };
    let policy = match v1::OfflinePolicy::try_from(offline.policy) {
        Ok(v1::OfflinePolicy::Unspecified) => OfflinePolicy::Correct,
        Ok(v1::OfflinePolicy::Report) => OfflinePolicy::Report,
        Ok(v1::OfflinePolicy::Stop) => OfflinePolicy::Stop,
        Err(_) => return Err(ConvertError::Unknown { field: "offline.policy".to_owned() }),
    };
    let after = Duration::from_millis(offline.after_millis);
    Ok(Offline { policy, after, keep_secrets: offline.keep_secrets })
}

impl From<Dispatch> for v1::Dispatch {
    fn from(dispatch: Dispatch) -> Self {
        let Dispatch { key, spec, inventory, given, data_keys, trace } = dispatch;
        let needs = |step: &Step| spec.needs(step).into_iter().collect::<Vec<_>>();
        let steps =
            spec.steps.iter().map(|step| step_message(step.clone(), &needs(step), &spec.groups)).collect();
        Self {
            key: Some(key.into()),
            default_namespace: spec.default_namespace().to_owned(),
            steps,
            kind: spec.applier.kind,
            full: spec.full,
            report_drift: spec.drift == DriftMode::Report,
            offline: (spec.offline != Offline::default()).then(|| spec.offline.into()),
            observe: spec.observe,
            cluster_events: spec.cluster_events,
            purpose: match spec.purpose {
                Purpose::Reconcile => v1::Purpose::Unspecified,
                Purpose::Plan => v1::Purpose::Plan,
            }
            .into(),
            namespace: spec.applier.namespace,
            name: spec.applier.name,
            service_account: spec.service_account.map(Into::into),
            inventory: messages(inventory),
            timeout_millis: u64::try_from(spec.timeout.as_millis()).unwrap_or(u64::MAX),
            groups: messages(spec.groups),
            given: messages(given),
            data_keys: messages(data_keys),
            health: messages(spec.health),
            guard: spec.guard.map(Into::into),
            traceparent: trace.map_or_else(String::new, |trace| trace.to_string()),
        }
    }
}

impl TryFrom<v1::Dispatch> for Dispatch {
    type Error = ConvertError;

    fn try_from(dispatch: v1::Dispatch) -> Result<Self> {
        let timeout = Duration::from_millis(dispatch.timeout_millis);
        if timeout.is_zero() || timeout > MAX_TIMEOUT {
            return Err(ConvertError::invalid("timeout_millis", "not between 1 ms and 24 h"));
        }
        let key = key("key", dispatch.key)?;
        let mut groups: Vec<Group> = list("groups", dispatch.groups, MAX_GROUPS)?;
        let applied = dispatch.steps.iter().find_map(|step| match &step.kind {
            Some(v1::step::Kind::Apply(apply)) => Some(apply.force),
            _ => None,
        });
        // A hub of the first version names the build, where it applies one, and nothing where it does not.
        let legacy = groups.is_empty() && (applied.is_some() || key.digest.is_none());
        if let Some(build) = key.digest.filter(|_| legacy && applied.is_some()) {
            let force = applied.unwrap_or_default();
            let on_immutable = if force { OnImmutable::Recreate } else { OnImmutable::Fail };
            groups.push(Group { on_immutable, ..Group::of(build) });
        }
        if dispatch.steps.len() > MAX_STEPS {
            let (length, max) = (dispatch.steps.len(), MAX_STEPS);
            let field = "steps".to_owned();
            return Err(ConvertError::TooLong { field, length, unit: "entries", max });
        }
        let steps = dispatch.steps.into_iter().enumerate().map(|(at, one)| {
            step(one, groups.len(), legacy).map_err(|error| error.within(&format!("steps[{at}]")))
        });
        let steps = steps.collect::<Result<Vec<_>>>()?;
        let service_account = dispatch.service_account.map(ServiceAccount::try_from).transpose();
        let default_namespace = dns("default_namespace", dispatch.default_namespace, MAX_DNS_LABEL_BYTES)?;
        let namespace = dns("namespace", filled("namespace", dispatch.namespace)?, MAX_DNS_LABEL_BYTES)?;
        let name = object_name("name", dispatch.name)?;
        let applier = ApplierRef { kind: applier_kind("kind", dispatch.kind)?, namespace, name };
        let spec = DispatchSpec {
            applier,
            purpose: purpose(dispatch.purpose)?,
            full: dispatch.full,
            drift: if dispatch.report_drift { DriftMode::Report } else { DriftMode::Correct },
            offline: offline(dispatch.offline)?,
            observe: dispatch.observe,
            cluster_events: dispatch.cluster_events,
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
            default_namespace: Some(default_namespace).filter(|namespace| !namespace.is_empty()),
            service_account: service_account.map_err(|error| error.within("service_account"))?,
            timeout,
            health: list("health", dispatch.health, MAX_HEALTH_EXPRS)?,
            guard: dispatch.guard.map(Guard::try_from).transpose().map_err(|error| error.within("guard"))?,
            groups,
            steps,
        };
        if !legacy && key.digest != Some(spec.digest()) {
            let why = "not the digest of what this agent can read of the dispatch: the hub is newer; upgrade the agent";
            return Err(ConvertError::invalid("key.digest", why));
        }
        if let Some(lacking) = spec.lacking(&Capabilities::of_this_agent()) {
            let field = format!("steps[{}]", lacking.index);
            return Err(ConvertError::Incapable { field, capability: lacking.capability.name().to_owned() });
        }
        let inventory = list("inventory", dispatch.inventory, MAX_OBJECTS)?;
        let given = substitute::given(dispatch.given)?;
        let data_keys = decrypt::given(dispatch.data_keys)?;
        // What is none is for nothing: the dispatch is carried out all the same.
        let trace = dispatch.traceparent.parse().ok();
        Ok(Self { key, spec, inventory, given, data_keys, trace })
    }
}
