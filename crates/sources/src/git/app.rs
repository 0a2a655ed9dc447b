//! Logging in as a GitHub App: it is given a token, which is then sent as a password.

use http::Response;
use roadstead_github_app::{App, AppError, Tokens, Want};
use roadstead_outbound::{Client, Guard};

use super::error::GitError;
use super::request::{Credentials, GitRequest};
use crate::attempt::{AttemptError, Stop, check_for_a_limit};

/// The user whose password a token of an App is.
const USER: &str = "x-access-token";

/// A GitHub App to log in as.
#[derive(Debug, Clone)]
pub struct AppLogin {
    /// The App.
    pub app: App,
    /// Where its tokens are kept.
    pub tokens: Tokens,
    /// The way out to the API, whose address a user chose as well.
    pub guard: Guard,
    /// What tells this way out from others, such as the version of the Secret with its proxy.
    pub way: Vec<u8>,
}

/// A token of the App, as a request sends it.
pub(super) async fn log_in(
    login: &AppLogin,
    request: &GitRequest,
    stop: &Stop,
) -> Result<Credentials, GitError> {
    stop.enter("asking for a token of the GitHub App");
    let client = || {
        let (ca, identity) = (request.ca.as_deref(), request.identity.as_ref());
        let client = Client::as_someone(login.guard.clone(), ca, identity)?;
        stop.hide_behind(client.veil());
        Ok(client)
    };
    let parts = way(login, request);
    let want = Want { app: &login.app, way: &parts };
    let password =
        login.tokens.token(want, client).await.map_err(|error| failed(login, request, stop, error))?;
    Ok(Credentials::Basic { username: USER.to_owned(), password })
}

/// Forgets the token that was not taken: an installation may have been changed since.
pub(super) fn forget(login: &AppLogin, request: &GitRequest) {
    login.tokens.forget(Want { app: &login.app, way: &way(login, request) });
}

fn way<'a>(login: &'a AppLogin, request: &'a GitRequest) -> [&'a [u8]; 4] {
    let identity = request.identity.as_ref();
    [
        &login.way,
        request.ca.as_deref().unwrap_or_default(),
        identity.map_or(&[], |identity| &identity.certificates),
        // Exposed to be hashed.
        identity.map_or(&[], |identity| identity.key.expose().as_bytes()),
    ]
}

/// What has the same form for all servers is told in it.
fn failed(login: &AppLogin, request: &GitRequest, stop: &Stop, error: AppError) -> GitError {
    match error {
        AppError::Unreachable { api, source } => {
            AttemptError::of_sending(api, request.trusted_by, stop.phase(), &source).into()
        }
        AppError::Limited { api, status, headers } => {
            let mut response = Response::new(());
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
            *response.headers_mut() = (*headers).clone();
            let limited = check_for_a_limit(|| api.clone(), &response).err();
            match limited.and_then(|limited| limited.rate_limited_until()) {
                Some(until) => {
                    // It is the API's own, of this App: the repository's server has others.
                    login.tokens.rest(&login.app, until);
                    app(request, AppError::Resting { api, until })
                }
                None => app(request, AppError::Limited { api, status, headers }),
            }
        }
        error => app(request, error),
    }
}

fn app(request: &GitRequest, source: AppError) -> GitError {
    GitError::App { url: request.shown_url(), source: Box::new(source) }
}
