//! Providers that a cloud knows: by `spec.serviceAccountName`, by the key of a service account of Google's, or as the hub itself where the
//! operator lets their namespace. A token is asked for before something is sent.

use roadstead_api::ProviderType;
use roadstead_cloud::{Cloud, CloudIdentity, GcpCredential, GitLogin};
use roadstead_hub_store::Stored;
use roadstead_model::Secret;
use roadstead_notify::{Target, begin};
use tokio::time::Instant;
use url::Url;

use crate::HubError;
use crate::notify::provider::sample;
use crate::notify::way::Way;
use crate::notify::{Fault, Notifier};

/// Whether a Provider of this type shows a token that it is given. What its Secret has goes before, as in Flux: of Google that is a key, by
/// which a token is asked for.
pub(super) fn is_identity(type_: ProviderType, target: &Target) -> bool {
    let has_token = target.token.as_ref().is_some_and(|token| !token.is_empty());
    match type_ {
        ProviderType::Googlepubsub => true,
        ProviderType::Azuredevops => !has_token,
        // A connection string has a key of its own.
        ProviderType::Azureeventhub => !has_token && !target.address.expose().contains(';'),
        _ => false,
    }
}

fn cloud(type_: ProviderType) -> Cloud {
    if type_ == ProviderType::Googlepubsub { Cloud::Gcp } else { Cloud::Azure }
}

impl Notifier {
    /// Who a Provider is by the key in its Secret, where it has one: that is taken out of the target, since it is shown to nobody.
    pub(super) fn of_key(
        &self,
        type_: ProviderType,
        target: &mut Target,
        secret: &Stored,
    ) -> Result<Option<CloudIdentity>, String> {
        if type_ != ProviderType::Googlepubsub {
            return Ok(None);
        }
        let Some(key) = target.token.take().filter(|key| !key.is_empty()) else { return Ok(None) };
        // Exposed to be parsed; what is wrong with it shows nothing of it.
        let key = GcpCredential::parse(key.expose()).map_err(|why| format!("key token: {why}"))?;
        Ok(Some(self.clouds.of_key(key, secret).identity))
    }

    /// Who a Provider is that has no key: none where it cannot be told where it sends to, which is told elsewhere.
    pub(super) async fn at_cloud(&self, way: &Way) -> Result<Result<Option<CloudIdentity>, Fault>, HubError> {
        let Ok(next) = begin(way.type_, &way.target, &sample(self.clock.now())) else { return Ok(Ok(None)) };
        let Some(request) = next.requests().into_iter().next() else { return Ok(Ok(None)) };
        let whose = (&way.provider, cloud(way.type_));
        // Exposed to see where it goes.
        let found = self.clouds.of_provider(&self.store, &self.access, whose, request.url.expose()).await?;
        Ok(found.map(|found| Some(found.identity)))
    }

    /// A token for the service at this URL.
    pub(super) async fn cloud_token(
        &self,
        way: &Way,
        identity: &CloudIdentity,
        url: &str,
    ) -> Result<Secret, String> {
        let url = Url::parse(url).map_err(|_| "the address is not a valid URL".to_owned())?;
        let until = Instant::now() + way.timeout;
        let given = match way.type_ {
            ProviderType::Azuredevops => identity.git(&url, until).await.map(|login| match login {
                GitLogin::Bearer(token) => token,
                GitLogin::Basic(login) => login.password,
            }),
            _ => identity.bus(&url, until).await,
        };
        given.map_err(|error| error.to_string())
    }
}
