//! The tree of values that a build works on.
//!
//! It is what YAML means to kustomize once comments, styles and anchors are gone. Keys are kept sorted by their bytes:
//! lookups are binary searches, two maps merge in one pass, and the hash of a generated object needs that order anyway.
//! Strings are shared, so that copying an object (a base that two overlays use, an alias) copies pointers.

mod json;
mod list;
mod text;

use std::sync::Arc;

use crate::yaml;

pub use list::List;
pub use text::Text;
pub(crate) use text::TextStyle;

/// A shared, immutable string.
pub type Str = Arc<str>;

/// One YAML value.
///
/// ```
/// use roadstead_kustomize::value::Value;
///
/// let value = Value::from_json(&serde_json::json!({"spec": {"replicas": 3}}));
/// assert_eq!(value.at(&["spec", "replicas"]), Some(&Value::int(3)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`. Whether it was written out decides if a strategic merge of its object keeps it.
    Null(NullForm),
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    String(Text),
    /// A list.
    List(List),
    /// A mapping with text keys.
    Map(Map),
}

/// How a null was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullForm {
    /// Nothing stood there (`key:`).
    Empty,
    /// `null`.
    Written,
    /// `Null`.
    Title,
    /// `NULL`.
    Upper,
    /// `~`.
    Tilde,
    /// Nothing stood there, inside of brackets. kustomize writes the brackets out once more, with quotes for nothing, so
    /// that it is null for patches and an empty text in the end.
    Quoted,
}

impl NullForm {
    /// What is written there.
    pub fn text(self) -> &'static str {
        match self {
            Self::Empty | Self::Quoted => "",
            Self::Written => "null",
            Self::Title => "Null",
            Self::Upper => "NULL",
            Self::Tilde => "~",
        }
    }
}

/// A number, with the text it was read from: merge keys are compared as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The source text.
    pub text: Str,
    /// Its meaning.
    pub num: Num,
}

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Num {
    /// Fits 64 bits, signed.
    Int(i64),
    /// Above the signed range.
    Uint(u64),
    /// Anything else; always finite.
    Float(f64),
}

impl Value {
    /// A text value.
    pub fn string(text: impl Into<Text>) -> Self {
        Self::String(text.into())
    }

    /// An integer value.
    pub fn int(number: i64) -> Self {
        Self::Number(Number { text: number.to_string().into(), num: Num::Int(number) })
    }

    /// Is it null?
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null(_))
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// The map, if it is one.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The text of any scalar, as it would be compared with a merge key or a name.
    pub fn scalar_text(&self) -> Option<Str> {
        match self {
            Self::String(text) => Some(text.as_shared().clone()),
            Self::Number(number) => Some(number.text.clone()),
            Self::Bool(true) => Some("true".into()),
            Self::Bool(false) => Some("false".into()),
            Self::Null(form) => Some(form.text().into()),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// The word for its type in messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null(_) => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// What it is within brackets, where nothing is written with quotes, no text is folded, and a time with colons is text.
    pub(crate) fn put_in_brackets(&mut self) {
        match self {
            Self::Null(form @ NullForm::Empty) => *form = NullForm::Quoted,
            Self::String(text) => match text.style() {
                TextStyle::Folded => *text = text.with_style(TextStyle::Quoted),
                TextStyle::RetypedFolded => *text = text.with_style(TextStyle::Retyped),
                TextStyle::Untagged => *text = text.with_style(TextStyle::UntaggedInBrackets),
                TextStyle::Time if text.contains(':') => *text = text.with_style(TextStyle::TimeInBrackets),
                _ => {}
            },
            Self::List(items) => items.iter_mut().for_each(Self::put_in_brackets),
            Self::Map(map) => map.values_mut().for_each(|(_, value)| value.put_in_brackets()),
            Self::Null(_) | Self::Bool(_) | Self::Number(_) => {}
        }
    }

    /// What texts without a tag are in an object that a patch was merged into: those that could be a number or a boolean have
    /// quotes from then on.
    pub(crate) fn quote_untagged(&mut self) {
        match self {
            Self::String(text) if text.is_untagged() && yaml::is_quoted_when_set(text) => {
                *text = text.with_style(TextStyle::Quoted);
            }
            Self::List(items) => items.iter_mut().for_each(Self::quote_untagged),
            Self::Map(map) => map.values_mut().for_each(|(_, value)| value.quote_untagged()),
            Self::String(_) | Self::Null(_) | Self::Bool(_) | Self::Number(_) => {}
        }
    }

    /// What a scalar is without brackets around it. Lists and mappings keep their own.
    pub(crate) fn take_out_of_brackets(&mut self) {
        match self {
            Self::Null(form @ NullForm::Quoted) => *form = NullForm::Empty,
            Self::String(text) if text.style() == TextStyle::TimeInBrackets => {
                *text = text.with_style(TextStyle::Time);
            }
            Self::String(text) if text.style() == TextStyle::UntaggedInBrackets => {
                *text = text.with_style(TextStyle::Untagged);
            }
            _ => {}
        }
    }

    /// Follows map keys.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| value.as_map()?.get(key))
    }

    /// The same value for `serde_json`.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null(NullForm::Quoted) => Json::String(String::new()),
            Self::Null(_) => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Number(number) => match number.num.canonical() {
                Num::Int(value) => value.into(),
                Num::Uint(value) => value.into(),
                Num::Float(value) => value.into(),
            },
            Self::String(text) => Json::String(text.to_string()),
            Self::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Self::Map(map) => Json::Object(map.iter().map(|(k, v)| (k.to_string(), v.to_json())).collect()),
        }
    }

    /// The value that a JSON value means.
    pub fn from_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::Null(NullForm::Written),
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => {
                let num = number.as_i64().map(Num::Int).or_else(|| number.as_u64().map(Num::Uint));
                let num = num.unwrap_or_else(|| Num::Float(number.as_f64().unwrap_or_default()));
                Self::Number(Number { text: number.to_string().into(), num })
            }
            Json::String(text) => Self::string(text.as_str()),
            Json::Array(items) => Self::List(items.iter().map(Self::from_json).collect()),
            Json::Object(map) => {
                Self::Map(map.iter().map(|(k, v)| (Str::from(k.as_str()), Self::from_json(v))).collect())
            }
        }
    }
}

impl Num {
    /// The number as it is after a trip through JSON: a float without a fraction is an integer there.
    pub fn canonical(self) -> Self {
        /// From here on, JSON texts of floats have an exponent.
        const EXPONENT: f64 = 1e21;
        /// Up to here, floats have all whole numbers.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Self::Float(f) if f.fract() == 0.0 && f.abs() <= EXACT => Self::Int(f as i64),
            // The digits that tell the float from its neighbours, and zeros after them.
            Self::Float(f) if f.fract() == 0.0 && f.abs() < EXPONENT => {
                let text = f.to_string();
                let int = text.parse().map(Self::Int);
                int.or_else(|_| text.parse().map(Self::Uint)).unwrap_or(self)
            }
            Self::Int(_) | Self::Uint(_) | Self::Float(_) => self,
        }
    }
}

/// A mapping, sorted by the bytes of its keys. Two are equal if their entries are.
#[derive(Debug, Clone, Default)]
pub struct Map {
    entries: Vec<(Str, Value)>,
    brackets: bool,
    odd: bool,
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Map {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a map from entries in any order; where a key comes twice, gives that key back.
    pub fn from_unsorted(mut entries: Vec<(Str, Value)>) -> Result<Self, Str> {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(pair[0].0.clone());
            }
        }
        Ok(Self { entries, brackets: false, odd: false })
    }

    /// Is it written in brackets?
    pub(crate) fn brackets(&self) -> bool {
        self.brackets
    }

    /// Says whether it is written in brackets.
    pub(crate) fn set_brackets(&mut self, brackets: bool) {
        self.brackets = brackets;
    }

    /// Has it a key that is a list or mapping? Such a mapping of a patch can stand where nothing looks at it.
    pub(crate) fn is_odd(&self) -> bool {
        self.odd
    }

    /// Says whether it has a key that is a list or mapping.
    pub(crate) fn set_odd(&mut self, odd: bool) {
        self.odd = odd;
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| (**k).cmp(key))
    }

    fn put(&mut self, at: usize, entry: (Str, Value)) {
        if self.entries.len() == self.entries.capacity() {
            // Most mappings of an object are small, and there are many: one that grows keeps little room.
            self.entries.reserve_exact(1 + self.entries.len() / 8);
        }
        self.entries.insert(at, entry);
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Has it no keys?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value at a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).ok().map(|i| &self.entries[i].1)
    }

    /// The key itself as it is here.
    pub(crate) fn own_key(&self, key: &str) -> Option<&Str> {
        self.find(key).ok().map(|i| &self.entries[i].0)
    }

    /// The value at a key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.find(key).ok().map(|i| &mut self.entries[i].1)
    }

    /// Is the key there?
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Sets a key; gives back what stood there.
    pub fn insert(&mut self, key: impl AsRef<str> + Into<Str>, value: Value) -> Option<Value> {
        match self.find(key.as_ref()) {
            Ok(i) => Some(std::mem::replace(&mut self.entries[i].1, value)),
            Err(i) => {
                self.put(i, (key.into(), value));
                None
            }
        }
    }

    /// The value at a key, made where it is missing.
    pub fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        let i = self.find(key).unwrap_or_else(|i| {
            self.put(i, (key.into(), make()));
            i
        });
        &mut self.entries[i].1
    }

    /// The map at a key, made where there is none (whatever else stood there goes).
    #[expect(clippy::expect_used, reason = "the value was made a map just before")]
    pub fn get_or_insert_map(&mut self, key: &str) -> &mut Self {
        let slot = self.get_or_insert_with(key, || Value::Map(Self::new()));
        if !matches!(slot, Value::Map(_)) {
            *slot = Value::Map(Self::new());
        }
        slot.as_map_mut().expect("a map was just stored there")
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).ok().map(|i| self.entries.remove(i).1)
    }

    /// Keeps the entries for which `stays` says so.
    pub(crate) fn try_retain<E>(
        &mut self,
        mut stays: impl FnMut(&Str, &mut Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut failed = None;
        self.entries.retain_mut(|(key, value)| {
            failed.is_some()
                || stays(key, value).unwrap_or_else(|error| {
                    failed = Some(error);
                    true
                })
        });
        failed.map_or(Ok(()), Err)
    }

    /// All entries, by the bytes of their keys.
    pub fn iter(&self) -> std::slice::Iter<'_, (Str, Value)> {
        self.entries.iter()
    }

    /// All values, by the bytes of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = (&Str, &mut Value)> {
        self.entries.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// All entries. A key may get a text of its own, and must say the same.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = (&mut Str, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (key, value))
    }

    /// Builds a map from entries in any order, and gives back those whose keys came before.
    pub(crate) fn from_first(mut entries: Vec<(Str, Value)>) -> (Self, Vec<(Str, Value)>) {
        let mut later = Vec::new();
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|entry, kept| {
                let again = entry.0 == kept.0;
                if again {
                    later.push((kept.0.clone(), std::mem::replace(&mut entry.1, Value::Bool(false))));
                }
                again
            });
        }
        (Self { entries, brackets: false, odd: false }, later)
    }

    /// Puts a text of its own in the place of a key, so that the key can be told from others that say the same.
    pub(crate) fn set_own_key(&mut self, key: &Str) {
        if let Ok(at) = self.find(key) {
            self.entries[at].0 = key.clone();
        }
    }

    /// The entries themselves.
    pub fn into_entries(self) -> Vec<(Str, Value)> {
        self.entries
    }

    /// A map from entries that are sorted and unique already.
    pub(crate) fn from_sorted(entries: Vec<(Str, Value)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "keys must be sorted and unique");
        Self { entries, brackets: false, odd: false }
    }
}

impl FromIterator<(Str, Value)> for Map {
    /// The last of equal keys stays.
    fn from_iter<I: IntoIterator<Item = (Str, Value)>>(iter: I) -> Self {
        let mut entries: Vec<(Str, Value)> = iter.into_iter().collect();
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, kept| later.0 == kept.0);
        Self { entries, brackets: false, odd: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_of_equal_keys_stays() {
        let map: Map =
            [("b", 1), ("a", 2), ("b", 3)].map(|(k, v)| (Str::from(k), Value::int(v))).into_iter().collect();
        assert_eq!(map.get("b"), Some(&Value::int(3)));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn twice_the_same_key_is_told() {
        let entries = ["b", "a", "b"].map(|k| (Str::from(k), Value::Bool(true))).to_vec();
        assert_eq!(Map::from_unsorted(entries), Err("b".into()));
    }

    #[test]
    fn float_without_fraction_is_an_integer() {
        assert_eq!(Num::Float(1.0).canonical(), Num::Int(1));
        assert_eq!(Num::Float(1.5).canonical(), Num::Float(1.5));
        assert_eq!(Num::Float(1e300).canonical(), Num::Float(1e300));
    }
}
