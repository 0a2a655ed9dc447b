//! Tokens of service accounts as they are made (TokenRequest) and taken back one by one.
//!
//! As with kube-apiserver a token may be bound to another object, with which it ends: of the kinds that are bound to there, Secret, Pod and Node,
//! the hub has Secret. A token that is taken back is kept as that until every token of its time has ended, since nobody knows but the token when
//! it ends.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::rules::is_dns_subdomain;
use roadstead_api::{FieldError, KindId};
use roadstead_hub_store::Stored;
use roadstead_model::{ResourceUid, Secret, chain};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::HubError;
use crate::address::{Address, named};
use crate::identity::account_keys::{LONGEST, MARGIN, configuration};
use crate::identity::audit::about;
use crate::identity::{Authenticator, Identity, account_user};

/// As kube-apiserver has it: a shorter one is refused.
const SHORTEST: Duration = Duration::from_secs(600);
const DEFAULT: Duration = Duration::from_secs(3600);
/// As kube-apiserver has it: nobody means to ask for more.
const ABSURD: u64 = 1 << 32;
/// Audiences of a token, and bytes of all of them.
const MOST_AUDIENCES: usize = 32;
const AUDIENCE_BYTES: usize = 4096;
/// Tokens of one account that are kept as taken back.
pub const MOST_REVOKED: i64 = 1000;

/// The object with which a token is to end.
#[derive(Debug, Clone, Default)]
pub struct BoundObject {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name, in the namespace of the account.
    pub name: String,
    /// Its uid; whichever it has where empty.
    pub uid: String,
}

impl BoundObject {
    /// The group, and the version.
    fn group(&self) -> (&str, &str) {
        match self.api_version.split_once('/') {
            None => ("", &self.api_version),
            // As kube-apiserver reads a text with more slashes than a version has.
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(parts) => parts,
        }
    }
}

/// What is asked for in a TokenRequest.
#[derive(Debug, Clone, Default)]
pub struct AccountTokenOrder {
    /// For whom; the hub where there are none.
    pub audiences: Vec<String>,
    /// How long; an hour where nothing is said.
    pub lasts: Option<Duration>,
    /// With what it ends, besides its account.
    pub bound: Option<BoundObject>,
}

/// A new token of a service account.
#[derive(Debug)]
pub struct AccountToken {
    /// Its text, which is given out once.
    pub token: Secret,
    /// For whom it is.
    pub audiences: Vec<String>,
    /// The uid of its account.
    pub account: ResourceUid,
    /// How long it lasts.
    pub lasts: Duration,
    /// When it ends; it ends earlier where its account is deleted.
    pub expires: Timestamp,
}

impl Authenticator {
    /// Makes a token of the service account at `address`.
    ///
    /// # Errors
    /// [`HubError::NotFound`] without such an account, or without what the token is bound to; [`HubError::Conflict`] where that has another
    /// uid; [`HubError::Invalid`] where it is to last too short or is for too many; [`HubError::BadRequest`].
    pub async fn create_account_token(
        &self,
        who: &Identity,
        address: &Address,
        order: AccountTokenOrder,
    ) -> Result<AccountToken, HubError> {
        let Address { namespace, name, .. } = address;
        who.authorize("create", address.kind.get(), "token", namespace, name)?;
        let lasts = check_order(&order)?;
        let account = self.living(address.kind, namespace, name).await?;
        let secret = match &order.bound {
            Some(bound) => Some(self.bound_secret(namespace, bound).await?),
            None => None,
        };
        let now = self.clock.now();
        let ring = self.accounts.present(now).await?;
        let no_key =
            || HubError::Internal("there is no key that signs tokens of service accounts".to_owned());
        let key = ring.signer(now).ok_or_else(no_key)?;
        let audiences = match order.audiences {
            none if none.is_empty() => vec![self.accounts.issuer().to_owned()],
            audiences => audiences,
        };
        let (begin, jti) = (now.as_second(), Uuid::new_v4());
        let end = begin.saturating_add(i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
        let mut claims = json!({
            "iss": self.accounts.issuer(), "aud": audiences, "iat": begin, "nbf": begin, "exp": end, "jti": jti,
            "sub": account_user(namespace, name).username,
            "kubernetes.io": { "namespace": namespace, "serviceaccount": { "name": name, "uid": account.uid } },
        });
        let mut with = String::new();
        if let Some(secret) = secret {
            claims["kubernetes.io"]["secret"] = json!({ "name": secret.name, "uid": secret.uid });
            with = format!(", bound to Secret {} (uid {})", secret.name, secret.uid);
        }
        let token = key.sign(&claims).map_err(|error| HubError::Internal(chain(&error)))?;
        let expires = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        let mut entry = about(who, "create", address.kind, namespace, name);
        entry.kind.push_str("/token");
        entry.detail = format!("token JTI={jti} for {audiences:?} until {expires}{with}");
        // Before anybody has it.
        self.store.note(&[entry]).await?;
        Ok(AccountToken { token: Secret::from(token), audiences, account: account.uid, lasts, expires })
    }

    /// What a token is to end with.
    async fn bound_secret(&self, namespace: &str, bound: &BoundObject) -> Result<Stored, HubError> {
        let (group, version) = bound.group();
        if !group.is_empty() || bound.kind != KindId::Secret.get().kind {
            let kind = &bound.kind;
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(HubError::BadRequest(why));
        }
        let secret = self.living(KindId::Secret, namespace, &bound.name).await?;
        if !bound.uid.is_empty() && bound.uid != secret.uid.to_string() {
            return Err(HubError::Conflict {
                what: format!("Operation cannot be fulfilled on Secret \"{}\"", bound.name),
                why: format!(
                    "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
                     deleted and then recreated",
                    bound.uid
                ),
            });
        }
        Ok(secret)
    }

    /// An object that is there to stay.
    async fn living(&self, kind: KindId, namespace: &str, name: &str) -> Result<Stored, HubError> {
        let found = if is_dns_subdomain(name) { self.store.get(kind, namespace, name).await? } else { None };
        let found = found.ok_or_else(|| HubError::NotFound { what: named(kind.get(), name) })?;
        if found.deletion_timestamp.is_some() {
            return Err(HubError::Forbidden(format!("{} is being deleted", named(kind.get(), name))));
        }
        Ok(found)
    }

    /// Takes one token of the service account at `address` back, by its claim `jti`. It may be taken for two seconds more. Whoever may delete
    /// the account, and thereby end all of its tokens, may do that, and whoever may make such tokens.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not, [`HubError::NotFound`] without such an account or where no token is named so,
    /// [`HubError::TooMany`] where as many of the account's are kept as may.
    pub async fn revoke_account_token(
        &self,
        who: &Identity,
        address: &Address,
        jti: &str,
    ) -> Result<(), HubError> {
        let (kind, namespace, name) = (address.kind.get(), &address.namespace, &address.name);
        if who.authorize("create", kind, "token", namespace, name).is_err() {
            who.authorize("delete", kind, "", namespace, name)?;
        }
        let no_token = |_| HubError::NotFound { what: format!("token \"{jti}\"") };
        let jti: Uuid = jti.parse().map_err(no_token)?;
        let not_found = || HubError::NotFound { what: named(kind, name) };
        if !is_dns_subdomain(name) {
            return Err(not_found());
        }
        let lasts = SignedDuration::try_from(LONGEST).unwrap_or(SignedDuration::MAX).saturating_add(MARGIN);
        let until = self.clock.now().saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let mut tx = self.store.begin().await?;
        let account = tx.get(address.kind, namespace, name).await?.ok_or_else(not_found)?;
        if !tx.revoke_account_token(account.uid, jti, until, MOST_REVOKED).await? {
            return Err(HubError::TooMany(format!(
                "{MOST_REVOKED} tokens of {} were taken back one by one: delete it, and all of its tokens end",
                named(kind, name)
            )));
        }
        let mut entry = about(who, "delete", address.kind, namespace, name);
        entry.kind.push_str("/token");
        entry.detail = format!("token JTI={jti}");
        tx.note(&entry).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Reads the keys that sign tokens of service accounts, makes another one where it is time for it, and forgets which tokens were taken
    /// back that have ended since.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tend_account_keys(&self) -> Result<(), HubError> {
        self.store.drop_ended_revocations(self.clock.now()).await?;
        self.accounts.tend().await.map(drop)
    }

    /// What the hub says of itself as an issuer of tokens.
    #[must_use]
    pub fn issuer_configuration(&self) -> Bytes {
        configuration(self.accounts.issuer())
    }

    /// The keys by which tokens of service accounts are verified.
    ///
    /// # Errors
    /// Where they are not known yet, and the database fails.
    pub async fn issuer_keys(&self) -> Result<Bytes, HubError> {
        Ok(self.accounts.recent(self.clock.now()).await?.published.clone())
    }
}

/// Checks what is asked for, and says how long the token lasts.
fn check_order(order: &AccountTokenOrder) -> Result<Duration, HubError> {
    let lasts = order.lasts.unwrap_or(DEFAULT);
    let mut causes = Vec::new();
    let mut wrong =
        |field: &str, value: Value, why: &str| causes.push(FieldError::invalid(field, &value, why));
    if lasts < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        wrong("spec.expirationSeconds", lasts.as_secs().into(), why);
    }
    if lasts.as_secs() > ABSURD {
        let why = "may not specify a duration larger than 2^32 seconds";
        wrong("spec.expirationSeconds", lasts.as_secs().into(), why);
    }
    let bytes: usize = order.audiences.iter().map(String::len).sum();
    let is_sound = |audience: &String| !audience.is_empty() && !audience.chars().any(char::is_control);
    if order.audiences.len() > MOST_AUDIENCES
        || bytes > AUDIENCE_BYTES
        || !order.audiences.iter().all(is_sound)
    {
        let why = "want at most 32 texts without control characters, of at most 4096 bytes together";
        wrong("spec.audiences", order.audiences.len().into(), why);
    }
    if causes.is_empty() {
        return Ok(lasts.min(LONGEST));
    }
    Err(HubError::Invalid { what: "TokenRequest.authentication.k8s.io \"\"".to_owned(), causes })
}

#[cfg(test)]
mod tests {
    use super::BoundObject;

    #[test]
    fn versions_are_read_as_kube_apiserver_does() {
        let read = |text: &str| {
            let bound = BoundObject { api_version: text.to_owned(), ..BoundObject::default() };
            let (group, version) = bound.group();
            format!("{group}/{version}")
        };
        for (text, want) in [("", "/"), ("v1", "/v1"), ("/v1", "/v1"), ("apps/v1", "apps/v1"), ("a/b/c", "/")]
        {
            assert_eq!(read(text), want, "{text}");
        }
    }
}
