//! Tokens that issuers of `OpenID` Connect sign, as a call shows one in its Authorization header.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use crate::{Call, Keys, NotProven};

/// The longest token that is looked at.
pub const MAX_TOKEN: usize = 16 * 1024;

/// A token that a call shows. Nothing of it is believed before [`Bearer::verify`].
#[derive(Clone)]
pub struct Bearer<'a> {
    /// What is signed: the head and the claims.
    signed: &'a str,
    claims: Vec<u8>,
    signature: Vec<u8>,
    algorithm: String,
    key: Option<String>,
    issuer: String,
}

impl std::fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bearer")
    }
}

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

impl<'a> Bearer<'a> {
    /// The token of a call: of it nothing is read but how it is signed, and whom it says to be from.
    ///
    /// # Errors
    /// [`NotProven`] where there is none.
    pub fn of(call: &Call<'a>) -> Result<Self, NotProven> {
        let header = call.header("authorization").ok_or(NotProven::Absent("Authorization"))?;
        let token = match header.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(NotProven::Form("Authorization")),
        };
        Self::parse(token).ok_or(NotProven::Bearer("it is not a signed JSON Web Token"))
    }

    fn parse(token: &'a str) -> Option<Self> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
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

    /// What it claims, where one of its issuer's keys signed it.
    ///
    /// # Errors
    /// [`NotProven`] where none did.
    pub fn verify(&self, keys: &Keys) -> Result<Value, NotProven> {
        let (id, text) = (self.key.as_deref(), self.signed.as_bytes());
        if !keys.verify(&self.algorithm, id, text, &self.signature) {
            return Err(NotProven::Bearer("it is signed by no key of its issuer"));
        }
        serde_json::from_slice(&self.claims).map_err(|_| NotProven::Bearer("its claims are not JSON"))
    }
}
