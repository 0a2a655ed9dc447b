//! A value of anyone's with bounds: as many parts and bytes as its reader is ready to hold.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What is left of the bounds.
pub(super) struct Allowance {
    /// Texts, numbers, lists and maps.
    pub(super) nodes: usize,
    /// Bytes of texts and keys.
    pub(super) bytes: usize,
}

impl Allowance {
    fn node<E: Error>(&mut self) -> Result<(), E> {
        match self.nodes.checked_sub(1) {
            Some(left) => self.nodes = left,
            None => return Err(E::custom("it has too many parts")),
        }
        Ok(())
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        match self.bytes.checked_sub(text.len()) {
            Some(left) => self.bytes = left,
            None => return Err(E::custom("it is too large")),
        }
        Ok(())
    }
}

/// Reads a value within an allowance; keys stand once in a map.
pub(super) struct Bounded<'a> {
    pub(super) left: &'a mut Allowance,
    /// How deep it may nest.
    pub(super) depth: usize,
}

impl Bounded<'_> {
    fn deeper<E: Error>(&mut self) -> Result<Bounded<'_>, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("it is nested too deep"))?;
        Ok(Bounded { left: self.left, depth })
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.left.node().map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.left.node().map(|()| value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.left.node().map(|()| value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.left.node()?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.left.node()?;
        self.left.text(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.left.node().map(|()| Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        self.left.node()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        self.left.node()?;
        let mut entries = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.left.text(&key)?;
            let value = map.next_value_seed(self.deeper()?)?;
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} already set in map")));
            }
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }
}
