//! Signatures that clouds want of their clients: AWS Signature Version 4, and JSON Web Tokens signed with RSA keys.
//!
//! Nothing here sends anything or looks at a clock: the caller says what is signed and when.

mod aws;
mod hash;
mod token;

pub use aws::{AwsKeys, AwsRequest, Scope};
pub use hash::{hex, hmac_sha256, sha256};
pub use token::{CannotSign, GoogleAccount, Padding, TokenKey, azure_assertion};
