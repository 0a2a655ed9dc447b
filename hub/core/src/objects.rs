//! Kubernetes-style objects as the API reads and writes them, and what everybody on the hub uses who writes one: field managers,
//! conditions and statuses, events, and what a change makes worth a pass.

mod aggregated;
pub(crate) mod apply;
mod changed;
pub(crate) mod conditions;
mod defaults;
pub(crate) mod events;
mod exact;
mod family;
mod fields;
pub(crate) mod forms;
pub(crate) mod kubeconfigs;
pub(crate) mod managers;
pub(crate) mod quota;
pub(crate) mod reads;
pub(crate) mod resources;
mod selector;
pub(crate) mod status;
pub mod triggers;

use std::sync::Arc;

use roadstead_hub_store::Store;

use crate::clock::Clock;
use crate::context::Context;
use crate::identity::AuditLog;

pub use forms::{FieldValidation, Part};
pub use reads::{AtVersion, ListEnd, ListOptions, ObjectEvent, ObjectList, ObjectWatch, WatchFrom};
pub use resources::{DeleteOptions, Deleted, NAMESPACES, WriteOptions, Written};
pub use selector::Selector;

/// Objects, as the API reads and writes them.
pub struct Objects {
    store: Store,
    clock: Arc<dyn Clock>,
    audit: Arc<AuditLog>,
    default_cluster: Option<String>,
}

impl Objects {
    pub(crate) fn new(context: &Context, audit: &Arc<AuditLog>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            audit: Arc::clone(audit),
            default_cluster: context.options.default_cluster.clone(),
        }
    }
}
