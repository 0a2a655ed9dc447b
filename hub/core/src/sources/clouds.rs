//! As whom sources ask their clouds (`spec.provider` aws, azure and gcp), and Providers of Alerts send to theirs: by a service account of their
//! namespace, or as the hub itself where the operator lets their namespace.

use std::sync::Arc;

use roadstead_api::KindId;
use roadstead_cloud::{
    ANSWER_BYTES, Cloud, CloudCredential, CloudIdentity, GcpCredential, Kept, Network, OwnHosts,
    TokenServices,
};
use roadstead_hub_store::{Store, Stored};
use roadstead_kms::Credentials;
use roadstead_model::Reason;
use roadstead_outbound::Purpose;

use crate::identity::{AccessRules, Authenticator, clouds};
use crate::{HubError, HubOptions};

const FIELD: &str = "spec.serviceAccountName";
/// In the place of an account's version, of the hub itself.
const OWN: i64 = -1;

/// How the operator set identities of clouds up.
#[derive(Debug, Clone, Default)]
pub struct CloudOptions {
    /// The namespaces whose sources and Providers may ask as the hub itself; `*` for all.
    pub namespaces: Vec<String>,
    /// Who the hub itself is.
    pub own: Credentials,
    /// Where credentials are exchanged for others.
    pub services: TokenServices,
    /// What counts as a cloud's own, besides what its name says.
    pub hosts: OwnHosts,
}

/// Who sources and Providers are at their clouds.
pub(crate) struct Clouds {
    identity: Arc<Authenticator>,
    options: Arc<HubOptions>,
    network: Arc<Network>,
    kept: Kept,
}

/// Who a source is at its cloud, and in which version.
pub(crate) struct AtCloud {
    pub(crate) identity: CloudIdentity,
    pub(super) version: i64,
}

/// The reason and the message of a condition.
type Refused = (Reason, String);

impl Clouds {
    pub(crate) fn new(identity: &Arc<Authenticator>, options: &Arc<HubOptions>) -> Self {
        let outbound = &options.outbound;
        let network = Network::new(Purpose::Cloud, &outbound.policy, Some(Arc::clone(&outbound.proxies)));
        Self {
            identity: Arc::clone(identity),
            options: Arc::clone(options),
            network: Arc::new(network.with_answers_of(ANSWER_BYTES)),
            kept: Kept::default(),
        }
    }

    /// Who the source `whose` is at its cloud; none where it does not ask one, or shows something else.
    pub(super) async fn of(
        &self,
        store: &Store,
        access: &AccessRules,
        whose: &Stored,
        url: &str,
    ) -> Result<Result<Option<AtCloud>, Refused>, HubError> {
        let spec = &whose.object["spec"];
        let Some(cloud) = spec["provider"].as_str().and_then(Cloud::parse) else { return Ok(Ok(None)) };
        if whose.kind == KindId::HelmRepository && spec["type"] != "oci" {
            return Ok(Ok(None));
        }
        let account = match self.account(whose) {
            Ok(account) => account,
            Err(refused) => return Ok(Err(refused)),
        };
        // Of a Git repository it has certificates only.
        if whose.kind != KindId::GitRepository && !spec["secretRef"].is_null() {
            return Ok(Ok(None));
        }
        match account {
            Some(account) => self.of_account(store, access, (whose, cloud), account, url).await,
            None => Ok(self.own(whose, cloud)),
        }
    }

    /// Who a Provider of Alerts is at the cloud whose service is at this URL.
    pub(crate) async fn of_provider(
        &self,
        store: &Store,
        access: &AccessRules,
        (provider, cloud): (&Stored, Cloud),
        url: &str,
    ) -> Result<Result<AtCloud, Refused>, HubError> {
        let account = match self.account(provider) {
            Ok(account) => account,
            Err(refused) => return Ok(Err(refused)),
        };
        let found = match account {
            Some(account) => self.of_account(store, access, (provider, cloud), account, url).await?,
            None => self.own(provider, cloud),
        };
        Ok(found.and_then(|found| {
            found.ok_or_else(|| (Reason::AccessDenied, format!("it has no identity at {cloud}")))
        }))
    }

    /// Whoever the key in a Secret is of.
    pub(crate) fn of_key(&self, key: GcpCredential, secret: &Stored) -> AtCloud {
        let holder = format!("{}@{}", secret.uid, secret.resource_version);
        self.at(CloudCredential::Gcp(key), &holder, secret.resource_version)
    }

    /// The account that is named, where naming one is allowed.
    fn account<'w>(&self, whose: &'w Stored) -> Result<Option<&'w str>, Refused> {
        let account = whose.object["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty());
        if account.is_some() && !self.options.object_level_workload_identity {
            let why = "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate \
                       in the controller: start the hub with --object-level-workload-identity";
            return Err((Reason::FeatureGateDisabled, why.to_owned()));
        }
        Ok(account)
    }

    async fn of_account(
        &self,
        store: &Store,
        access: &AccessRules,
        (whose, cloud): (&Stored, Cloud),
        name: &str,
        url: &str,
    ) -> Result<Result<Option<AtCloud>, Refused>, HubError> {
        let failed = |why: String| Ok(Err((Reason::AuthenticationFailed, why)));
        let what = format!("ServiceAccount '{}/{name}' of {FIELD}", whose.namespace);
        let Some(found) = store.get(KindId::ServiceAccount, &whose.namespace, name).await? else {
            return failed(format!("{what} not found"));
        };
        if let Err(why) = access.may_send(whose, &found, url).await? {
            return Ok(Err((Reason::AccessDenied, why)));
        }
        let identities = match clouds::identities(&found, &self.identity, FIELD) {
            Ok(identities) => identities,
            Err(why) => return failed(why),
        };
        let of = Credentials {
            aws: identities.aws,
            azure: identities.azure,
            gcp: identities.gcp,
            ..Credentials::default()
        };
        let Some(credential) = credential(cloud, of) else {
            return failed(format!(
                "{what} has no identity at {cloud}: annotate it with {}",
                annotations(cloud)
            ));
        };
        let holder = format!("{}@{}", found.uid, found.resource_version);
        Ok(Ok(Some(self.at(credential, &holder, found.resource_version))))
    }

    /// The hub itself.
    fn own(&self, whose: &Stored, cloud: Cloud) -> Result<Option<AtCloud>, Refused> {
        let CloudOptions { namespaces, own, .. } = &self.options.clouds;
        if !namespaces.iter().any(|namespace| namespace == "*" || *namespace == whose.namespace) {
            if (whose.kind, cloud) == (KindId::Bucket, Cloud::Azure) {
                // A public container.
                return Ok(None);
            }
            if whose.kind == KindId::Provider {
                return Err((
                    Reason::AccessDenied,
                    format!(
                        "without a token in the Secret of spec.secretRef events would be sent to {cloud} by the hub's own identity, which \
                         namespace '{}' may not use (--hub-cloud-identity): put a token there, or name a ServiceAccount in {FIELD}",
                        whose.namespace
                    ),
                ));
            }
            let instead = match whose.kind {
                KindId::HelmRepository => "name a Secret in spec.secretRef",
                // With such a provider its Secret has certificates only.
                KindId::GitRepository => "name a ServiceAccount in spec.serviceAccountName",
                _ => "name a ServiceAccount in spec.serviceAccountName, or a Secret in spec.secretRef",
            };
            return Err((
                Reason::AccessDenied,
                format!(
                    "spec.provider {cloud} alone would have this source fetched by the hub's own identity, which namespace '{}' may not \
                     use (--hub-cloud-identity): {instead}",
                    whose.namespace
                ),
            ));
        }
        match credential(cloud, own.clone()) {
            Some(credential) => Ok(Some(self.at(credential, "the hub", OWN))),
            None => Err((Reason::AuthenticationFailed, format!("the hub itself has no identity at {cloud}"))),
        }
    }

    fn at(&self, credential: CloudCredential, holder: &str, version: i64) -> AtCloud {
        let CloudOptions { services, hosts, .. } = &self.options.clouds;
        let identity = CloudIdentity::new(credential, holder, &self.kept, (services, hosts), &self.network);
        AtCloud { identity, version }
    }
}

fn credential(cloud: Cloud, of: Credentials) -> Option<CloudCredential> {
    match cloud {
        Cloud::Aws => of.aws.map(CloudCredential::Aws),
        Cloud::Azure => of.azure.map(CloudCredential::Azure),
        Cloud::Gcp => of.gcp.map(CloudCredential::Gcp),
    }
}

/// What says who an account is there.
fn annotations(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::Aws => "eks.amazonaws.com/role-arn",
        Cloud::Azure => "azure.workload.identity/tenant-id and azure.workload.identity/client-id",
        Cloud::Gcp => "gcp.auth.fluxcd.io/workload-identity-provider",
    }
}
