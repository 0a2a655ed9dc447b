//! The fields of the configuration file, as it has them. A field that is not known is an error: it may be one that
//! restricts who is let in.

use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest file, in bytes.
const MAX_FILE: usize = 1 << 20;
/// What its values may take in memory.
const MEMORY: usize = 32 << 20;
/// Its versions, of the same fields.
const API_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];
const KIND: &str = "AuthenticationConfiguration";

/// Why a file is not a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("the authentication configuration cannot be read: {0}")]
    Unreadable(String),
    /// It can be read, and says what it may not.
    #[error("the authentication configuration is not valid: {0}")]
    Invalid(Problems),
}

impl ConfigError {
    /// What is wrong, without where.
    pub(crate) fn problems(self) -> String {
        match self {
            Self::Unreadable(why) => why,
            Self::Invalid(problems) => problems.to_string(),
        }
    }
}

/// What is wrong with a configuration, each with the path of the field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl Problems {
    pub(crate) fn add(&mut self, path: &str, what: impl fmt::Display) {
        self.0.push(format!("{path}: {what}"));
    }

    /// The value, unless something is wrong.
    pub(crate) fn unless_any<T>(self, value: T) -> Result<T, ConfigError> {
        if self.0.is_empty() { Ok(value) } else { Err(ConfigError::Invalid(self)) }
    }

    /// A part of the file, where it has these fields and no others.
    pub(crate) fn read<T: DeserializeOwned + Default>(&mut self, path: &str, value: Value) -> T {
        // As in Kubernetes, null is the same as nothing.
        if value.is_null() {
            return T::default();
        }
        // A list would be taken for the fields in their order.
        let read = if value.is_object() {
            serde_json::from_value(value).map_err(|error| error.to_string())
        } else {
            Err("must be a mapping".to_owned())
        };
        read.unwrap_or_else(|why| {
            self.add(path, why);
            T::default()
        })
    }

    /// The items of a list. One that is not a list is a problem, and counts as empty.
    pub(crate) fn items<T: DeserializeOwned + Default>(&mut self, path: &str, value: Value) -> Vec<T> {
        match value {
            Value::Null => Vec::new(),
            Value::Array(items) => {
                let items = items.into_iter().enumerate();
                items.map(|(index, value)| self.read(&format!("{path}[{index}]"), value)).collect()
            }
            _ => {
                self.add(path, "must be a list");
                Vec::new()
            }
        }
    }
}

/// The file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct File {
    api_version: String,
    kind: String,
    pub(crate) jwt: Option<Vec<Value>>,
    pub(crate) anonymous: Option<Anonymous>,
}

/// What kube-apiserver lets callers do who show nothing.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Anonymous {
    pub(crate) enabled: bool,
    pub(crate) conditions: Option<Vec<Value>>,
}

/// What is said of one issuer, in parts that are read one by one, so that an error names the part.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Jwt {
    pub(crate) issuer: Value,
    pub(crate) claim_validation_rules: Value,
    pub(crate) claim_mappings: Value,
    pub(crate) user_validation_rules: Value,
}

/// Who issues tokens, and for whom.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Issuer {
    pub(crate) url: String,
    #[serde(rename = "discoveryURL")]
    pub(crate) discovery_url: Option<String>,
    #[serde(rename = "certificateAuthority")]
    pub(crate) certificate_authority: String,
    pub(crate) audiences: Vec<String>,
    #[serde(rename = "audienceMatchPolicy")]
    pub(crate) audience_match_policy: String,
    #[serde(rename = "egressSelectorType")]
    pub(crate) egress_selector_type: String,
}

/// What must be claimed.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ClaimRule {
    pub(crate) claim: String,
    pub(crate) required_value: String,
    pub(crate) expression: String,
    pub(crate) message: String,
}

/// What must hold of the user.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UserRule {
    pub(crate) expression: String,
    pub(crate) message: String,
}

/// From which claims the user is made.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mappings {
    pub(crate) username: Value,
    pub(crate) groups: Value,
    pub(crate) uid: Value,
    pub(crate) extra: Value,
}

/// A claim with a prefix, or an expression.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Prefixed {
    pub(crate) claim: String,
    pub(crate) prefix: Option<String>,
    pub(crate) expression: String,
}

/// A claim, or an expression.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plain {
    pub(crate) claim: String,
    pub(crate) expression: String,
}

/// What else is known of the user.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Extra {
    pub(crate) key: String,
    pub(crate) value_expression: String,
}

/// Reads a file: YAML, of which JSON is a part, without a key twice.
pub(crate) fn read(bytes: &[u8]) -> Result<File, ConfigError> {
    let value = value(bytes).map_err(ConfigError::Unreadable)?;
    let file: File =
        serde_json::from_value(value).map_err(|error| ConfigError::Unreadable(error.to_string()))?;
    if !API_VERSIONS.contains(&file.api_version.as_str()) || file.kind != KIND {
        return Err(ConfigError::Unreadable(format!(
            "it must have apiVersion {} and kind {KIND}",
            API_VERSIONS[0]
        )));
    }
    Ok(file)
}

/// What a file says, or why it says nothing.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, String> {
    if bytes.len() > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    let body = roadstead_body::decode_within(roadstead_body::YAML, bytes, MEMORY)
        .map_err(|error| error.to_string())?;
    if !body.value.is_object() {
        return Err("it is not a mapping".to_owned());
    }
    Ok(body.value)
}
