//! Keyed hashes: the same for the same content, and nothing to compare guesses with for whoever lacks the key.

use std::fmt;

use aws_lc_rs::hmac;
use roadstead_model::ObjectRef;
use serde_json::Value;

/// A key that hashes are made with. It does not print.
///
/// Hashes last as long as their key: by one that is [derived](Self::of_secret) from a secret that lasts, what was seen by one process can be
/// compared by the next.
#[derive(Clone)]
pub struct HashKey(hmac::Key);

impl HashKey {
    /// A key that goes with this process.
    #[must_use]
    pub fn random() -> Self {
        Self::new(&rand::random::<[u8; 32]>())
    }

    /// The key that belongs to a secret, from which neither the secret nor other keys of it can be told.
    #[must_use]
    pub fn of_secret(secret: &[u8]) -> Self {
        Self::new(secret).derive("roadstead/hashes", "")
    }

    /// Tells this key from others, without telling anything of it.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.derive("mark", "").hasher().finish()
    }

    fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The key for one purpose, for one of those that it serves.
    pub(crate) fn derive(&self, purpose: &str, of: &str) -> Self {
        let mut hasher = self.hasher();
        hasher.text(purpose);
        hasher.text(of);
        Self::new(hasher.0.sign().as_ref())
    }

    pub(crate) fn hasher(&self) -> Hasher {
        Hasher(hmac::Context::with_key(&self.0))
    }

    /// Of a field's value: of another object, or at another pointer, the same value has another hash.
    pub(crate) fn of_value(&self, object: &ObjectRef, pointer: &str, value: &Value) -> u64 {
        let mut hasher = self.hasher();
        // The version that it is read in does not count.
        let ObjectRef { group, kind, namespace, name, .. } = object;
        [group, kind, namespace, name].into_iter().for_each(|text| hasher.text(text));
        hasher.text(pointer);
        hasher.value(value);
        hasher.finish()
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(…)")
    }
}

/// Takes what is hashed, each part with its length or its kind, so that two lists of parts never read alike.
pub(crate) struct Hasher(hmac::Context);

impl Hasher {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len().try_into().unwrap_or(u64::MAX));
        self.0.update(text.as_bytes());
    }

    /// The same for the same JSON, in whatever order its keys come. JSON that was parsed has a bounded depth.
    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<(&String, &Value)> = map.iter().collect();
                keys.sort_unstable_by_key(|(key, _)| *key);
                self.number(1);
                self.number(keys.len().try_into().unwrap_or(u64::MAX));
                for (key, value) in keys {
                    self.text(key);
                    self.value(value);
                }
            }
            Value::Array(values) => {
                self.number(2);
                self.number(values.len().try_into().unwrap_or(u64::MAX));
                values.iter().for_each(|value| self.value(value));
            }
            other => {
                self.number(3);
                self.text(&other.to_string());
            }
        }
    }

    pub(crate) fn finish(self) -> u64 {
        let tag = self.0.sign();
        // A tag has 32 bytes.
        tag.as_ref().first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_value_has_one_hash_in_one_place_for_one_tenant() {
        let key = HashKey::of_secret(b"of an agent");
        let (apps, others) = (key.derive("values", "apps"), key.derive("values", "others"));
        let value = json!("c2VjcmV0");
        let hash = apps.of_value(&object("a"), "/data/password", &value);
        // Another process of the same agent, and another version of the kind.
        let again = HashKey::of_secret(b"of an agent").derive("values", "apps");
        let other_version = ObjectRef { version: "v2".to_owned(), ..object("a") };
        assert_eq!(again.of_value(&other_version, "/data/password", &value), hash);
        for other in [
            others.of_value(&object("a"), "/data/password", &value),
            apps.of_value(&object("b"), "/data/password", &value),
            apps.of_value(&object("a"), "/data/token", &value),
            apps.of_value(&object("a"), "/data/password", &json!("b3RoZXI=")),
            HashKey::of_secret(b"of another").derive("values", "apps").of_value(
                &object("a"),
                "/data/password",
                &value,
            ),
            HashKey::random().of_value(&object("a"), "/data/password", &value),
        ] {
            assert_ne!(other, hash);
        }
    }

    #[test]
    fn the_order_of_keys_does_not_count_and_that_of_a_list_does() {
        let key = HashKey::random();
        let hash = |value: Value| key.of_value(&object("a"), "", &value);
        assert_eq!(
            hash(json!({"a": {"c": 1, "d": [1, 2]}, "b": null})),
            hash(json!({"b": null, "a": {"d": [1, 2], "c": 1}}))
        );
        let differ =
            [json!([1, 2]), json!([2, 1]), json!([[1], 2]), json!({"1": 2}), json!("[1,2]"), json!(null)];
        for (index, one) in differ.iter().enumerate() {
            assert!(differ[..index].iter().all(|other| hash(other.clone()) != hash(one.clone())), "{one}");
        }
    }

    #[test]
    fn keys_are_told_apart_and_do_not_print() {
        let key = HashKey::of_secret(b"secret");
        assert_eq!(key.mark(), HashKey::of_secret(b"secret").mark());
        assert_ne!(key.mark(), HashKey::of_secret(b"other").mark());
        assert_eq!(format!("{key:?}"), "HashKey(…)");
    }
}
