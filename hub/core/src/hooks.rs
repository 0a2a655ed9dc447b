//! Receivers: where they are called, what proves a call, and which objects are reconciled for it.
//!
//! A pass over a Receiver computes its path and notes it in a table, so that a call costs one look-up. A call is judged by what
//! is stored when it comes: the Secret is read again, so a token that was changed is worth nothing from then on.

mod call;
mod choose;
mod issuers;
mod pass;
mod prove;
mod secret;
mod wake;

use std::sync::Arc;

use roadstead_hub_store::Store;

use crate::HubOptions;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::{AccessRules, AuditLog};

pub use call::{Acted, Called, NotTaken, Proven};

use issuers::Issuers;
use tokio::sync::Semaphore;

/// Calls that are acted on at once.
const EVALUATIONS: usize = 2;

/// Receivers, and calls of them.
pub struct Hooks {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    access: Arc<AccessRules>,
    audit: Arc<AuditLog>,
    issuers: Issuers,
    /// For filters, which take a processor while they are evaluated, and the memory for what they see.
    evaluations: Semaphore,
}

impl Hooks {
    pub(crate) fn new(context: &Context, access: &Arc<AccessRules>, audit: &Arc<AuditLog>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            access: Arc::clone(access),
            audit: Arc::clone(audit),
            issuers: Issuers::new(&context.options, &context.clock),
            evaluations: Semaphore::new(EVALUATIONS),
        }
    }
}
