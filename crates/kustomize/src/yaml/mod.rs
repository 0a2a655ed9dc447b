//! YAML as kustomize reads and writes it.
//!
//! kustomize is made of two YAML libraries: objects are read with the rules of go-yaml 3, `kustomization.yaml` with those
//! of go-yaml 2 and then as JSON, and everything is written by go-yaml 2. These rooms hold the facts of the three.

mod again;
mod facts;
mod fold;
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
pub(crate) use locate::line_of;
pub(crate) use read::{Read, read_counted, read_strict_counted};

pub use read::{Dialect, Document, ReadError, read_documents, read_strict};
pub(crate) use resolve::{is_other_in_1_1, is_text};
pub(crate) use restyle::write_like;
pub(crate) use write::{float_as_written, scalar_as_written};
pub use write::{write_document, write_map};

/// Is a text text in an object without quotes, on one line?
pub(crate) fn is_plain_text(text: &str) -> bool {
    is_text(text) && facts::Facts::of(text).plain_allowed
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
