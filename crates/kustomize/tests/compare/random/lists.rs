//! Lists of a kind of its own that are merged by one to four keys, with elements that lack some of them or are none.

use super::{Files, Random};

const HEAD: &str = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

fn element(random: &mut Random, keys: &[&str], of_patch: bool) -> String {
    let mut entries: Vec<String> = match random.below(50) {
        0..3 => return "null".to_owned(),
        3..5 => return "{}".to_owned(),
        5 => return random.pick(&["a", "[a]", "1"]).to_owned(),
        _ => Vec::new(),
    };
    for key in keys {
        match random.below(50) {
            0..30 => entries.push(format!("{key}: {}", random.pick(&["v", "w", "u"]))),
            30..33 => entries.push(format!("{key}: \"\"")),
            33..35 => entries.push(format!("{key}: null")),
            35 => entries.push(format!("{key}: [q]")),
            _ => {}
        }
    }
    if random.one_in(2) {
        entries.push(format!("z: {}", random.below(10)));
    }
    if random.one_in(4) {
        let inner: Vec<String> =
            (0..random.below(3)).map(|_| element(random, &KEYS[..2], of_patch)).collect();
        entries.push(format!("inner: [{}]", inner.join(", ")));
    }
    if of_patch && random.one_in(7) {
        entries.push(format!("$patch: {}", random.pick(&["delete", "replace", "merge"])));
    }
    format!("{{{}}}", entries.join(", "))
}

fn list(random: &mut Random, keys: &[&str], of_patch: bool) -> String {
    if random.one_in(12) {
        return String::new();
    }
    let elements: Vec<String> = (0..random.below(6)).map(|_| element(random, keys, of_patch)).collect();
    format!("l: [{}]\n", elements.join(", "))
}

/// How a list of objects that have a list `inner` of their own is merged.
fn schema(keys: &[&str]) -> String {
    let merged = |keys: &[&str], items: &str| {
        let by = match keys {
            [key] => format!("\"x-kubernetes-patch-merge-key\": \"{key}\""),
            keys => format!("\"x-kubernetes-list-map-keys\": [\"{}\"]", keys.join("\", \"")),
        };
        format!(
            "{{\"type\": \"array\", \"items\": {items}, \"x-kubernetes-patch-strategy\": \"merge\", {by}}}"
        )
    };
    let inner = merged(&KEYS[..2], "{\"type\": \"object\"}");
    let list = merged(keys, &format!("{{\"type\": \"object\", \"properties\": {{\"inner\": {inner}}}}}"));
    let kind =
        "\"x-kubernetes-group-version-kind\": [{\"group\": \"\", \"version\": \"v1\", \"kind\": \"A\"}]";
    format!("{{\"definitions\": {{\"v1.A\": {{{kind}, \"properties\": {{\"l\": {list}}}}}}}}}\n")
}

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Files {
    let random = &mut Random::new(seed);
    let keys = &KEYS[..1 + random.below(KEYS.len())];
    let kustomization = "resources: [o.yaml]\nopenapi: {path: s.json}\npatches: [{path: p.yaml}]\n";
    [
        ("s.json", schema(keys)),
        ("o.yaml", HEAD.to_owned() + &list(random, keys, false)),
        ("p.yaml", HEAD.to_owned() + &list(random, keys, true)),
        ("kustomization.yaml", kustomization.to_owned()),
    ]
    .map(|(path, text)| (path.to_owned(), text))
    .into()
}
