//! Credentials of AWS, Azure and Google, and what they are exchanged for: sessions of roles, access tokens, passwords of registries.
//!
//! A [`CloudIdentity`] is somebody who is known to one cloud. It is asked for what a registry, an object store or a Git server wants to see,
//! and gives it only where that is the cloud's own by its name, or by the operator's word. [`aws`], [`azure`] and [`gcp`] are the exchanges
//! themselves, which those who ask other services use, too.
//!
//! All requests go through the guarded client of `roadstead_outbound`; redirects are refused, and time, bytes and the number of requests
//! are bounded. What is given out is kept for four fifths of its life, and wiped when it goes.

pub mod address;
pub mod aws;
pub mod azure;
pub mod cache;
pub mod call;
mod credentials;
pub mod error;
pub mod gcp;
mod hosts;
mod identity;
mod registry;
pub mod sign;
pub mod token;

pub use address::{Address, BadAddress, TokenServices};
pub use call::Network;
pub use credentials::{AwsCredential, AzureCredential, AzureProof, GcpCredential, MakesTokens, TokenSource};
pub use error::ServiceError;
pub use hosts::{BadHost, Cloud, OwnHosts};
pub use identity::{ANSWER_BYTES, CloudCredential, CloudIdentity, GitLogin, Kept, Login, StoreLogin};
