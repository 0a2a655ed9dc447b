//! What holds master keys on the hub: a Secret, a service account whose identities key services know, or both.

use std::collections::BTreeMap;

use roadstead_api::{KindId, Lookup, Reference};
use roadstead_hub_store::Stored;
use roadstead_kms::{Credentials, Keys, VaultCredential, VaultProof};
use roadstead_model::Reason;

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::render::{identity, passed_on};
use crate::delivery::seen::SeenApplier;
use crate::delivery::variables::Refused;
use crate::identity::clouds;

/// In the place of a Secret's identity, where an account alone is named.
const NO_SECRET: &str = "-";

/// What holds master keys.
pub(super) struct Holder {
    /// In these namespace and name it was found.
    namespace: String,
    pub(super) secret: Option<Stored>,
    pub(super) account: Option<Stored>,
}

impl Holder {
    pub(super) fn of_secret(secret: Stored) -> Self {
        Self { namespace: secret.namespace.clone(), secret: Some(secret), account: None }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Which one it is, and in which version: `UID@VERSION` of the Secret, and `+NAME/UID@VERSION` of the account.
    pub(super) fn identity(&self) -> String {
        let secret = self.secret.as_ref().map_or_else(|| NO_SECRET.to_owned(), identity);
        match &self.account {
            None => secret,
            Some(account) => format!("{secret}+{}/{}", account.name, identity(account)),
        }
    }
}

/// Whether keys that were found on the hub, as [`Holder::identity`] says, are of no Secret.
pub(in crate::delivery) fn is_by_account(on_hub: &str) -> bool {
    on_hub.split_once('+').is_some_and(|(secret, _)| secret == NO_SECRET)
}

impl Delivery {
    /// The keys of a holder.
    pub(super) fn keys_of(&self, holder: &Holder) -> Result<Keys, String> {
        let credentials = match &holder.account {
            None => Default::default(),
            Some(account) => self.credentials_of(account)?,
        };
        self.key_services.keys(holder.secret.as_ref(), credentials)
    }

    /// What an account stands for at key services, by its annotations; or which of these is not valid.
    fn credentials_of(&self, account: &Stored) -> Result<Credentials, String> {
        let found = clouds::identities(account, &self.identity, "spec.decryption.serviceAccountName")?;
        let vault = self.key_services.vault_login.as_ref().map(|path| VaultCredential {
            proof: VaultProof::Login {
                path: path.clone(),
                role: format!("{}_{}", account.namespace, account.name),
                jwt: found.token.clone(),
            },
            addresses: Vec::new(),
            namespace: None,
        });
        Ok(Credentials { aws: found.aws, azure: found.azure, gcp: found.gcp, vault, huawei: None })
    }

    /// What an applier's service account holds, and its Secret where it names one besides. Which of them were looked for goes to `by`.
    pub(super) async fn keys_of_account(
        &self,
        seen: &SeenApplier,
        place: Option<Lookup>,
        secret: Option<&str>,
        account: &str,
        by: &mut BTreeMap<String, String>,
    ) -> Result<Result<Holder, Refused>, HubError> {
        let failed = |why: String| Ok(Err((Reason::BuildFailed, why)));
        let namespace = &seen.stored.namespace;
        let what = format!("ServiceAccount '{namespace}/{account}' of spec.decryption.serviceAccountName");
        if place == Some(Lookup::Cluster) {
            return failed(format!(
                "{what} is of the hub, and its keys are to be looked up in the cluster only (spec.decryption.location, or spec.lookup of \
                 Cluster '{}'): remove one of the two",
                seen.cluster()
            ));
        }
        if let Ok(rights) = &seen.standing.rights
            && seen.standing.is_child
            && rights.account.is_some()
        {
            let (of, root) = &rights.root;
            return Ok(Err((
                Reason::AccessDenied,
                format!(
                    "{what} is not passed on to a {} that comes from Git, as {} {of}/{root} acts as a service account: name it in an \
                     object that a person writes",
                    seen.stored.kind, seen.stored.kind
                ),
            )));
        }
        let found = self.looked_up(KindId::ServiceAccount, namespace, account, by).await?;
        let Some(found) = found else { return failed(format!("{what} not found on the hub")) };
        let secret = match secret {
            None => None,
            Some(name) => match self.looked_up(KindId::Secret, namespace, name, by).await? {
                Some(secret) => Some(secret),
                None => return failed(self.not_found(namespace, name).await?),
            },
        };
        if let Some(Err(why)) = secret.as_ref().map(|secret| passed_on(seen, KindId::Secret, &secret.name)) {
            return Ok(Err((Reason::AccessDenied, format!("{why} (spec.decryption.secretRef)"))));
        }
        Ok(Ok(Holder { namespace: namespace.clone(), secret, account: Some(found) }))
    }

    /// An object of the hub, that was looked for by an applier.
    async fn looked_up(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
        by: &mut BTreeMap<String, String>,
    ) -> Result<Option<Stored>, HubError> {
        let reference = Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let found = self.store.get(kind, namespace, name).await?;
        by.insert(reference.key(), found.as_ref().map_or_else(String::new, identity));
        Ok(found)
    }

    /// What a dispatch was decrypted by, as it is now.
    pub(super) async fn holder(
        &self,
        namespace: &str,
        shown: &str,
        on_hub: &str,
    ) -> Result<Option<Holder>, HubError> {
        let (of_secret, account) = match on_hub.split_once('+') {
            None => (on_hub, None),
            Some((secret, account)) => (secret, account.split_once('/').map(|(name, _)| name)),
        };
        let secret = match of_secret {
            NO_SECRET => None,
            _ => self.store.get(KindId::Secret, namespace, shown).await?,
        };
        let account = match account {
            None => None,
            Some(name) => self.store.get(KindId::ServiceAccount, namespace, name).await?,
        };
        let any = secret.is_some() || account.is_some();
        Ok(any.then(|| Holder { namespace: namespace.to_owned(), secret, account }))
    }
}
