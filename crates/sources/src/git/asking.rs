//! A request as whoever it is that asks: by its credentials, or by what a cloud gives out to its identity.

use std::borrow::Cow;

use roadstead_cloud::{CloudIdentity, GitLogin, Login};
use url::Url;

use super::error::GitError;
use super::request::{Credentials, GitRequest};
use super::url::Location;
use crate::attempt::Stop;
use crate::cloud::AskedTwice;

/// Who asks for what a request is for.
pub(super) struct Asking<'r> {
    request: &'r GitRequest,
    /// The identity, and the server that is to see something of it.
    identity: Option<(&'r CloudIdentity, &'r Url)>,
    twice: AskedTwice<'r>,
}

impl<'r> Asking<'r> {
    pub(super) fn new(request: &'r GitRequest, location: &'r Location) -> Result<Self, GitError> {
        let identity = request.cloud.as_ref().filter(|_| request.credentials.is_none());
        let twice = AskedTwice::new(identity);
        let Some(identity) = identity else { return Ok(Self { request, identity: None, twice }) };
        let Location::Http(server) = location else {
            let why = "identities of clouds are for https:// URLs".to_owned();
            return Err(GitError::UrlRefused { url: request.shown_url(), why });
        };
        if server.scheme() == "http" && !request.plain_http_credentials {
            return Err(GitError::PlainCredentials { url: request.shown_url() });
        }
        Ok(Self { request, identity: Some((identity, server)), twice })
    }

    /// The request with its credentials.
    pub(super) async fn asked(&self, stop: &Stop) -> Result<Cow<'r, GitRequest>, GitError> {
        let Some((identity, server)) = self.identity else { return Ok(Cow::Borrowed(self.request)) };
        stop.enter("asking for credentials");
        let given = identity.git(server, stop.deadline().into()).await;
        let given = given.map_err(|source| GitError::Cloud { url: self.request.shown_url(), source });
        let credentials = match given? {
            GitLogin::Basic(Login { username, password }) => Credentials::Basic { username, password },
            GitLogin::Bearer(token) => Credentials::Bearer(token),
        };
        let request = self.request.clone();
        Ok(Cow::Owned(GitRequest { credentials: Some(credentials), cloud: None, ..request }))
    }

    /// What came of it; none where it is to be tried once more with something new.
    pub(super) fn settled<T>(&mut self, outcome: Result<T, GitError>) -> Option<Result<T, GitError>> {
        let (Some((identity, _)), Err(GitError::Auth { url, status, .. })) = (self.identity, &outcome) else {
            return Some(outcome);
        };
        let (url, status) = (url.clone(), *status);
        if self.twice.may(status == 401) {
            return None;
        }
        Some(Err(GitError::CloudDenied { url, status, cloud: identity.cloud() }))
    }
}
