//! Values of CEL, and what all of them have: a type, a size, equality and order.
//!
//! What comes out of an object stays where it is: its lists and maps are borrowed, and only what an expression makes is
//! allocated, and counted.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value as Json;

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::time::Moment;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// A list of an object.
    JsonList(&'a [Json]),
    /// A map of an object.
    JsonMap(&'a serde_json::Map<String, Json>),
    List(Arc<Vec<Value<'a>>>),
    Map(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    Optional(Option<Arc<Value<'a>>>),
    Timestamp(Moment),
    Duration(SignedDuration),
    /// A type, by its name.
    Type(&'static str),
}

/// A string, of the object or of the evaluation.
#[derive(Debug, Clone)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// The key of a map that an expression makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl<'a> From<&Key<'a>> for Value<'a> {
    fn from(key: &Key<'a>) -> Self {
        match key {
            Key::Bool(value) => Self::Bool(*value),
            Key::Int(value) => Self::Int(*value),
            Key::Uint(value) => Self::Uint(*value),
            Key::String(value) => Self::String(value.clone()),
        }
    }
}

impl<'a> From<&'a Json> for Value<'a> {
    /// Numbers are what Kubernetes makes of them: integers where they fit 64 bits with a sign, else floating-point.
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(list) => Self::JsonList(list),
            Json::Object(map) => Self::JsonMap(map),
        }
    }
}

impl<'a> Value<'a> {
    /// A list of values that are paid for.
    pub(crate) fn list(values: Vec<Self>) -> Self {
        Self::List(Arc::new(values))
    }

    /// A string that was paid for.
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of its type, as CEL has it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::JsonList(_) | Self::List(_) => "list",
            Self::JsonMap(_) | Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
        }
    }

    /// How many elements or entries a list or a map has.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::JsonList(list) => Some(list.len()),
            Self::List(list) => Some(list.len()),
            Self::JsonMap(map) => Some(map.len()),
            Self::Map(map) => Some(map.len()),
            _ => None,
        }
    }

    /// How many elements a list has.
    pub(crate) fn list_len(&self) -> Option<usize> {
        if matches!(self, Self::JsonList(_) | Self::List(_)) { self.len() } else { None }
    }

    /// An element of a list.
    pub(crate) fn element(&self, at: usize) -> Option<Self> {
        match self {
            Self::JsonList(list) => list.get(at).map(Self::from),
            Self::List(list) => list.get(at).cloned(),
            _ => None,
        }
    }

    /// The value at a key, where this is a map that has it. Numbers that are equal are the same key, of whatever type.
    pub(crate) fn entry(&self, key: &Self) -> Option<Self> {
        match self {
            Self::JsonMap(map) => match key {
                Self::String(name) => map.get(&**name).map(Self::from),
                _ => None,
            },
            Self::Map(map) => {
                let (first, second) = match key {
                    Self::Bool(value) => (Some(Key::Bool(*value)), None),
                    Self::String(text) => (Some(Key::String(text.clone())), None),
                    number => {
                        let number = number.as_integer()?;
                        (i64::try_from(number).ok().map(Key::Int), u64::try_from(number).ok().map(Key::Uint))
                    }
                };
                [first, second].into_iter().flatten().find_map(|key| map.get(&key)).cloned()
            }
            _ => None,
        }
    }

    /// A number that is an integer, of whatever type.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            Self::Double(value) => exact(*value),
            _ => None,
        }
    }

    /// Is it what its type has for nothing?
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::JsonList(_) | Self::List(_) | Self::JsonMap(_) | Self::Map(_) => self.len() == Some(0),
            Self::Duration(duration) => duration.is_zero(),
            Self::Optional(_) | Self::Timestamp(_) | Self::Type(_) => false,
        }
    }
}

/// A floating-point number as an integer, where it is one.
pub(crate) fn exact(number: f64) -> Option<i128> {
    /// 2 to the 100th: beyond what any integer of CEL reaches.
    const MOST: f64 = 1_267_650_600_228_229_401_496_703_205_376.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction, and is far within 128 bits")]
    (number.fract() == 0.0 && number.abs() < MOST).then_some(number as i128)
}

/// Are two values equal? Values of different types are not, but for numbers, which are by what they are worth.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>, budget: &mut Budget) -> Answer<bool> {
    budget.steps(1)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            budget.read(left.len())?;
            left == right
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.read(left.len().min(right.len()))?;
            left == right
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left == right,
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => equal(left, right, budget)?,
        (Value::Optional(left), Value::Optional(right)) => left.is_none() && right.is_none(),
        (Value::JsonList(_) | Value::List(_), Value::JsonList(_) | Value::List(_)) => {
            lists_equal(left, right, budget)?
        }
        (Value::JsonMap(_) | Value::Map(_), Value::JsonMap(_) | Value::Map(_)) => {
            maps_equal(left, right, budget)?
        }
        _ => numbers(left, right).is_some_and(|order| order == Some(Ordering::Equal)),
    })
}

fn lists_equal(left: &Value<'_>, right: &Value<'_>, budget: &mut Budget) -> Answer<bool> {
    let (Some(count), Some(other)) = (left.list_len(), right.list_len()) else { return Ok(false) };
    if count != other {
        return Ok(false);
    }
    for at in 0..count {
        let (Some(left), Some(right)) = (left.element(at), right.element(at)) else { return Ok(false) };
        if !equal(&left, &right, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What finding a key in a map takes beyond reading it.
const LOOKUP_STEPS: u64 = 4;

fn maps_equal(left: &Value<'_>, right: &Value<'_>, budget: &mut Budget) -> Answer<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    let same = |key: &Value<'_>, value: &Value<'_>, budget: &mut Budget| {
        budget.steps(LOOKUP_STEPS)?;
        match right.entry(key) {
            Some(other) => equal(value, &other, budget),
            None => Ok(false),
        }
    };
    match left {
        Value::JsonMap(map) => {
            for (key, value) in *map {
                budget.read(key.len())?;
                if !same(&Value::String(Text::Borrowed(key)), &Value::from(value), budget)? {
                    return Ok(false);
                }
            }
        }
        Value::Map(map) => {
            for (key, value) in map.iter() {
                budget.steps(1)?;
                if !same(&Value::from(key), value, budget)? {
                    return Ok(false);
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The order of two numbers, where both are; of NaN there is none.
fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Option<Ordering>> {
    let double = |value: &Value<'_>| match value {
        Value::Double(value) => Some(*value),
        _ => None,
    };
    Some(match (double(left), double(right)) {
        (Some(left), Some(right)) => left.partial_cmp(&right),
        (None, None) => Some(left.as_integer()?.cmp(&right.as_integer()?)),
        (Some(left), None) => beside(left, right.as_integer()?),
        (None, Some(right)) => beside(right, left.as_integer()?).map(Ordering::reverse),
    })
}

/// The order of a floating-point number and an integer, which is made one too, as cel-go does.
fn beside(double: f64, integer: i128) -> Option<Ordering> {
    #[expect(clippy::cast_precision_loss, reason = "so that the answers are those of Flux")]
    double.partial_cmp(&(integer as f64))
}

/// The order of two values that have one.
pub(crate) fn order(
    left: &Value<'_>,
    right: &Value<'_>,
    operator: &'static str,
    budget: &mut Budget,
) -> Answer<Ordering> {
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => {
            budget.read(left.len().min(right.len()))?;
            left.cmp(right)
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.read(left.len().min(right.len()))?;
            left.cmp(right)
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        _ => match numbers(left, right) {
            Some(order) => order.ok_or(EvalProblem::NotANumber)?,
            None => return Err(EvalProblem::NoSuchOverload(operator.into()).into()),
        },
    })
}
