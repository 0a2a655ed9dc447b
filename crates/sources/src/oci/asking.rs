//! A request as whoever it is that asks: by its logins, or by what a cloud gives out to its identity.

use std::borrow::Cow;

use roadstead_cloud::{CloudIdentity, Login};

use super::error::OciError;
use super::login::{RegistryLogin, RegistryLogins};
use super::name::RepositoryName;
use super::request::OciRequest;
use crate::attempt::Stop;
use crate::cloud::OnceMore;

/// Who asks for what a request is for.
pub(super) struct Asking<'r> {
    request: &'r OciRequest,
    name: RepositoryName,
    identity: Option<&'r CloudIdentity>,
    once: OnceMore,
}

impl<'r> Asking<'r> {
    pub(super) fn new(request: &'r OciRequest) -> Result<Self, OciError> {
        let name = RepositoryName::parse(&request.url, request.insecure);
        let name = name.map_err(|why| OciError::UrlRefused { url: request.shown_url(), why })?;
        let identity = request.cloud.as_ref().filter(|_| request.logins.of(&name).is_none());
        if identity.is_some() && request.insecure && !request.plain_http_credentials {
            return Err(OciError::PlainCredentials { url: request.shown_url() });
        }
        Ok(Self { request, name, identity, once: OnceMore::default() })
    }

    /// The request with its logins.
    pub(super) async fn asked(&self, stop: &Stop) -> Result<Cow<'r, OciRequest>, OciError> {
        let Some(identity) = self.identity else { return Ok(Cow::Borrowed(self.request)) };
        stop.enter("asking for credentials");
        let given = identity.registry(&self.name.registry, stop.deadline().into()).await;
        let given = given.map_err(|source| OciError::Cloud { url: self.request.shown_url(), source });
        let Login { username, password } = given?;
        let logins = RegistryLogins::everywhere(RegistryLogin::Basic { username, password });
        Ok(Cow::Owned(OciRequest { logins, ..self.request.clone() }))
    }

    /// What came of it; none where it is to be tried once more with something new.
    pub(super) fn settled<T>(&mut self, outcome: Result<T, OciError>) -> Option<Result<T, OciError>> {
        let (Some(identity), Err(OciError::Auth { url, status, .. })) = (self.identity, &outcome) else {
            return Some(outcome);
        };
        let (url, status) = (url.clone(), *status);
        self.request.known_registry.keep(None);
        if self.once.may(status == 401) {
            identity.forget();
            return None;
        }
        Some(Err(OciError::CloudDenied { url, status, cloud: identity.cloud() }))
    }
}
