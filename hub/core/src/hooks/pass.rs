//! Passes over Receivers: what is wrong with them, and where they are called.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{ConditionStatus, KindId, Receiver, ReceiverSpec, ReceiverStatus, ReceiverType};
use roadstead_hooks::WebhookPath;
use roadstead_hub_store::Stored;
use roadstead_model::{ApplierUid, Reason, ResourceUid};

use crate::HubError;
use crate::hooks::Hooks;
use crate::hooks::choose::Filters;
use crate::hooks::prove::IssuerRules;
use crate::objects::conditions::{self, SUSPENDED};
use crate::objects::{status, triggers};

/// The name under which passes are logged.
const LOGGER: &str = "controllers.Receiver";
/// How often a Receiver is looked at that does not say: its Secret's changes lead to a pass by themselves.
const INTERVAL: Duration = Duration::from_secs(600);
/// Where nothing is to be done.
const LONG: Duration = Duration::from_secs(3600);

/// What a pass found: the path and what is said of it, or what is wrong.
type Found = Result<(WebhookPath, String), (Reason, String)>;

impl Hooks {
    /// Makes a pass over a Receiver, and tells when the next one is due.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the Receiver becomes its condition.
    pub async fn process_receiver(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(now + LONG) };
        if stored.kind != KindId::Receiver || stored.deletion_timestamp.is_some() {
            return Ok(now + LONG);
        }
        let spec = stored.decode::<Receiver>()?.spec;
        if spec.suspend {
            // It keeps its path, and calls are refused.
            self.write(&stored, |status, generation| {
                conditions::set_suspended(&mut status.conditions, "its path", generation, now);
            })
            .await?;
            return Ok(now + LONG);
        }
        let found = self.inspect(&stored, &spec).await?;
        self.record(&stored, found, now).await?;
        let interval = spec.interval.map_or(INTERVAL, |interval| interval.0);
        Ok(now + roadstead_hub_plan::jittered(interval, ApplierUid::from(uid)))
    }

    async fn inspect(&self, stored: &Stored, spec: &ReceiverSpec) -> Result<Found, HubError> {
        if let Err(why) = Filters::parse(spec) {
            return Ok(Err((Reason::InvalidCELExpression, why)));
        }
        if let Err(why) = IssuerRules::parse_all(spec) {
            return Ok(Err((Reason::InvalidCELExpression, why)));
        }
        if let Err(why) = self.fits_together(spec) {
            return Ok(Err((Reason::ValidationFailed, why)));
        }
        for (index, resource) in spec.resources.iter().enumerate() {
            let namespace = resource.namespace.as_deref().unwrap_or(&stored.namespace);
            if let Err(why) = self.access.may_use_in(stored, namespace).await? {
                let why = format!("spec.resources[{index}]: namespace '{namespace}' {why}");
                return Ok(Err((Reason::AccessDenied, why)));
            }
        }
        let credentials = match self.credentials(stored, spec).await? {
            Ok(credentials) => credentials,
            Err(why) => return Ok(Err((Reason::TokenNotFound, why))),
        };
        let path = credentials.path(stored);
        Ok(Ok((path, format!("Receiver initialized for path: {path}"))))
    }

    /// What an object must be that was stored before there were rules for it.
    fn fits_together(&self, spec: &ReceiverSpec) -> Result<(), String> {
        let is_oidc = spec.type_ == ReceiverType::GenericOidc;
        if is_oidc == spec.secret_ref.is_some() {
            return Err("spec.secretRef is needed by all types but generic-oidc, which has none".to_owned());
        }
        if is_oidc == spec.oidc_providers.is_empty() {
            return Err("spec.oidcProviders is needed by type generic-oidc, and by no other".to_owned());
        }
        let in_the_clear =
            |url: &str| url.starts_with("http://") && !self.options.outbound.plain_http_credentials;
        match spec.oidc_providers.iter().find(|provider| in_the_clear(&provider.issuer_url)) {
            Some(provider) => Err(format!(
                "issuer {} is asked over plain HTTP, where anyone on the way can put keys of their own in; the hub does not take \
                 them without --allow-plain-http-credentials",
                provider.issuer_url
            )),
            None => Ok(()),
        }
    }

    async fn record(&self, seen: &Stored, found: Found, now: Timestamp) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(seen.uid).await? else { return Ok(()) };
        // Another spec is another pass's.
        if stored.generation != seen.generation || stored.deletion_timestamp.is_some() {
            return Ok(());
        }
        let digest = found.as_ref().ok().map(|(path, _)| path.as_bytes());
        let is_its_own = tx.set_hook(stored.uid, digest).await?;
        let found = if is_its_own {
            found
        } else {
            let why = "another Receiver has the same path: give this one another token";
            Err((Reason::ValidationFailed, why.to_owned()))
        };
        let handled = triggers::request(&stored);
        let full = format!("{}/{}", stored.namespace, stored.name);
        let failure = found.as_ref().err().map(|(_, why)| why.clone());
        let written = status::write::<Receiver>(&mut tx, &mut stored, now, |status, generation| {
            status.conditions.retain(|condition| condition.type_ != SUSPENDED);
            let (ready, reason, message) = match &found {
                Ok((_, message)) => (ConditionStatus::True, Reason::Succeeded, message),
                Err((reason, why)) => (ConditionStatus::False, *reason, why),
            };
            status.webhook_path = found.as_ref().ok().map(|(path, _)| path.to_string());
            conditions::set_ready(&mut status.conditions, ready, reason, message, generation, now);
            status.observed_generation = Some(generation);
            status.last_handled_reconcile_at = handled.or(status.last_handled_reconcile_at.take());
        })
        .await?;
        tx.commit().await?;
        match (written, failure) {
            (Some(_), Some(error)) => tracing::error!(target: LOGGER, receiver = full, error),
            (Some(_), None) => tracing::info!(target: LOGGER, receiver = full, "the Receiver has a path"),
            (None, _) => {}
        }
        Ok(())
    }

    async fn write(
        &self,
        seen: &Stored,
        change: impl FnOnce(&mut ReceiverStatus, i64) + Send,
    ) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(seen.uid).await? else { return Ok(()) };
        if stored.generation != seen.generation || stored.deletion_timestamp.is_some() {
            return Ok(());
        }
        if status::write::<Receiver>(&mut tx, &mut stored, self.clock.now(), change).await?.is_some() {
            tx.commit().await?;
        }
        Ok(())
    }
}
