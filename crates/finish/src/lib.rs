//! The last steps of rendering: objects are decrypted, variables are substituted in them, and what of them is secret is marked.
//!
//! Substitution is Flux's `postBuild`: an object is written as YAML, expressions such as `${name:=default}` are replaced in that
//! text, and the result is read again. So a value can become a number, a list or a part of a text, as it does in Flux. Pure, and
//! bounded by [`Limits`]: an agent does it for what goes to its cluster, the hub for children.
//!
//! ```
//! use roadstead_finish::{Substitution, Variables};
//! use serde_json::json;
//!
//! let mut variables = Variables::default();
//! variables.set("replicas", "3", false);
//! variables.set("token", "s3cret", true);
//! let object = json!({ "kind": "Example", "spec": { "replicas": "${replicas}", "token": "${token:-none}" } });
//! let finished = Substitution::of(&variables).apply(vec![object])?;
//! assert_eq!(finished[0].object["spec"], json!({ "replicas": 3, "token": "s3cret" }));
//! assert_eq!(finished[0].secret, ["/spec/token"]);
//! # Ok::<(), roadstead_finish::Error>(())
//! ```

mod decrypt;
mod error;
mod evaluate;
mod pattern;
mod substitute;
mod template;
mod variables;

pub use decrypt::{Warning, decrypt, encrypted_secret, first_warnings, wrapped_keys};
pub use error::{DecryptError, Error};
pub use substitute::{Finished, Limits, Substitution, named};
pub use variables::Variables;
