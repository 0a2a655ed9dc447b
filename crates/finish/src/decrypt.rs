//! From encrypted objects to plain ones, with marks at what was encrypted.

use std::fmt;

use roadstead_sops::{
    DataKeys, DecryptedObject, Limits, MacPolicy, WrappedKey, decrypt_object, object_metadata,
};
use serde_json::Value;

use crate::error::DecryptError;
use crate::substitute::{Finished, named};

/// How many warnings are told one by one, and bytes of each.
const MAX_WARNINGS: usize = 5;
const MAX_WARNING_BYTES: usize = 1024;

/// What of an object's encryption is not as it should be, and was let pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The object.
    pub object: String,
    /// The value of a Secret that is a file.
    pub field: String,
    /// What is wrong with its MAC.
    pub problem: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, problem } = self;
        write!(f, "{object}, value '{field}': {problem}")
    }
}

/// The first of what there is to warn of, each within its bound, and how many more there are: an Event and a condition are not a list.
#[must_use]
pub fn first_warnings(mut warnings: Vec<String>) -> Vec<String> {
    let more = warnings.len().saturating_sub(MAX_WARNINGS);
    warnings.truncate(MAX_WARNINGS);
    for warning in &mut warnings {
        warning.truncate(warning.floor_char_boundary(MAX_WARNING_BYTES));
    }
    if more > 0 {
        warnings.push(format!("and {more} more"));
    }
    warnings
}

/// Decrypts all objects, in their order. Those that are not encrypted are as they were. `mac` is for encrypted files in Secrets: the
/// objects themselves are not whole files once they were built.
///
/// # Errors
/// About the first object that does not open. No message holds anything decrypted.
pub fn decrypt(
    objects: Vec<Value>,
    mac: MacPolicy,
    keys: &(impl DataKeys + ?Sized),
) -> Result<(Vec<Finished>, Vec<Warning>), DecryptError> {
    let limits = Limits::default();
    let (mut opened, mut warned) = (Vec::with_capacity(objects.len()), Vec::new());
    for object in objects {
        let name = named(&object);
        match decrypt_object(object, mac, &limits, keys) {
            Ok(DecryptedObject { object, secret, warnings }) => {
                let warning = |(field, problem): (String, roadstead_sops::MacProblem)| Warning {
                    object: name.clone(),
                    field,
                    problem: problem.to_string(),
                };
                warned.extend(warnings.into_iter().map(warning));
                opened.push(Finished { object: object.into(), secret });
            }
            Err(error) => return Err(DecryptError { object: name, error }),
        }
    }
    Ok((opened, warned))
}

/// What the data keys of an object are wrapped as. None where it is not encrypted.
///
/// # Errors
/// What it says about its encryption is not valid.
pub fn wrapped_keys(object: &Value) -> Result<Vec<WrappedKey>, DecryptError> {
    let found = object_metadata(object, &Limits::default())
        .map_err(|error| DecryptError { object: named(object), error })?;
    Ok(found.into_iter().map(|(_, metadata)| metadata.wrapped().clone()).collect())
}

/// A Secret that is encrypted as a whole, where nothing decrypts it: no apiserver should get it. As Flux names it.
#[must_use]
pub fn encrypted_secret(objects: &[Value]) -> Option<String> {
    let is_one = |object: &&Value| {
        object["apiVersion"] == "v1"
            && object["kind"] == "Secret"
            && object.get("sops").is_some_and(|sops| !sops.is_null())
            && !roadstead_sops::is_left_encrypted(object)
    };
    objects.iter().find(is_one).map(named)
}
