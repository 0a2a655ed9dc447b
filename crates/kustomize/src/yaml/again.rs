//! What is left of a value once kustomize has written it as YAML and read it again.
//!
//! It does so with every object in the end, to hash a generated one, and to apply a JSON patch.

use std::collections::HashMap;

use super::Dialect;
use super::fold::refold;
use super::plain_shared;
use super::resolve::{Plain, plain_is_text, resolve};
use crate::budget::{Budget, weight};
use crate::value::{Map, Str, Text, TextStyle, Value};

/// Writes and reads again. A text that stands in many places comes out once.
#[derive(Default)]
pub(crate) struct Again {
    /// By the place of a text, and whether it is folded: the text itself, which keeps its place, and what it comes to.
    done: HashMap<(*const str, bool), (Str, Str)>,
}

impl Again {
    /// Changes all texts of a value.
    pub(crate) fn value(&mut self, value: &mut Value, budget: &Budget) -> Result<(), String> {
        match value {
            Value::String(text) if is_quoted_in_brackets(text) => {
                *text = text.with_style(TextStyle::Quoted);
                Ok(())
            }
            Value::String(text) if text.is_untagged() => {
                *value = plain_shared(text.as_shared());
                match value {
                    Value::String(text) => self.text(text, budget),
                    // The text that it was read from is a copy.
                    Value::Number(number) => budget.keep(weight::TEXT + number.text.len()),
                    _ => Ok(()),
                }
            }
            Value::String(text) => self.text(text, budget),
            Value::List(items) => items.iter_mut().try_for_each(|item| self.value(item, budget)),
            Value::Map(map) => self.map(map, budget),
            Value::Null(_) | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    /// Changes all texts of a mapping.
    pub(crate) fn map(&mut self, map: &mut Map, budget: &Budget) -> Result<(), String> {
        map.values_mut().try_for_each(|(_, value)| self.value(value, budget))
    }

    /// Changes one text.
    fn text(&mut self, text: &mut Text, budget: &Budget) -> Result<(), String> {
        if text.is_retyped() {
            // Not by its place: elsewhere the same text can be a time that is written otherwise.
            *text = text.with_style(TextStyle::Quoted);
            return Ok(());
        }
        if !changes(text) {
            return Ok(());
        }
        let is_folded = text.style() == TextStyle::Folded;
        if let Some((_, again)) = self.done.get(&(std::ptr::from_ref::<str>(text), is_folded)) {
            *text = Text::new(again.clone(), TextStyle::Quoted);
            return Ok(());
        }
        // At worst, every other character is a line break that comes out as two.
        budget.keep(PLACE + weight::TEXT + text.len().saturating_mul(2))?;
        let again: Str = match is_folded {
            true => refold(text).into(),
            false => as_time(text).unwrap_or_else(|| text.as_shared().clone()),
        };
        let before = text.as_shared().clone();
        self.done.insert((Str::as_ptr(&before), is_folded), (before, again.clone()));
        *text = Text::new(again, TextStyle::Quoted);
        Ok(())
    }
}

/// Of an entry in a table that grows.
const PLACE: usize = 96;

fn changes(text: &Text) -> bool {
    match text.style() {
        TextStyle::Folded | TextStyle::Time => true,
        TextStyle::Untagged | TextStyle::UntaggedInBrackets => !plain_is_text(text),
        _ => false,
    }
}

/// Is a text without a tag one for its quotes, which nothing and a time with colons get in brackets?
fn is_quoted_in_brackets(text: &Text) -> bool {
    text.style() == TextStyle::UntaggedInBrackets
        && (text.is_empty() || text.contains(':') && as_time(text).is_some())
}

/// Does something in a mapping come out otherwise?
pub(crate) fn comes_out_otherwise(map: &Map) -> bool {
    fn of(value: &Value) -> bool {
        match value {
            Value::String(text) => changes(text),
            Value::List(items) => items.iter().any(of),
            Value::Map(map) => comes_out_otherwise(map),
            Value::Null(_) | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    map.iter().any(|(_, value)| of(value))
}

/// A time as JSON has it; none for what is not a time.
pub(crate) fn as_time(text: &str) -> Option<Str> {
    match resolve(text, Dialect::Object) {
        Plain::Timestamp(date) => Some(date.into()),
        _ => None,
    }
}
