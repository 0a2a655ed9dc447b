//! Where a value of a patch comes to stand, and what becomes of it there.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use crate::schema::{Field, Type};
use crate::value::{Map, Str, Text, TextStyle, Value};
use crate::yaml::{self, Hint, KeyNotes};

/// What comments say of fields, by the places of their keys.
pub(in crate::transform) struct Hints<'h> {
    of: HashMap<*const str, Said<'h>>,
    /// Those on keys of mappings that a patch put where the object had nothing: they stay with the object.
    stay: RefCell<Vec<Hint>>,
    /// Values of keys that stand several times in a mapping, after the first.
    again: HashMap<*const str, &'h [Value]>,
    /// Texts of numbers and times that have a tag and quotes.
    quoted: HashSet<*const str>,
    /// Some booleans have both.
    quoted_bools: bool,
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
        Self {
            of: all,
            stay: RefCell::default(),
            again: HashMap::new(),
            quoted: HashSet::new(),
            quoted_bools: false,
        }
    }

    /// With what is to be known of values of the object and the patch.
    pub(in crate::transform) fn with_values(mut self, all: impl Iterator<Item = &'h KeyNotes>) -> Self {
        for notes in all {
            self.again.extend(notes.again.iter().map(|again| (Str::as_ptr(&again.key), &*again.later)));
            self.quoted.extend(notes.quoted.iter().map(Str::as_ptr));
            self.quoted_bools |= notes.quoted_bools;
        }
        self
    }

    /// Do any keys stand several times?
    pub(super) fn any_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Is it a key that stood several times in its mapping?
    pub(super) fn is_again(&self, key: &Str) -> bool {
        self.any_again() && self.again.contains_key(&Str::as_ptr(key))
    }

    /// The values of a key after its first one.
    pub(super) fn later(&self, key: &Str) -> &'h [Value] {
        if self.again.is_empty() {
            return &[];
        }
        self.again.get(&Str::as_ptr(key)).copied().unwrap_or_default()
    }

    pub(in crate::transform) fn len(&self) -> usize {
        self.of.len() + self.again.len() + self.quoted.len()
    }

    fn of(&self, key: Option<&Str>) -> Said<'h> {
        if self.of.is_empty() {
            return Said::default();
        }
        key.and_then(|key| self.of.get(&Str::as_ptr(key))).copied().unwrap_or_default()
    }

    /// A scalar without its tag. What is written without quotes is what it looks like from there on, and what has quotes is a
    /// text.
    pub(super) fn untag(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::String(text) if text.style() == TextStyle::Tagged => {
                *text = text.with_style(TextStyle::Untagged);
            }
            Value::String(text)
                if text.style() == TextStyle::TaggedQuoted || self.is_quoted(text.as_shared()) =>
            {
                *text = text.with_style(TextStyle::Quoted);
            }
            Value::Number(number) if self.is_quoted(&number.text) => {
                *value = Value::String(Text::new(number.text.clone(), TextStyle::Quoted));
            }
            Value::Bool(_) if self.quoted_bools => {
                return Err("a boolean stands in a list that is merged as a set, and some have quotes and the tag !!bool, which \
                            kustomize makes texts of; write it without the tag"
                    .into());
            }
            _ => {}
        }
        Ok(())
    }

    fn is_quoted(&self, text: &Str) -> bool {
        !self.quoted.is_empty() && self.quoted.contains(&Str::as_ptr(text))
    }

    /// The same key without what a comment says of it.
    pub(super) fn bare(&self, key: &Str) -> Str {
        if self.of(Some(key)).on_key.is_some() { Str::from(&**key) } else { key.clone() }
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

/// A field that only one side has is set to its own value. kustomize then puts a text in quotes that was none in YAML 1.1. Tells
/// whether it did.
pub(in crate::transform) fn set_alone(value: &mut Value) -> bool {
    if let Value::String(text) = value
        && text.style() == TextStyle::Plain
        && (!is_word(text) || yaml::is_other_in_1_1(text))
        && yaml::is_quoted_when_set(text)
    {
        *text = text.with_style(TextStyle::Quoted);
        return true;
    }
    false
}

/// Most texts are such: without quotes they are texts, or something of one line.
fn is_word(text: &str) -> bool {
    let is_inner =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'_' | b'-' | b' ');
    text.bytes().all(is_inner)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.ends_with(' ')
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

/// A scalar of a patch takes the style of what it replaces. So a number in quotes is a text.
pub(in crate::transform) fn in_style(target: Option<&Value>, patch: Value) -> Value {
    let style = match (target, &patch) {
        (None, _) => return patch,
        // What is text stays one with the tag of what it replaces; a boolean or number gets its own.
        (Some(Value::String(text)), Value::String(_)) if text.is_tagged() => text.style(),
        (Some(Value::String(text)), _) => text.kept_style(),
        (Some(_), _) => TextStyle::Plain,
    };
    let retyped = match style {
        TextStyle::Quoted => Some(TextStyle::Retyped),
        TextStyle::Folded => Some(TextStyle::RetypedFolded),
        _ => None,
    };
    match (retyped, patch) {
        (Some(retyped), Value::String(text)) => {
            let style = if text.is_time() { retyped } else { style };
            Value::String(text.with_style(style))
        }
        (Some(retyped), patch) => {
            patch.scalar_text().map_or(patch, |text| Value::String(Text::new(text, retyped)))
        }
        (None, Value::String(text)) => {
            let style = match style {
                TextStyle::TimeInBrackets if text.is_time() => style,
                _ if text.is_time() => TextStyle::Time,
                TextStyle::Tagged | TextStyle::TaggedQuoted => style,
                _ => TextStyle::Plain,
            };
            Value::String(text.with_style(style))
        }
        (None, patch) => patch,
    }
}
