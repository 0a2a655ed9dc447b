//! Values from and to JSON, without a tree of another kind in between.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Map, NullForm, Num, Number, Str, Value};

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null(NullForm::Written))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(
            |_| Value::Number(Number { text: value.to_string().into(), num: Num::Uint(value) }),
            Value::int,
        ))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let text = serde_json::Value::from(value).to_string().into();
        Ok(Value::Number(Number { text, num: Num::Float(value) }))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::string(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Value::List(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Str, Value)> = Vec::new();
        while let Some((key, value)) = from.next_entry::<String, Value>()? {
            entries.push((key.into(), value));
        }
        entries.shrink_to_fit();
        Ok(Value::Map(entries.into_iter().collect()))
    }
}

impl Serialize for Value {
    /// As [`Value::to_json`] has it.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null(NullForm::Quoted) => to.serialize_str(""),
            Self::Null(_) => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Number(number) => match number.num.canonical() {
                Num::Int(value) => to.serialize_i64(value),
                Num::Uint(value) => to.serialize_u64(value),
                Num::Float(value) => to.serialize_f64(value),
            },
            Self::String(text) => to.serialize_str(text),
            Self::List(items) => to.collect_seq(items),
            Self::Map(map) => map.serialize(to),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(&**key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_and_written_without_a_change() {
        let text = r#"{"a":[null,true,-3,18446744073709551615,1.5,"x\ny"],"b":{},"c":{"d":[]}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value, Value::from_json(&serde_json::from_str(text).unwrap()));
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
        assert_eq!(serde_json::to_value(&value).unwrap(), value.to_json());
        let twice: Value = serde_json::from_str(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(twice.at(&["a"]), Some(&Value::int(2)), "the last of equal keys counts");
    }
}
