//! Why a key service did not wrap or unwrap the key of a program, and what to do about it.

use super::WrappingKey;
use crate::error::ServiceError;

/// What a service was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Wrap,
    Unwrap,
}

/// Why a key was not wrapped or unwrapped. It holds neither a credential nor a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrappingError {
    /// There is nothing to show to the service.
    #[error("{by} cannot be asked, since there are no credentials for it: {instead}")]
    NoCredentials {
        /// The key.
        by: Box<WrappingKey>,
        /// What would be some.
        instead: &'static str,
    },
    /// Credentials would go to an address that only the key file names.
    #[error(
        "{by} is not asked, since only the key file names its address: to let credentials be sent there, name it in VAULT_ADDR or \
         with --allow-key-service"
    )]
    NotAllowed {
        /// The key.
        by: Box<WrappingKey>,
    },
    /// The service did not do it.
    #[error("{by} was not used: {why}{instead}")]
    Service {
        /// The key.
        by: Box<WrappingKey>,
        /// What happened.
        why: String,
        /// What to do, behind a colon; empty where that is not known.
        instead: String,
        /// Whether the same may go well later, with nothing changed here.
        may_pass: bool,
    },
    /// What comes out is not such a key.
    #[error(
        "what {by} unwraps is not a key of 32 bytes: the envelope was not made by roadstead-hub wrap-key; restore the key file \
         from its backup"
    )]
    NotAKey {
        /// The key.
        by: Box<WrappingKey>,
    },
    /// The entry was wrapped by something else, or is not wrapped.
    #[error("the entry is of another kind than what is to unwrap it")]
    OtherKind,
}

impl WrappingError {
    /// May the same go well later, with nothing changed here?
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Service { may_pass: true, .. })
    }

    pub(super) fn of_service(by: &WrappingKey, order: Order, error: &ServiceError) -> Self {
        let by = Box::new(by.clone());
        if matches!(error, ServiceError::NotAllowed(_)) {
            return Self::NotAllowed { by };
        }
        let instead = instead(&by, order, error).map(|text| format!(": {text}")).unwrap_or_default();
        Self::Service { by, why: error.to_string(), instead, may_pass: error.may_pass() }
    }
}

const WHERE_CREDENTIALS: &str =
    "the credentials of this process are not valid there, or not any more: renew them";
const OTHER_KEY: &str = "the envelope is not of this key, or it was cut or changed: restore the key file from its backup, or \
                         name the key that made it";

/// What to do about it.
fn instead(by: &WrappingKey, order: Order, error: &ServiceError) -> Option<String> {
    match error {
        ServiceError::Unreachable { .. } | ServiceError::TimedOut(_) | ServiceError::Resting(_) => Some(
            "check that the service is up, and that the network, the proxy and --allow-network kms=… let this process reach it"
                .to_owned(),
        ),
        ServiceError::Refused { status, code, .. } => match by {
            WrappingKey::AwsKms { .. } => of_aws(order, code.as_deref()),
            WrappingKey::VaultTransit { engine, name, .. } => {
                of_vault(order, engine, name, *status, code.as_deref())
            }
        },
        _ => None,
    }
}

fn of_aws(order: Order, code: Option<&str>) -> Option<String> {
    let text = match code? {
        "AccessDeniedException" => {
            let action = if order == Order::Wrap { "kms:Encrypt" } else { "kms:Decrypt" };
            return Some(format!(
                "allow {action} on the key to the identity of this process, by the key's policy or its role's"
            ));
        }
        "AccessDenied" => "the role of this process may not be assumed: check its trust policy",
        "DisabledException" => "the key is disabled: enable it (aws kms enable-key)",
        "KMSInvalidStateException" => {
            "the key cannot be used as it is, for example since it waits for its deletion: cancel that (aws kms \
             cancel-key-deletion, then enable-key). Without the key, and without another copy of what it wrapped, the values in \
             the database are lost"
        }
        "NotFoundException" => "its account has no such key in that region",
        "IncorrectKeyException" | "InvalidCiphertextException" => OTHER_KEY,
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "ExpiredTokenException"
        | "ExpiredToken"
        | "InvalidIdentityToken"
        | "InvalidSignatureException"
        | "IncompleteSignature" => WHERE_CREDENTIALS,
        "InvalidKeyUsageException" => {
            "the key is not for encryption: want a symmetric key for ENCRYPT_DECRYPT"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn of_vault(order: Order, engine: &str, name: &str, status: u16, code: Option<&str>) -> Option<String> {
    let what = if order == Order::Wrap { "encrypt" } else { "decrypt" };
    match (status, code) {
        (403, _) => Some(format!(
            "its token is not valid any more, or no policy of it has: path \"{engine}/{what}/{name}\" {{ capabilities = [\"update\"] }}"
        )),
        (404, _) => {
            Some(format!("the server has no transit engine at {engine}, or its token may not see it"))
        }
        (400, Some(code)) if code.contains("key not found") => {
            Some("it was deleted, or is in another namespace (VAULT_NAMESPACE)".to_owned())
        }
        (400, Some(code)) if code.contains("disallowed by policy") => {
            Some("the min_decryption_version of the key is above that of the envelope: lower it".to_owned())
        }
        (400, _) if order == Order::Unwrap => Some(OTHER_KEY.to_owned()),
        (503, _) => Some("the server is sealed or in maintenance: unseal it".to_owned()),
        _ => None,
    }
}
