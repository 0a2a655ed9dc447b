//! Operators on two values, and negation.

use std::sync::Arc;

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::function::is_in;
use crate::node::Operator;
use crate::time;
use crate::value::{Value, equal, order};

/// Applies an operator.
pub(crate) fn apply<'a>(
    operator: Operator,
    left: &Value<'a>,
    right: &Value<'a>,
    budget: &mut Budget,
) -> Answer<Value<'a>> {
    let mut compare = |holds: fn(std::cmp::Ordering) -> bool| {
        order(left, right, operator.name(), budget).map(|order| Value::Bool(holds(order)))
    };
    match operator {
        Operator::Equal => equal(left, right, budget).map(Value::Bool),
        Operator::NotEqual => equal(left, right, budget).map(|equal| Value::Bool(!equal)),
        Operator::Less => compare(std::cmp::Ordering::is_lt),
        Operator::LessEqual => compare(std::cmp::Ordering::is_le),
        Operator::Greater => compare(std::cmp::Ordering::is_gt),
        Operator::GreaterEqual => compare(std::cmp::Ordering::is_ge),
        Operator::In => within(left, right, budget),
        Operator::Add => match joined(left, right, budget)? {
            Some(value) => Ok(value),
            None => Ok(arithmetic(operator, left, right)?),
        },
        _ => Ok(arithmetic(operator, left, right)?),
    }
}

/// `-`, before a value.
pub(crate) fn negate<'a>(value: &Value<'a>) -> Result<Value<'a>, EvalProblem> {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or(EvalProblem::Overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(duration) => time::in_range(duration.checked_neg()),
        _ => Err(EvalProblem::NoSuchOverload("-_".into())),
    }
}

fn within<'a>(value: &Value<'a>, container: &Value<'a>, budget: &mut Budget) -> Answer<Value<'a>> {
    match container {
        Value::JsonList(_) | Value::List(_) => is_in(value, container, budget).map(Value::Bool),
        Value::JsonMap(_) | Value::Map(_) => Ok(Value::Bool(container.entry(value).is_some())),
        _ => Err(EvalProblem::NoSuchOverload(Operator::In.name().into()).into()),
    }
}

/// Strings, bytes and lists, one after the other.
fn joined<'a>(left: &Value<'a>, right: &Value<'a>, budget: &mut Budget) -> Answer<Option<Value<'a>>> {
    Ok(Some(match (left, right) {
        (Value::String(left), Value::String(right)) => {
            budget.bytes(2 * (left.len() + right.len()))?;
            Value::text([&**left, &**right].concat())
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.bytes(2 * (left.len() + right.len()))?;
            Value::Bytes(Arc::from([&**left, &**right].concat()))
        }
        _ => {
            let (Some(first), Some(second)) = (left.list_len(), right.list_len()) else { return Ok(None) };
            budget.list(first + second)?;
            budget.steps(crate::budget::as_u64(first + second))?;
            let elements = |list: &Value<'a>, count| (0..count).filter_map(|at| list.element(at)).collect();
            let mut values: Vec<Value<'a>> = elements(left, first);
            let more: Vec<Value<'a>> = elements(right, second);
            values.extend(more);
            Value::list(values)
        }
    }))
}

/// Arithmetic on two numbers of the same type, on durations and on timestamps.
fn arithmetic<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, EvalProblem> {
    let found = match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            divisor(operator, *right == 0)?;
            Value::Int(
                match operator {
                    Operator::Add => left.checked_add(*right),
                    Operator::Subtract => left.checked_sub(*right),
                    Operator::Multiply => left.checked_mul(*right),
                    Operator::Divide => left.checked_div(*right),
                    _ => left.checked_rem(*right),
                }
                .ok_or(EvalProblem::Overflow)?,
            )
        }
        (Value::Uint(left), Value::Uint(right)) => {
            divisor(operator, *right == 0)?;
            Value::Uint(
                match operator {
                    Operator::Add => left.checked_add(*right),
                    Operator::Subtract => left.checked_sub(*right),
                    Operator::Multiply => left.checked_mul(*right),
                    Operator::Divide => left.checked_div(*right),
                    _ => left.checked_rem(*right),
                }
                .ok_or(EvalProblem::Overflow)?,
            )
        }
        (Value::Double(left), Value::Double(right)) if operator != Operator::Modulo => {
            Value::Double(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                _ => left / right,
            })
        }
        _ => {
            let time = match operator {
                Operator::Add => time::sum(left, right, false)?,
                Operator::Subtract => time::sum(left, right, true)?,
                _ => None,
            };
            time.ok_or_else(|| EvalProblem::NoSuchOverload(operator.name().into()))?
        }
    };
    Ok(found)
}

fn divisor(operator: Operator, zero: bool) -> Result<(), EvalProblem> {
    if zero && matches!(operator, Operator::Divide | Operator::Modulo) {
        return Err(EvalProblem::DivisionByZero);
    }
    Ok(())
}
