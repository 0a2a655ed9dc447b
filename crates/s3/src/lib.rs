//! What all who speak S3 have in common: where a bucket is ([`Place`]), signatures, and pages of lists; and a [`Bucket`] of the operator's,
//! which objects are put into, read from and removed from.
//!
//! Bucket sources fetch by the first; what their servers answer is read by a worker (`crates/sources`). A [`Bucket`] is the operator's own: what
//! its server answers is bounded in bytes and time all the same, no redirect is followed, and only the operator is told of it.

mod bucket;
mod error;
mod keys;
pub mod list;
pub mod place;
mod sign;
pub mod xml;

pub use bucket::{Bucket, BucketOptions, Limits, Names};
pub use error::{BadObject, BucketError};
pub use keys::{Credential, CredentialFile};
pub use place::Place;
pub use sign::sign;
