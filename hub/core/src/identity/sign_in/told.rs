//! What is said of signing in: to browsers, and of why somebody was not let in.

use std::time::Duration;

use roadstead_hub_store::TokenText;
use serde::Serialize;

use crate::HubError;
use crate::identity::Identity;

/// A provider, as everybody is told of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedProvider {
    /// What people call it.
    pub name: String,
    /// The URL of its issuer.
    pub issuer: String,
    /// Where a browser begins to sign in; the page that is wanted is added as `to`.
    pub start: String,
    /// The client as which the command line signs in.
    #[serde(rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// What the command line asks for, where it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The only authorities that may vouch for its servers, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// Where it says of itself what it is, where that is not beneath its URL.
    #[serde(rename = "discoveryURL", skip_serializing_if = "Option::is_none")]
    pub discovery_url: Option<String>,
}

/// A sign-in that has begun.
pub struct Begun {
    /// Where the browser goes.
    pub location: String,
    /// What it keeps meanwhile.
    pub cookie: String,
    /// For so long.
    pub lasts: Duration,
}

/// What a provider sent somebody back with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered<'a> {
    /// What ties it to a sign-in.
    pub state: &'a str,
    /// What becomes tokens.
    pub code: &'a str,
    /// Who the provider says to be.
    pub issuer: &'a str,
    /// What went wrong.
    pub error: &'a str,
    /// The same, for people.
    pub description: &'a str,
}

/// A session that has begun.
#[derive(Debug)]
pub struct SignedIn {
    /// What the browser's cookie holds.
    pub cookie: TokenText,
    /// For how long at most.
    pub lasts: Duration,
    /// The page that was wanted.
    pub page: String,
    /// Who it is.
    pub username: String,
}

/// What a cookie stands for.
#[derive(Debug)]
pub enum Signed {
    /// Somebody.
    In(Box<Identity>),
    /// Nobody any more.
    Out,
}

/// Why somebody was not signed in.
#[derive(Debug, thiserror::Error)]
pub enum SignInRefused {
    /// There is no such provider.
    #[error("there is no such provider: see --sign-in-config of the hub")]
    NoProvider,
    /// This browser has begun no such sign-in, or too long ago, or it was used.
    #[error("this sign-in was not begun in this browser, has expired, or was already used: sign in again")]
    Unknown,
    /// The provider says no.
    #[error("the provider did not sign you in: {0}")]
    Provider(String),
    /// The provider cannot be asked.
    #[error("the provider cannot be reached: {0}; try again later")]
    Away(String),
    /// It gave no token that stands for somebody.
    #[error("the hub does not accept the provider's token: {0}")]
    NotTaken(String),
    /// People sign in at a provider, and the token is not an administrator's.
    #[error(
        "sign in at a provider: this hub accepts a token here only in an emergency, and only an administrator's own"
    )]
    NotForEmergencies,
    /// Something else.
    #[error(transparent)]
    Hub(#[from] HubError),
}

impl SignInRefused {
    /// For the record: in few words, none of which somebody else made up.
    pub(super) fn recorded(&self) -> &'static str {
        match self {
            Self::NoProvider => "no such provider",
            Self::Unknown => "no such sign-in of this browser",
            Self::Provider(_) => "the provider refused",
            Self::Away(_) => "the provider could not be asked",
            Self::NotTaken(_) => "the provider's token is not taken",
            Self::NotForEmergencies => "a token that is not for emergencies",
            Self::Hub(HubError::Unauthenticated(_)) => "the token is not taken",
            Self::Hub(_) => "it failed",
        }
    }
}
