//! Server-side apply: which manager owns which field of an object, and how what they apply is merged.
//!
//! An apiserver keeps in `metadata.managedFields` who last set which field. [`apply`] merges a configuration into an
//! object, refuses fields that others own with another value, and removes what the same manager applied before and leaves
//! out now. [`update`] keeps the record for every other write. What kube-apiserver makes of the same requests is the
//! measure: `oracle/` runs its own library over thousands of writes, and a test replays them all.
//!
//! Values only: no clock (the time is given), no network, no state. Objects are JSON; how their lists and mappings merge
//! is said by their [`Schema`]s, one for each version, by way of [`Versions`].
//!
//! ```
//! use roadstead_managed_fields::{OneVersion, Options, Schema, apply};
//! use serde_json::json;
//!
//! let schema = Schema::new(&json!({ "type": "object", "properties": {
//!     "apiVersion": { "type": "string" }, "metadata": { "type": "object" },
//!     "spec": { "type": "object", "properties": { "replicas": { "type": "integer" } } } } }));
//! let versions = OneVersion { api_version: "example.com/v1", schema: &schema };
//! let options = |manager| Options { manager, api_version: "example.com/v1", ..Options::default() };
//! let config = |replicas| json!({ "apiVersion": "example.com/v1", "spec": { "replicas": replicas } });
//!
//! let object = apply(&json!({}), &config(1), &options("alice"), &versions)?;
//! assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:spec": { "f:replicas": {} } }));
//! let error = apply(&object, &config(2), &options("bob"), &versions).unwrap_err();
//! assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "alice": .spec.replicas"#);
//! # Ok::<(), roadstead_managed_fields::Error>(())
//! ```

mod compare;
mod engine;
mod error;
mod gojson;
mod last_applied;
mod managers;
mod merge;
mod path;
mod reconcile;
mod remove;
mod schema;
mod set;
mod typed;
mod updater;

pub use engine::{Options, apply, update};
pub use error::{Conflict, Conflicts, Error};
pub use managers::{Managers, Operation};
pub use path::{Path, PathElement};
pub use schema::Schema;
pub use set::Set;
pub use updater::{OneVersion, Versions};

/// Deeper objects are refused: every walk is a recursion.
pub const MAX_DEPTH: usize = 200;
/// More managers of one object are refused. Those of updates are folded together long before.
pub const MAX_MANAGERS: usize = 256;
