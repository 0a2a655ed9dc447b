//! Random objects and variables, and what Flux's own substitution made of them: `oracle/` made `flux.json`.

use std::path::PathBuf;

use roadstead_finish::{Substitution, Variables};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    object: Value,
    variables: std::collections::BTreeMap<String, String>,
    strict: bool,
    result: Option<Value>,
    error: Option<String>,
}

/// What Flux does that nobody wants: it cuts characters in halves, which YAML then refuses or, where it was half of a replacement,
/// passes on.
fn is_known(error: &str) -> bool {
    error.contains("a substring ends within a character")
}

/// A key that is a number or a boolean to YAML stays here as it is written: `0x1F` does not become `31`.
fn differs_in_keys(made: &Value, flux: &Value) -> bool {
    let values =
        |object: &Value| object["data"].as_object().map(|data| data.values().cloned().collect::<Vec<_>>());
    let (Some(mut made), Some(mut flux)) = (values(made), values(flux)) else { return false };
    made.sort_by_key(ToString::to_string);
    flux.sort_by_key(ToString::to_string);
    made == flux
}

#[test]
fn as_flux_does() {
    let path = std::env::var_os("FINISH_CASES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/flux.json"), PathBuf::from);
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() >= 500);
    let mut different = Vec::new();
    for Case { object, variables, strict, result, error } in cases {
        let mut given = Variables::default();
        for (name, value) in &variables {
            given.set(name, value, true);
        }
        let made = Substitution { strict, ..Substitution::of(&given) }.apply(vec![object.clone()]);
        let same = match (&made, &result) {
            (Ok(made), Some(result)) => made[0].object == *result || differs_in_keys(&made[0].object, result),
            (Err(_), None) => true,
            (Err(error), Some(_)) => is_known(&error.to_string()),
            (Ok(_), None) => error.as_deref().is_some_and(|error| error.contains("unsupported map key")),
        };
        if !same {
            let made = made.map(|made| made[0].object.clone()).map_err(|error| error.to_string());
            different.push(format!(
                "{object} with {variables:?}, strict {strict}\n  Flux: {result:?} {error:?}\n  here: {made:?}"
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different[..different.len().min(12)].join("\n")
    );
}
