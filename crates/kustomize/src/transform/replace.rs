//! Replacements: a value from one field to others.

use std::rc::Rc;

use crate::budget::{Budget, Held, Size};
use crate::error::Error;
use crate::fields::Site;
use crate::load::Loader;
use crate::replacement::{Entry, FieldOptions, Replacement, Source, Target};
use crate::resource::{Gvk, Resource};
use crate::resources::Resources;
use crate::value::{Num, Str, Text, TextStyle, Value};
use crate::yaml;

use super::path::{self, At, Field, Make, Part, Visitor};
use super::select::Matcher;
use super::shared::{self, Group, Watch};
use super::structured;

/// Runs the entries of `replacements`.
pub(super) fn apply(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    entries: &[Entry],
    objects: &mut Resources,
) -> Result<(), Error> {
    for (i, entry) in entries.iter().enumerate() {
        let field = format!("{field}[{i}]");
        let (replacements, _held) = entry.clone().load(loader, site, &field)?;
        for replacement in replacements {
            one(&replacement, loader, objects).map_err(|message| loader.fail(site, &field, message))?;
        }
    }
    Ok(())
}

/// The value that is copied: as it is, and as the text that a scalar field takes.
struct Copied {
    value: Value,
    text: Str,
    size: Size,
    /// The object and the field that it is from; none for a part of a field.
    from: Option<Origin>,
}

/// The field that a value is from.
struct Origin {
    /// Which object.
    at: usize,
    way: Vec<At>,
    /// What changes together in its object. A copy does not belong to it.
    groups: Vec<Rc<Group>>,
}

impl Copied {
    fn new(value: Value) -> Self {
        let text = value.scalar_text().unwrap_or_else(|| "".into());
        Self { size: Size::of(&value), value, text, from: None }
    }

    /// Is it a field of this object?
    fn is_from(&self, at: usize) -> bool {
        self.from.as_ref().is_some_and(|from| from.at == at)
    }

    /// After a change of the object that it is from: kustomize goes on with what its field is now.
    fn follow(&mut self, object: &Value, budget: &Budget) -> Result<(), String> {
        let Some(from) = &self.from else { return Ok(()) };
        let Some(now) = path::follow(object, &from.way) else { return Ok(()) };
        let (size, text) = (Size::of(now), now.scalar_text());
        if text.is_none() {
            budget.work(size.nodes)?;
            budget.keep(size.bytes())?;
        } else if self.value.scalar_text().is_none() {
            return Ok(());
        }
        let mut value = now.clone();
        shared::leave_groups(&mut value, &from.groups, budget)?;
        (self.size, self.value, self.text) = (size, value, text.unwrap_or_default());
        Ok(())
    }
}

fn one(replacement: &Replacement, loader: &Loader<'_>, objects: &mut Resources) -> Result<(), String> {
    let mut copied = match (&replacement.source, &replacement.value) {
        (Some(_), Some(_)) => return Err("source and sourceValue cannot both be set".into()),
        (None, None) => return Err("source is missing".into()),
        (None, Some(text)) => Copied { text: text.as_str().into(), ..Copied::new(yaml::plain_value(text)) },
        (Some(source), None) => copy(source, loader, objects)?,
    };
    if replacement.targets.is_empty() {
        return Err("targets is missing: a replacement needs at least one".into());
    }
    for (i, target) in replacement.targets.iter().enumerate() {
        replace(target, &mut copied, loader, objects)
            .map_err(|message| format!("targets[{i}]: {message}"))?;
    }
    Ok(())
}

/// Reads the value of a source.
fn copy(source: &Source, loader: &Loader<'_>, objects: &mut Resources) -> Result<Copied, String> {
    let limits = loader.limits;
    let at = find(source, loader, objects)?;
    let resource = objects.get(at);
    let parts = path::split(&source.field_path, limits.depth)?;
    let object = resource.value();
    let missing = || format!("source {}: nothing found at {:?}", resource.id(), source.field_path);
    let value = path::lookup_in(object, &parts)
        .map_err(|message| format!("source {}: {}: {message}", resource.id(), source.field_path))?;
    let (value, way) = match value {
        None | Some((Value::Null(_), _)) => return Err(missing()),
        Some((Value::Map(map), _)) if map.is_empty() => return Err(missing()),
        Some((Value::List(items), _)) if items.is_empty() => return Err(missing()),
        Some((value, way)) => {
            loader.budget.work(Size::of(value).nodes)?;
            let mut value = value.clone();
            shared::leave_groups(&mut value, &resource.shared, &loader.budget)?;
            (value, way)
        }
    };
    let FieldOptions { delimiter, index, .. } = &source.options;
    if delimiter.is_empty() {
        let from = Origin { at, way, groups: resource.shared.clone() };
        return Ok(Copied { from: Some(from), ..Copied::new(value) });
    }
    let Some(text) = value.scalar_text() else {
        return Err(format!("source: {}", only_scalars(&value)));
    };
    let part = usize::try_from(*index).ok().and_then(|index| text.split(delimiter.as_str()).nth(index));
    let part = part.ok_or_else(|| {
        let count = text.split(delimiter.as_str()).count();
        format!("source: options.index {index} is out of bounds for a value of {count} parts")
    })?;
    let value = retype(&value, part).unwrap_or_else(|_| Value::string(part));
    Ok(Copied { text: part.into(), ..Copied::new(value) })
}

fn only_scalars(value: &Value) -> String {
    format!("options.delimiter splits texts only, not {}", value.type_name())
}

/// The one object that a source means, by any of its ids.
fn find(source: &Source, loader: &Loader<'_>, objects: &mut Resources) -> Result<usize, String> {
    let schema = &loader.schemas.current();
    let wanted = &source.object;
    let api_version = if wanted.group.is_empty() {
        wanted.version.clone()
    } else {
        format!("{}/{}", wanted.group, wanted.version)
    };
    let gvk = Gvk::new(&api_version, &wanted.kind.as_str().into(), schema);
    let namespace = gvk.effective_namespace(&wanted.namespace);
    let candidates: Vec<usize> = if wanted.name.is_empty() {
        (0..objects.len()).collect()
    } else {
        objects.by_name(&wanted.name).to_vec()
    };
    loader.budget.work(1 + candidates.len())?;
    let selected = |at: &usize| {
        objects.get(*at).all_ids().any(|id| {
            (wanted.name.is_empty() || *id.name == *wanted.name)
                && (wanted.namespace.is_empty() || id.effective_namespace == namespace)
                && id.gvk.is_selected(&wanted.group, &wanted.version, &wanted.kind)
        })
    };
    let mut selected = candidates.into_iter().filter(selected);
    let describe = || {
        let parts = [&wanted.group, &wanted.version, &wanted.kind, &wanted.namespace, &wanted.name];
        let parts: Vec<&str> =
            parts.iter().map(|part| part.as_str()).filter(|part| !part.is_empty()).collect();
        parts.join("/")
    };
    match (selected.next(), selected.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(format!("source: no object is selected by {:?}", describe())),
        (Some(a), Some(b)) => Err(format!(
            "source: several objects are selected by {:?}: {} and {}",
            describe(),
            objects.get(a).id(),
            objects.get(b).id()
        )),
    }
}

/// Copies a value into the fields of a target.
fn replace(
    target: &Target,
    copied: &mut Copied,
    loader: &Loader<'_>,
    objects: &mut Resources,
) -> Result<(), String> {
    let (limits, budget) = (loader.limits, &loader.budget);
    let select = target.select.as_ref().ok_or("select is missing")?;
    let select = Matcher::new(select, budget)?;
    let mut reject = Vec::with_capacity(target.reject.len());
    for selector in &target.reject {
        let by_id = [&selector.group, &selector.version, &selector.kind, &selector.name, &selector.namespace]
            .iter()
            .any(|part| !part.is_empty());
        let by_text = !(selector.label_selector.is_empty() && selector.annotation_selector.is_empty());
        reject.push((Matcher::new(selector, budget)?, by_id, by_text));
    }
    let rejected = |resource: &Resource| {
        reject.iter().any(|(matcher, by_id, by_text)| {
            (*by_text && matcher.matches_texts(resource)) || (*by_id && matcher.matches_ids(resource))
        })
    };
    budget.work(select.cost(objects))?;
    let mut selected = select.select_ids(objects);
    selected.retain(|at| select.matches_texts(objects.get(*at)) && !rejected(objects.get(*at)));
    if selected.is_empty() {
        // As in kustomize, nobody looks at the paths.
        return Ok(());
    }
    let mut paths = Vec::with_capacity(target.field_paths.len());
    for path in &target.field_paths {
        let words = path::split(path, limits.depth)?;
        let parts = path::parse(&words, budget).map_err(|message| format!("{path}: {message}"))?;
        paths.push(FieldPath { text: path, words, parts });
    }
    for at in selected {
        objects.change(at, |resource| {
            let id = resource.id().clone();
            let watch = Watch::start(resource, budget)?;
            // What it puts in the place of a name without a tag has none either.
            resource.untagged = true;
            let mut object = Value::Map(resource.edit(std::mem::take));
            for path in &paths {
                let error = |message| format!("{id}: {}: {message}", path.text);
                if copied.is_from(at) {
                    set_path_from_within(&mut object, path, &target.options, copied, budget)
                        .map_err(error)?;
                } else {
                    set_path(&mut object, path, &target.options, copied, budget).map_err(error)?;
                }
            }
            let Value::Map(map) = object else { return Err(format!("{id}: no mapping is left of it")) };
            resource.set_value(map);
            watch.settle(resource, false)
        })?;
    }
    Ok(())
}

struct FieldPath<'t> {
    text: &'t str,
    words: Vec<String>,
    parts: Vec<Part>,
}

fn set_path(
    object: &mut Value,
    path: &FieldPath<'_>,
    options: &FieldOptions,
    copied: &Copied,
    budget: &Budget,
) -> Result<(), String> {
    let make = if options.create { Make::of(&copied.value) } else { Make::Nothing };
    if set_inside_of_text(object, path, make, copied, budget)? {
        return Ok(());
    }
    let depth = path.parts.len();
    let mut setter = Setter { options, copied, budget, depth, in_text: false, misfit: None };
    found(path::visit(object, &path.parts, make, &mut setter)?, options)
}

fn found(fields: usize, options: &FieldOptions) -> Result<(), String> {
    match fields {
        0 if options.create => Err("the field does not exist and cannot be created".into()),
        0 => Err("the field does not exist (options.create creates it)".into()),
        _ => Ok(()),
    }
}

/// The same where the value is a field of this very object: kustomize makes the fields first, and then sets one after the
/// other to what the field of the source has become by then.
fn set_path_from_within(
    object: &mut Value,
    path: &FieldPath<'_>,
    options: &FieldOptions,
    copied: &mut Copied,
    budget: &Budget,
) -> Result<(), String> {
    let make = if options.create { Make::of(&copied.value) } else { Make::Nothing };
    if set_inside_of_text(object, path, make, copied, budget)? {
        return copied.follow(object, budget);
    }
    let mut finder = Finder { budget, way: Vec::new(), fields: Vec::new(), held: budget.hold(0)? };
    found(path::visit(object, &path.parts, make, &mut finder)?, options)?;
    let depth = path.parts.len();
    for Found { way, made, in_brackets } in finder.fields {
        copied.follow(object, budget)?;
        // What a text says is a copy, in which nothing is found again.
        if let Some(value) = path::follow_mut(object, &way) {
            let mut setter = Setter { options, copied, budget, depth, in_text: false, misfit: None };
            setter.set(Field { value, made, in_brackets })?;
        }
    }
    copied.follow(object, budget)
}

/// Sets a field of what a text says, where the path leads into a text. Tells whether it did.
fn set_inside_of_text(
    object: &mut Value,
    path: &FieldPath<'_>,
    make: Make,
    copied: &Copied,
    budget: &Budget,
) -> Result<bool, String> {
    for cut in 1..path.words.len() {
        let Ok(found) = path::lookup(object, &path.words[..cut]) else { continue };
        let Some(text) = found.filter(|value| value.as_str().is_some()) else { continue };
        let text = text.as_str().unwrap_or_default();
        budget.work(text.len())?;
        let (options, depth) = (&FieldOptions::default(), path.parts.len());
        let mut setter = Setter { options, copied, budget, depth, in_text: true, misfit: None };
        let edited = structured::edit(text, budget, |value| {
            match path::visit(value, &path.parts[cut..], make, &mut setter)? {
                0 => Err("nothing is there".to_owned()),
                _ => Ok(()),
            }
        });
        return match (edited, setter.misfit) {
            (Ok(edited), _) => {
                budget.make(edited.len())?;
                let slot = path::lookup_mut(object, &path.words[..cut]);
                let found = slot.is_some();
                slot.into_iter().for_each(|slot| *slot = Value::string(edited.as_str()));
                Ok(found)
            }
            (Err(message), _) if budget.met().is_some() => Err(message),
            // JSON that the new value does not fit in stays as it is: kustomize finds out too late to say so.
            (Err(_), Some(_)) if structured::is_json(text) => Ok(true),
            (Err(_), Some(message)) => Err(message),
            (Err(_), None) => Ok(false),
        };
    }
    Ok(false)
}

/// A field that a path leads to.
struct Found {
    way: Vec<At>,
    made: bool,
    in_brackets: bool,
}

/// Makes the fields that a path leads to, leaves them as they are, and tells where they are.
struct Finder<'t> {
    budget: &'t Budget,
    way: Vec<At>,
    fields: Vec<Found>,
    held: Held,
}

impl Visitor for Finder<'_> {
    fn set(&mut self, field: Field<'_>) -> Result<(), String> {
        /// Of a field besides the steps to it, in a list that grows.
        const FIELD: usize = 128;
        self.held.grow(self.budget, FIELD + self.way.len() * size_of::<At>())?;
        let Field { made, in_brackets, .. } = field;
        self.fields.push(Found { way: self.way.clone(), made, in_brackets });
        Ok(())
    }

    fn count(&mut self, elements: usize) -> Result<(), String> {
        self.budget.work(elements)
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn enter(&mut self, at: At) {
        self.way.push(at);
    }

    fn leave(&mut self) {
        self.way.pop();
    }
}

/// Sets the fields that a path leads to.
struct Setter<'s> {
    options: &'s FieldOptions,
    copied: &'s Copied,
    budget: &'s Budget,
    /// How deep the path leads.
    depth: usize,
    /// It is a field of what a text says, which is written at once.
    in_text: bool,
    /// Why a value did not fit.
    misfit: Option<String>,
}

impl Visitor for Setter<'_> {
    fn set(&mut self, field: Field<'_>) -> Result<(), String> {
        self.budget.put(self.copied.size, self.depth)?;
        if !self.options.delimiter.is_empty() {
            // The text that is there is taken apart and put together again.
            self.budget.make(field.value.as_str().map_or(0, str::len))?;
        }
        set(field, self.options, self.copied, self.in_text)
            .inspect_err(|message| self.misfit = Some(message.clone()))
    }

    fn count(&mut self, elements: usize) -> Result<(), String> {
        self.budget.work(elements)
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn in_text(&self) -> bool {
        self.in_text
    }
}

/// Sets one field.
fn set(field: Field<'_>, options: &FieldOptions, copied: &Copied, in_text: bool) -> Result<(), String> {
    let Field { value, made, in_brackets } = field;
    let Some(old) = value.scalar_text() else {
        if !options.delimiter.is_empty() {
            return Err(only_scalars(value));
        }
        *value = copied.value.clone();
        if in_brackets {
            value.put_in_brackets();
        } else {
            value.take_out_of_brackets();
        }
        return Ok(());
    };
    let text =
        if options.delimiter.is_empty() { copied.text.clone() } else { splice(&old, options, copied).into() };
    *value = match made {
        true if in_text => yaml::plain_value(&text),
        true => Value::String(Text::new(text, TextStyle::Untagged)),
        false => retype(value, &text)?,
    };
    if in_brackets {
        value.put_in_brackets();
    }
    Ok(())
}

/// Puts a text among the parts of another: at the index, before them all for a negative one, after them for one past the
/// end.
fn splice(old: &str, options: &FieldOptions, copied: &Copied) -> String {
    let mut parts: Vec<&str> = old.split(options.delimiter.as_str()).collect();
    match usize::try_from(options.index) {
        Err(_) => parts.insert(0, &copied.text),
        Ok(index) => match parts.get_mut(index) {
            Some(part) => *part = &copied.text,
            None => parts.push(&copied.text),
        },
    }
    parts.join(&options.delimiter)
}

/// The word for the type of a scalar.
fn kind(scalar: &Value) -> &'static str {
    match scalar {
        Value::String(text) if text.is_time() => "a time",
        other => other.type_name(),
    }
}

/// A text in the place of a scalar, whose type stays.
fn retype(old: &Value, text: &str) -> Result<Value, String> {
    if let Value::String(old) = old
        && old.is_retyped()
    {
        let before = yaml::plain_value(old);
        let new = retype(&before, text)?;
        // An integer in the place of a float loses the quotes.
        let is_float =
            |value: &Value| matches!(value, Value::Number(number) if matches!(number.num, Num::Float(_)));
        return Ok(match is_float(&before) && !is_float(&new) {
            true => new,
            false => Value::String(Text::new(text, old.style())),
        });
    }
    if let Value::String(old) = old
        && old.is_untagged()
    {
        return Ok(Value::String(Text::new(text, old.style())));
    }
    let new = yaml::plain_value(text);
    let fits = match (old, &new) {
        (Value::String(old), Value::String(new)) if old.is_time() && new.is_time() => {
            return Ok(Value::String(new.with_style(old.style())));
        }
        (Value::String(old), _) if old.is_time() => false,
        (Value::String(old), _) => return Ok(Value::String(old.replaced(text))),
        (Value::Number(old), Value::Number(new)) => {
            matches!(old.num, Num::Float(_)) || !matches!(new.num, Num::Float(_))
        }
        (Value::Bool(_), Value::Bool(_)) | (Value::Null(_), Value::Null(_)) => true,
        _ => false,
    };
    if fits { Ok(new) } else { Err(format!("{} does not fit where {} stands", new.type_name(), kind(old))) }
}
