//! Where a value of a patch comes to stand, and what becomes of it there.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::budget::Budget;
use crate::schema::{Field, Type};
use crate::value::{List, Map, NullForm, Str, Text, TextStyle, Value};
use crate::yaml::{self, Hint, KeyAgain};

/// Where a value stands.
#[derive(Clone, Copy)]
pub(super) struct At<'h> {
    /// In brackets?
    pub(super) brackets: bool,
    /// The object had nothing here and got what the patch has: from there on the two are one.
    pub(super) shared: bool,
    /// Another element of the object may get the same patch: what kustomize would leave of it must be left.
    pub(super) keep_patch: bool,
    pub(super) hints: &'h Hints<'h>,
    pub(super) budget: &'h Budget,
}

impl At<'_> {
    /// A value of the patch as a part of the result.
    pub(super) fn take(&self, patch: &mut Value) -> Value {
        if self.keep_patch { patch.clone() } else { std::mem::replace(patch, Value::Null(NullForm::Empty)) }
    }
}

/// What comments say of fields, by the places of their keys.
pub(in crate::transform) struct Hints<'h> {
    of: HashMap<*const str, Said<'h>>,
    /// Those on keys of mappings that a patch put where the object had nothing: they stay with the object.
    stay: RefCell<Vec<Hint>>,
    /// Values of keys of the patch that stand several times in a mapping.
    again: HashMap<*const str, &'h [Value]>,
}

/// Schemas that comments give for one field.
#[derive(Clone, Copy, Default)]
struct Said<'h> {
    on_value: Option<&'h Map>,
    on_key: Option<&'h Hint>,
}

impl<'h> Hints<'h> {
    pub(in crate::transform) fn new(hints: impl Iterator<Item = &'h Hint>) -> Self {
        let mut all: HashMap<*const str, Said<'h>> = HashMap::new();
        for hint in hints {
            let said = all.entry(Str::as_ptr(&hint.key)).or_default();
            if hint.on_value {
                said.on_value = Some(&hint.schema);
            } else {
                said.on_key = Some(hint);
            }
        }
        Self { of: all, stay: RefCell::default(), again: HashMap::new() }
    }

    /// With the keys that stand several times in a mapping of the patch.
    pub(in crate::transform) fn with_keys_again(mut self, again: impl Iterator<Item = &'h KeyAgain>) -> Self {
        self.again.extend(again.map(|again| (Str::as_ptr(&again.key), &*again.later)));
        self
    }

    /// The values of a key after its first one.
    pub(super) fn later(&self, key: &Str) -> &'h [Value] {
        if self.again.is_empty() {
            return &[];
        }
        self.again.get(&Str::as_ptr(key)).copied().unwrap_or_default()
    }

    pub(in crate::transform) fn len(&self) -> usize {
        self.of.len() + self.again.len()
    }

    fn of(&self, key: Option<&Str>) -> Said<'h> {
        if self.of.is_empty() {
            return Said::default();
        }
        key.and_then(|key| self.of.get(&Str::as_ptr(key))).copied().unwrap_or_default()
    }

    /// Notes that what a comment says of this key, if one does, stays with the object.
    pub(super) fn stays(&self, key: &Str) {
        self.stay.borrow_mut().extend(self.of(Some(key)).on_key.cloned());
    }

    /// What stays with the object.
    pub(in crate::transform) fn staying(self) -> Vec<Hint> {
        self.stay.into_inner()
    }

    /// How a field merges, by its keys on both sides. A comment of the object's value counts first; that of its key last,
    /// as the patch's takes its place.
    pub(super) fn field<'s>(&self, of: Type<'s>, own: Option<&Str>, new: Option<&Str>) -> Field<'s>
    where
        'h: 's,
    {
        let (own_said, new_said) = (self.of(own), self.of(new));
        let on_key = new_said.on_key.or(own_said.on_key).map(|hint| &*hint.schema);
        let said = own_said.on_value.or(new_said.on_value).or(on_key);
        match (said, own.or(new)) {
            (Some(hint), _) => of.hinted(hint),
            (None, Some(key)) => of.field(key),
            (None, None) => of.field(""),
        }
    }
}

/// A field that only one side has is set to its own value. kustomize then puts a text in quotes that was none in YAML 1.1.
pub(super) fn set_alone(value: Value) -> Value {
    match value {
        Value::String(text) if text.style() == TextStyle::Plain && yaml::is_other_in_1_1(&text) => {
            Value::String(text.with_style(TextStyle::Quoted))
        }
        value => value,
    }
}

/// A value of a patch as it is where it comes to stand.
pub(super) fn fit(mut value: Value, brackets: bool) -> Value {
    if brackets {
        value.put_in_brackets();
    } else {
        value.take_out_of_brackets();
    }
    value
}

/// A list of a patch takes the brackets of what it replaces, or the lack of them.
pub(super) fn in_brackets_of(target: Option<&Value>, mut patch: List, brackets: bool) -> List {
    let had = patch.brackets();
    match target {
        Some(Value::List(target)) if !target.is_empty() => patch.set_brackets(target.brackets()),
        None | Some(Value::List(_)) => {}
        Some(_) => patch.set_brackets(false),
    }
    if brackets || patch.brackets() {
        patch.iter_mut().for_each(Value::put_in_brackets);
    } else if had {
        patch.iter_mut().for_each(Value::take_out_of_brackets);
    }
    patch
}

/// A scalar of a patch takes the style of what it replaces. So a number in quotes is a text.
pub(super) fn in_style(target: Option<&Value>, patch: Value) -> Value {
    let style = match (target, &patch) {
        (None, _) => return patch,
        // What is text stays one with the tag of what it replaces; a boolean or number gets its own.
        (Some(Value::String(text)), Value::String(_)) if text.is_tagged() => text.style(),
        (Some(Value::String(text)), _) => text.kept_style(),
        (Some(_), _) => TextStyle::Plain,
    };
    match (style, patch) {
        (TextStyle::Quoted, Value::String(text)) if text.is_time() => {
            Value::String(text.with_style(TextStyle::Retyped))
        }
        (TextStyle::Quoted | TextStyle::Folded, Value::String(text)) => Value::String(text.with_style(style)),
        (TextStyle::TimeInBrackets, Value::String(text)) if text.is_time() => {
            Value::String(text.with_style(style))
        }
        (_, Value::String(text)) if text.is_time() => Value::String(text.with_style(TextStyle::Time)),
        (TextStyle::Tagged | TextStyle::TaggedQuoted, Value::String(text)) => {
            Value::String(text.with_style(style))
        }
        (_, Value::String(text)) => Value::String(text.with_style(TextStyle::Plain)),
        (TextStyle::Quoted, patch) => {
            patch.scalar_text().map_or(patch, |text| Value::String(Text::new(text, TextStyle::Retyped)))
        }
        (TextStyle::Folded, patch) => {
            patch.scalar_text().map_or(patch, |text| Value::String(Text::new(text, style)))
        }
        (_, patch) => patch,
    }
}
