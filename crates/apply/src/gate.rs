//! What an engine's user has to say before something is deleted.

use std::future::Future;
use std::pin::Pin;

use roadstead_model::ObjectRef;

/// Whether an object may be deleted; the error says why not, for people.
pub type Verdict<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Asked before each deletion: when pruning, and when an object is deleted to be recreated.
pub trait Gate: Send + Sync {
    /// Whether `object` may be deleted now. Asked again for each try.
    fn before_deletion<'a>(&'a self, object: &'a ObjectRef) -> Verdict<'a>;
}
