//! Lists that merge without a key, as sets of scalars.
//!
//! kustomize finds elements by their text, and to it a null that was not written, an empty text, a list and a mapping all have
//! the same: none. An element that comes to nothing takes all nulls and empty mappings of the object's list with it, and those
//! with its text: so a null `~` takes a text `'~'` after it away. In the end, the object's own elements are laid over what was
//! put together, one by one.

use std::collections::{HashMap, HashSet};

use super::place::{At, fit};
use super::{DIRECTIVE, walk};
use crate::schema::{Field, Type};
use crate::value::{NullForm, Str, TextStyle, Value};

/// The lists while they are joined. Where the object had no list (`At::shared`) both are copies of one.
struct Join<'j> {
    own: Vec<Value>,
    new: Vec<Value>,
    of: Type<'j>,
    at: At<'j>,
    out: Out,
}

/// What was put together so far.
#[derive(Default)]
struct Out {
    /// None for an element of the object's own, which is laid over it in the end.
    items: Vec<Option<Value>>,
    /// Places of texts.
    places: HashMap<Str, usize>,
    /// The text of an element with nothing in it, which goes when the next one comes.
    hollow: Option<Str>,
    /// The type of an element that is a list or mapping, beside which kustomize cannot put another.
    odd: Option<&'static str>,
}

/// Joins two lists: elements of the patch come first, then the rest of the object's. Of those with the same text the object's
/// own stays, and the last of these.
pub(super) fn join(
    own: Vec<Value>,
    new: &mut [Value],
    of: Type<'_>,
    at: At<'_>,
) -> Result<Vec<Value>, String> {
    let into_place = |item: Value| fit(item, at.brackets);
    let own = if at.shared { own.into_iter().map(into_place).collect() } else { own };
    let new = new.iter_mut().map(|item| into_place(at.take(item))).collect();
    let mut join = Join { own, new, of, at, out: Out::default() };
    let mut seen: HashSet<Str> = HashSet::new();
    let wanted: Vec<Str> = join.new.iter().chain(&join.own).map(text).collect();
    let (mut own_firsts, mut new_firsts) = (firsts(&join.own), firsts(&join.new));
    for text in wanted {
        if !seen.insert(text.clone()) {
            continue;
        }
        let found = (own_firsts.get(&text).copied(), new_firsts.get(&text).copied());
        if !join.element(text, found)? {
            (own_firsts, new_firsts) = (firsts(&join.own), firsts(&join.new));
        }
    }
    let Join { own, mut out, .. } = join;
    for item in own {
        out.lay_over(item)?;
    }
    Ok(out.items.into_iter().flatten().collect())
}

impl Join<'_> {
    /// Joins the first elements with a text. Tells whether the lists are what they were before: only a few texts can come to
    /// nothing.
    fn element(&mut self, text: Str, found: (Option<usize>, Option<usize>)) -> Result<bool, String> {
        let (own, new) = (found.0.map(|at| &self.own[at]), found.1.map(|at| &self.new[at]));
        if [own, new].into_iter().flatten().any(|value| !is_scalar(value)) {
            return self.composite(text, found);
        }
        match (new.or(own), found.0) {
            (None | Some(Value::Null(_)), _) => {
                self.remove(&text)?;
                Ok(false)
            }
            (Some(value), own) => {
                // Where there is a text, kustomize sets it once more, without a tag.
                let value = if text.is_empty() { value.clone() } else { untagged(value) };
                let is_own = new.is_none() || self.at.shared;
                match own.filter(|_| is_own) {
                    Some(at) => {
                        self.own[at] = value;
                        self.out.put(text, None)?;
                    }
                    None => self.out.put(text, Some(value))?,
                }
                Ok(true)
            }
        }
    }

    /// Joins the first elements without a text, of which one at least is a list or mapping.
    fn composite(&mut self, text: Str, found: (Option<usize>, Option<usize>)) -> Result<bool, String> {
        let take = |item: &mut Value| std::mem::replace(item, Value::Null(NullForm::Empty));
        let mut new = found.1.map(|at| take(&mut self.new[at]));
        let own = match found.0.map(|at| &mut self.own[at]) {
            Some(Value::Null(form)) => Some(Value::Null(*form)),
            own => own.map(take),
        };
        // A mapping is changed where it stands, unless it is to be deleted or replaced.
        let directive = new.as_ref().and_then(|new| new.as_map()?.get(DIRECTIVE)?.as_str());
        let is_replaced = directive == Some("replace") && !self.at.shared;
        let is_changed = match (&own, &new) {
            (Some(Value::Map(map)), _) if directive == Some("delete") => self.at.shared && map.len() == 1,
            (_, Some(Value::Null(_))) => false,
            _ => !is_replaced,
        };
        let was_hollow = own.as_ref().is_none_or(is_hollow);
        let own_type = own.as_ref().filter(|own| !is_scalar(own)).map(Value::type_name);
        let merged = walk(own, new.as_mut(), Field { merge_keys: None, of: self.of }, self.at)?;
        match (merged.filter(|value| !is_hollow(value)), own_type) {
            (None, Some(own)) if !was_hollow && !is_changed => Err(misfit(own)),
            (None, _) => {
                self.remove(&text)?;
                Ok(false)
            }
            // It would be laid over itself.
            (Some(_), Some(own)) if !(was_hollow && is_replaced) => Err(misfit(own)),
            (Some(value), _) => self.out.put(text, Some(value)).map(|()| true),
        }
    }

    /// Takes elements with a text and those with nothing in them away.
    fn remove(&mut self, wanted: &Str) -> Result<(), String> {
        self.own.retain(|item| !is_hollow(item));
        if let Some(odd) = self.own.iter().find(|item| !is_scalar(item)) {
            return Err(misfit(odd.type_name()));
        }
        self.own.retain(|item| text(item) != *wanted);
        if self.at.shared {
            self.new.retain(|item| !is_hollow(item) && text(item) != *wanted);
        }
        Ok(())
    }
}

impl Out {
    /// Adds an element; the text is not there yet.
    fn put(&mut self, text: Str, item: Option<Value>) -> Result<(), String> {
        self.check()?;
        self.odd = item.as_ref().filter(|item| !is_scalar(item)).map(Value::type_name);
        self.places.insert(text, self.items.len());
        self.items.push(item);
        Ok(())
    }

    /// Puts an element of the object in the place of what has its text, or at the end.
    fn lay_over(&mut self, item: Value) -> Result<(), String> {
        self.check()?;
        if let Some(place) = self.hollow.take().and_then(|text| self.places.remove(&text)) {
            self.items[place] = None;
        }
        let text = text(&item);
        let hollow = is_hollow(&item);
        match self.places.get(&text) {
            Some(place) => {
                self.odd = (!hollow && !is_scalar(&item)).then(|| item.type_name());
                self.items[*place] = Some(item);
            }
            None if item.is_null() => return Ok(()),
            None if hollow => {
                self.places.insert(text.clone(), self.items.len());
                self.items.push(Some(item));
            }
            None => return self.put(text, Some(item)),
        }
        if hollow {
            self.hollow = Some(text);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.odd.map_or(Ok(()), |odd| Err(misfit(odd)))
    }
}

fn misfit(type_name: &str) -> String {
    format!("an element of a list that is merged as a set must be a scalar, not {type_name}")
}

/// The places of the first elements with each text.
fn firsts(items: &[Value]) -> HashMap<Str, usize> {
    items.iter().enumerate().rev().map(|(at, item)| (text(item), at)).collect()
}

/// The text by which an element is found; a list or mapping has an empty one.
fn text(item: &Value) -> Str {
    item.scalar_text().unwrap_or_else(|| "".into())
}

fn is_scalar(item: &Value) -> bool {
    !matches!(item, Value::List(_) | Value::Map(_))
}

/// Has it nothing in it?
fn is_hollow(item: &Value) -> bool {
    item.is_null() || item.as_map().is_some_and(|map| map.is_empty() && !map.is_odd())
}

/// A scalar without its tag. What is written without quotes is what it looks like from there on.
fn untagged(item: &Value) -> Value {
    match item {
        Value::String(text) if text.style() == TextStyle::Tagged => {
            Value::String(text.with_style(TextStyle::Untagged))
        }
        Value::String(text) if text.style() == TextStyle::TaggedQuoted => {
            Value::String(text.with_style(TextStyle::Quoted))
        }
        item => item.clone(),
    }
}
