//! Tokens of `OpenID` Connect issuers: which are taken, and which users they stand for; and a key to sign such with.
//!
//! All of it is computation over values: bytes of a token that anybody may have sent, public keys, the time, and the
//! operator's configuration. Where issuers publish their keys is asked by the caller.
//!
//! A [`Configuration`] is read from the file that kube-apiserver takes as `--authentication-config`, and means the same here
//! but for what is stricter: no token gives a name that begins with `system:`. The names of users and groups are compared by
//! their bytes wherever rights are looked up, so a name that only looks like another one has none of its rights.
//!
//! ```
//! use roadstead_oidc::{Configuration, Token};
//!
//! let configuration = Configuration::parse(
//!     b"apiVersion: apiserver.config.k8s.io/v1
//! kind: AuthenticationConfiguration
//! jwt:
//! - issuer: {url: https://issuer.example.com, audiences: [roadstead]}
//!   claimMappings:
//!     username: {claim: sub, prefix: 'oidc:'}
//!     groups: {claim: groups, prefix: 'oidc:'}
//! ",
//! )?;
//! assert!(configuration.issuer("https://issuer.example.com").is_some());
//! assert!(Token::parse("not a token").is_err());
//! # Ok::<(), roadstead_oidc::ConfigError>(())
//! ```

mod claims;
pub mod code;
mod config;
mod fields;
mod keys;
mod mapping;
mod names;
mod refusal;
mod sign_in;
mod signing;
mod token;

pub use claims::{Expected, check};
pub use config::{Configuration, TrustedIssuer};
pub use fields::ConfigError;
pub use keys::{BadKeys, Keys, MAX_KEYS};
pub use mapping::User;
pub use names::{check as check_name, is_reserved};
pub use refusal::Refusal;
pub use sign_in::{CommandLine, SignInConfiguration, SignInError, SignInProvider};
pub use signing::{SIGNED_BY, SigningError, SigningKey};
pub use token::{MAX_TOKEN, Token, TokenError};
