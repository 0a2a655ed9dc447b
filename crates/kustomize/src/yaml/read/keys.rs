//! Keys of mappings, and what comments say of their fields.

use super::super::hints::{self, Hint};
use super::super::parse::CORE;
use super::super::resolve::{Plain, resolve};
use super::super::scan::ScalarStyle;
use super::{Dialect, Frame, Key, KeyAgain, MERGE, ReadError, Reader, Span};
use crate::value::{Map, Str, Value};

impl Reader<'_, '_> {
    /// A key that says `<<`, or has the tag of a merge.
    fn merge_key(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&str>,
    ) -> Result<Option<Key>, ReadError> {
        let says = text == MERGE;
        let tagged = tag.is_some_and(|tag| tag.strip_prefix(CORE) == Some("merge"));
        let plain = says && style == ScalarStyle::Plain && tag.is_none();
        if self.dialect == Dialect::Kustomization {
            return Ok((plain || says && tagged).then_some(Key::Merge));
        }
        if tagged && !says {
            return self.intern(text).map(|name| Some(Key::MergeAndName(name)));
        }
        let Some(Frame::Map { keys, .. }) = self.stack.last_mut() else { return Ok(None) };
        let first = says && !keys.cleared;
        keys.cleared |= says;
        Ok(if plain || says && tagged { Some(Key::Merge) } else { first.then_some(Key::Cleared) })
    }

    fn key(&mut self, text: &str, style: ScalarStyle, tag: Option<&str>) -> Result<Key, ReadError> {
        if let Some(key) = self.merge_key(text, style, tag)? {
            return Ok(key);
        }
        if style == ScalarStyle::Plain && tag.is_none() {
            match resolve(text, self.dialect) {
                Plain::Merge | Plain::Text => {}
                Plain::Value(_) | Plain::Timestamp(_) | Plain::NotFinite
                    if self.dialect == Dialect::Patch =>
                {
                    self.count(|tally| tally.odd_key(text.len()))?;
                    let key = Str::from(text);
                    self.notes.odd_keys.push(key.clone());
                    return Ok(Key::Name(key));
                }
                // go-yaml 2 turns such keys into text on the way to JSON.
                Plain::Value(value) if self.dialect != Dialect::Object => {
                    if let Some(text) = value.scalar_text() {
                        return self.intern(&text).map(Key::Name);
                    }
                }
                Plain::Timestamp(_) if self.dialect != Dialect::Object => {}
                Plain::Value(value) => {
                    return self.error(format!(
                        "a mapping key must be a string, {text:?} is {}; quote it",
                        value.type_name()
                    ));
                }
                Plain::Timestamp(_) | Plain::NotFinite => {
                    return self
                        .error(format!("a mapping key must be a string, {text:?} is not one; quote it"));
                }
            }
        }
        self.intern(text).map(Key::Name)
    }

    /// A key with what the comments about it say.
    pub(super) fn hinted_key(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&str>,
        span: Span,
    ) -> Result<Key, ReadError> {
        let key = self.key(text, style, tag)?;
        let (Some(comments), Key::Name(name)) = (&self.comments, &key) else { return Ok(key) };
        let first =
            matches!(self.stack.last(), Some(Frame::Map { first, .. }) if *first == self.entries.len());
        let comment = comments.after_key(span.end);
        let Some(comment) = comment.or_else(|| comments.above(span.start, self.before, first)) else {
            return Ok(key);
        };
        let name = name.clone();
        let hinted = self.hint(&name, comment, false, span.end.line)?;
        Ok(hinted.map_or(key, Key::Name))
    }

    /// Notes the schema that a comment is, if it is one, for a key of its own.
    fn hint(
        &mut self,
        key: &str,
        comment: &str,
        on_value: bool,
        line: usize,
    ) -> Result<Option<Str>, ReadError> {
        self.count(|tally| tally.hint(comment.len(), key.len()))?;
        let Some(schema) = hints::schema(comment) else { return Ok(None) };
        let key = Str::from(key);
        self.notes.hints.push(Hint { key: key.clone(), on_value, schema: schema.into(), line });
        Ok(Some(key))
    }

    /// The mapping of a patch in which the first of equal keys counts. The others are noted.
    pub(super) fn first_entries(&mut self, entries: Vec<(Str, Value)>) -> Result<Map, ReadError> {
        let (mut map, later) = Map::from_first(entries);
        let mut last: Option<Str> = None;
        for (key, value) in later {
            self.count(|tally| tally.odd_key(key.len()))?;
            match self.notes.again.last_mut() {
                Some(again) if last.as_ref() == Some(&key) => again.later.push(value),
                _ => {
                    let is_common = self.keys.get(&key).is_some_and(|known| Str::ptr_eq(known, &key));
                    let own = if is_common { Str::from(&*key) } else { key.clone() };
                    map.set_own_key(&own);
                    self.notes.again.push(KeyAgain { key: own, later: vec![value] });
                    last = Some(key);
                }
            }
        }
        Ok(map)
    }

    /// Takes in the comment after a value in brackets. It is about the outermost one that ends on the line.
    pub(super) fn hint_on_brackets(&mut self, span: Span) -> Result<(), ReadError> {
        let Some(comment) = self.comments.as_ref().and_then(|comments| comments.after_brackets(span.end))
        else {
            return Ok(());
        };
        let line = span.end.line;
        while self.notes.hints.last().is_some_and(|hint| hint.on_value && hint.line == line) {
            self.notes.hints.pop();
        }
        let Some(Frame::Map { key: Some(Key::Name(name)), .. }) = self.stack.last() else { return Ok(()) };
        let name = name.clone();
        // A key that a comment is about already is one of its own.
        let own = self.notes.hints.iter().rev().take(1).any(|hint| Str::ptr_eq(&hint.key, &name));
        let Some(hinted) = self.hint(&name, comment, true, line)? else { return Ok(()) };
        if own {
            if let Some(hint) = self.notes.hints.last_mut() {
                hint.key = name;
            }
        } else {
            self.set_key(Key::Name(hinted));
        }
        Ok(())
    }
}
