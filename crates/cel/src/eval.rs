//! Evaluates a tree on the fields of an object.
//!
//! As in cel-go, an error is a value of its own kind: `&&` and `||` do without a side that fails where the other decides,
//! and the macros `all` and `exists` do so for elements. Only a budget that is used up ends everything at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::budget::Budget;
use crate::compile::plain_type;
use crate::error::{Answer, EvalProblem, Fault};
use crate::function;
use crate::json;
use crate::node::{Macro, MacroKind, Mode, Node, Operator};
use crate::operator;
use crate::value::{Key, Value};

/// An evaluation.
pub(crate) struct Run<'a> {
    variables: HashMap<&'a str, &'a Json>,
    locals: Vec<Value<'a>>,
    budget: Budget,
}

impl<'a> Run<'a> {
    pub(crate) fn new(variables: &[(&'a str, &'a Json)], among: u32) -> Self {
        let variables = variables.iter().copied().collect();
        Self { variables, locals: Vec::new(), budget: Budget::shared(among) }
    }

    /// A value of this evaluation as JSON, out of the same budget.
    pub(crate) fn json(&mut self, value: &Value<'_>) -> Answer<Json> {
        json::of(value, &mut self.budget)
    }

    pub(crate) fn node(&mut self, node: &'a Node) -> Answer<Value<'a>> {
        self.budget.steps(1)?;
        match node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Local(at) => Ok(self.locals.get(*at).cloned().unwrap_or(Value::Null)),
            Node::Variable(name) => self.variable(name),
            Node::Select { operand, field, mode } => {
                let operand = self.node(operand)?;
                select(&operand, field, *mode).map_err(Into::into)
            }
            Node::Index { operand, index, optional } => {
                let operand = self.node(operand)?;
                let index = self.node(index)?;
                at_index(&operand, &index, *optional).map_err(Into::into)
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::And(operands) => self.logic(operands, false),
            Node::Or(operands) => self.logic(operands, true),
            Node::If(parts) => self.conditional(parts),
            Node::Operator(operator, operands) => self.operator(*operator, operands),
            Node::Not(operand) => match self.node(operand)? {
                Value::Bool(value) => Ok(Value::Bool(!value)),
                _ => Err(no_overload("!_")),
            },
            Node::Negate(operand) => Ok(operator::negate(&self.node(operand)?)?),
            Node::OptionalOr { operands, unwrap } => self.optional_or(operands, *unwrap),
            Node::Call { function, arguments } => {
                let arguments =
                    arguments.iter().map(|argument| self.node(argument)).collect::<Answer<Vec<_>>>()?;
                function.call(&arguments, &mut self.budget)
            }
            Node::Matches { text, pattern } => match self.node(text)? {
                Value::String(text) => function::look(pattern, &text, &mut self.budget),
                _ => Err(no_overload("matches")),
            },
            Node::Unknown(name) => Err(EvalProblem::NoSuchOverload(Arc::clone(name)).into()),
            Node::Macro(macro_) => self.macro_(macro_),
        }
    }

    fn variable(&self, name: &Arc<str>) -> Answer<Value<'a>> {
        if let Some(json) = self.variables.get(&**name) {
            return Ok(Value::from(*json));
        }
        plain_type(name).map(Value::Type).ok_or_else(|| EvalProblem::NoSuchAttribute(Arc::clone(name)).into())
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Answer<Value<'a>> {
        self.budget.list(elements.len())?;
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.node(element)?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(value)) => values.extend(value.map(|value| (*value).clone())),
                (true, _) => return Err(EvalProblem::NotOptional.into()),
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Answer<Value<'a>> {
        self.budget.map(entries.len())?;
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = match self.node(key)? {
                Value::Bool(value) => Key::Bool(value),
                Value::Int(value) => Key::Int(value),
                Value::Uint(value) => Key::Uint(value),
                Value::String(text) => {
                    self.budget.read(text.len())?;
                    Key::String(text)
                }
                _ => return Err(EvalProblem::KeyType.into()),
            };
            let value = match (optional, self.node(value)?) {
                (false, value) => value,
                (true, Value::Optional(Some(value))) => (*value).clone(),
                (true, Value::Optional(None)) => continue,
                (true, _) => return Err(EvalProblem::NotOptional.into()),
            };
            // Of a key that is written twice, the last value counts, as in cel-go.
            map.insert(key, value);
        }
        Ok(Value::Map(Arc::new(map)))
    }

    /// `&&`, which false decides, and `||`, which true does, on whichever side, and whether or not the other side fails.
    fn logic(&mut self, operands: &'a [Node; 2], decides: bool) -> Answer<Value<'a>> {
        let name = if decides { "_||_" } else { "_&&_" };
        let mut problem = None;
        for operand in operands {
            match self.node(operand) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => problem = problem.or_else(|| Some(no_overload(name))),
                Err(Fault::Cost) => return Err(Fault::Cost),
                Err(fault) => problem = problem.or(Some(fault)),
            }
        }
        problem.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn conditional(&mut self, [condition, yes, no]: &'a [Node; 3]) -> Answer<Value<'a>> {
        match self.node(condition)? {
            Value::Bool(true) => self.node(yes),
            Value::Bool(false) => self.node(no),
            _ => Err(no_overload("_?_:_")),
        }
    }

    fn operator(&mut self, operator: Operator, [left, right]: &'a [Node; 2]) -> Answer<Value<'a>> {
        let left = self.node(left)?;
        let right = self.node(right)?;
        operator::apply(operator, &left, &right, &mut self.budget)
    }

    fn optional_or(&mut self, [first, other]: &'a [Node; 2], unwrap: bool) -> Answer<Value<'a>> {
        match self.node(first)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            Value::Optional(None) => self.node(other),
            // Anything but an optional is taken for its own value, as in cel-go.
            value => Ok(value),
        }
    }

    fn macro_(&mut self, macro_: &'a Macro) -> Answer<Value<'a>> {
        let over = self.node(&macro_.over)?;
        match macro_.kind {
            MacroKind::All => self.quantifier(&over, &macro_.body, false),
            MacroKind::Exists => self.quantifier(&over, &macro_.body, true),
            MacroKind::ExistsOne => self.exists_one(&over, &macro_.body),
            MacroKind::Map => self.gathered(&over, macro_),
            MacroKind::OptMap | MacroKind::OptFlatMap => match over {
                Value::Optional(None) => Ok(Value::Optional(None)),
                Value::Optional(Some(value)) => {
                    let found = self.with((*value).clone(), &macro_.body)?;
                    self.budget.list(0)?;
                    Ok(if macro_.kind == MacroKind::OptMap { Value::some(found) } else { found })
                }
                _ => Err(no_overload("hasValue")),
            },
        }
    }

    /// Evaluates the body of a macro with a value for its variable.
    fn with(&mut self, value: Value<'a>, body: &'a Node) -> Answer<Value<'a>> {
        self.locals.push(value);
        let answer = self.node(body);
        self.locals.pop();
        answer
    }

    /// `all`, which false decides, and `exists`, which true does.
    fn quantifier(&mut self, over: &Value<'a>, body: &'a Node, decides: bool) -> Answer<Value<'a>> {
        let mut problem = None;
        for item in Items::of(over)? {
            match self.with(item, body) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    problem = problem.or_else(|| Some(no_overload(if decides { "_||_" } else { "_&&_" })));
                }
                Err(Fault::Cost) => return Err(Fault::Cost),
                Err(fault) => problem = problem.or(Some(fault)),
            }
        }
        problem.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn exists_one(&mut self, over: &Value<'a>, body: &'a Node) -> Answer<Value<'a>> {
        let mut count = 0_usize;
        for item in Items::of(over)? {
            match self.with(item, body)? {
                Value::Bool(found) => count += usize::from(found),
                _ => return Err(no_overload("_?_:_")),
            }
        }
        Ok(Value::Bool(count == 1))
    }

    /// `map` and `filter`.
    fn gathered(&mut self, over: &Value<'a>, macro_: &'a Macro) -> Answer<Value<'a>> {
        self.budget.list(0)?;
        let mut values = Vec::new();
        for item in Items::of(over)? {
            if let Some(condition) = &macro_.condition {
                match self.with(item.clone(), condition)? {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    _ => return Err(no_overload("_?_:_")),
                }
            }
            let value = self.with(item, &macro_.body)?;
            self.budget.values(1)?;
            values.push(value);
        }
        Ok(Value::list(values))
    }
}

fn no_overload(name: &str) -> Fault {
    EvalProblem::NoSuchOverload(name.into()).into()
}

/// What a macro runs over: the elements of a list, or the keys of a map.
enum Items<'a> {
    List { list: Value<'a>, at: usize },
    Json(serde_json::map::Keys<'a>),
    Map { map: Arc<BTreeMap<Key<'a>, Value<'a>>>, last: Option<Key<'a>> },
}

impl<'a> Items<'a> {
    fn of(value: &Value<'a>) -> Result<Self, EvalProblem> {
        match value {
            Value::JsonList(_) | Value::List(_) => Ok(Self::List { list: value.clone(), at: 0 }),
            Value::JsonMap(map) => Ok(Self::Json(map.keys())),
            Value::Map(map) => Ok(Self::Map { map: Arc::clone(map), last: None }),
            other => Err(EvalProblem::NotIterable(other.type_name())),
        }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        use std::ops::Bound::{Excluded, Unbounded};
        match self {
            Self::List { list, at } => {
                let value = list.element(*at)?;
                *at += 1;
                Some(value)
            }
            Self::Json(keys) => keys.next().map(|key| Value::String(crate::value::Text::Borrowed(key))),
            Self::Map { map, last } => {
                let next = match last.take() {
                    None => map.keys().next(),
                    Some(key) => map.range((Excluded(key), Unbounded)).next().map(|(key, _)| key),
                }?
                .clone();
                *last = Some(next.clone());
                Some(Value::from(&next))
            }
        }
    }
}

/// A field of a map; of an optional, the field of its value, as an optional again.
fn select<'a>(operand: &Value<'a>, field: &Arc<str>, mode: Mode) -> Result<Value<'a>, EvalProblem> {
    let (container, optional) = match operand {
        Value::Optional(None) if mode == Mode::Has => return Ok(Value::Bool(false)),
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => (&**value, true),
        other => (other, mode == Mode::Optional),
    };
    let found = match container {
        Value::JsonMap(map) => map.get(&**field).map(Value::from),
        Value::Map(map) => map.get(&Key::String(crate::value::Text::Shared(Arc::clone(field)))).cloned(),
        Value::JsonList(_) | Value::List(_) => return Err(EvalProblem::NoSuchField(Arc::clone(field))),
        _ => None,
    };
    match (found, mode) {
        (found, Mode::Has) => Ok(Value::Bool(found.is_some())),
        (found, _) if optional => Ok(Value::Optional(found.map(Arc::new))),
        (found, _) => found.ok_or_else(|| EvalProblem::NoSuchField(Arc::clone(field))),
    }
}

/// What is at an index of a list or at a key of a map; of an optional, that of its value, as an optional again.
fn at_index<'a>(operand: &Value<'a>, index: &Value<'a>, optional: bool) -> Result<Value<'a>, EvalProblem> {
    let (container, optional) = match operand {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => (&**value, true),
        other => (other, optional),
    };
    let (found, problem) = match container {
        Value::JsonList(_) | Value::List(_) => {
            let at = index.as_integer().ok_or_else(|| EvalProblem::NoSuchOverload("_[_]".into()))?;
            (usize::try_from(at).ok().and_then(|at| container.element(at)), EvalProblem::OutOfRange)
        }
        other => (other.entry(index), EvalProblem::NoSuchKey),
    };
    if optional { Ok(Value::Optional(found.map(Arc::new))) } else { found.ok_or(problem) }
}
