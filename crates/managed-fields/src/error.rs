//! What can stand against a write.

use std::collections::BTreeMap;
use std::fmt;

use crate::gojson::quote;
use crate::managers::{ManagerId, Operation};
use crate::path::Path;

/// Why an object could not be applied, or its managers not be told.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Others own fields that the configuration sets to something else.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The configuration is not what can be applied.
    #[error("{0}")]
    BadRequest(String),
    /// An object does not fit its schema.
    #[error("{what}: {path}: {message}")]
    Schema {
        /// Which object.
        what: &'static str,
        /// Where, as `.spec.list[0]`.
        path: String,
        /// What is wrong there.
        message: String,
    },
    /// `metadata.managedFields` cannot be read.
    #[error("metadata.managedFields: {0}")]
    ManagedFields(String),
    /// A version between which and the others no object can be turned.
    #[error("an object of {from} cannot be turned into one of {to}")]
    Conversion {
        /// The version that it has.
        from: String,
        /// The version that was wanted.
        to: String,
    },
}

/// A field that someone else owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    pub(crate) id: ManagerId,
    /// The field.
    pub path: Path,
}

impl Conflict {
    /// The name of who owns it.
    #[must_use]
    pub fn manager(&self) -> &str {
        &self.id.manager
    }

    /// How they came to own it.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.id.operation
    }

    /// In what words an apiserver says it: `conflict with "kubectl" using apps/v1`.
    #[must_use]
    pub fn message(&self) -> String {
        format!("conflict with {}", described(&self.id))
    }
}

/// All the fields that stand against an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflicts(pub Vec<Conflict>);

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message(), only.path);
        }
        let mut by_manager: BTreeMap<String, (&ManagerId, Vec<&Path>)> = BTreeMap::new();
        for conflict in &self.0 {
            let known = by_manager.entry(conflict.id.text()).or_insert((&conflict.id, Vec::new()));
            known.1.push(&conflict.path);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut first = true;
        for (id, paths) in by_manager.values() {
            if !first {
                f.write_str("\n")?;
            }
            first = false;
            write!(f, "conflicts with {}:", described(id))?;
            for path in paths {
                write!(f, "\n- {path}")?;
            }
        }
        Ok(())
    }
}

fn described(id: &ManagerId) -> String {
    let mut text = quote(&id.manager);
    if !id.subresource.is_empty() {
        text = format!("{text} with subresource {}", quote(&id.subresource));
    }
    if id.operation == Operation::Update {
        text = format!("{text} using {}", id.api_version);
    }
    text
}
