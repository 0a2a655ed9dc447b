//! From objects with expressions to finished objects.

use std::collections::BTreeSet;

use roadstead_kustomize::value;
use roadstead_kustomize::yaml::{read_strict, write_document};
use roadstead_model::Confidential;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::evaluate::{Evaluation, Limit};
use crate::template::{self, Malformed, Node};
use crate::variables::Variables;

/// The label or annotation by which an object is left as it is.
const SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";
/// How much of an expression a message shows.
const MAX_SHOWN: usize = 60;
/// What stands for the name of a variable in decrypted text.
const HIDDEN: &str = "… (in a decrypted value)";
/// An object's YAML: larger ones no apiserver takes.
const MAX_OBJECT_BYTES: usize = 8 << 20;

/// How much may come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of YAML of all objects that have expressions.
    pub bytes: usize,
    /// Bytes of memory in which one such object is read again.
    pub memory: usize,
    /// Characters that are compared with patterns.
    pub work: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 20, memory: 64 << 20, work: 100_000_000 }
    }
}

/// What is substituted, and how.
#[derive(Debug, Clone)]
pub struct Substitution<'a> {
    /// The variables.
    pub variables: &'a Variables,
    /// Substitute even if there are no variables at all.
    pub always: bool,
    /// Fail if a variable is not set and has no default; otherwise it is empty.
    pub strict: bool,
    /// How much may come of it.
    pub limits: Limits,
}

/// An object, and what of it is secret.
#[derive(Clone, PartialEq)]
pub struct Finished {
    /// The object.
    pub object: Confidential,
    /// JSON pointers of what was decrypted, or holds values of Secrets; the empty one is the whole object.
    pub secret: Vec<String>,
}

/// Shows what is secret, and nothing of the object.
impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("secret", &self.secret).finish_non_exhaustive()
    }
}

impl<'a> Substitution<'a> {
    /// Flux's default behaviour, in strict mode.
    #[must_use]
    pub fn of(variables: &'a Variables) -> Self {
        Self { variables, always: false, strict: true, limits: Limits::default() }
    }

    /// Substitutes the variables of all objects, in their order. What is marked in them stays marked.
    ///
    /// # Errors
    /// [`Error::Undefined`] names all variables that are not set, over all objects; the others are about the first object that is
    /// wrong.
    pub fn apply<T: Into<Finished>>(&self, objects: Vec<T>) -> Result<Vec<Finished>, Error> {
        if self.variables.is_empty() && !self.always {
            return Ok(objects.into_iter().map(Into::into).collect());
        }
        if let Some(name) = self.variables.invalid_name() {
            return Err(Error::InvalidName { name: name.to_owned() });
        }
        let mut limits = self.limits;
        let (mut names, mut of) = (BTreeSet::new(), Vec::new());
        let mut finished = Vec::with_capacity(objects.len());
        for object in objects {
            let (one, undefined) = self.object(object.into(), &mut limits)?;
            if self.strict && !undefined.is_empty() {
                of.push(named(&one.object));
                names.extend(undefined);
            }
            finished.push(one);
        }
        if !names.is_empty() {
            return Err(Error::Undefined { names, objects: of });
        }
        Ok(finished)
    }

    /// One object, and the variables of it that are not set: where there are any, the object is as it was.
    fn object(&self, before: Finished, limits: &mut Limits) -> Result<(Finished, BTreeSet<String>), Error> {
        if !has_expressions(&before.object) || is_disabled(&before.object) {
            return Ok((before, BTreeSet::new()));
        }
        let Finished { object, secret: marked } = before;
        let holds_secrets = !marked.is_empty();
        let too_much = |what: String| Error::TooMuch { object: named(&object), what };
        let mut text = Zeroizing::new(String::new());
        write_document(&mut text, &value::Value::from_json(&object));
        if text.len() > MAX_OBJECT_BYTES {
            return Err(too_much(format!("it has more than {MAX_OBJECT_BYTES} bytes")));
        }
        let nodes = template::parse(&text).map_err(|Malformed { why, at }| Error::Malformed {
            object: named(&object),
            why,
            expression: shown(&object, holds_secrets, &text[at..]),
        })?;
        let mut evaluation = Evaluation {
            variables: self.variables,
            undefined: BTreeSet::new(),
            secret: false,
            bytes_left: limits.bytes.min(MAX_OBJECT_BYTES),
            work_left: limits.work,
        };
        let out = Zeroizing::new(evaluation.nodes(&nodes).map_err(|limit| {
            too_much(match limit {
                Limit::Bytes => format!("more than {} bytes come of it", limits.bytes.min(MAX_OBJECT_BYTES)),
                Limit::Work => "its patterns take too long".to_owned(),
                Limit::Character => "a substring ends within a character".to_owned(),
            })
        })?);
        limits.bytes = limits.bytes.saturating_sub(out.len());
        limits.work = evaluation.work_left;
        if self.strict && !evaluation.undefined.is_empty() {
            let undefined = without_secret_names(evaluation.undefined, &object, &marked);
            return Ok((Finished { object, secret: marked }, undefined));
        }
        let read = read(&object, &out, evaluation.secret || holds_secrets, limits.memory)?;
        let mut secret = if evaluation.secret { self.marks(&object, &read) } else { Vec::new() };
        secret.extend(marked.into_iter().map(|pointer| nearest(pointer, &read)));
        secret.sort();
        secret.dedup();
        Ok((Finished { object: read.into(), secret }, BTreeSet::new()))
    }

    /// Where values of Secrets ended up. A text with such a variable is marked as a whole; if its place no longer exists, its closest
    /// remaining parent is marked.
    fn marks(&self, before: &Value, after: &Value) -> Vec<String> {
        let mut marks = Vec::new();
        self.mark(before, String::new(), after, &mut marks);
        if marks.is_empty() {
            // An expression that went over more than one text.
            marks.push(String::new());
        }
        marks.sort();
        marks.dedup();
        marks
    }

    fn mark(&self, before: &Value, pointer: String, after: &Value, marks: &mut Vec<String>) {
        match before {
            Value::String(text) if self.is_secret(text) => {
                marks.push(nearest(pointer, after));
            }
            Value::Object(map) => {
                if map.keys().any(|key| self.is_secret(key)) {
                    marks.push(pointer);
                    return;
                }
                for (key, value) in map {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    self.mark(value, format!("{pointer}/{key}"), after, marks);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    self.mark(value, format!("{pointer}/{index}"), after, marks);
                }
            }
            _ => {}
        }
    }

    /// Whether a text has an expression that holds the value of a Secret. A text that cannot be parsed alone is taken for secret.
    fn is_secret(&self, text: &str) -> bool {
        text.contains("${") && template::parse(text).is_ok_and(|nodes| self.holds_secret(&nodes))
            || (text.contains("${") && template::parse(text).is_err())
    }

    fn holds_secret(&self, nodes: &[Node]) -> bool {
        nodes.iter().any(|node| match node {
            Node::Text(_) => false,
            Node::Expression(expression) => {
                self.variables.get(&expression.name).is_some_and(|variable| variable.secret)
                    || self.holds_secret(&expression.arguments)
            }
        })
    }
}

impl From<Value> for Finished {
    /// An object of which nothing is secret.
    fn from(object: Value) -> Self {
        Self { object: object.into(), secret: Vec::new() }
    }
}

/// A place of an object, or its closest parent that there is.
fn nearest(mut pointer: String, object: &Value) -> String {
    while object.pointer(&pointer).is_none() {
        pointer.truncate(pointer.rfind('/').unwrap_or(0));
    }
    pointer
}

/// Names of variables that are not set. One that stands in decrypted text alone is a part of that text, and is not told.
fn without_secret_names(undefined: BTreeSet<String>, object: &Value, marked: &[String]) -> BTreeSet<String> {
    if marked.is_empty() {
        return undefined;
    }
    let mut open = Confidential::from(object.clone());
    for pointer in marked {
        if let Some(value) = open.pointer_mut(pointer) {
            *value = Value::Null;
        }
    }
    let open = open.to_string();
    let told = |name: String| if open.contains(&format!("${{{name}")) { name } else { HIDDEN.to_owned() };
    undefined.into_iter().map(told).collect()
}

/// Whether anything of an object's texts could be replaced.
fn has_expressions(value: &Value) -> bool {
    let may = |text: &str| text.contains("${") || text.contains("$$");
    match value {
        Value::String(text) => may(text),
        Value::Array(items) => items.iter().any(has_expressions),
        Value::Object(map) => map.iter().any(|(key, value)| may(key) || has_expressions(value)),
        _ => false,
    }
}

fn is_disabled(object: &Value) -> bool {
    ["labels", "annotations"].iter().any(|map| {
        let word = object["metadata"][*map][SUBSTITUTE].as_str();
        word.is_some_and(|word| word.eq_ignore_ascii_case("disabled"))
    })
}

/// Reads what came of an object. What a reader says may quote it, so that of one with values of Secrets only the line is told.
fn read(object: &Value, text: &str, secret: bool, memory: usize) -> Result<Value, Error> {
    let wrong = |line: usize, why: &str| Error::NotAnObject {
        object: named(object),
        line,
        why: if secret { "it is not YAML".to_owned() } else { why.to_owned() },
    };
    let limits = roadstead_kustomize::Limits::within(memory);
    let (documents, _) =
        read_strict(text.as_bytes(), &limits).map_err(|error| wrong(error.line, &error.message))?;
    match documents.as_slice() {
        [document] if document.value.as_map().is_some() => Ok(document.value.to_json()),
        _ => Err(wrong(1, "it is not one mapping")),
    }
}

/// An object, for people: `Kind/namespace/name`.
#[must_use]
pub fn named(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The beginning of an expression; nothing of the content of a Secret, or of an object that `holds_secrets`.
fn shown(object: &Value, holds_secrets: bool, text: &str) -> String {
    if holds_secrets || object["kind"] == "Secret" {
        return "${…".to_owned();
    }
    let line = text.lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(MAX_SHOWN);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}
