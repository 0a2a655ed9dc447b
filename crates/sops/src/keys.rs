//! Data keys, and the master keys that they are wrapped with.
//!
//! Who holds a master key is not known here: a [`KeyProvider`] is asked with what the file says of one and answers with the
//! data key. [`DataKeys`] is the question above it: the data key of a file, out of all its groups. Every provider answers it; so can
//! who was handed data keys and has no master key at all.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::error::{shown, shown_to};
use crate::shamir::{self, ShareError};

/// Bytes of the names that a data key has of those that opened it. Data keys are remembered by the ten thousand, and names are the file's.
const NAMES: usize = 512;

/// A data key, or a share of one. It is not printed, and wiped when it goes.
#[derive(Clone)]
pub struct DataKey {
    bytes: Zeroizing<Vec<u8>>,
    opened_by: Vec<String>,
}

impl DataKey {
    /// Bytes as a key. Whether they fit is seen when they are used.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { bytes, opened_by: Vec::new() }
    }

    /// The key.
    pub fn expose(&self) -> &[u8] {
        &self.bytes
    }

    /// The master keys that unwrapped it, as the file names them, by kind and name (`age age1…`). A data key in shares has one of each group,
    /// as far as they have 512 bytes together. Empty where someone else has unwrapped it.
    pub fn opened_by(&self) -> &[String] {
        &self.opened_by
    }
}

impl PartialEq for DataKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes.as_slice().ct_eq(other.bytes.as_slice()).into()
    }
}

impl Eq for DataKey {}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// A data key as a file has it: wrapped with master keys, in groups. It tells nothing to whoever has none of those keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WrappedKey {
    threshold: usize,
    groups: Vec<Vec<MasterKey>>,
}

impl WrappedKey {
    pub(crate) fn new(threshold: usize, groups: Vec<Vec<MasterKey>>) -> Self {
        Self { threshold, groups }
    }

    /// The groups of master keys. Any one key of a group unwraps what the group has.
    pub fn groups(&self) -> &[Vec<MasterKey>] {
        &self.groups
    }

    /// How many groups are needed; none where the file does not say.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// A name for the data key that does not tell it: equal where all that is said of its wrapping is.
    pub fn digest(&self) -> [u8; 32] {
        // Texts and numbers: they always become JSON.
        let encoded = serde_json::to_vec(self).unwrap_or_default();
        let mut named = [0; 32];
        named.iter_mut().zip(digest(&SHA256, &encoded).as_ref()).for_each(|(byte, from)| *byte = *from);
        named
    }
}

/// A master key as a file names it, with the data key (or a share of it) that it wraps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MasterKey {
    /// age.
    Age {
        /// Whom it was encrypted to. Not needed to decrypt, and may be anything.
        recipient: String,
        /// An armored age file.
        enc: String,
    },
    /// OpenPGP.
    Pgp {
        /// A fingerprint or key id. Not needed to decrypt, and may be anything.
        fingerprint: String,
        /// An armored message.
        enc: String,
    },
    /// AWS KMS.
    AwsKms {
        /// The key.
        arn: String,
        /// A role to be assumed, if any.
        role: Option<String>,
        /// What was authenticated with the data key.
        context: BTreeMap<String, String>,
        /// The profile of whoever encrypted.
        profile: String,
        /// Base64.
        enc: String,
    },
    /// Google Cloud KMS.
    GcpKms {
        /// The key.
        resource_id: String,
        /// Base64.
        enc: String,
    },
    /// Azure Key Vault.
    AzureKeyVault {
        /// The vault.
        vault_url: String,
        /// The key.
        name: String,
        /// Its version.
        version: String,
        /// Base64 for URLs.
        enc: String,
    },
    /// The transit engine of HashiCorp Vault or OpenBao.
    Vault {
        /// The server.
        address: String,
        /// Where the engine is mounted.
        engine_path: String,
        /// The key.
        key_name: String,
        /// What the engine gave out.
        enc: String,
    },
    /// Huawei Cloud KMS.
    HuaweiKms {
        /// Region and id.
        key_id: String,
        /// What the service gave out.
        enc: String,
    },
}

impl MasterKey {
    /// The name of its list in a file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Age { .. } => "age",
            Self::Pgp { .. } => "pgp",
            Self::AwsKms { .. } => "kms",
            Self::GcpKms { .. } => "gcp_kms",
            Self::AzureKeyVault { .. } => "azure_kv",
            Self::Vault { .. } => "hc_vault",
            Self::HuaweiKms { .. } => "hckms",
        }
    }

    /// What a person knows it by.
    pub fn id(&self) -> String {
        match self {
            Self::Age { recipient, .. } => shown(recipient),
            Self::Pgp { fingerprint, .. } => shown(fingerprint),
            Self::AwsKms { arn, .. } => shown(arn),
            Self::GcpKms { resource_id, .. } => shown(resource_id),
            Self::AzureKeyVault { vault_url, name, version, .. } => {
                shown(&format!("{vault_url}/keys/{name}/{version}"))
            }
            Self::Vault { address, engine_path, key_name, .. } => {
                shown(&format!("{address}/v1/{engine_path}/keys/{key_name}"))
            }
            Self::HuaweiKms { key_id, .. } => shown(key_id),
        }
    }

    /// The wrapped data key.
    pub fn enc(&self) -> &str {
        match self {
            Self::Age { enc, .. }
            | Self::Pgp { enc, .. }
            | Self::AwsKms { enc, .. }
            | Self::GcpKms { enc, .. }
            | Self::AzureKeyVault { enc, .. }
            | Self::Vault { enc, .. }
            | Self::HuaweiKms { enc, .. } => enc,
        }
    }

    /// Which are tried first.
    fn order(&self) -> u8 {
        match self {
            Self::Age { .. } => 0,
            Self::Pgp { .. } => 1,
            _ => 2,
        }
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({} {})", self.kind(), self.id())
    }
}

/// Who can unwrap data keys.
pub trait KeyProvider {
    /// Unwraps what a master key wraps. `None` says that this is not a key of this provider, and nothing was tried.
    ///
    /// # Errors
    /// It is, and does not open; or whoever holds the key does not answer.
    fn unwrap(&self, key: &MasterKey) -> Result<Option<DataKey>, KeyError>;
}

/// Providers one after the other: the first that opens a key is the one that counts.
impl<P: KeyProvider + ?Sized> KeyProvider for [&P] {
    fn unwrap(&self, key: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        let mut failed = None;
        for provider in self {
            match provider.unwrap(key) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Some(found)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }
}

/// Why a master key that should have opened did not. It holds no key and nothing decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

impl KeyError {
    /// An error that says this. What comes from elsewhere is shortened here.
    pub fn new(reason: impl AsRef<str>) -> Self {
        /// An address that a file names, and what to do about it.
        const MOST: usize = 500;
        Self(shown_to(reason.as_ref(), MOST))
    }
}

/// Who knows the data key of a file.
pub trait DataKeys {
    /// The data key that is wrapped so.
    ///
    /// # Errors
    /// It cannot be recovered.
    fn data_key(&self, wrapped: &WrappedKey) -> Result<DataKey, NoDataKey>;
}

impl<P: KeyProvider + ?Sized> DataKeys for P {
    fn data_key(&self, wrapped: &WrappedKey) -> Result<DataKey, NoDataKey> {
        recover(wrapped, self).1
    }
}

/// Data keys that someone else has unwrapped, by the digests of what they were wrapped as.
#[derive(Debug, Default, Clone)]
pub struct UnwrappedKeys(BTreeMap<[u8; 32], DataKey>);

impl UnwrappedKeys {
    /// Adds the data key of what has this [digest](WrappedKey::digest).
    pub fn insert(&mut self, digest: [u8; 32], key: DataKey) {
        self.0.insert(digest, key);
    }
}

impl DataKeys for UnwrappedKeys {
    fn data_key(&self, wrapped: &WrappedKey) -> Result<DataKey, NoDataKey> {
        let none = || NoDataKey { groups: Vec::new(), needed: wrapped.groups.len(), shares: None };
        self.0.get(&wrapped.digest()).cloned().ok_or_else(none)
    }
}

/// Why the data key of a file was not recovered: each group with its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDataKey {
    /// In the order of the file. Empty where nobody tried.
    pub groups: Vec<GroupResult>,
    /// How many groups have to give their share.
    pub needed: usize,
    /// What is wrong with the shares of those that did.
    pub shares: Option<ShareError>,
}

/// What came of one group of master keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupResult {
    /// Each key that was tried, by kind and name, and what came of it. The last one of a group that opened did open.
    pub keys: Vec<(&'static str, String, KeyResult)>,
    /// It gave the data key, or its share.
    pub opened: bool,
}

/// What came of one master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyResult {
    /// It opened.
    Opened,
    /// Nobody has it.
    NotHeld,
    /// It did not open.
    Failed(KeyError),
}

impl fmt::Display for NoDataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot recover the data key")?;
        if let Some(problem) = &self.shares {
            write!(f, ": {problem}")?;
        }
        if self.groups.len() > 1 {
            let opened = self.groups.iter().filter(|group| group.opened).count();
            let all = self.groups.len();
            write!(f, ": {opened} of {all} key groups opened, {} are needed", self.needed)?;
        }
        for (index, group) in self.groups.iter().enumerate() {
            write!(f, "{}", if index == 0 { ": " } else { "; " })?;
            if self.groups.len() > 1 {
                write!(f, "group {}: ", index + 1)?;
            }
            group.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for NoDataKey {}

impl fmt::Display for GroupResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Of a file for a thousand recipients.
        const SHOWN: usize = 8;
        if self.opened {
            return write!(f, "opened");
        }
        if self.keys.is_empty() {
            return write!(f, "it has no keys");
        }
        for (index, (kind, id, result)) in self.keys.iter().take(SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match result {
                KeyResult::Opened => write!(f, "{comma}{kind} {id}: opened")?,
                KeyResult::NotHeld => write!(f, "{comma}{kind} {id}: no key for it was given")?,
                KeyResult::Failed(error) => write!(f, "{comma}{kind} {id}: {error}")?,
            }
        }
        let more = self.keys.len().saturating_sub(SHOWN);
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}

/// Recovers a data key: of each group any one key suffices; of several groups, all shares that there are are combined. Says what came
/// of each group, too.
pub(crate) fn recover<P: KeyProvider + ?Sized>(
    wrapped: &WrappedKey,
    provider: &P,
) -> (Vec<GroupResult>, Result<DataKey, NoDataKey>) {
    let (mut shares, mut opened_by) = (Vec::new(), Vec::new());
    let mut groups = Vec::new();
    for (index, group) in wrapped.groups().iter().enumerate() {
        let (result, share) = try_group(group, provider);
        if let Some(share) = share {
            let room = NAMES.saturating_sub(opened_by.iter().map(String::len).sum());
            opened_by.extend(share.opened_by.into_iter().filter(|name| name.len() <= room));
            shares.push((index + 1, share.bytes));
        }
        groups.push(result);
    }
    let threshold = wrapped.threshold();
    let failed = |needed, shares| Err(NoDataKey { groups: groups.clone(), needed, shares });
    let bytes = if groups.len() == 1 {
        shares.pop().map(|(_, share)| share).map_or_else(|| failed(1, None), Ok)
    } else if shares.len() < threshold {
        failed(threshold.max(2), None)
    } else {
        shamir::combine(&shares).or_else(|error| failed(threshold.max(2), Some(error)))
    };
    let key = bytes.map(|bytes| DataKey { bytes, opened_by });
    (groups, key)
}

/// Tries the keys of a group until one opens.
fn try_group<P: KeyProvider + ?Sized>(group: &[MasterKey], provider: &P) -> (GroupResult, Option<DataKey>) {
    let mut keys: Vec<&MasterKey> = group.iter().collect();
    keys.sort_by_key(|key| key.order());
    let mut result = GroupResult { keys: Vec::new(), opened: false };
    for key in keys {
        let outcome = provider.unwrap(key);
        let (shown, share) = match outcome {
            Ok(Some(mut share)) => {
                let mut name = format!("{} {}", key.kind(), key.id());
                name.shrink_to_fit();
                share.opened_by = vec![name];
                (KeyResult::Opened, Some(share))
            }
            Ok(None) => (KeyResult::NotHeld, None),
            Err(error) => (KeyResult::Failed(error), None),
        };
        result.keys.push((key.kind(), key.id(), shown));
        if share.is_some() {
            result.opened = true;
            return (result, share);
        }
    }
    (result, None)
}
