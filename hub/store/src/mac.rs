//! Which rows this hub wrote: a MAC over what a row says, under a key that never lies in the database.
//!
//! A row that gives somebody a right, or an agent something to do, counts only with its MAC. The MAC is over the table and
//! all values that count, each with its length, so that no two rows have the same.

use aws_lc_rs::hmac;
use serde_json::Value;
use time::OffsetDateTime;

use crate::seal::Derived;

/// Signs rows and checks them.
pub(crate) struct Signer(hmac::Key);

impl Signer {
    pub(crate) fn new(derived: &Derived) -> Self {
        Self(derived.rows())
    }

    /// The MAC of a row.
    pub(crate) fn sign(&self, row: &Row) -> Vec<u8> {
        hmac::sign(&self.0, &row.0).as_ref().to_vec()
    }

    /// Whether this is the row's MAC; takes the same time for all that are not.
    pub(crate) fn is_signed(&self, row: &Row, mac: Option<&[u8]>) -> bool {
        mac.is_some_and(|mac| hmac::verify(&self.0, &row.0, mac).is_ok())
    }
}

/// What a row says.
pub(crate) struct Row(Vec<u8>);

impl Row {
    pub(crate) fn of(table: &str) -> Self {
        Self(Vec::with_capacity(256)).bytes(table.as_bytes())
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(&(value.len() as u64).to_be_bytes());
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn number(self, value: i64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// A time as Postgres keeps it, in microseconds.
    pub(crate) fn time(self, value: OffsetDateTime) -> Self {
        self.bytes(&value.unix_timestamp_nanos().div_euclid(1_000).to_be_bytes())
    }

    /// A value that may be none, which differs from an empty one.
    pub(crate) fn optional<T>(mut self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        self.0.push(u8::from(value.is_some()));
        match value {
            Some(value) => write(self, value),
            None => self,
        }
    }

    pub(crate) fn texts(self, values: &[String]) -> Self {
        let row = self.number(i64::try_from(values.len()).unwrap_or(i64::MAX));
        values.iter().fold(row, |row, value| row.text(value))
    }

    /// JSON, whatever order its keys come in: a jsonb column has one of its own.
    pub(crate) fn json(self, value: &Value) -> Self {
        match value {
            Value::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| key.as_str());
                let row = self.text("{").number(i64::try_from(sorted.len()).unwrap_or(i64::MAX));
                sorted.into_iter().fold(row, |row, (key, value)| row.text(key).json(value))
            }
            Value::Array(items) => {
                let row = self.text("[").number(i64::try_from(items.len()).unwrap_or(i64::MAX));
                items.iter().fold(row, Self::json)
            }
            Value::String(text) => self.text("\"").text(text),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => self.text(&plain.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use serde_json::json;

    use super::{Row, Signer};
    use crate::Key;
    use crate::seal::Derived;

    fn signer() -> Signer {
        Signer::new(&Derived::of(&Key::generate().unwrap()))
    }

    /// What stored rows bear was made like this; another way would make all of them worth nothing.
    #[test]
    fn the_key_of_stored_rows_stays() {
        let key = Key::new([7; 32]);
        let main = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
        let rows = hmac::sign(&main, b"roadstead row MAC, version 1");
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, rows.as_ref()), &Row::of("token").0);
        assert_eq!(Signer::new(&Derived::of(&key)).sign(&Row::of("token")), mac.as_ref());
    }

    #[test]
    fn a_row_is_signed_by_one_key_and_as_one_row() {
        let (signer, other) = (signer(), signer());
        let mac = signer.sign(&Row::of("token").text("ab").text("c"));
        assert!(signer.is_signed(&Row::of("token").text("ab").text("c"), Some(&mac)));
        assert!(!other.is_signed(&Row::of("token").text("ab").text("c"), Some(&mac)));
        for another in [
            Row::of("token").text("a").text("bc"),
            Row::of("order").text("ab").text("c"),
            Row::of("token").text("ab"),
            Row::of("token").text("ab").text("c").optional(None, Row::text),
            Row::of("token").texts(&["ab".to_owned(), "c".to_owned()]),
        ] {
            assert!(!signer.is_signed(&another, Some(&mac)));
        }
        for forged in [None, Some(&[][..]), Some(&mac[1..]), Some(&[0; 32][..])] {
            assert!(!signer.is_signed(&Row::of("token").text("ab").text("c"), forged));
        }
    }

    #[test]
    fn json_is_the_same_in_any_order_and_differs_where_it_differs() {
        let signer = signer();
        let sign = |value| signer.sign(&Row::of("dispatch").json(&value));
        assert_eq!(sign(json!({ "a": [1, "x"], "b": null })), sign(json!({ "b": null, "a": [1, "x"] })));
        let all =
            [json!({ "a": 1 }), json!({ "a": "1" }), json!([["a", 1]]), json!(["a", 1]), json!([["a"], 1])];
        let mut macs: Vec<_> = all.into_iter().map(sign).collect();
        macs.sort();
        macs.dedup();
        assert_eq!(macs.len(), 5);
    }
}
