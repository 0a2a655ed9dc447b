//! The policy as it is written: a preset, and what differs from it.

use roadstead_model::Guard;
use serde::Deserialize;

use crate::confirm::Confirmed;
use crate::pattern::{Pattern, name};
use crate::policy::{List, Malformed, Policy, Preset, Setting, Upgrades};
use crate::signature::PublicKey;

/// Kinds that `locked` touches. All are namespaced but Namespace; none of them grants rights, or is run by the apiserver.
const LOCKED_KINDS: [&str; 24] = [
    "core/ConfigMap",
    "core/Endpoints",
    "core/LimitRange",
    "core/Namespace",
    "core/PersistentVolumeClaim",
    "core/Pod",
    "core/PodTemplate",
    "core/ReplicationController",
    "core/ResourceQuota",
    "core/Secret",
    "core/Service",
    "core/ServiceAccount",
    "apps/DaemonSet",
    "apps/Deployment",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "autoscaling/HorizontalPodAutoscaler",
    "batch/CronJob",
    "batch/Job",
    "discovery.k8s.io/EndpointSlice",
    "networking.k8s.io/Ingress",
    "networking.k8s.io/NetworkPolicy",
    "policy/PodDisruptionBudget",
    "scheduling.k8s.io/PriorityClass",
];

const LOCKED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

const LOCKED_DELETIONS: u32 = 100;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum PresetName {
    Open,
    Locked,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    preset: PresetName,
    manage_agent_namespace: Option<bool>,
    #[serde(default)]
    service_accounts: ServiceAccounts,
    #[serde(default)]
    kinds: Names,
    #[serde(default)]
    namespaces: Names,
    privileged_workloads: Option<Setting>,
    #[serde(default)]
    deletions: Deletions,
    #[serde(default)]
    drift: Drift,
    #[serde(default)]
    upgrades: UpgradeFields,
    removal: Option<Setting>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct ServiceAccounts {
    required: Option<bool>,
    allowed: Option<Vec<String>>,
    check_rights: Option<bool>,
    trusted: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Names {
    never: Vec<String>,
    allowed: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Deletions {
    per_hour: Option<u32>,
    at_once: Option<AtOnce>,
    namespaces: Option<Setting>,
    by_owner: Option<Setting>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct AtOnce {
    max_percent: Option<u8>,
    max_deletions: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Drift {
    values: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct UpgradeFields {
    allowed: Option<bool>,
    repository: Option<String>,
    signed_repository: Option<String>,
    digest: Option<bool>,
    public_key: Option<String>,
    minimum_version: Option<String>,
    downgrade: Option<bool>,
}

/// The preset `open`.
pub(crate) fn open(namespace: &str) -> Policy {
    Policy {
        namespace: namespace.to_owned(),
        manage_own: false,
        account_required: false,
        accounts: vec![Pattern::anything()],
        check_rights: false,
        trusted: Vec::new(),
        kinds: List { never: Vec::new(), allowed: Vec::new(), preset: Preset::AllBut(Vec::new()) },
        namespaces: List { never: Vec::new(), allowed: Vec::new(), preset: Preset::AllBut(Vec::new()) },
        privileged: Setting::Allow,
        deletions_per_hour: None,
        deletions_at_once: None,
        namespace_deletions: Setting::Allow,
        deletions_by_owner: Setting::Allow,
        drift_values: true,
        upgrades: Upgrades {
            allowed: true,
            repository: None,
            signed_repository: None,
            digest: false,
            key: None,
            minimum: None,
            downgrade: true,
        },
        removal: Setting::Allow,
        confirmed: Confirmed::default(),
    }
}

/// The preset `locked`: no account is allowed until one is named, no image is taken until there is a key.
fn locked(namespace: &str) -> Result<Policy, Malformed> {
    let kinds = LOCKED_KINDS.iter().map(|text| Pattern::parse("kinds", text)).collect::<Result<_, _>>()?;
    let refused = LOCKED_NAMESPACES.map(str::to_owned).to_vec();
    let open = open(namespace);
    Ok(Policy {
        account_required: true,
        accounts: Vec::new(),
        check_rights: true,
        kinds: List { never: Vec::new(), allowed: Vec::new(), preset: Preset::Only(kinds) },
        namespaces: List { never: Vec::new(), allowed: Vec::new(), preset: Preset::AllBut(refused) },
        privileged: Setting::Refuse,
        deletions_per_hour: Some(LOCKED_DELETIONS),
        namespace_deletions: Setting::Refuse,
        deletions_by_owner: Setting::Refuse,
        drift_values: false,
        upgrades: Upgrades { allowed: false, digest: true, downgrade: false, ..open.upgrades.clone() },
        removal: Setting::Refuse,
        ..open
    })
}

pub(crate) fn parse(namespace: &str, text: &str) -> Result<Policy, Malformed> {
    let document: Document =
        serde_saphyr::from_str(text).map_err(|error| Malformed::new(first_line(&error.to_string())))?;
    let (mut policy, is_locked) = match document.preset {
        PresetName::Open => (open(namespace), false),
        PresetName::Locked => (locked(namespace)?, true),
    };
    policy.manage_own = document.manage_agent_namespace.unwrap_or_default();
    if policy.manage_own && is_locked {
        return Err(Malformed::new("manageAgentNamespace: not allowed with the preset `locked`"));
    }
    let accounts = document.service_accounts;
    policy.account_required = accounts.required.unwrap_or(policy.account_required);
    policy.check_rights = accounts.check_rights.unwrap_or(policy.check_rights);
    policy.trusted = patterns("serviceAccounts.trusted", &accounts.trusted)?;
    if let Some(allowed) = accounts.allowed {
        policy.accounts = patterns("serviceAccounts.allowed", &allowed)?;
    }
    policy.kinds.never = patterns("kinds.never", &document.kinds.never)?;
    policy.kinds.allowed = patterns("kinds.allowed", &document.kinds.allowed)?;
    policy.namespaces.never = names("namespaces.never", &document.namespaces.never)?;
    policy.namespaces.allowed = names("namespaces.allowed", &document.namespaces.allowed)?;
    policy.privileged = document.privileged_workloads.unwrap_or(policy.privileged);
    policy.deletions_per_hour = document.deletions.per_hour.or(policy.deletions_per_hour);
    policy.deletions_at_once = document.deletions.at_once.as_ref().map(at_once).transpose()?;
    policy.namespace_deletions = document.deletions.namespaces.unwrap_or(policy.namespace_deletions);
    policy.deletions_by_owner = document.deletions.by_owner.unwrap_or(policy.deletions_by_owner);
    policy.drift_values = document.drift.values.unwrap_or(policy.drift_values);
    policy.removal = document.removal.unwrap_or(policy.removal);
    upgrades(document.upgrades, &mut policy.upgrades)?;
    Ok(policy)
}

/// The bounds of deletions at once: those of a `spec.guard`, and the same where one is left out.
fn at_once(fields: &AtOnce) -> Result<Guard, Malformed> {
    let default = Guard::default();
    let max_percent = fields.max_percent.unwrap_or(default.max_percent);
    if max_percent > 100 {
        return Err(Malformed::new(format!("deletions.atOnce.maxPercent: {max_percent} is more than 100")));
    }
    Ok(Guard { max_percent, max_deletions: fields.max_deletions, ..default })
}

fn upgrades(fields: UpgradeFields, upgrades: &mut Upgrades) -> Result<(), Malformed> {
    if let Some(pem) = &fields.public_key {
        let key = PublicKey::from_pem(pem).ok_or_else(|| {
            Malformed::new(
                "upgrades.publicKey: it is not a public key as `cosign generate-key-pair` makes it",
            )
        })?;
        upgrades.key = Some(key);
        // Where there is a key, images that bear its signature are taken.
        upgrades.allowed = true;
        upgrades.digest = true;
    }
    upgrades.allowed = fields.allowed.unwrap_or(upgrades.allowed);
    if fields.digest == Some(false) && upgrades.key.is_some() {
        return Err(Malformed::new(
            "upgrades.digest: must not be false if publicKey is set, because a signature is for a digest",
        ));
    }
    upgrades.digest = fields.digest.unwrap_or(upgrades.digest);
    upgrades.downgrade = fields.downgrade.unwrap_or(upgrades.downgrade);
    upgrades.repository = fields.repository;
    upgrades.signed_repository = fields.signed_repository;
    if let Some(text) = fields.minimum_version {
        let version = semver::Version::parse(text.strip_prefix('v').unwrap_or(&text));
        upgrades.minimum =
            Some(version.map_err(|error| Malformed::new(format!("upgrades.minimumVersion: {error}")))?);
    }
    Ok(())
}

fn patterns(field: &str, texts: &[String]) -> Result<Vec<Pattern>, Malformed> {
    texts.iter().map(|text| Pattern::parse(field, text)).collect()
}

fn names(field: &str, texts: &[String]) -> Result<Vec<String>, Malformed> {
    texts.iter().map(|text| name(field, text)).collect()
}

/// Of a parser's message, which goes on with an excerpt.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
