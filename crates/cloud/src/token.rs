//! Tokens that someone else renews, such as those of a cluster's service accounts, and errors of OAuth's token endpoints.

use std::io::Read as _;

use serde::Deserialize;

use crate::call::{Reply, Request};
use crate::credentials::TokenSource;
use crate::error::ServiceError;
use roadstead_outbound::Secret;

/// Of a token's file.
const BYTES: u64 = 64 << 10;

/// The token, which is for this audience where it is made for it.
///
/// # Errors
/// If there is no token.
pub async fn read(source: &TokenSource, audience: &str) -> Result<Secret, ServiceError> {
    let path = match source {
        TokenSource::Text(token) => return Ok(token.clone()),
        TokenSource::Made(maker) => return maker.token(audience).await.map_err(ServiceError::Credential),
        TokenSource::File(path) => path,
    };
    let unreadable = |why: &dyn std::fmt::Display| {
        ServiceError::Credential(format!(
            "the token in {:?} cannot be read: {why}",
            path.display().to_string()
        ))
    };
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut text = String::new();
    file.take(BYTES).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    let text = Secret::new(text);
    let token = Secret::new(text.expose().trim().to_owned());
    if token.is_empty() { Err(unreadable(&"it is empty")) } else { Ok(token) }
}

/// The error for an answer of an OAuth token endpoint that is not a success.
pub(crate) fn refused(request: &Request, reply: &Reply) -> ServiceError {
    #[derive(Deserialize)]
    struct Failure {
        error: String,
    }
    let failure: Option<Failure> = reply.json().ok();
    reply.refused(request, failure.map(|failure| failure.error).as_deref())
}
