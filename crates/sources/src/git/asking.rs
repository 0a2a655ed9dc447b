//! A request as whoever it is that asks: by its credentials, or by what a cloud or the GitHub API gives out for the fetch.

use std::borrow::Cow;

use roadstead_cloud::{CloudIdentity, GitLogin, Login};
use url::Url;

use super::app::{self, AppLogin};
use super::error::GitError;
use super::request::{Credentials, GitRequest};
use super::url::Location;
use crate::attempt::Stop;
use crate::cloud::OnceMore;

/// Who gives credentials out.
enum Giver<'r> {
    /// A cloud, to this identity, for this server.
    Cloud(&'r CloudIdentity, &'r Url),
    /// GitHub, to an App.
    GitHub(&'r AppLogin),
}

/// Who asks for what a request is for.
pub(super) struct Asking<'r> {
    request: &'r GitRequest,
    giver: Option<Giver<'r>>,
    once: OnceMore,
}

impl<'r> Asking<'r> {
    pub(super) fn new(request: &'r GitRequest, location: &'r Location) -> Result<Self, GitError> {
        let giver = match (&request.credentials, &request.cloud) {
            (Some(Credentials::App(login)), _) => Some(Giver::GitHub(login)),
            (None, Some(identity)) => Some(Giver::Cloud(identity, server(request, location)?)),
            _ => None,
        };
        Ok(Self { request, giver, once: OnceMore::default() })
    }

    /// The request with its credentials.
    pub(super) async fn asked(&self, stop: &Stop) -> Result<Cow<'r, GitRequest>, GitError> {
        let credentials = match &self.giver {
            None => return Ok(Cow::Borrowed(self.request)),
            Some(Giver::GitHub(login)) => app::log_in(login, self.request, stop).await?,
            Some(Giver::Cloud(identity, server)) => {
                stop.enter("asking for credentials");
                let given = identity.git(server, stop.deadline().into()).await;
                let failed = |source| GitError::Cloud { url: self.request.shown_url(), source };
                match given.map_err(failed)? {
                    GitLogin::Basic(Login { username, password }) => {
                        Credentials::Basic { username, password }
                    }
                    GitLogin::Bearer(token) => Credentials::Bearer(token),
                }
            }
        };
        let request = self.request.clone();
        Ok(Cow::Owned(GitRequest { credentials: Some(credentials), cloud: None, ..request }))
    }

    /// What came of it; none where it is to be tried once more with something new.
    pub(super) fn settled<T>(&mut self, outcome: Result<T, GitError>) -> Option<Result<T, GitError>> {
        let (Some(giver), Err(GitError::Auth { url, status, .. })) = (&self.giver, &outcome) else {
            return Some(outcome);
        };
        if *status == 401 {
            match giver {
                Giver::Cloud(identity, _) => identity.forget(),
                Giver::GitHub(login) => app::forget(login, self.request),
            }
        }
        if self.once.may(*status == 401) {
            return None;
        }
        match giver {
            Giver::Cloud(identity, _) => Some(Err(GitError::CloudDenied {
                url: url.clone(),
                status: *status,
                cloud: identity.cloud(),
            })),
            Giver::GitHub(_) => Some(outcome),
        }
    }
}

/// The server that is to see something of an identity.
fn server<'r>(request: &GitRequest, location: &'r Location) -> Result<&'r Url, GitError> {
    let Location::Http(server) = location else {
        let why = "identities of clouds are for https:// URLs".to_owned();
        return Err(GitError::UrlRefused { url: request.shown_url(), why });
    };
    if server.scheme() == "http" && !request.plain_http_credentials {
        return Err(GitError::PlainCredentials { url: request.shown_url() });
    }
    Ok(server)
}
