//! JSON bodies, read with a note of every key that stands twice: of such the last one counts, as in Kubernetes, and
//! whether that is an error is the request's to say (`fieldValidation`).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{Body, BodyError};

/// More than this is not worth telling.
const MOST: usize = 100;
/// Bytes of a path that are told; of a longer one its beginning. Keys may be as long as the body, and each of them would
/// be told in full in all paths beneath it.
const MAX_PATH: usize = 256;

/// What values cost in memory, at most: a place in a list, with what the list grows by and is moved through.
const ITEM: usize = 3 * size_of::<Value>();
/// A list's own, which has room for four items from the first on.
const FIRST_ITEM: usize = 2 * size_of::<Value>() + ALLOCATION;
/// The first node of a map, which has room for eleven entries.
const FIRST_NODE: usize = 704;
/// An entry of a larger map, whose nodes may be half full.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// An allocation's own, beside its bytes.
const ALLOCATION: usize = 32;

/// Reads a text of one JSON value, whose values may take `memory` bytes. The parser's own limit bounds the depth.
///
/// # Errors
/// Where it is not JSON, or goes on after the value; [`BodyError::Memory`] where it would take more.
pub(crate) fn parse(bytes: &[u8], memory: usize) -> Result<Body, BodyError> {
    // One buffer, in which texts with escapes are put together, grows to twice the longest.
    let own = bytes.len().saturating_mul(2);
    let left = memory.checked_sub(own).ok_or(BodyError::Memory { memory })?;
    let mut state = State { path: String::new(), duplicates: Vec::new(), left, spent: false };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Reader(&mut state).deserialize(&mut deserializer);
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(Body { value, duplicates: state.duplicates }),
        Err(_) if state.spent => Err(BodyError::Memory { memory }),
        Err(error) => Err(BodyError::Malformed { form: "JSON", why: error.to_string() }),
    }
}

/// The beginning of a text that may be long, for messages.
pub(crate) fn beginning(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= MAX_PATH) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// What a value costs beside its place, at most; as [`parse`] counts it.
pub(crate) fn cost(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() + ALLOCATION,
        Value::Array(items) => {
            let first = if items.is_empty() { 0 } else { FIRST_ITEM };
            items.iter().map(|item| ITEM + cost(item)).sum::<usize>() + first
        }
        Value::Object(map) => {
            let first = if map.is_empty() { 0 } else { FIRST_NODE };
            map.iter().map(|(key, value)| key.len() + ALLOCATION + ENTRY + cost(value)).sum::<usize>() + first
        }
    }
}

/// What is known while a text is read.
struct State {
    path: String,
    duplicates: Vec<String>,
    /// Bytes that values may still take.
    left: usize,
    /// Whether they wanted more.
    spent: bool,
}

impl State {
    fn charge<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.spent = true;
                Err(E::custom("too large"))
            }
        }
    }
}

struct Reader<'a>(&'a mut State);

impl Reader<'_> {
    fn at(&mut self, segment: fmt::Arguments<'_>) -> (usize, Reader<'_>) {
        let length = self.0.path.len();
        // What is beyond is not told, and would be written again and again. Writing to a String cannot fail.
        if length <= MAX_PATH {
            let _ = fmt::Write::write_fmt(&mut self.0.path, segment);
        }
        (length, Reader(self.0))
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.charge(value.len() + ALLOCATION)?;
        Ok(value.into())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.0.charge(value.len() + ALLOCATION)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let (length, reader) = self.at(format_args!("[{}]", list.len()));
            let item = items.next_element_seed(reader)?;
            self.0.path.truncate(length);
            match item {
                Some(item) => {
                    self.0.charge(if list.is_empty() { FIRST_ITEM + ITEM } else { ITEM })?;
                    list.push(item);
                }
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let node = if map.is_empty() { FIRST_NODE } else { 0 };
            self.0.charge(node + ENTRY + key.len() + ALLOCATION)?;
            let dot = if self.0.path.is_empty() { "" } else { "." };
            let (length, reader) = self.at(format_args!("{dot}{key}"));
            let value = entries.next_value_seed(reader)?;
            if map.insert(key, value).is_some() && self.0.duplicates.len() < MOST {
                self.0.duplicates.push(beginning(&self.0.path));
            }
            self.0.path.truncate(length);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Body, BodyError, cost};

    fn parse(bytes: &[u8]) -> Result<Body, BodyError> {
        super::parse(bytes, 1 << 20)
    }

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

    /// A hundred paths of three million bytes each were kept.
    #[test]
    fn long_keys_that_stand_twice_are_told_in_short() {
        let long = "é".repeat(100_000);
        let inner = "\"x\":1,\"x\":2,".repeat(100);
        let text = format!("{{\"{long}\":{{{inner}\"y\":{{\"z\":1,\"z\":2}}}}}}");
        let parsed = super::parse(text.as_bytes(), 4 << 20).unwrap();
        assert_eq!(parsed.duplicates.len(), 100);
        assert!(parsed.duplicates.iter().all(|path| path.len() < 300), "{:?}", parsed.duplicates[0].len());
    }

    #[test]
    fn values_are_counted_and_bounded() {
        let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        for item in ["0", "[]", "{}", "\"\"", "{\"\":0}", "[[0]]"] {
            let error = parse(many(item, 100_000).as_bytes()).unwrap_err();
            assert!(matches!(error, BodyError::Memory { memory } if memory == 1 << 20), "{item}: {error}");
            assert!(parse(many(item, 1000).as_bytes()).is_ok(), "{item}");
        }
        // What is not JSON is told as such while there is memory.
        assert!(matches!(parse(b"[1,"), Err(BodyError::Malformed { .. })));
        assert!(matches!(super::parse(b"[1]", 0), Err(BodyError::Memory { .. })));
    }

    proptest! {
        /// What is said of a value is what is taken for it while it is read.
        #[test]
        fn a_value_costs_what_its_text_does(text in "[\\[\\]{}:,\"a1]{0,20}") {
            if let Ok(parsed) = parse(text.as_bytes()) {
                let whole = cost(&parsed.value) + 2 * text.len();
                prop_assert!(super::parse(text.as_bytes(), 2 * text.len()).is_ok() || cost(&parsed.value) > 0);
                if parsed.duplicates.is_empty() {
                    prop_assert!(super::parse(text.as_bytes(), whole).is_ok());
                }
            }
        }

        #[test]
        fn reads_what_serde_json_reads(bytes in prop::collection::vec(prop::sample::select(b"{}[]:,\"a1.e-tru ".to_vec()), 0..40)) {
            let want: Result<Value, _> = serde_json::from_slice(&bytes);
            let have = parse(&bytes).map(|parsed| parsed.value);
            prop_assert_eq!(have.ok(), want.ok());
        }
    }
}
