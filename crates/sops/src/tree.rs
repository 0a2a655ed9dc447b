//! A file between its formats: documents, maps in order, lists, scalars and comments.
//!
//! Texts are bytes, since a binary file is one value. All of them are wiped when they go: which of them are secret is not
//! known before the file is decrypted, and some of the others stand beside a secret for a reason.

use std::fmt;

use zeroize::Zeroizing;

use crate::time::Time;

/// A text that is not printed and is wiped.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Text(Zeroizing<Vec<u8>>);

impl Text {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is one of characters.
    pub(crate) fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes.to_vec())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

/// A comment, without the sign before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) text: Text,
    /// It stood behind the value that it is now before.
    pub(crate) inline: bool,
}

impl Comment {
    pub(crate) fn new(text: impl Into<Text>) -> Self {
        Self { text: text.into(), inline: false }
    }
}

/// The key of an item of a map. Keys are not secret: SOPS leaves them readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Name(Vec<u8>),
    /// A comment between the items. Its value is null.
    Comment(Comment),
}

impl Key {
    pub(crate) fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Name(name) => Some(name),
            Self::Comment(_) => None,
        }
    }
}

/// Something in a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

impl Item {
    pub(crate) fn new(name: impl Into<Vec<u8>>, value: Value) -> Self {
        Self { key: Key::Name(name.into()), value }
    }

    pub(crate) fn comment(comment: Comment) -> Self {
        Self { key: Key::Comment(comment), value: Value::Null }
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.key.name() == Some(name.as_bytes())
    }
}

/// Something that stands under a key or in a list.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Time(Time),
    Text(Text),
    /// In a list only.
    Comment(Comment),
    Map(Map),
    List(Vec<Self>),
}

/// One document, or a map within one.
pub(crate) type Map = Vec<Item>;

impl Value {
    pub(crate) fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Time(_) => "a timestamp",
            Self::Text(_) => "a string",
            Self::Comment(_) => "a comment",
            Self::Map(_) => "a map",
            Self::List(_) => "a list",
        }
    }
}

/// Scalars may be what was decrypted, so only what kind they are is said.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(items) => f.debug_tuple("Map").field(items).finish(),
            Self::List(items) => f.debug_tuple("List").field(items).finish(),
            other => f.write_str(other.kind()),
        }
    }
}
