//! YAML as kustomize reads and writes it.
//!
//! kustomize is made of two YAML libraries: objects are read with the rules of go-yaml 3, `kustomization.yaml` with those
//! of go-yaml 2 and then as JSON, and everything is written by go-yaml 2. These rooms hold the facts of the three.

mod again;
mod facts;
mod fold;
mod hints;
mod keys;
mod locate;
mod parse;
mod read;
mod resolve;
mod restyle;
mod scan;
mod split;
mod tally;
mod write;

pub(crate) use again::{Again, as_time, comes_out_otherwise};
pub(crate) use hints::Hint;
pub(crate) use locate::line_of;
pub(crate) use read::{KeyAgain, KeyNotes, Read, read_counted, read_strict_counted};

pub use read::{Dialect, Document, ReadError, read_documents, read_strict};
pub(crate) use resolve::{is_other_in_1_1, is_text};
pub(crate) use restyle::write_like;
pub(crate) use write::{float_as_written, scalar_as_written};
pub use write::{write_document, write_map};

use crate::limits::Limits;
use crate::value::{Str, Text, TextStyle, Value};

/// Does a text need no quotes to be text, for whoever reads it, on one line?
pub(crate) fn is_written_plain(text: &str) -> bool {
    resolve::plain_is_text(text) && is_text(text) && facts::Facts::of(text).plain_allowed
}

/// Does kustomize put a text in quotes when it sets a field to it? It reads the text as YAML 1.1, and does so where
/// that gives anything but a text.
pub(crate) fn is_quoted_when_set(text: &str) -> bool {
    /// What is longer is not read: on one line, it is hardly ever a text to YAML where it may not stand without quotes.
    const MAX_READ: usize = 4096;
    if text.is_empty() || text.contains('\n') {
        return false;
    }
    let read = text.trim_matches(' ');
    match resolve::resolve(read, Dialect::Kustomization) {
        resolve::Plain::Value(_) | resolve::Plain::NotFinite => return true,
        resolve::Plain::Timestamp(_) => return false,
        resolve::Plain::Merge | resolve::Plain::Text => {}
    }
    if facts::Facts::of(read).plain_allowed {
        return false;
    }
    if text.len() > MAX_READ {
        return true;
    }
    let documents = read_documents(text.as_bytes(), Dialect::Kustomization, &Limits::default());
    let is_text = |document: &Document| matches!(document.value, Value::String(_));
    documents.is_ok_and(|documents| !documents.first().is_some_and(is_text))
}

/// The value of a text that is written without quotes and tag, read as part of an object. What would be no value there
/// stays text.
pub(crate) fn plain_value(text: &str) -> Value {
    plain_shared(&text.into())
}

/// The same of a shared text, which stays shared.
fn plain_shared(text: &Str) -> Value {
    match resolve::resolve(text, Dialect::Object) {
        resolve::Plain::Value(value) => value,
        resolve::Plain::Timestamp(_) => Value::String(Text::new(text.clone(), TextStyle::Time)),
        resolve::Plain::NotFinite | resolve::Plain::Merge | resolve::Plain::Text => {
            Value::String(Text::new(text.clone(), TextStyle::Plain))
        }
    }
}
