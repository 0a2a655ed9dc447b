//! Prints the JSON schemas of the kinds that people write into files, by the names of the files, for `cargo xtask generate`.

use std::collections::BTreeMap;

use roadstead_api::{KINDS, schema};

fn main() {
    let mut schemas = BTreeMap::new();
    // Those of Kubernetes itself, and the one for tests, are nobody's to check by these.
    for kind in KINDS.iter().filter(|kind| !kind.builtin && kind.kind != "Rehearsal") {
        for version in kind.versions {
            let name = format!("{}/{}_{}.json", version.group, kind.kind.to_lowercase(), version.name);
            schemas.insert(name, schema::strict(kind, version));
        }
    }
    println!("{}", serde_json::json!(schemas));
}
