//! What a scalar means, by its text, its style, its tag and its place.

use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::super::fold::is_quoted;
use super::super::parse::CORE;
use super::super::resolve::{Plain, resolve};
use super::super::scan::ScalarStyle;
use super::{Dialect, Frame, Key, ReadError, Reader};
use crate::value::{NullForm, Num, Number, Text, TextStyle, Value};

/// What Go decodes: the last digit may have bits that mean nothing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

fn is_null(tag: &str) -> bool {
    tag.strip_prefix(CORE) == Some("null")
}

impl Reader<'_, '_> {
    pub(super) fn scalar(
        &mut self,
        text: &str,
        written: ScalarStyle,
        tag: Option<&str>,
    ) -> Result<Value, ReadError> {
        let block = matches!(written, ScalarStyle::Literal | ScalarStyle::Folded);
        if block && text.starts_with('\t') && self.dialect != Dialect::Kustomization && !self.in_annotations()
        {
            // As kustomize writes it once more, it cannot be read again.
            if !is_quoted(text) {
                return self.error("a block starts with a tab");
            }
        }
        let style = match written {
            _ if self.dialect == Dialect::Kustomization => TextStyle::Made,
            ScalarStyle::Folded => TextStyle::Folded,
            ScalarStyle::Plain if tag.is_some() => TextStyle::Tagged,
            _ if tag.is_some() => TextStyle::TaggedQuoted,
            ScalarStyle::Plain => TextStyle::Plain,
            ScalarStyle::Single | ScalarStyle::Double | ScalarStyle::Literal => TextStyle::Quoted,
        };
        let as_text = || Ok(Value::String(Text::new(text, style)));
        match tag {
            None if written != ScalarStyle::Plain => as_text(),
            None => self.plain(text),
            // kustomize sets annotations again, from what is written.
            Some(tag) if !is_null(tag) && self.in_annotations() => as_text(),
            Some(tag) => match tag.strip_prefix(CORE) {
                None | Some("str") => as_text(),
                Some("binary") => self.binary(text),
                Some(tag @ ("null" | "int" | "bool" | "timestamp" | "float")) => {
                    let value = self.tagged(text, tag)?;
                    if written != ScalarStyle::Plain && self.dialect != Dialect::Kustomization {
                        self.note_quoted(&value)?;
                    }
                    Ok(value)
                }
                Some(_) => as_text(),
            },
        }
    }

    /// Notes that a number, a time or a boolean has quotes besides its tag.
    fn note_quoted(&mut self, value: &Value) -> Result<(), ReadError> {
        let text = match value {
            Value::Number(number) => &number.text,
            Value::String(text) => text.as_shared(),
            Value::Bool(_) => {
                self.notes.quoted_bools = true;
                return Ok(());
            }
            Value::Null(_) | Value::List(_) | Value::Map(_) => return Ok(()),
        };
        self.count(|tally| tally.odd_key(0))?;
        self.notes.quoted.push(text.clone());
        Ok(())
    }

    /// A scalar whose tag names the type that it must have.
    fn tagged(&mut self, text: &str, tag: &str) -> Result<Value, ReadError> {
        let plain = resolve(text, self.dialect);
        let fits = match &plain {
            Plain::Value(Value::Null(_)) => tag == "null",
            Plain::Value(Value::Bool(_)) => tag == "bool",
            Plain::Value(Value::Number(Number { num: Num::Float(_), .. })) | Plain::NotFinite => {
                tag == "float"
            }
            Plain::Value(Value::Number(Number { num: Num::Int(_), .. })) => matches!(tag, "int" | "float"),
            Plain::Value(Value::Number(_)) => tag == "int",
            Plain::Timestamp(_) => tag == "timestamp",
            Plain::Value(_) | Plain::Merge | Plain::Text => false,
        };
        match tag {
            "null" if fits => Ok(match plain {
                // With its tag, nothing is null in brackets too.
                Plain::Value(null) => null,
                _ => Value::Null(NullForm::Empty),
            }),
            "float" if fits => self.plain(text).map(|value| match value {
                Value::Number(Number { text, num: Num::Int(int) }) => {
                    Value::Number(Number { text, num: Num::Float(int as f64) })
                }
                value => value,
            }),
            _ if fits => self.plain(text),
            "null" if self.dialect == Dialect::Object && self.in_annotations() => {
                Ok(Value::String(Text::new(text, TextStyle::Plain)))
            }
            // kustomize looks no closer at what a patch takes away.
            "null"
                if self.dialect == Dialect::Patch
                    && !matches!(self.stack.last(), Some(Frame::List { .. })) =>
            {
                Ok(Value::Null(NullForm::Written))
            }
            _ => {
                let wanted = match tag {
                    "null" => "null",
                    "int" => "a whole number",
                    "float" => "a number",
                    "bool" => "a boolean",
                    _ => "a time",
                };
                self.error(format!("a value with the tag !!{tag} is not {wanted}"))
            }
        }
    }

    /// Is the value of an annotation of an object read? kustomize sets all of these again, from their text.
    fn in_annotations(&self) -> bool {
        if self.dialect == Dialect::Kustomization {
            return false;
        }
        let is = |frame: &Frame<'_>, wanted: &str| matches!(frame, Frame::Map { key: Some(Key::Name(key)), .. } if &**key == wanted);
        match self.stack.as_slice() {
            [object, meta, Frame::Map { .. }] => is(object, "metadata") && is(meta, "annotations"),
            // Of an object in a list.
            [list, Frame::List { .. }, object, meta, Frame::Map { .. }] => {
                is(list, "items") && is(object, "metadata") && is(meta, "annotations")
            }
            _ => false,
        }
    }

    /// Is a block at the end of an object, with a comment after it, read again with one line break more? An empty line comes
    /// before the comment when kustomize writes the object. An object in a list is written without what follows the list.
    pub(super) fn is_made_longer(&self, text: &str, style: ScalarStyle) -> bool {
        let in_list = || matches!(self.stack.first(), Some(Frame::Map { key: Some(Key::Name(key)), .. }) if &**key == "items");
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        is_block && self.dialect == Dialect::Object && !is_quoted(text) && !in_list()
    }

    fn plain(&mut self, text: &str) -> Result<Value, ReadError> {
        let flow = self.flow.last() == Some(&true);
        match resolve(text, self.dialect) {
            // In brackets, what is written out for nothing has quotes.
            Plain::Value(Value::Null(NullForm::Empty)) if self.dialect != Dialect::Kustomization && flow => {
                Ok(Value::Null(NullForm::Quoted))
            }
            Plain::Value(value) => Ok(value),
            // For go-yaml 2, a date in quotes and one without are the same.
            Plain::Timestamp(_) if self.dialect == Dialect::Kustomization => Ok(Value::string(text)),
            Plain::Timestamp(_) if flow && text.contains(':') => {
                Ok(Value::String(Text::new(text, TextStyle::TimeInBrackets)))
            }
            Plain::Timestamp(_) => Ok(Value::String(Text::new(text, TextStyle::Time))),
            Plain::NotFinite => self.error(format!("{text} is not a number that JSON has; quote it")),
            Plain::Merge | Plain::Text => Ok(Value::String(Text::new(text, TextStyle::Plain))),
        }
    }

    fn binary(&self, text: &str) -> Result<Value, ReadError> {
        let packed: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let Ok(bytes) = BASE64.decode(packed) else {
            return self.error("!!binary value is not base64");
        };
        // On the way through JSON, a byte that is not part of a character becomes the mark for that.
        let mut out = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        Ok(Value::string(out))
    }
}
