//! What a scalar means, by its text, its style, its tag and its place.

use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::super::fold::{is_quoted, refold};
use super::super::parse::CORE;
use super::super::resolve::{Plain, resolve};
use super::super::scan::ScalarStyle;
use super::{Dialect, Frame, Key, ReadError, Reader};
use crate::value::{NullForm, Num, Number, Str, Value};

/// What Go decodes: the last digit may have bits that mean nothing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

impl Reader<'_, '_> {
    pub(super) fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&str>,
    ) -> Result<Value, ReadError> {
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        if block && text.starts_with('\t') && self.dialect != Dialect::Kustomization && !self.in_annotations()
        {
            // As kustomize writes it once more, it cannot be read again.
            if !is_quoted(text) {
                return self.error("a block starts with a tab");
            }
        }
        // Annotations are set anew from their texts, and are not folded again.
        let folded =
            style == ScalarStyle::Folded && self.dialect != Dialect::Kustomization && !self.in_annotations();
        match tag {
            None if folded => Ok(Value::string(refold(text))),
            None if style != ScalarStyle::Plain => Ok(Value::string(text)),
            None => self.plain(text),
            Some(tag) => match tag.strip_prefix(CORE) {
                None | Some("str") if folded => Ok(Value::string(refold(text))),
                None | Some("str") => Ok(Value::string(text)),
                Some("binary") => self.binary(text),
                Some(tag @ ("null" | "int" | "bool" | "timestamp" | "float")) => self.tagged(text, tag),
                Some(_) => Ok(Value::string(text)),
            },
        }
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
            _ if fits => self.plain(text),
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

    /// Is the value of an annotation of an object read? kustomize sets all of these anew, from their text.
    fn in_annotations(&self) -> bool {
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

    fn plain(&mut self, text: &str) -> Result<Value, ReadError> {
        match resolve(text, self.dialect) {
            // Objects are written out once more before their values are read, and in brackets a time gets quotes then.
            Plain::Timestamp(date)
                if self.dialect != Dialect::Kustomization
                    && (self.in_annotations() || (self.flow.last() == Some(&true) && text.contains(':'))) =>
            {
                let kept = Str::from(text);
                self.count(|tally| tally.folded(text.len()))?;
                let date = Str::from(date);
                if self.in_annotations() {
                    self.other.annotations.push((kept.clone(), date.clone()));
                }
                self.other.times.push((kept.clone(), date));
                Ok(Value::String(kept))
            }
            // In brackets, what is written out for nothing has quotes.
            Plain::Value(Value::Null(NullForm::Empty))
                if self.dialect != Dialect::Kustomization && self.flow.last() == Some(&true) =>
            {
                Ok(Value::Null(NullForm::Quoted))
            }
            Plain::Value(value) => Ok(value),
            // For go-yaml 2, a date in quotes and one without are the same.
            Plain::Timestamp(_) if self.dialect == Dialect::Kustomization => Ok(Value::string(text)),
            // On the way through JSON a date becomes text.
            Plain::Timestamp(date) => Ok(Value::string(date)),
            Plain::NotFinite => self.error(format!("{text} is not a number that JSON has; quote it")),
            Plain::Merge | Plain::Text => Ok(Value::string(text)),
        }
    }

    fn binary(&self, text: &str) -> Result<Value, ReadError> {
        let packed: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let Ok(bytes) = BASE64.decode(packed) else {
            return self.error("!!binary value is not base64");
        };
        // On the way through JSON, a byte that is no part of a character becomes the mark for that.
        let mut out = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        Ok(Value::string(out))
    }

    /// Keeps both forms of a folded text, as it stands there and as it is once it was written and read again.
    pub(super) fn note_folded(&mut self, value: &Value, text: &str) -> Result<(), ReadError> {
        let Value::String(kept) = value else { return Ok(()) };
        if self.dialect == Dialect::Kustomization {
            return Ok(());
        }
        if !self.in_annotations() {
            if **kept != *text {
                self.count(|tally| tally.folded(text.len()))?;
                self.other.folded.push((kept.clone(), text.into()));
            }
            return Ok(());
        }
        self.count(|tally| tally.folded(text.len()))?;
        let again = refold(text);
        if again != text {
            self.other.annotations.push((kept.clone(), again.into()));
        }
        Ok(())
    }
}
