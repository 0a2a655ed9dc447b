//! How a cluster comes on board by its kubeconfig: the Secret makes a Cluster, the kubeconfig is used once to install the
//! agent, and is forgotten when that is connected.
//!
//! What is decided here is carried out elsewhere (`roadstead-onboard`): [`Onboarding::plan`] says what to reach,
//! [`Onboarding::admit`] whether the cluster that answers may come on board and with what, [`Onboarding::record`] takes
//! down what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use roadstead_api::{
    Cluster, ClusterKubeConfig, ClusterKubeConfigStatus, ClusterStatus, ConditionStatus, KindId,
    SecretReference, Time,
};
use roadstead_deploy::{AGENT_NAME, Agent, DEFAULT_IMAGE, NAMESPACE};
use roadstead_hub_store::{SecretData, Store, Stored, Tx};
use roadstead_kubeconfig::{Access, Allowed};
use roadstead_model::{ClusterUid, Digest, KubeSystemUid, Reason, ResourceUid};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::clock::Clock;
use crate::clusters::reserved::{ReservedName, may_make};
use crate::clusters::{Agents, Enrolments};
use crate::context::Context;
use crate::identity::{AccessRules, Identity};
use crate::objects::conditions::{self, READY};
use crate::objects::kubeconfigs::{cluster_name, is_kubeconfig, keys, reference};
use crate::objects::{Objects, WriteOptions, events, managers, status, triggers};
use crate::{HubError, HubOptions};

/// The type of the condition that says whether the agent was installed.
const INSTALLED: &str = "Installed";

/// A cluster that does not answer, or a Secret that is not there, is processed again after this. Changes of either
/// object are processed when they come.
pub(crate) const RETRY: Duration = Duration::from_secs(10);
/// Nothing is to be done; the timer is under the signals.
pub(crate) const REST: Duration = Duration::from_secs(3600);
/// How long an installed agent has to join. After that its token is worth nothing, and another one is installed.
const JOIN_TTL: Duration = Duration::from_secs(3600);

/// What is to be done for a Cluster.
#[derive(Debug)]
pub enum OnboardingPlan {
    /// Nothing until then.
    Nothing(Timestamp),
    /// Its cluster is to be reached.
    Reach(Box<OnboardingJob>),
}

/// A cluster to be reached.
#[derive(Debug)]
pub struct OnboardingJob {
    /// The Cluster.
    pub cluster: ClusterUid,
    /// Its name.
    pub name: String,
    /// How to reach it.
    pub access: Access,
    digest: Digest,
}

/// How clusters come on board by their kubeconfigs.
pub struct Onboarding {
    pub(super) store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    access: Arc<AccessRules>,
    objects: Arc<Objects>,
    enrolments: Arc<Enrolments>,
    agents: Arc<Agents>,
}

impl Onboarding {
    pub(crate) fn new(
        context: &Context,
        access: &Arc<AccessRules>,
        objects: &Arc<Objects>,
        enrolments: &Arc<Enrolments>,
        agents: &Arc<Agents>,
    ) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            access: Arc::clone(access),
            objects: Arc::clone(objects),
            enrolments: Arc::clone(enrolments),
            agents: Arc::clone(agents),
        }
    }

    /// What this hub lets kubeconfigs do.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.options.kubeconfigs
    }

    /// Whether a Secret or a ManagementCluster of this namespace may make a Cluster of this name; else for whom it is reserved.
    pub(super) fn may_make(&self, name: &str, namespace: &str) -> Result<(), &ReservedName> {
        may_make(&self.options.reserved_clusters, name, namespace)
    }

    /// Processes a Secret that may be a kubeconfig: makes its Cluster where there is none. Says when the next pass is due.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn process_kubeconfig(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let rest = now + REST;
        let Some(secret) = self.store.get_by_uid(uid).await? else { return Ok(rest) };
        if secret.deletion_timestamp.is_some() {
            return Ok(rest);
        }
        let Some(key) = self.named_key(&secret).await? else { return Ok(rest) };
        // `edge-1-kubeconfig` and `edge-1` are both for Cluster `edge-1`.
        let name = cluster_name(&secret).unwrap_or(&secret.name);
        let Some(present) = self.store.get(KindId::Cluster, "", name).await? else {
            if let Err(reserved) = self.may_make(name, &secret.namespace) {
                let why = format!(
                    "no Cluster was created: the name '{name}' is reserved for another namespace on this hub (--reserve-cluster \
                     {reserved}). Give the Secret another name"
                );
                self.warn(&secret, Reason::KubeConfigRefused, &why).await?;
                return Ok(rest);
            }
            return match self.create_cluster(name, &secret, key.as_deref()).await {
                // Another replica, or a user, was faster: process it again.
                Ok(()) | Err(HubError::AlreadyExists { .. }) => Ok(now),
                Err(error @ HubError::Invalid { .. }) => {
                    self.warn(
                        &secret,
                        Reason::KubeConfigRefused,
                        &format!("no Cluster was created: {error}"),
                    )
                    .await?;
                    Ok(rest)
                }
                Err(error) => Err(error),
            };
        };
        let cluster: Cluster = present.decode()?;
        let message = match cluster.spec.kube_config {
            Some(own) if own.secret_ref == reference(&secret) => return Ok(rest),
            Some(ClusterKubeConfig { secret_ref: SecretReference { namespace, name: other }, .. }) => {
                format!(
                    "Cluster '{name}' was onboarded by Secret {namespace}/{other}: this kubeconfig is not used. Give the \
                 Secret another name to make another Cluster of it"
                )
            }
            None => format!(
                "Cluster '{name}' exists already and has no spec.kubeConfig: this kubeconfig is not used. Set \
                 spec.kubeConfig.secretRef of the Cluster to have its agent installed by this Secret"
            ),
        };
        self.warn(&secret, Reason::AlreadyRegistered, &message).await?;
        Ok(rest)
    }

    /// The key of a Secret's kubeconfig, if the Secret is to bring a cluster on board: because it is of Cluster API's type, or because a
    /// Kustomization that a person wrote names it. `Some(None)` means one of the usual keys.
    async fn named_key(&self, secret: &Stored) -> Result<Option<Option<String>>, HubError> {
        if is_kubeconfig(secret) {
            return Ok(Some(None));
        }
        for user in self.store.users_of_kubeconfig(&secret.namespace, &secret.name).await? {
            let Some(user) = self.store.get_by_uid(user).await? else { continue };
            // What Git may change could name a Secret that a person put there for something else.
            if self.access.is_written_by_git(&user).await? {
                continue;
            }
            let key = user.object["spec"]["kubeConfig"]["secretRef"]["key"].as_str();
            return Ok(Some(key.map(str::to_owned)));
        }
        Ok(None)
    }

    async fn create_cluster(&self, name: &str, secret: &Stored, key: Option<&str>) -> Result<(), HubError> {
        let version = KindId::Cluster.get().storage_version();
        let address =
            Address { kind: KindId::Cluster, version, namespace: String::new(), name: name.to_owned() };
        let SecretReference { namespace, name: from } = reference(secret);
        let mut object = json!({
            "metadata": { "name": name, "labels": secret.labels() },
            "spec": { "kubeConfig": { "secretRef": { "namespace": namespace, "name": from } } },
        });
        if let Some(key) = key {
            object["spec"]["kubeConfig"]["key"] = key.into();
        }
        let options = WriteOptions { manager: managers::HUB.to_owned(), ..WriteOptions::default() };
        self.objects.create(&Identity::hub(), &address, object, options).await?;
        tracing::info!(cluster = name, secret = %secret, "a Cluster was created from a kubeconfig");
        Ok(())
    }

    async fn warn(&self, about: &Stored, reason: Reason, message: &str) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        events::note(&mut tx, about, "Warning", reason.as_str(), message, self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }

    /// What is to be done for a Cluster that has a kubeconfig.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn plan(&self, uid: ResourceUid) -> Result<OnboardingPlan, HubError> {
        let now = self.clock.now();
        let rest = OnboardingPlan::Nothing(now + REST);
        let Some((stored, cluster)) = triggers::cluster(&self.store, uid.into()).await? else {
            return Ok(rest);
        };
        if stored.deletion_timestamp.is_some() {
            return Ok(OnboardingPlan::Nothing(self.agents.retire(&stored, &cluster).await?));
        }
        if cluster.status.as_ref().and_then(|status| status.observed_generation) != Some(stored.generation) {
            self.note_generation(uid, stored.generation).await?;
        }
        let Some(kube_config) = cluster.spec.kube_config else { return Ok(rest) };
        let status = cluster.status.unwrap_or_default();
        let joined = self.store.agent_key(uid.into()).await?.is_some();
        let text = match self.kubeconfig(&kube_config.secret_ref, &keys(kube_config.key.as_deref())).await? {
            Ok(text) => text,
            // It has done its work, and may be gone.
            Err(_) if joined => return Ok(rest),
            Err(why) => {
                self.not_installed(uid, Reason::KubeConfigRefused, &why).await?;
                return Ok(rest);
            }
        };
        let digest = Digest::of(&text);
        let known = status.kube_config.as_ref().filter(|known| known.digest == digest.to_string());
        if joined && known.is_some() {
            if !kube_config.keep
                && conditions::ready(&status.conditions)
                    .is_some_and(|ready| ready.status == ConditionStatus::True)
            {
                self.forget_kubeconfig(&kube_config.secret_ref, digest).await?;
            }
            return Ok(rest);
        }
        if let Some(Time(at)) = known.and_then(|known| known.installed_at)
            && now < at + JOIN_TTL
        {
            return Ok(OnboardingPlan::Nothing(at + JOIN_TTL));
        }
        match Access::read(&text, self.allowed()) {
            Ok(access) => {
                let job = OnboardingJob { cluster: uid.into(), name: stored.name, access, digest };
                Ok(OnboardingPlan::Reach(Box::new(job)))
            }
            Err(refusal) => {
                self.not_installed(uid, Reason::KubeConfigRefused, &refusal.to_string()).await?;
                Ok(rest)
            }
        }
    }

    /// Notes that a new spec was seen. Whether the agent is connected does not depend on it.
    async fn note_generation(&self, uid: ResourceUid, generation: i64) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(uid).await? else { return Ok(()) };
        status::write::<Cluster>(&mut tx, &mut stored, self.clock.now(), |status, _| {
            status.observed_generation = Some(generation);
            for condition in &mut status.conditions {
                condition.observed_generation = Some(generation);
            }
        })
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// The kubeconfig in a Secret, or why there is none.
    pub(crate) async fn kubeconfig(
        &self,
        from: &SecretReference,
        keys: &[&str],
    ) -> Result<Result<Zeroizing<Vec<u8>>, String>, HubError> {
        let SecretReference { namespace, name } = from;
        let secret = self.store.get(KindId::Secret, namespace, name).await?;
        if let Some(secret) = &secret
            && self.access.is_written_by_git(secret).await?
        {
            return Ok(Err(format!(
                "Secret {namespace}/{name} was written by a Kustomization: kubeconfigs come from people, or from Cluster API"
            )));
        }
        let data = secret.as_ref().and_then(|secret| secret.secret.as_ref());
        let value = data.and_then(|data| keys.iter().find_map(|key| data.expose(key)));
        // What the API stores under a key is base64.
        if let Some(bytes) = value.and_then(|value| STANDARD.decode(value).ok()) {
            return Ok(Ok(Zeroizing::new(bytes)));
        }
        let key = keys.first().copied().unwrap_or_default();
        let what =
            if secret.is_some() { format!("has no key `{key}`") } else { "is not on the hub".to_owned() };
        Ok(Err(format!(
            "Secret {namespace}/{name} {what}: it must hold the cluster's kubeconfig under `{key}`"
        )))
    }

    /// Takes the kubeconfig out of its Secret, unless that is another one meanwhile.
    async fn forget_kubeconfig(&self, from: &SecretReference, digest: Digest) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut secret) = tx.get(KindId::Secret, &from.namespace, &from.name).await? else {
            return Ok(());
        };
        let Some(data) = &secret.secret else { return Ok(()) };
        let is_it = |value: &str| STANDARD.decode(value).is_ok_and(|bytes| Digest::of(&bytes) == digest);
        let all = data.expose_all();
        let count = all.len();
        let kept: BTreeMap<String, String> = all.into_iter().filter(|(_, value)| !is_it(value)).collect();
        if kept.len() == count {
            return Ok(());
        }
        let before = secret.clone();
        // What `kubectl apply` noted of it has the kubeconfig too.
        secret.secret = Some(SecretData::new(kept));
        managers::note_hub(Some(&before), &mut secret, self.clock.now());
        tx.put(secret.clone()).await?;
        let message = "the agent is connected: the kubeconfig is no longer needed and was removed \
                       (spec.kubeConfig.keep of the Cluster keeps it)";
        events::note(&mut tx, &secret, "Normal", Reason::AgentConnected.as_str(), message, self.clock.now())
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Whether the cluster that answered may come on board: what is to be installed there, in order; nothing where its
    /// agent has joined already and only the kubeconfig is new.
    ///
    /// # Errors
    /// [`HubError::Conflict`] where it is another cluster than before, or another Cluster of this hub.
    pub async fn admit(
        &self,
        job: &OnboardingJob,
        kube_system: KubeSystemUid,
    ) -> Result<Vec<Value>, HubError> {
        let joined = self.store.agent_key(job.cluster).await?.is_some();
        let mut tx = self.store.begin().await?;
        let Some(stored) = tx.get_by_uid(job.cluster.into()).await? else { return Ok(Vec::new()) };
        identify(&mut tx, job.cluster, &job.name, kube_system, self.clock.now()).await?;
        tx.commit().await?;
        if joined {
            return Ok(Vec::new());
        }
        let cluster: Cluster = stored.decode()?;
        let agent = cluster.spec.agent.unwrap_or_default();
        let image = agent.image.or_else(|| self.options.agent_image.clone());
        let agent = Agent {
            namespace: agent.namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            image: image.unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            hosted: agent.hosted,
        };
        let invitation =
            self.enrolments.create_join_token(&Identity::hub(), &job.name, Some(JOIN_TTL)).await?;
        let mut objects = agent.objects();
        // Before the Deployment, whose agent looks for it at once.
        let at = objects.iter().position(|object| object["kind"] == "Deployment").unwrap_or(objects.len());
        objects.insert(at, invitation.secret(&agent.namespace));
        Ok(objects)
    }

    /// Takes down what came of reaching a cluster. Says when the next pass is due.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn record(
        &self,
        job: &OnboardingJob,
        outcome: Result<bool, Failed>,
    ) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let installed = match outcome {
            Ok(installed) => installed,
            Err(Failed { reason, why, passing }) => {
                self.not_installed(job.cluster.into(), reason, &why).await?;
                return Ok(now + if passing { RETRY } else { REST });
            }
        };
        let message = if installed {
            "the agent is installed"
        } else {
            "the cluster was reached with its new kubeconfig: the existing agent is kept"
        };
        self.set_installed(job.cluster.into(), Reason::AgentInstalled, message, |stored, status| {
            status.kube_config = Some(ClusterKubeConfigStatus {
                digest: job.digest.to_string(),
                server: Some(job.access.server.as_str().trim_end_matches('/').to_owned()),
                installed_at: installed.then_some(Time(now)),
            });
            if installed {
                let (conditions, waits) = (&mut status.conditions, self.waits_for(stored));
                let reason = Reason::AwaitingAgent;
                conditions::set(
                    conditions,
                    READY,
                    ConditionStatus::False,
                    reason,
                    &waits,
                    stored.generation,
                    now,
                );
            }
            ConditionStatus::True
        })
        .await?;
        tracing::info!(cluster = job.name, installed, "a kubeconfig was used");
        Ok(now)
    }

    /// What a Cluster waits for once all is installed.
    fn waits_for(&self, stored: &Stored) -> String {
        let agent =
            stored.decode::<Cluster>().ok().and_then(|cluster| cluster.spec.agent).unwrap_or_default();
        let namespace = agent.namespace.as_deref().unwrap_or(NAMESPACE);
        if agent.hosted {
            let start = format!("roadstead-agent --kubeconfig FILE --namespace {namespace}");
            return format!(
                "everything except the agent is installed: waiting for the hosted agent; start it with: {start}"
            );
        }
        let link = &self.options.link_address;
        format!(
            "the agent is installed: waiting for Deployment {namespace}/{AGENT_NAME} to connect to {link}"
        )
    }

    async fn not_installed(&self, uid: ResourceUid, reason: Reason, why: &str) -> Result<(), HubError> {
        let now = self.clock.now();
        self.set_installed(uid, reason, why, |stored, status| {
            // A cluster whose agent is, or was, connected goes on as it is.
            let awaits = status.conditions.iter().all(|one| {
                one.type_ != READY
                    || ![Reason::AgentConnected, Reason::AgentDisconnected]
                        .iter()
                        .any(|reason| one.reason == reason.as_str())
            });
            if awaits {
                conditions::set(
                    &mut status.conditions,
                    READY,
                    ConditionStatus::False,
                    reason,
                    why,
                    stored.generation,
                    now,
                );
            }
            ConditionStatus::False
        })
        .await
    }

    /// Sets the condition [`INSTALLED`], and what `change` sets besides; an event tells of news.
    async fn set_installed(
        &self,
        uid: ResourceUid,
        reason: Reason,
        message: &str,
        change: impl FnOnce(&Stored, &mut ClusterStatus) -> ConditionStatus + Send,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(uid).await? else { return Ok(()) };
        let seen = stored.clone();
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            let is = change(&seen, status);
            status.observed_generation = Some(generation);
            conditions::set(&mut status.conditions, INSTALLED, is, reason, message, generation, now);
        })
        .await?;
        tx.commit().await?;
        Ok(())
    }
}

/// Records which cluster this is.
///
/// # Errors
/// [`HubError::Conflict`] where it is another cluster than before, or another Cluster of this hub.
pub(crate) async fn identify(
    tx: &mut Tx,
    cluster: ClusterUid,
    name: &str,
    kube_system: KubeSystemUid,
    now: Timestamp,
) -> Result<(), HubError> {
    match claim(tx, cluster, name, kube_system, now).await? {
        Some(other) => Err(HubError::Conflict {
            what: format!("Cluster '{name}'"),
            why: format!("this cluster is already registered as '{other}'"),
        }),
        None => Ok(()),
    }
}

/// Records which cluster this is; says which other Cluster of this hub it is already, if any.
///
/// # Errors
/// [`HubError::Conflict`] where it is another cluster than before.
pub(crate) async fn claim(
    tx: &mut Tx,
    cluster: ClusterUid,
    name: &str,
    kube_system: KubeSystemUid,
    now: Timestamp,
) -> Result<Option<String>, HubError> {
    let known = tx.cluster_identity(cluster).await?;
    if known.is_some_and(|known| known != kube_system) {
        return Err(HubError::Conflict {
            what: format!("Cluster '{name}'"),
            why: "it was joined by another cluster (the uid of namespace kube-system differs); \
                  to let another cluster take its place, delete the Cluster first"
                .to_owned(),
        });
    }
    Ok(tx.identify_cluster(cluster, kube_system, now).await?)
}

/// Why a cluster is not on board.
#[derive(Debug)]
pub struct Failed {
    /// What the condition's reason is.
    pub reason: Reason,
    /// The cause, for people.
    pub why: String,
    /// Whether the same may succeed later, without another kubeconfig.
    pub passing: bool,
}

impl From<HubError> for Failed {
    fn from(error: HubError) -> Self {
        let passing = !matches!(error, HubError::Conflict { .. });
        let reason = if passing { Reason::InstallationFailed } else { Reason::AlreadyRegistered };
        Self { reason, why: error.to_string(), passing }
    }
}
