//! What substitution does beside what Flux's own cases tell: marks, messages, bounds.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use roadstead_finish::{Error, Finished, Limits, Substitution, Variables};
use serde_json::{Value, json};

fn variables(values: &[(&str, &str)], secrets: &[(&str, &str)]) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in values {
        variables.set(*name, value, false);
    }
    for (name, value) in secrets {
        variables.set(*name, value, true);
    }
    variables
}

#[expect(clippy::needless_pass_by_value, reason = "each caller makes one")]
fn object(data: Value) -> Value {
    json!({ "kind": "ConfigMap", "metadata": { "namespace": "apps", "name": "web" }, "data": data })
}

fn apply(variables: &Variables, data: Value) -> Result<Finished, Error> {
    Ok(Substitution::of(variables).apply(vec![object(data)])?.remove(0))
}

#[test]
fn what_holds_the_value_of_a_secret_is_marked() {
    let variables =
        variables(&[("plain", "p"), ("key", "k")], &[("token", "t0k3n"), ("map", "{a: 1, b: 2}")]);
    let marks = |data: Value| apply(&variables, data).unwrap().secret;
    assert_eq!(marks(json!({ "a": "${plain}", "b": "x" })), [""; 0]);
    assert_eq!(
        marks(json!({ "a": "x ${token^^}", "b": ["${plain}", "${token}"] })),
        ["/data/a", "/data/b/1"]
    );
    // Also where nothing of it came out.
    assert_eq!(marks(json!({ "a/b": "${token:50}", "c": "${none:=${token}}" })), ["/data/a~1b", "/data/c"]);
    // A value that became a mapping is secret with all that is in it; a key marks what it is a key of.
    assert_eq!(marks(json!({ "a": "${map}" })), ["/data/a"]);
    assert_eq!(marks(json!({ "${token}": "x" })), ["/data"]);
    // A name that is not the same any more.
    assert_eq!(marks(json!({ "${key}": { "a": "${token}" } })), ["/data"]);
}

#[test]
fn what_was_decrypted_stays_marked_and_is_not_told() {
    let variables = variables(&[("plain", "p"), ("map", "{a: 1}")], &[("token", "t0k3n")]);
    let marked = |data: Value, secret: &[&str]| {
        let secret = secret.iter().map(|pointer| (*pointer).to_owned()).collect();
        Substitution::of(&variables).apply(vec![Finished { object: object(data).into(), secret }])
    };
    let marks = |data, secret: &[&str]| marked(data, secret).unwrap().remove(0).secret;
    assert_eq!(marks(json!({ "a": "x", "b": "y" }), &["/data/a"]), ["/data/a"]);
    assert_eq!(marks(json!({ "a": "${plain}", "b": "${token}" }), &["/data/a"]), ["/data/a", "/data/b"]);
    // Its name is another one now.
    assert_eq!(marks(json!({ "${plain}": "hush" }), &["/data/${plain}"]), ["/data"]);
    let says = |data, secret: &[&str]| marked(data, secret).unwrap_err().to_string();
    let text = says(json!({ "a": "x${hush", "b": "${plain}" }), &["/data/a"]);
    assert!(text.contains("missing closing brace") && !text.contains("hush"), "{text}");
    let text = says(json!({ "a": "x${hush}", "b": "${open}" }), &["/data/a"]);
    assert!(
        text.contains("\"open\"") && text.contains("decrypted value") && !text.contains("hush"),
        "{text}"
    );
    let text = says(json!({ "a": "hush: {", "b": "${map}${map}" }), &["/data/a"]);
    assert!(text.ends_with("it is not YAML") && !text.contains("hush"), "{text}");
}

#[test]
fn an_object_can_be_left_as_it_is() {
    let variables = variables(&[("a", "1")], &[]);
    for map in ["labels", "annotations"] {
        let mut left = object(json!({ "a": "${a}", "b": "$$" }));
        left["metadata"][map] = json!({ "kustomize.toolkit.fluxcd.io/substitute": "Disabled" });
        let finished = Substitution::of(&variables).apply(vec![left.clone()]).unwrap();
        assert_eq!(finished[0].object, left);
    }
}

#[test]
fn without_variables_nothing_is_done_unless_it_is_asked_for() {
    let none = Variables::default();
    let given = object(json!({ "a": "${a:=x}" }));
    assert_eq!(Substitution::of(&none).apply(vec![given.clone()]).unwrap()[0].object, given);
    let always = Substitution { always: true, ..Substitution::of(&none) };
    assert_eq!(always.apply(vec![given]).unwrap()[0].object, object(json!({ "a": "x" })));
}

#[test]
fn all_variables_that_are_not_set_are_named_at_once() {
    let variables = variables(&[("set", "1")], &[]);
    let objects = vec![
        object(json!({ "a": "${one} ${two:0:1} ${set}", "b": "${three:=x}" })),
        object(json!({ "a": "${set}" })),
        json!({ "kind": "Namespace", "metadata": { "name": "n" }, "spec": "${four/a/b}" }),
    ];
    let error = Substitution::of(&variables).apply(objects.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "variables are not set (strict mode): \"four\", \"one\", \"two\"; used in ConfigMap/apps/web and 1 more object"
    );
    let lenient = Substitution { strict: false, ..Substitution::of(&variables) };
    assert_eq!(lenient.apply(objects).unwrap()[0].object["data"]["a"], 1);
}

#[test]
fn what_is_wrong_is_told_without_what_is_secret() {
    let variables = variables(&[("plain", "a: b")], &[("token", "t0k3n: {")]);
    let says = |data: Value| apply(&variables, data).unwrap_err().to_string();
    let text = says(json!({ "a": "${token}" }));
    assert_eq!(
        text,
        "ConfigMap/apps/web: it is not a valid object after variable substitution: line 2: it is not YAML"
    );
    assert!(says(json!({ "a": "${plain}" })).contains("line 2: "));
    assert_eq!(
        says(json!({ "a": "x ${plain" })),
        "ConfigMap/apps/web: variable substitution failed: missing closing brace in '${plain'"
    );
    let secret =
        json!({ "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "a": "${b-t0k3n}" } });
    let error = Substitution::of(&variables).apply(vec![secret]).unwrap_err().to_string();
    assert_eq!(error, "Secret/s: variable substitution failed: missing closing brace in '${…'");
    let mut invalid = Variables::default();
    invalid.set("a-b", "1", false);
    let error = apply(&invalid, json!({})).unwrap_err().to_string();
    assert!(error.starts_with("variable name 'a-b' is invalid"), "{error}");
    assert!(!format!("{variables:?}").contains("t0k3n"));
    assert!(!format!("{:?}", apply(&variables, json!({ "a": "x" }))).contains('x'));
}

#[test]
fn what_would_grow_or_take_too_long_ends() {
    let long = "a".repeat(1 << 20);
    let variables = variables(&[("long", &long), ("b", "b")], &[]);
    let began = Instant::now();
    for text in [
        "${long}".repeat(1_000),
        "${long//a/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb}".to_owned(),
        format!("{}${{b}}", "${long//a/${long}}"),
        "${long%%*a*a*a*a*b}".repeat(10),
        format!("{}x{}", "${b:=".repeat(31), "}".repeat(31)).repeat(10_000),
        "${".repeat(1 << 20),
    ] {
        let error = apply(&variables, json!({ "a": text })).map(|_| ()).err();
        if let Some(error) = error {
            assert!(matches!(error, Error::TooMuch { .. } | Error::Malformed { .. }), "{error}");
        }
    }
    let many: Vec<_> = (0..100).map(|_| object(json!({ "a": "${long}" }))).collect();
    let bounded = Limits { bytes: 10 << 20, ..Limits::default() };
    let error = Substitution { limits: bounded, ..Substitution::of(&variables) }.apply(many).unwrap_err();
    assert!(matches!(error, Error::TooMuch { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn ten_thousand_variables() {
    let mut many = Variables::default();
    for index in 0..10_000 {
        many.set(format!("v{index}"), &index.to_string(), index % 2 == 0);
    }
    let data: Value =
        (0..10_000).map(|index| (format!("k{index}"), json!(format!("${{v{index}}}")))).collect();
    let finished = apply(&many, data).unwrap();
    assert_eq!(finished.object["data"]["k77"], 77);
    assert_eq!(finished.secret.len(), 5_000);
}

proptest! {
    #[test]
    fn nothing_panics(text in "(\\$\\{|\\$\\$|[}:=/#%^,a-c*?\\[\\]\\\\é0-9 -]){0,24}", value in "[a-cé/.0-9-]{0,8}") {
        let variables = variables(&[("a", &value)], &[("b", "x")]);
        let data = json!({ "k": text });
        let _ = apply(&variables, data.clone());
        let lenient = Substitution { strict: false, always: true, ..Substitution::of(&variables) };
        let _ = lenient.apply(vec![object(data)]);
    }
}
