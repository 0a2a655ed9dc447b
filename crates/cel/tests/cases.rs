//! What cel-go answered in Flux's environment, against what this crate answers. `oracle/main.go` wrote the answers.

use roadstead_cel::{CelError, Expression};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Cases {
    variables: Map<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    expression: String,
    result: String,
}

/// What this crate does not have, or has and cel-go does not; with what it answers. Its documentation names them.
const DIFFERENCES: &[(&str, &str)] = &[
    // Only booleans, integers and strings are keys, as the language has it; cel-go without a checker takes all.
    ("{1.5:'a'}[1.5] == 'a'", "error"),
    ("{null:1} == {}", "error"),
    // Only literals are converted while parsing; converting a list or a type fails when it is evaluated.
    ("string([1]) == ''", "error"),
    ("string(type(1)) == 'int'", "error"),
    // A later version of cel-go has it.
    ("status.l.existsOne(x, x == 2)", "true"),
    ("google.protobuf.Int32Value{value: 1} == 1", "parse"),
    ("'%s'.format(['a']) == 'a'", "error"),
];

fn answer(expression: &str, variables: &[(&str, &Value)]) -> &'static str {
    match Expression::parse(expression).and_then(|expression| expression.evaluate_bool(variables)) {
        Ok(true) => "true",
        Ok(false) => "false",
        Err(CelError::Parse { .. }) => "parse",
        Err(CelError::Evaluate { .. }) => "error",
        Err(CelError::NotBoolean { .. }) => "other",
        Err(CelError::Cost { .. }) => "cost",
    }
}

#[test]
fn the_answers_are_those_of_cel_go() {
    let cases: Cases = serde_json::from_str(include_str!("cases.json")).unwrap();
    let variables: Vec<_> = cases.variables.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let mut wrong = Vec::new();
    for case in &cases.cases {
        let known = DIFFERENCES.iter().find(|(expression, _)| *expression == case.expression);
        let want = known.map_or(case.result.as_str(), |(_, answer)| answer);
        let got = answer(&case.expression, &variables);
        if got != want {
            wrong.push(format!("{:?}: {got}, not {want}", case.expression));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
