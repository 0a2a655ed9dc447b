//! What is secret of Secrets, which does not print.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// Where `kubectl apply` keeps what it was given. Of a Secret, that is all its data once more.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// [`LAST_APPLIED`] among the data in a sealed value. A key of a Secret has no `/`.
const SEALED_LAST_APPLIED: &str = "annotations/kubectl.kubernetes.io/last-applied-configuration";

/// What is secret of a Secret: its data, key -> base64 as the API shows it, and what `kubectl apply` noted of it. Does
/// not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretData {
    data: BTreeMap<String, Zeroizing<String>>,
    last_applied: Option<Zeroizing<String>>,
}

impl SecretData {
    /// From key -> base64.
    #[must_use]
    pub fn new(data: BTreeMap<String, String>) -> Self {
        let data = data.into_iter().map(|(key, value)| (key, Zeroizing::new(value))).collect();
        Self { data, last_applied: None }
    }

    /// With the value of the annotation [`LAST_APPLIED`].
    #[must_use]
    pub fn with_last_applied(mut self, annotation: Option<String>) -> Self {
        self.last_applied = annotation.map(Zeroizing::new);
        self
    }

    /// The value of the annotation [`LAST_APPLIED`].
    #[must_use]
    pub fn expose_last_applied(&self) -> Option<&str> {
        self.last_applied.as_ref().map(|annotation| annotation.as_str())
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The base64 text under `key`.
    #[must_use]
    pub fn expose(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(|value| value.as_str())
    }

    /// All of it, as key -> base64.
    #[must_use]
    pub fn expose_all(&self) -> BTreeMap<String, String> {
        self.data.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
    }

    pub(crate) fn to_json(&self) -> Zeroizing<Vec<u8>> {
        let mut map: BTreeMap<&str, &str> =
            self.data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        map.extend(self.expose_last_applied().map(|annotation| (SEALED_LAST_APPLIED, annotation)));
        // A map of texts has no way to fail.
        Zeroizing::new(serde_json::to_vec(&map).unwrap_or_default())
    }

    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut map: BTreeMap<String, String> = serde_json::from_slice(bytes)?;
        let last_applied = map.remove(SEALED_LAST_APPLIED);
        Ok(Self::new(map).with_last_applied(last_applied))
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretData").field(&self.data.keys()).finish()
    }
}
