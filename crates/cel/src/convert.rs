//! Conversions from one type to another.

use std::sync::Arc;

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::function::Function;
use crate::time;
use crate::value::{Value, exact};

/// What reading a date or a duration takes beyond reading its bytes.
const DATE_STEPS: u64 = 16;

/// Converts a value to the type that a function is named after.
pub(crate) fn convert<'a>(function: Function, value: &Value<'a>, budget: &mut Budget) -> Answer<Value<'a>> {
    use Function as F;
    // To read it, and to write it, which is never longer by more than this.
    let length = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 64,
    };
    budget.bytes(length)?;
    if matches!(function, F::Timestamp | F::Duration) {
        budget.steps(DATE_STEPS)?;
    }
    let (found, to) = match function {
        F::Bool => (to_bool(value), "bool"),
        F::Bytes => (to_bytes(value), "bytes"),
        F::Double => (to_double(value), "double"),
        F::Int => (to_int(value)?, "int"),
        F::Uint => (to_uint(value)?, "uint"),
        F::String => (to_string(value), "string"),
        F::Timestamp => (time::to_timestamp(value)?, "google.protobuf.Timestamp"),
        _ => (time::to_duration(value), "google.protobuf.Duration"),
    };
    found.ok_or_else(|| EvalProblem::Conversion { from: value.type_name(), to }.into())
}

fn to_bool<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(match value {
        Value::Bool(value) => *value,
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => true,
            "0" | "f" | "F" | "FALSE" | "false" | "False" => false,
            _ => return None,
        },
        _ => return None,
    }))
}

fn to_bytes<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    match value {
        Value::Bytes(_) => Some(value.clone()),
        Value::String(text) => Some(Value::Bytes(Arc::from(text.as_bytes()))),
        _ => None,
    }
}

fn to_double<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    #[expect(clippy::cast_precision_loss, reason = "the conversion is for that")]
    Some(Value::Double(match value {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        // Out of range is an error in Go, and infinity here.
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) if number.is_finite() || !text.bytes().any(|byte| byte.is_ascii_digit()) => number,
            _ => return None,
        },
        _ => return None,
    }))
}

/// The whole part of a number, where it is within what 64 bits reach at all.
fn truncated(number: f64) -> Result<i128, EvalProblem> {
    exact(number.trunc()).ok_or(EvalProblem::Overflow)
}

fn to_int<'a>(value: &Value<'a>) -> Result<Option<Value<'a>>, EvalProblem> {
    Ok(Some(Value::Int(match value {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| EvalProblem::Overflow)?,
        Value::Double(value) => {
            let whole = i64::try_from(truncated(*value)?).map_err(|_| EvalProblem::Overflow)?;
            // The least is refused as the greatest is, which a floating-point number cannot hold.
            if whole == i64::MIN { return Err(EvalProblem::Overflow) } else { whole }
        }
        Value::String(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return Ok(None),
        },
        Value::Timestamp(moment) => moment.second(),
        Value::Duration(duration) => i64::try_from(duration.as_nanos()).map_err(|_| EvalProblem::Overflow)?,
        _ => return Ok(None),
    })))
}

fn to_uint<'a>(value: &Value<'a>) -> Result<Option<Value<'a>>, EvalProblem> {
    Ok(Some(Value::Uint(match value {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| EvalProblem::Overflow)?,
        Value::Double(value) if *value < 0.0 => return Err(EvalProblem::Overflow),
        Value::Double(value) => u64::try_from(truncated(*value)?).map_err(|_| EvalProblem::Overflow)?,
        // Go takes no sign here.
        Value::String(text) if !text.starts_with('+') => match text.parse() {
            Ok(number) => number,
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    })))
}

fn to_string<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    Some(match value {
        Value::String(_) => value.clone(),
        Value::Bool(value) => Value::text(if *value { "true" } else { "false" }),
        Value::Int(value) => Value::text(value.to_string()),
        Value::Uint(value) => Value::text(value.to_string()),
        Value::Double(value) => Value::text(short(*value)),
        Value::Bytes(bytes) => Value::text(std::str::from_utf8(bytes).ok()?),
        Value::Timestamp(moment) => Value::text(moment.to_string()),
        Value::Duration(duration) => Value::text(time::seconds(*duration)),
        _ => return None,
    })
}

/// A floating-point number as Go's `%g` writes it: with an exponent where that is below -4, or 6 and more.
fn short(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}
