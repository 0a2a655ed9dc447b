//! Why objects cannot be finished. No message holds the value of a variable.

use std::collections::BTreeSet;

/// How many names a message lists.
const MAX_NAMED: usize = 20;

/// Why an object cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("decryption failed for '{object}': {error}")]
pub struct DecryptError {
    /// The object.
    pub object: String,
    /// What is wrong.
    pub error: roadstead_sops::ObjectError,
}

/// Why variables cannot be substituted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable's name cannot be written in an expression.
    #[error("variable name '{name}' is invalid: it must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Expressions name variables that are not set and have no default: all of them, over all objects.
    #[error("{}", undefined(names, objects))]
    Undefined {
        /// The variables.
        names: BTreeSet<String>,
        /// The objects that name them, for people.
        objects: Vec<String>,
    },
    /// An expression that cannot be parsed.
    #[error("{object}: variable substitution failed: {why} in '{expression}'")]
    Malformed {
        /// The object that has it.
        object: String,
        /// What is wrong with it.
        why: &'static str,
        /// The beginning of the expression.
        expression: String,
    },
    /// The object is not YAML any more once its variables are substituted.
    #[error("{object}: it is not a valid object after variable substitution: line {line}: {why}")]
    NotAnObject {
        /// The object.
        object: String,
        /// The line of its YAML.
        line: usize,
        /// What is wrong with it; nothing of its content, where it holds values of Secrets.
        why: String,
    },
    /// A limit was reached.
    #[error("{object}: variable substitution failed: {what}")]
    TooMuch {
        /// The object.
        object: String,
        /// Which limit.
        what: String,
    },
}

fn undefined(names: &BTreeSet<String>, objects: &[String]) -> String {
    let mut listed: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("\"{name}\"")).collect();
    if names.len() > MAX_NAMED {
        listed.push(format!("and {} more", names.len() - MAX_NAMED));
    }
    let are = if names.len() == 1 { "variable is" } else { "variables are" };
    let first = objects.first().map_or("", String::as_str);
    let others = match objects.len() {
        0 | 1 => String::new(),
        2 => " and 1 more object".to_owned(),
        more => format!(" and {} more objects", more - 1),
    };
    format!("{are} not set (strict mode): {}; used in {first}{others}", listed.join(", "))
}
