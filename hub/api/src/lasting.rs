//! Answers that last, watches and streams: they end when what their client came with is not good any more.
//!
//! A right that is taken away ends them at once, by itself. This is for credentials: a token that was taken back, an account that is gone, somebody
//! who signed out. The tokens of issuers and certificates are left aside: the hub cannot take them back, and as in Kubernetes a watch
//! outlasts them, though by no more than [`LONGEST`]: then whoever reads on has to come again.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures::StreamExt as _;
use hyper::Request;
use roadstead_hub_core::HubError;
use roadstead_model::Secret;

use crate::{Api, cookie, token};

/// No answer lasts longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 60);

/// Says of an answer that it goes on until one side ends it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lasts;

/// What a client came with.
pub(crate) enum Shown {
    /// A token that this hub gave out.
    Token(Secret),
    /// A session of the dashboard.
    Session(Secret),
    /// Something else, or nothing.
    Other,
}

impl Shown {
    pub(crate) fn by<B>(api: &Api, request: &Request<B>) -> Self {
        let headers = request.headers();
        if let Some(token) = token(headers) {
            let is_own = api.hub.identity.was_given_out(token);
            return if is_own { Self::Token(token.into()) } else { Self::Other };
        }
        match cookie::session(request.method(), request.uri(), headers) {
            Some(cookie) => Self::Session(cookie.into()),
            None => Self::Other,
        }
    }

    /// Ends when it is not good any more. Where that cannot be found out, it may still be.
    async fn ends(self, api: Api) {
        if matches!(self, Self::Other) {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(api.options.check_credentials).await;
            let is_good = match &self {
                Self::Token(token) => api.hub.identity.authenticate(token.expose()).await.map(|_| true),
                Self::Session(cookie) => api.hub.sign_in.goes_on(cookie.expose()).await,
                Self::Other => Ok(true),
            };
            if matches!(is_good, Ok(false) | Err(HubError::Unauthenticated(_))) {
                return;
            }
        }
    }
}

/// An answer that lasts, with the end of what its client came with; any other as it is.
pub(crate) fn with_its_end(api: &Api, shown: Shown, response: Response) -> Response {
    if response.extensions().get::<Lasts>().is_none() {
        return response;
    }
    let (ends, longest) = (shown.ends(api.clone()), api.options.longest_answer);
    let ends = async move { tokio::time::timeout(longest, ends).await };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ends))))
}
