//! What holds for any object, any schema and any managers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use roadstead_managed_fields::{
    Error, Managers, OneVersion, Options, PathElement, Schema, Set, apply, update,
};
use serde_json::{Value, json};

const VERSION: &str = "oracle.roadstead.dev/v1";

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let all: Value = serde_json::from_str(include_str!("../oracle/schemas.json")).unwrap();
    Schema::new(&all["v1"])
});

fn versions() -> OneVersion<'static> {
    OneVersion { api_version: VERSION, schema: &SCHEMA }
}

fn options(manager: &str, force: bool) -> Options<'_> {
    Options { manager, api_version: VERSION, excluded: &["status"], force, ..Options::default() }
}

/// Any JSON, made of few words, so that they meet.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        "[a-c<&\"\u{e9}\\\\:]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![
            Just("spec".to_owned()),
            Just("items".to_owned()),
            Just("name".to_owned()),
            Just("f:spec".to_owned()),
            Just(".".to_owned()),
            Just("k:{\"name\":\"a\"}".to_owned()),
            Just("v:1".to_owned()),
            "[a-cfkvi:.<]{0,3}",
        ];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A spec that fits the schema, without empty lists and objects at any depth: what is empty is not a field, or becomes null,
/// in the original too, so that whoever applies it after something full loses it first and gets it the second time.
fn spec() -> impl Strategy<Value = Value> {
    let text = || "[a-c]{1}";
    let item =
        (text(), proptest::option::of(text()), vec(text(), 0..3)).prop_map(|(name, value, mut tags)| {
            tags.sort();
            tags.dedup();
            let mut item = json!({ "name": name, "value": value, "tags": tags });
            item.as_object_mut().unwrap().retain(|_, value| *value != json!([]) && !value.is_null());
            item
        });
    let items = vec(item, 0..4).prop_map(|mut items| {
        items.sort_by_key(|item| item["name"].to_string());
        items.dedup_by_key(|item| item["name"].to_string());
        items
    });
    let texts = btree_map(text(), text(), 0..3);
    (items, texts.clone(), texts, vec(text(), 0..3), proptest::option::of(text())).prop_map(
        |(items, texts, whole, list, text)| {
            let mut spec = json!({ "items": items, "texts": texts, "atomicTexts": whole, "list": list });
            if let Some(text) = text {
                spec["text"] = text.into();
            }
            spec.as_object_mut().unwrap().retain(|_, value| *value != json!([]) && *value != json!({}));
            spec
        },
    )
}

fn object(spec: &Value) -> Value {
    json!({ "apiVersion": VERSION, "kind": "Thing", "metadata": { "name": "one" }, "spec": spec })
}

/// A set of fields.
fn set() -> impl Strategy<Value = Set> {
    let element = prop_oneof![
        "[a-d<.:]{0,3}".prop_map(PathElement::Field),
        json().prop_map(PathElement::Value),
        btree_map("[a-c]{1,2}", json(), 1..3).prop_map(|map| PathElement::Key(map.into_iter().collect())),
        any::<i64>().prop_map(PathElement::Index),
    ];
    vec(vec(element, 1..4), 0..8).prop_map(|paths| {
        let mut set = Set::default();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn applying_again_changes_nothing(first in spec(), other in spec(), mine in spec()) {
        let live = apply(&json!({}), &object(&first), &options("a", false), &versions()).unwrap();
        let mut after = object(&other);
        update(&live, &mut after, &options("b", false), &versions()).unwrap();
        let once = apply(&after, &object(&mine), &options("a", true), &versions()).unwrap();
        let again = apply(&once, &object(&mine), &options("a", false), &versions()).unwrap();
        prop_assert_eq!(once, again);
    }

    #[test]
    fn who_applies_gets_what_they_say_and_keeps_what_others_own(first in spec(), second in spec()) {
        let live = apply(&json!({}), &object(&first), &options("a", false), &versions()).unwrap();
        match apply(&live, &object(&second), &options("b", false), &versions()) {
            Ok(object) => {
                for (key, value) in object["spec"]["texts"].as_object().into_iter().flatten() {
                    let of = |spec: &Value| spec["texts"].get(key).cloned();
                    prop_assert_eq!(Some(value.clone()), of(&second).or_else(|| of(&first)));
                }
                prop_assert!(second["text"].is_null() || object["spec"]["text"] == second["text"]);
            }
            Err(Error::Conflicts(conflicts)) => prop_assert!(conflicts.0.iter().all(|c| c.manager() == "a")),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn sets_come_back_as_they_went(set in set()) {
        let text = set.to_json().to_string();
        let back = Set::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(back.to_json(), set.to_json());
        prop_assert_eq!(back, set);
    }

    #[test]
    fn sets_are_sets(a in set(), b in set()) {
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.clone().union(&b), b.clone().union(&a));
        prop_assert!(a.paths().iter().all(|path| a.has(&path.0)));
    }

    #[test]
    fn nothing_panics(schema in json(), live in json(), config in json(), entries in json(), force in any::<bool>()) {
        let schema = Schema::new(&schema);
        for schema in [&schema, &*SCHEMA] {
            let versions = OneVersion { api_version: VERSION, schema };
            let mut live = object(&live);
            live["metadata"]["managedFields"] = json!([{ "manager": "x", "operation": "Apply", "apiVersion": VERSION,
                "fieldsType": "FieldsV1", "fieldsV1": entries }]);
            let config = object(&config);
            let _ = apply(&live, &config, &options("kubectl", force), &versions);
            let mut after = config;
            let _ = update(&live, &mut after, &options("y", force), &versions);
            let _ = Managers::decode(Some(&entries));
            let _ = Set::from_json(&entries);
        }
    }
}

#[test]
fn depth_and_numbers_are_bounded() {
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let error = apply(&json!({}), &object(&json!({ "anything": deep })), &options("a", false), &versions());
    assert!(matches!(error, Err(Error::BadRequest(_))), "{error:?}");
    let mut live = json!({});
    for n in 0..=256 {
        let config = object(&json!({ "text": "same" }));
        match apply(&live, &config, &options(&format!("m{n}"), false), &versions()) {
            Ok(object) => live = object,
            Err(error) => {
                assert_eq!((n, error.to_string().contains("256")), (256, true), "{error}");
                return;
            }
        }
    }
    panic!("257 managers were taken");
}
