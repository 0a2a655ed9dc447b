//! A token: a signed JSON Web Token in its compact form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use crate::Keys;

/// The longest token that is looked at, in bytes.
pub const MAX_TOKEN: usize = 16 * 1024;

/// Why a token is not taken, whatever it is to be used for. It says nothing of what the token has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too long.
    #[error("it is longer than {MAX_TOKEN} bytes")]
    TooLong,
    /// Not a token of this kind.
    #[error("it is not a signed JSON Web Token")]
    Form,
    /// No key of its issuer made its signature.
    #[error("it is signed by no key of its issuer")]
    Signature,
    /// It is from somebody else.
    #[error("it is from another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("it is for another audience")]
    Audience,
    /// It is too late for it.
    #[error("it has expired")]
    Expired,
    /// It would never expire.
    #[error("it does not say when it expires")]
    Endless,
    /// It is too early for it.
    #[error("it is not valid yet")]
    NotYet,
}

/// A token. Nothing of it is believed before [`Token::verify`]. Does not print.
#[derive(Clone)]
pub struct Token<'a> {
    /// What is signed: the head and the claims.
    signed: &'a str,
    claims: Vec<u8>,
    signature: Vec<u8>,
    algorithm: String,
    key: Option<String>,
    issuer: String,
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// What says how it is signed. Keys and addresses of keys that stand in it are not looked at: a token does not say by what it
/// is to be believed.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// What whoever reads it has to understand: nothing is.
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Issued {
    iss: String,
}

impl<'a> Token<'a> {
    /// Whether a text has the form of such a token, as far as a glance tells.
    #[must_use]
    pub fn is_like(text: &str) -> bool {
        text.split('.').count() == 3
    }

    /// Reads how it is signed, and whom it says to be from.
    ///
    /// # Errors
    /// [`TokenError::TooLong`], [`TokenError::Form`].
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        Self::read(text).ok_or(TokenError::Form)
    }

    fn read(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let (head, claims, signature) = (decode(head)?, decode(claims)?, decode(signature)?);
        let head: Head = serde_json::from_slice(&head).ok()?;
        let Issued { iss } = serde_json::from_slice(&claims).ok()?;
        if head.crit.is_some() {
            return None;
        }
        Some(Self { signed, claims, signature, algorithm: head.alg, key: head.kid, issuer: iss })
    }

    /// Whom it says to be from.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The name of the key that it says to be signed by.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What it claims, whoever signed it: for a token that was verified before.
    pub(crate) fn unverified_claims(&self) -> Option<Value> {
        serde_json::from_slice(&self.claims).ok()
    }

    /// What it claims, where one of its issuer's keys signed it.
    ///
    /// # Errors
    /// [`TokenError::Signature`] where none did.
    pub fn verify(&self, keys: &Keys) -> Result<Value, TokenError> {
        if !keys.verify(&self.algorithm, self.key(), self.signed.as_bytes(), &self.signature) {
            return Err(TokenError::Signature);
        }
        serde_json::from_slice(&self.claims).map_err(|_| TokenError::Form)
    }
}
