//! What expressions answer, how their errors are worded, and that none makes the crate panic.

use proptest::prelude::*;
use roadstead_cel::Expression;
use serde_json::{Value, json};

fn evaluate(text: &str, variables: &[(&str, &Value)]) -> Result<bool, String> {
    Expression::parse(text)
        .and_then(|expression| expression.evaluate_bool(variables))
        .map_err(|error| error.to_string())
}

#[test]
fn errors_are_worded_as_in_flux() {
    let status = json!({ "n": 1 });
    for (text, want) in [
        ("status.", "failed to parse the CEL expression 'status.': 1:8: Syntax error"),
        ("status.n", "failed to evaluate CEL expression as boolean: 'status.n'"),
        ("status.x == 1", "failed to evaluate the CEL expression 'status.x == 1': no such key: x"),
        ("spec.x == 1", "failed to evaluate the CEL expression 'spec.x == 1': no such attribute: spec"),
        ("'a'.matches('(')", "failed to parse the CEL expression ''a'.matches('(')': error parsing regexp"),
    ] {
        let error = evaluate(text, &[("status", &status)]).unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn errors_say_nothing_of_what_is_in_the_object() {
    let data = json!({ "password": "hunter2", "list": ["hunter2"], "key": "hunter2", "(": "hunter2(" });
    for text in [
        "data.password",
        "data.password == 1 || data[data.password] == 1",
        "data.list[data.password] == 1",
        "data.password.matches(data['('])",
        "int(data.password) == 1",
        "duration(data.password) == duration('1s')",
        "timestamp(data.password) == timestamp(0)",
        "base64.decode(data.password + '!') == b''",
        "data.password + 1 == 'x'",
        "-data.password == 1",
        "data.password.charAt(99) == 'x'",
        "data.password.all(x, true)",
        "data.list.all(x, x)",
        "data.list.join(1) == 'x'",
        "{[1]: data.password} == {}",
        "data.password.nope()",
        "data.password.hunter()",
        "timestamp(0).getHours(data.password) == 1",
        "{data.password: 1}[data.key + 'x'] == 1",
    ] {
        let error = evaluate(text, &[("data", &data)]).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_long_expression_is_shortened_in_errors() {
    let text = format!("'{}' == 1 && missing", "x".repeat(5_000));
    assert!(evaluate(&format!("!({text})"), &[]).is_ok());
    let error = evaluate(&text.replace("==", "!="), &[]).unwrap_err();
    assert!(error.len() < 700 && error.contains('…'), "{error}");
}

#[test]
fn only_known_names_are_taken_where_they_are_given() {
    for good in
        ["self.a == dep.b", "self.all(x, x == self)", "type(self) == map", "has(dep.a) && size(dep) > 0"]
    {
        assert!(Expression::parse_over(good, &["self", "dep"]).is_ok(), "{good}");
    }
    for bad in ["other.a == 1", "self.all(x, y)", "unknown(self)", "self.unknown()", "x", "foo.bar(x)"] {
        let error = Expression::parse_over(bad, &["self", "dep"]).unwrap_err().to_string();
        assert!(error.contains("undeclared reference to"), "{error}");
    }
}

/// Parts of expressions, from which random ones are made that parse often enough.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "a.b",
        "a.l",
        "a.s",
        "a.m",
        "x",
        "y",
        "1",
        "-1",
        "2u",
        "1.5",
        "'s'",
        "''",
        "b'é'",
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "'héé✓'",
        "9223372036854775807",
        "-9223372036854775808",
        "0.0",
        "duration('1h')",
        "timestamp('9999-12-31T23:59:59Z')",
        "optional.none()",
        "int",
        "18446744073709551615u",
        "1e300",
        "'%d'",
        "'[a-'",
        "r'\\d+'",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 48, 4, |inner| {
        let two = (inner.clone(), inner.clone());
        let operators =
            prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"]);
        let calls = prop::sample::select(vec![
            "size",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "bool",
            "timestamp",
            "duration",
            "type",
            "charAt",
            "indexOf",
            "lastIndexOf",
            "join",
            "replace",
            "split",
            "substring",
            "trim",
            "reverse",
            "matches",
            "contains",
            "sets.contains",
            "sets.equivalent",
            "base64.encode",
            "base64.decode",
            "optional.of",
            "optional.ofNonZeroValue",
            "first",
            "last",
            "unwrapOpt",
            "getHours",
            "getDayOfYear",
            "getMilliseconds",
            "lowerAscii",
            "strings.quote",
            "hasValue",
            "value",
            "nothing",
        ]);
        let macros = prop::sample::select(vec![
            "all",
            "exists",
            "exists_one",
            "map",
            "filter",
            "optMap",
            "optFlatMap",
        ]);
        prop_oneof![
            (two.clone(), operators).prop_map(|((a, b), o)| format!("({a}) {o} ({b})")),
            (calls, prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(f, args)| format!("{f}({})", args.join(", "))),
            (two.clone(), macros).prop_map(|((a, b), m)| format!("({a}).{m}(x, {b})")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("(({a}) ? ({b}) : ({c}))")),
            two.clone().prop_map(|(a, b)| format!("({a})[{b}]")),
            two.clone().prop_map(|(a, b)| format!("({a})[?{b}].orValue({b})")),
            inner.clone().prop_map(|a| format!("({a}).b")),
            inner.clone().prop_map(|a| format!("({a}).?b.c")),
            inner.clone().prop_map(|a| format!("has(({a}).b)")),
            inner.clone().prop_map(|a| format!("!({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            two.prop_map(|(a, b)| format!("{{{a}: {b}, ?{b}: {a}}}")),
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(", "))),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = evaluate(&text, &[]);
    }

    #[test]
    fn no_text_of_few_characters_panics(text in "[a.b1u0xe'\"\\\\\\[\\](){}?:,+!<=&|*%/ \n\r-]{0,60}") {
        let _ = evaluate(&text, &[("a", &json!({ "b": [1, "x"] }))]);
    }

    #[test]
    fn no_expression_panics(text in expression()) {
        let a = json!({ "b": { "c": 1 }, "l": [1, 2.5, "x", null, {"b": 1}], "s": "héllo✓", "m": { "k": "v", "b": "w" } });
        let _ = evaluate(&text, &[("a", &a), ("y", &json!(-7))]);
        let _ = evaluate(&format!("({text}) == ({text}) || true"), &[("a", &a), ("y", &json!(-7))]);
    }
}
