//! What wraps the keys that a program encrypts with: nothing, where its key file has them as they are, AWS KMS, or the transit engine of
//! Vault or OpenBao.
//!
//! A key service does not give its own key away. It wraps the program's, and what comes of that, an [`Envelope`], is a line of the
//! program's key file: whoever has only the file has no key. At start the service unwraps it, and everything in the database is
//! encrypted by what it unwrapped (envelope encryption).
//!
//! The credentials are the program's own, of its environment. Nothing of a decryption Secret or a file in Git gets here, and a wrapped key
//! does not open as a data key of a SOPS file by AWS KMS, since its encryption context says what it is for.

mod entry;
mod error;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use roadstead_outbound::Secret;
use zeroize::Zeroizing;

pub use self::entry::{BadEntry, BadWrappingKey, ENTRY_BYTES, Entry, Envelope, WrappingKey};
use self::error::Order;
pub use self::error::WrappingError;
use crate::address::Allowed;
use crate::cache::Cache;
use crate::call::{Budget, Calls, Network};
use crate::credentials::{AwsCredential, Credentials, VaultCredential};
use crate::error::ServiceError;
use crate::{aws, vault};

/// A key of 32 bytes, wiped when it goes.
pub type KeyBytes = Zeroizing<[u8; 32]>;

/// What AWS KMS binds a wrapped key to, and shows in its logs: a change of this is another ciphertext.
const CONTEXT: (&str, &str) = ("roadstead", "key-file");

const AWS_CREDENTIALS: &str = "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or the identity of \
     the machine or the container";
const VAULT_CREDENTIALS: &str =
    "give VAULT_TOKEN, or --key-vault-role for a login by the service account of this process";

/// Makes lines of a key file from keys, and keys from such lines.
pub trait KeyWrapper: Send + Sync {
    /// The line of a key file for a key.
    fn wrap<'k>(&'k self, key: &'k KeyBytes) -> BoxFuture<'k, Result<Zeroizing<String>, WrappingError>>;

    /// The key of such a line.
    fn unwrap<'k>(&'k self, entry: &'k Entry) -> BoxFuture<'k, Result<KeyBytes, WrappingError>>;
}

/// The file itself: the key is in it as it is.
#[derive(Debug)]
pub struct PlainFile;

impl KeyWrapper for PlainFile {
    fn wrap<'k>(&'k self, key: &'k KeyBytes) -> BoxFuture<'k, Result<Zeroizing<String>, WrappingError>> {
        Box::pin(async { Ok(Zeroizing::new(STANDARD.encode(**key))) })
    }

    fn unwrap<'k>(&'k self, entry: &'k Entry) -> BoxFuture<'k, Result<KeyBytes, WrappingError>> {
        Box::pin(async move {
            match entry {
                Entry::Plain(key) => Ok(key.clone()),
                Entry::Wrapped(_) => Err(WrappingError::OtherKind),
            }
        })
    }
}

/// The key services that wrap a program's own keys, asked with the program's own credentials.
pub struct KeyWrappers {
    credentials: Credentials,
    allowed: Allowed,
    aws: Arc<Network>,
    vault: Arc<Network>,
    sessions: aws::Sessions,
    tokens: Cache<Secret>,
}

impl std::fmt::Debug for KeyWrappers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyWrappers").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl KeyWrappers {
    /// With these credentials, to addresses that are the providers' own or allowed; over a network for AWS and one for Vault.
    #[must_use]
    pub fn new(credentials: Credentials, allowed: Allowed, aws: Arc<Network>, vault: Arc<Network>) -> Self {
        Self { credentials, allowed, aws, vault, sessions: Cache::default(), tokens: Cache::default() }
    }

    /// What wraps and unwraps by this key; the file itself where there is none.
    #[must_use]
    pub fn wrapper<'k>(&'k self, by: Option<&'k WrappingKey>) -> Box<dyn KeyWrapper + 'k> {
        match by {
            None => Box::new(PlainFile),
            Some(by @ WrappingKey::AwsKms { arn }) => Box::new(AwsKms { wrappers: self, by, arn }),
            Some(by @ WrappingKey::VaultTransit { .. }) => Box::new(VaultTransit { wrappers: self, by }),
        }
    }

    /// The key of a line.
    ///
    /// # Errors
    /// The key service does not unwrap it, or cannot be reached.
    pub async fn unwrap(&self, entry: &Entry) -> Result<KeyBytes, WrappingError> {
        let by = match entry {
            Entry::Plain(_) => None,
            Entry::Wrapped(envelope) => Some(&envelope.by),
        };
        self.wrapper(by).unwrap(entry).await
    }
}

/// A key of AWS KMS.
struct AwsKms<'k> {
    wrappers: &'k KeyWrappers,
    by: &'k WrappingKey,
    arn: &'k str,
}

impl AwsKms<'_> {
    fn credential(&self) -> Result<&AwsCredential, WrappingError> {
        let none =
            || WrappingError::NoCredentials { by: Box::new(self.by.clone()), instead: AWS_CREDENTIALS };
        self.wrappers.credentials.aws.as_ref().ok_or_else(none)
    }

    fn context() -> BTreeMap<String, String> {
        let (name, value) = CONTEXT;
        [(name.to_owned(), value.to_owned())].into()
    }
}

impl KeyWrapper for AwsKms<'_> {
    fn wrap<'k>(&'k self, key: &'k KeyBytes) -> BoxFuture<'k, Result<Zeroizing<String>, WrappingError>> {
        Box::pin(async move {
            let KeyWrappers { allowed, aws: network, sessions, .. } = self.wrappers;
            let (credential, budget) = (self.credential()?, Budget::new(None));
            let asked = async {
                let calls = Calls::new(network, &budget)?;
                let context = Self::context();
                aws::wrap(self.arn, &context, key.as_slice(), credential, sessions, allowed, &calls).await
            };
            let failed = |error| WrappingError::of_service(self.by, Order::Wrap, &error);
            let aws::Wrapped { arn, ciphertext } = asked.await.map_err(failed)?;
            Ok(Zeroizing::new(Envelope { by: WrappingKey::AwsKms { arn }, ciphertext }.to_string()))
        })
    }

    fn unwrap<'k>(&'k self, entry: &'k Entry) -> BoxFuture<'k, Result<KeyBytes, WrappingError>> {
        Box::pin(async move {
            let enc = ciphertext(self.by, entry)?;
            let KeyWrappers { allowed, aws: network, sessions, .. } = self.wrappers;
            let (credential, budget) = (self.credential()?, Budget::new(None));
            let asked = async {
                let calls = Calls::new(network, &budget)?;
                let context = Self::context();
                let key = aws::Key { arn: self.arn, role: None, context: &context, enc };
                aws::unwrap(&key, credential, sessions, allowed, &calls).await
            };
            key_of(self.by, asked.await)
        })
    }
}

/// A key of a transit engine.
struct VaultTransit<'k> {
    wrappers: &'k KeyWrappers,
    by: &'k WrappingKey,
}

impl VaultTransit<'_> {
    fn credential(&self) -> Result<&VaultCredential, WrappingError> {
        let none =
            || WrappingError::NoCredentials { by: Box::new(self.by.clone()), instead: VAULT_CREDENTIALS };
        self.wrappers.credentials.vault.as_ref().ok_or_else(none)
    }

    /// Has `ask` work with the key.
    async fn asked<T>(
        &self,
        enc: &str,
        ask: impl AsyncFnOnce(&vault::Key<'_>, &Calls<'_>) -> Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        let WrappingKey::VaultTransit { address, engine, name } = self.by else {
            return Err(ServiceError::Key("it is not a key of a transit engine".to_owned()));
        };
        let (address, budget) = (address.to_string(), Budget::new(None));
        let key = vault::Key { address: &address, engine_path: engine, key_name: name, enc };
        ask(&key, &Calls::new(&self.wrappers.vault, &budget)?).await
    }
}

impl KeyWrapper for VaultTransit<'_> {
    fn wrap<'k>(&'k self, key: &'k KeyBytes) -> BoxFuture<'k, Result<Zeroizing<String>, WrappingError>> {
        Box::pin(async move {
            let KeyWrappers { allowed, tokens, .. } = self.wrappers;
            let credential = self.credential()?;
            let asked = self.asked("", async |by, calls| {
                vault::wrap(by, key.as_slice(), credential, tokens, allowed, calls).await
            });
            let failed = |error| WrappingError::of_service(self.by, Order::Wrap, &error);
            let ciphertext = asked.await.map_err(failed)?;
            Ok(Zeroizing::new(Envelope { by: self.by.clone(), ciphertext }.to_string()))
        })
    }

    fn unwrap<'k>(&'k self, entry: &'k Entry) -> BoxFuture<'k, Result<KeyBytes, WrappingError>> {
        Box::pin(async move {
            let enc = ciphertext(self.by, entry)?;
            let KeyWrappers { allowed, tokens, .. } = self.wrappers;
            let credential = self.credential()?;
            let asked = self
                .asked(enc, async |by, calls| vault::unwrap(by, credential, tokens, allowed, calls).await);
            key_of(self.by, asked.await)
        })
    }
}

/// What an envelope of this key holds.
fn ciphertext<'e>(by: &WrappingKey, entry: &'e Entry) -> Result<&'e str, WrappingError> {
    match entry {
        Entry::Wrapped(envelope) if envelope.by == *by => Ok(&envelope.ciphertext),
        _ => Err(WrappingError::OtherKind),
    }
}

fn key_of(
    by: &WrappingKey,
    unwrapped: Result<Zeroizing<Vec<u8>>, ServiceError>,
) -> Result<KeyBytes, WrappingError> {
    let bytes = unwrapped.map_err(|error| WrappingError::of_service(by, Order::Unwrap, &error))?;
    let mut key = KeyBytes::default();
    if bytes.len() != key.len() {
        return Err(WrappingError::NotAKey { by: Box::new(by.clone()) });
    }
    key.copy_from_slice(&bytes);
    Ok(key)
}
