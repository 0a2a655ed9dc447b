//! Decryption: where keys are, and those that come with a dispatch.

use roadstead_model::{Decrypt, Digest, GivenKey};
use zeroize::Zeroizing;

use super::{ConvertError, Result, dns, filled, object_name, sized};
use crate::limits::{MAX_DATA_KEY_BYTES, MAX_DATA_KEYS, MAX_DNS_LABEL_BYTES, MAX_TEXT_BYTES};
use crate::v1;

impl From<Decrypt> for v1::Decrypt {
    fn from(decrypt: Decrypt) -> Self {
        let Decrypt { namespace, secret, on_hub, lenient } = decrypt;
        Self { namespace, secret, on_hub: on_hub.unwrap_or_default(), lenient }
    }
}

impl TryFrom<v1::Decrypt> for Decrypt {
    type Error = ConvertError;

    fn try_from(decrypt: v1::Decrypt) -> Result<Self> {
        let v1::Decrypt { namespace, secret, on_hub, lenient } = decrypt;
        let on_hub = sized("on_hub", on_hub, MAX_TEXT_BYTES)?;
        Ok(Self {
            namespace: dns("namespace", filled("namespace", namespace)?, MAX_DNS_LABEL_BYTES)?,
            secret: object_name("secret", secret)?,
            on_hub: Some(on_hub).filter(|on_hub| !on_hub.is_empty()),
            lenient,
        })
    }
}

impl From<GivenKey> for v1::GivenKey {
    fn from(given: GivenKey) -> Self {
        Self { wrapped: given.wrapped.as_bytes().to_vec(), key: given.key.to_vec() }
    }
}

/// The data keys that came with a dispatch.
pub(super) fn given(given: Vec<v1::GivenKey>) -> Result<Vec<GivenKey>> {
    let too_long = |field: String, length, unit, max| ConvertError::TooLong { field, length, unit, max };
    if given.len() > MAX_DATA_KEYS {
        return Err(too_long("data_keys".to_owned(), given.len(), "entries", MAX_DATA_KEYS));
    }
    let convert = |(index, v1::GivenKey { wrapped, key }): (usize, v1::GivenKey)| {
        let key = Zeroizing::new(key);
        if key.len() > MAX_DATA_KEY_BYTES {
            let field = format!("data_keys[{index}].key");
            return Err(too_long(field, key.len(), "bytes", MAX_DATA_KEY_BYTES));
        }
        let not_one = |_| ConvertError::invalid(&format!("data_keys[{index}].wrapped"), "not a SHA-256");
        let wrapped = wrapped.try_into().map_err(not_one)?;
        Ok(GivenKey { wrapped: Digest::from_bytes(wrapped), key })
    };
    given.into_iter().enumerate().map(convert).collect()
}
