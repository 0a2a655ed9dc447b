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
pub(crate) use read::{KeyNotes, Read, read_counted, read_strict_counted};

pub use read::{Dialect, Document, ReadError, read_documents, read_strict};
pub(crate) use resolve::{is_other_in_1_1, is_text};
pub(crate) use restyle::write_like;
pub(crate) use write::{float_as_written, scalar_as_written};
pub use write::{write_document, write_map};

/// Does a text need no quotes to be text, for whoever reads it, on one line?
pub(crate) fn is_written_plain(text: &str) -> bool {
    resolve::plain_is_text(text) && is_text(text) && facts::Facts::of(text).plain_allowed
}

/// Does kustomize put a text in quotes when it sets a field to it? It reads the text as YAML to find out.
pub(crate) fn is_quoted_when_set(text: &str) -> bool {
    let read = text.trim_matches(' ');
    !text.contains('\n')
        && !read.is_empty()
        && (is_other_in_1_1(read) || !facts::Facts::of(read).plain_allowed)
}

/// The value of a text that is written without quotes and tag, read as part of an object. What would be no value there
/// stays text.
pub(crate) fn plain_value(text: &str) -> crate::value::Value {
    use crate::value::{Text, TextStyle, Value};
    match resolve::resolve(text, Dialect::Object) {
        resolve::Plain::Value(value) => value,
        resolve::Plain::Timestamp(_) => Value::String(Text::new(text, TextStyle::Time)),
        resolve::Plain::NotFinite | resolve::Plain::Merge | resolve::Plain::Text => {
            Value::String(Text::new(text, TextStyle::Plain))
        }
    }
}
