//! The cluster's own policy at work: read from the agent's namespace whenever something is to be done, and the count of
//! deletions, kept there too. What it says is decided by [`roadstead_agent_policy`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use roadstead_agent_policy::{Account, Action, CONFIG_MAP, Deletions, Object, Policy, Running, Signature};
use roadstead_apply::{Gate, Verdict};
use roadstead_model::{ObjectRef, chain};
use tokio::sync::Mutex;

use crate::coalesce::Coalesced;
use crate::home::{Home, HomeError, failed};

/// The ConfigMap that keeps the count of deletions.
pub const DELETIONS: &str = "roadstead-agent-deletions";

/// The annotation of the agent's namespace by which an operator of the cluster has the agent do nothing, whatever its hub says.
pub const PAUSED: &str = "fleet.roadstead.dev/paused";

/// Its key.
const KEY: &str = "minutes";

/// How long the policy is tried to be read.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the count is written again where somebody else wrote it.
const TRIES: usize = 5;

/// Deletions are counted ahead by this share of the limit, so that not each of them is a write; what is counted and not used
/// within the minute is lost.
const SHARE: u32 = 20;

/// Reads the policy and counts deletions. One for each agent.
pub struct Warden {
    home: Home,
    /// The operator has the agent read no policy.
    is_off: bool,
    /// A push is many dispatches at once, of which each wants to know the policy.
    read: Coalesced<Result<Arc<Policy>, String>>,
    spare: Mutex<Spare>,
}

/// Deletions that are counted already.
#[derive(Default)]
struct Spare {
    minute: i64,
    left: u32,
}

impl Warden {
    /// For the agent in `home`; with `is_off`, the policy is `open` whatever the cluster has.
    #[must_use]
    pub fn new(home: Home, is_off: bool) -> Self {
        Self { home, is_off, read: Coalesced::default(), spare: Mutex::default() }
    }

    /// The agent's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.home.namespace()
    }

    /// The policy as it is now. An apiserver that is away is waited for, for a while.
    ///
    /// # Errors
    /// Why there is none, for people; nothing is to be done then.
    pub async fn policy(&self) -> Result<Arc<Policy>, String> {
        self.read.get(|| async { self.read_policy().await.map(Arc::new) }).await
    }

    async fn read_policy(&self) -> Result<Policy, String> {
        let namespace = self.home.namespace();
        let read = async {
            let (paused, map) = tokio::join!(
                crate::app::patiently(|| self.home.is_paused()),
                crate::app::patiently(|| async {
                    if self.is_off { Ok(None) } else { self.home.config_map(CONFIG_MAP).await }
                }),
            );
            Ok::<_, HomeError>((paused?, map?))
        };
        let read = tokio::time::timeout(PATIENCE, read).await;
        if let Ok(Ok((true, _))) = read {
            return Err(format!(
                "the agent is paused by the annotation {PAUSED} on namespace {namespace} of its cluster: nothing is applied, \
                 corrected or deleted there until it is removed"
            ));
        }
        if self.is_off {
            return Ok(Policy::open(namespace));
        }
        let data = match read.map(|read| read.map(|(_, map)| map)) {
            Ok(Ok(found)) => found.map(|map| map.data.unwrap_or_default()),
            Ok(Err(error)) => {
                return Err(format!(
                    "the agent cannot read its policy, so it refuses everything: {}. Apply this version's agent manifests, \
                     whose Role allows it (roadstead cluster join prints them), or start it with --no-policy",
                    chain(&error)
                ));
            }
            Err(_) => {
                return Err("the agent's policy could not be read: the apiserver is not available".to_owned());
            }
        };
        Policy::from_config_map(namespace, data.as_ref()).map_err(|error| error.to_string())
    }

    /// Whether the agent may run another image.
    ///
    /// # Errors
    /// Why not, for people.
    pub async fn check_upgrade(
        &self,
        running: &str,
        wanted: &str,
        signatures: &[Signature],
    ) -> Result<(), String> {
        let running = Running { image: running, version: crate::VERSION };
        self.policy()
            .await?
            .check_upgrade(&running, wanted, signatures)
            .map_err(|refused| refused.to_string())
    }

    /// Whether the agent may remove itself.
    ///
    /// # Errors
    /// Why not, for people.
    pub async fn check_removal(&self) -> Result<(), String> {
        self.policy().await?.check_removal().map_err(|refused| refused.to_string())
    }

    /// What asks `policy` before each deletion on behalf of `account`.
    #[must_use]
    pub fn gate(self: &Arc<Self>, policy: Arc<Policy>, account: Option<Account>) -> Arc<dyn Gate> {
        Arc::new(DeletionGate { warden: Arc::clone(self), policy, account })
    }

    /// Counts one deletion, if `limit` leaves room for it: false where it does not. It is counted in the cluster before it is
    /// done.
    async fn count(&self, limit: u32) -> Result<bool, HomeError> {
        let mut spare = self.spare.lock().await;
        let minute = Timestamp::now().as_second().div_euclid(60);
        if spare.minute == minute && spare.left > 0 {
            spare.left -= 1;
            return Ok(true);
        }
        for _ in 0..TRIES {
            let found = self.home.config_map(DELETIONS).await?;
            let text = found.as_ref().and_then(|map| map.data.as_ref()?.get(KEY));
            let mut deletions: Deletions = match text {
                None => Deletions::default(),
                Some(text) => serde_json::from_str(text).map_err(|_| HomeError::NoCount)?,
            };
            let granted = deletions.reserve(minute, (limit / SHARE).max(1), limit);
            if granted == 0 {
                return Ok(false);
            }
            let text = serde_json::to_string(&deletions).map_err(|_| HomeError::NoCount)?;
            if self.home.keep_config_map(DELETIONS, found, KEY, text).await? {
                *spare = Spare { minute, left: granted - 1 };
                return Ok(true);
            }
        }
        Err(HomeError::Contended(format!("ConfigMap {}/{DELETIONS}", self.home.namespace())))
    }
}

/// Asks the policy, and counts.
struct DeletionGate {
    warden: Arc<Warden>,
    policy: Arc<Policy>,
    account: Option<Account>,
}

impl Gate for DeletionGate {
    fn before_deletion<'a>(&'a self, object: &'a ObjectRef) -> Verdict<'a> {
        Box::pin(async move {
            let what = Object { reference: object, content: None };
            let judged = self.policy.evaluate(Action::Delete, &what, self.account.as_ref());
            judged.map_err(|refused| refused.to_string())?;
            let Some(limit) = self.policy.deletions_per_hour() else { return Ok(()) };
            if self.policy.is_confirmed_deletion(object) {
                return Ok(());
            }
            match self.warden.count(limit).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.policy.too_many_deletions(object, limit).to_string()),
                Err(error) => {
                    Err(format!("the deletion cannot be counted, so it is not done: {}", chain(&error)))
                }
            }
        })
    }
}

impl Home {
    /// Whether an operator of the cluster has paused the agent.
    pub(crate) async fn is_paused(&self) -> Result<bool, HomeError> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let look = failed(format!("read namespace {}", self.namespace()));
        let found = namespaces.get_metadata_opt(self.namespace()).await.map_err(look)?;
        let annotations = found.and_then(|namespace| namespace.metadata.annotations).unwrap_or_default();
        Ok(annotations.get(PAUSED).is_some_and(|paused| paused == "true"))
    }

    /// A ConfigMap of this namespace.
    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, HomeError> {
        let look = failed(format!("read ConfigMap {}/{name}", self.namespace()));
        self.config_maps().get_opt(name).await.map_err(look)
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), self.namespace())
    }

    /// Writes a ConfigMap of one key, where nobody has since `found` was read; false where somebody has.
    async fn keep_config_map(
        &self,
        name: &str,
        found: Option<ConfigMap>,
        key: &str,
        text: String,
    ) -> Result<bool, HomeError> {
        let data = Some(BTreeMap::from([(key.to_owned(), text)]));
        let params = PostParams::default();
        let written = match found {
            Some(found) => self.config_maps().replace(name, &params, &ConfigMap { data, ..found }).await,
            None => {
                let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
                let map = ConfigMap { metadata, data, ..ConfigMap::default() };
                self.config_maps().create(&params, &map).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(failed(format!("write ConfigMap {}/{name}", self.namespace()))(error)),
        }
    }
}
