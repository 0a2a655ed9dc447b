//! The YAML writer's output reads back as the value that was written.

use proptest::prelude::*;
use roadstead_kustomize::Limits;
use roadstead_kustomize::value::{Map, NullForm, Num, Number, Str, Value};
use roadstead_kustomize::yaml::{Dialect, read_documents, write_document};

fn text() -> impl Strategy<Value = String> {
    // go-yaml 2 writes `0o-7` as text, and go-yaml 3 reads it as a number; so do we.
    any_text().prop_filter("no octal number with a sign in it", |text| {
        !text.contains("0o-") && !text.contains("0o+")
    })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9 :#'\"?,*&!|>%@`{}\\[\\]\\\\-]{0,20}",
        "[ -~\n]{0,120}",
        "[0-9._:xobeE+-]{1,8}",
        "(y|n|yes|no|on|off|true|null|~|\\.inf|<<|=)",
        // Line separators of Unicode are breaks for the writer's rules (YAML 1.1) and text for the reader's (1.2).
        "[^\u{2028}\u{2029}\u{85}\u{feff}\r]{0,30}",
    ]
}

/// go-yaml writes the key `<<` plain, so that it reads back as a merge; so do we.
fn key() -> impl Strategy<Value = String> {
    text().prop_filter("no merge key", |key| key != "<<")
}

fn value() -> impl Strategy<Value = Value> {
    let number = |text: String, num| Value::Number(Number { text: text.into(), num });
    let leaf = prop_oneof![
        Just(Value::Null(NullForm::Written)),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::int),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(move |f| number(f.to_string(), Num::Float(f))),
        text().prop_map(Value::string),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| Value::List(items.into())),
            prop::collection::vec((key(), inner), 0..6).prop_map(|entries| {
                Value::Map(entries.into_iter().map(|(k, v)| (Str::from(k), v)).collect::<Map>())
            }),
        ]
    })
}

/// Does a plain scalar of it mean something else in YAML 1.2?
fn differs(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("0o") || text.contains("0o"),
        Value::List(items) => items.iter().any(differs),
        Value::Map(map) => map.iter().any(|(key, value)| key.contains("0o") || differs(value)),
        Value::Null(_) | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Numbers as floats: parsers differ in which of them they take for integers.
fn numbers(json: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match json {
        Json::Number(number) => number.as_f64().into(),
        Json::Array(items) => items.iter().map(numbers).collect(),
        Json::Object(map) => {
            map.iter().map(|(k, v)| (k.clone(), numbers(v))).collect::<serde_json::Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_written_reads_back(value in value()) {
        let mut out = String::new();
        write_document(&mut out, &value);
        let documents = read_documents(out.as_bytes(), Dialect::Object, &Limits::default());
        let documents = documents.map_err(|e| TestCaseError::fail(format!("{e:?} in\n{out}")))?;
        let read = documents.first().map_or(serde_json::Value::Null, |d| d.value.to_json());
        prop_assert_eq!(read, value.to_json(), "{}", out);
    }

    /// The same with a parser that shares no code with ours. Its rules for plain scalars are those of YAML 1.2, and those
    /// of the program that we write like are of 1.1: texts that only 1.2 takes for something else are left out.
    #[test]
    fn what_is_written_reads_back_elsewhere(value in value()) {
        prop_assume!(!differs(&value));
        let mut out = String::new();
        write_document(&mut out, &value);
        let read: Result<serde_json::Value, _> = serde_saphyr::from_str(&out);
        let read = read.map_err(|e| TestCaseError::fail(format!("{e} in\n{out}")))?;
        prop_assert_eq!(numbers(&read), numbers(&value.to_json()), "{}", out);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,200}") {
        let _ = read_documents(text.as_bytes(), Dialect::Object, &Limits::default());
    }
}
