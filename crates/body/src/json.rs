//! JSON bodies, read with a note of every key that stands twice: of such the last one counts, as in Kubernetes, and
//! whether that is an error is the request's to say (`fieldValidation`).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{Body, BodyError};

/// More than this is not worth telling.
const MOST: usize = 100;

/// Reads a text of one JSON value. The parser's own limit bounds the depth.
///
/// # Errors
/// Where it is no JSON, or goes on after the value.
pub(crate) fn parse(bytes: &[u8]) -> Result<Body, BodyError> {
    let bad = |error: serde_json::Error| BodyError::Malformed { form: "JSON", why: error.to_string() };
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let reader = Reader { path: &mut String::new(), duplicates: &mut duplicates };
    let value = reader.deserialize(&mut deserializer).map_err(bad)?;
    deserializer.end().map_err(bad)?;
    Ok(Body { value, duplicates })
}

struct Reader<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn at(&mut self, segment: fmt::Arguments<'_>) -> (usize, Reader<'_>) {
        let length = self.path.len();
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(self.path, segment);
        (length, Reader { path: self.path, duplicates: self.duplicates })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let (length, reader) = self.at(format_args!("[{}]", list.len()));
            let item = items.next_element_seed(reader)?;
            self.path.truncate(length);
            match item {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let dot = if self.path.is_empty() { "" } else { "." };
            let (length, reader) = self.at(format_args!("{dot}{key}"));
            let value = entries.next_value_seed(reader)?;
            if map.insert(key, value).is_some() && self.duplicates.len() < MOST {
                self.duplicates.push(self.path.clone());
            }
            self.path.truncate(length);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::parse;

    #[test]
    fn keys_that_stand_twice() {
        let parsed = parse(br#"{"a": 1, "b": [{"c": 1, "c": {"d": 2}}], "a": 3}"#).unwrap();
        assert_eq!(parsed.value, json!({ "a": 3, "b": [{ "c": { "d": 2 } }] }));
        assert_eq!(parsed.duplicates, ["b[0].c", "a"]);
    }

    #[test]
    fn numbers_come_out_as_they_went_in() {
        let long = format!("-{}11", "7".repeat(131));
        for text in
            [long.as_str(), "7.777777777777779e132", "18446744073709551615", "-9223372036854775808", "0.1"]
        {
            let value = parse(text.as_bytes()).unwrap().value;
            assert_eq!(parse(value.to_string().as_bytes()).unwrap().value, value, "{text}");
        }
    }

    #[test]
    fn what_is_no_json() {
        let deep = "[".repeat(100_000);
        for bad in ["", "{", "{}{}", "{\"a\"}", "\u{0}", "nul", deep.as_str()] {
            assert!(parse(bad.as_bytes()).is_err());
        }
        assert!(parse(b"\"\xff\"").is_err(), "invalid UTF-8");
    }

    proptest! {
        #[test]
        fn reads_what_serde_json_reads(bytes in prop::collection::vec(prop::sample::select(b"{}[]:,\"a1.e-tru ".to_vec()), 0..40)) {
            let want: Result<Value, _> = serde_json::from_slice(&bytes);
            let have = parse(&bytes).map(|parsed| parsed.value);
            prop_assert_eq!(have.ok(), want.ok());
        }
    }
}
