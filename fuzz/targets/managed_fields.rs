//! Fuzzes server-side apply: `[schema, live object, configuration, whether by force]` as JSON. Whatever they are, nothing
//! may panic, and what was applied once can be applied again.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_managed_fields::{OneVersion, Options, Schema, apply, update};
use serde_json::{Value, json};

const ALLOWANCE: Allowance = Allowance { bytes: 3_000, nanos: 50_000 };

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Ok([mut schema, live, config, force]) = serde_json::from_slice::<[Value; 4]>(bytes) else { return };
    // Every kind has metadata, where the managers are noted.
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.insert("metadata".to_owned(), json!({ "type": "object" }));
    }
    let schema = Schema::new(&schema);
    let versions = OneVersion { api_version: "v1", schema: &schema };
    let options = |manager, force| Options { manager, api_version: "v1", force, ..Options::default() };
    let force = force == Value::Bool(true);
    if let Ok(object) = apply(&live, &config, &options("kubectl", force), &versions) {
        let again = apply(&object, &config, &options("kubectl", force), &versions);
        assert!(again.is_ok(), "{again:?}");
    }
    let mut after = config;
    let _ = update(&live, &mut after, &options("other", force), &versions);
}));
