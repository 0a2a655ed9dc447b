//! Values as JSON, for those who go on with what an expression came to.

use serde_json::{Map, Number, Value as Json};

use crate::budget::Budget;
use crate::error::{Answer, EvalProblem};
use crate::value::{Key, Value};

/// The value as JSON; what is copied is counted.
pub(crate) fn of(value: &Value<'_>, budget: &mut Budget) -> Answer<Json> {
    budget.values(1)?;
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) => Number::from_f64(*value).map(Json::Number).ok_or_else(|| none("double"))?,
        Value::String(text) => {
            budget.bytes(text.len())?;
            Json::String((**text).to_owned())
        }
        Value::JsonList(list) => {
            Json::Array(list.iter().map(|item| of(&item.into(), budget)).collect::<Answer<_>>()?)
        }
        Value::JsonMap(map) => {
            let entries = map.iter().map(|(key, value)| entry(key, &value.into(), budget));
            Json::Object(entries.collect::<Answer<Map<_, _>>>()?)
        }
        Value::List(list) => Json::Array(list.iter().map(|item| of(item, budget)).collect::<Answer<_>>()?),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| match key {
                Key::String(key) => entry(key, value, budget),
                _ => Err(none("map with other keys than strings").into()),
            });
            Json::Object(entries.collect::<Answer<Map<_, _>>>()?)
        }
        Value::Bytes(_) | Value::Optional(_) | Value::Timestamp(_) | Value::Duration(_) | Value::Type(_) => {
            return Err(none(value.type_name()).into());
        }
    })
}

fn entry(key: &str, value: &Value<'_>, budget: &mut Budget) -> Answer<(String, Json)> {
    budget.bytes(key.len())?;
    Ok((key.to_owned(), of(value, budget)?))
}

fn none(from: &'static str) -> EvalProblem {
    EvalProblem::Conversion { from, to: "JSON" }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{CelError, Expression};

    fn made(text: &str, claims: &Value) -> Result<Value, CelError> {
        Expression::parse(text)?.evaluate_json(&[("claims", claims)], 1)
    }

    #[test]
    fn what_json_has_comes_out() {
        let claims = json!({ "sub": "repo:a/b", "groups": ["x", { "y": [1, null] }], "n": 1.5 });
        for (text, expected) in [
            ("claims", claims.clone()),
            ("claims.sub.split(':')[1]", json!("a/b")),
            (
                "{'a': [claims.n, 2, -1, 3u, true, null], 'b': claims.groups}",
                json!({ "a": [1.5, 2, -1, 3, true, null], "b": claims["groups"] }),
            ),
        ] {
            assert_eq!(made(text, &claims), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_json_has_not_and_what_is_too_much_is_an_error() {
        for text in ["duration('1h')", "type(1)", "b'x'", "{1: 2}", "[{true: 1}]", "0.0 / 0.0", "claims.?x"] {
            assert!(matches!(made(text, &json!({})), Err(CelError::Evaluate { .. })), "{text}");
        }
        let large = json!({ "a": vec!["x".repeat(1000); 1000] });
        let twenty = "[claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, \
                      claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims, claims]";
        assert!(matches!(made(twenty, &large), Err(CelError::Cost { .. })));
    }
}
