//! Credentials of AWS, Azure and Google, and what they are exchanged for: sessions of roles, access tokens, passwords of registries.
//!
//! A [`CloudIdentity`] is an identity at one cloud. It gives out credentials for a registry, an object store or a Git server, and only if that host belongs
//! to the cloud by its name, or is listed by the operator. [`aws`], [`azure`] and [`gcp`] are the exchanges themselves, which `roadstead_kms` uses too;
//! [`exchange`] is what is said in them, for those who have another way there.
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
pub mod exchange;
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
