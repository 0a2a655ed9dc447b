//! Lists merged by several keys, as in [`super::lists`], whose elements hold scalars in many styles, mappings, lists and keys that
//! stand twice; with one to three patches, so that what one left in several places is changed by the next.

use super::{Files, Random};

const HEAD: &str = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
const SCALARS: [&str; 20] = [
    "1",
    "'1'",
    "\"1\"",
    "x",
    "\"x\"",
    "y",
    "yes",
    "'yes'",
    "~",
    "null",
    "",
    "''",
    "2020-01-02",
    "1.0",
    "true",
    "!!str 1",
    "!!int 1",
    "!!int '1'",
    "!!str yes",
    "!t x",
];

struct Writer<'r> {
    random: &'r mut Random,
    of_patch: bool,
}

impl Writer<'_> {
    fn scalar(&mut self) -> &'static str {
        let scalar = self.random.pick(&SCALARS);
        // In brackets, nothing is an entry of a mapping that is there.
        if scalar.is_empty() { "~" } else { scalar }
    }

    fn directive(&mut self, entries: &mut Vec<String>, times: usize) {
        if self.of_patch && self.random.one_in(times) {
            let at = self.random.below(entries.len() + 1);
            entries.insert(at, format!("$patch: {}", self.random.pick(&["delete", "replace", "merge"])));
        }
    }

    /// A key that stands twice now and then.
    fn entry(&mut self, entries: &mut Vec<String>, key: &str, value: impl Fn(&mut Self) -> String) {
        let times = if self.of_patch && self.random.one_in(30) { 2 } else { 1 };
        for _ in 0..times {
            entries.push(format!("{key}: {}", value(self)));
        }
    }

    fn mapping(&mut self, depth: usize) -> String {
        if self.random.one_in(6) {
            return "null".to_owned();
        }
        let mut entries = Vec::new();
        for key in ["x", "y"] {
            if self.random.one_in(2) {
                self.entry(&mut entries, key, |writer| writer.scalar().to_owned());
            }
        }
        if depth > 0 && self.random.one_in(3) {
            self.entry(&mut entries, "n", |writer| writer.mapping(depth - 1));
        }
        self.directive(&mut entries, 12);
        format!("{{{}}}", entries.join(", "))
    }

    fn element(&mut self, keys: &[&str], depth: usize) -> String {
        let mut entries: Vec<String> = match self.random.below(60) {
            0..2 => return "null".to_owned(),
            2..4 => return "{}".to_owned(),
            _ => Vec::new(),
        };
        for key in keys {
            match self.random.below(50) {
                0..30 => entries.push(format!("{key}: {}", self.random.pick(&["v", "w", "u"]))),
                30..33 => entries.push(format!("{key}: \"\"")),
                33..35 => entries.push(format!("{key}: null")),
                35 => entries
                    .push(format!("{key}: {}", self.random.pick(&["[q]", "{q: r}", "5", "'5'", "!!str v"]))),
                _ => {}
            }
        }
        if self.random.one_in(2) {
            self.entry(&mut entries, "z", |writer| writer.scalar().to_owned());
        }
        if self.random.one_in(3) {
            self.entry(&mut entries, "m", |writer| writer.mapping(1));
        }
        if self.random.one_in(6) {
            self.entry(&mut entries, "s", Self::scalars);
        }
        if self.random.one_in(8) {
            self.entry(&mut entries, "p", Self::scalars);
        }
        if depth > 0 && self.random.one_in(4) {
            self.entry(&mut entries, "inner", |writer| writer.elements(&KEYS[..2], depth - 1));
        }
        self.directive(&mut entries, 8);
        format!("{{{}}}", entries.join(", "))
    }

    fn scalars(&mut self) -> String {
        let scalars: Vec<&str> = (0..self.random.below(4)).map(|_| self.scalar()).collect();
        format!("[{}]", scalars.join(", "))
    }

    fn elements(&mut self, keys: &[&str], depth: usize) -> String {
        let elements: Vec<String> = (0..self.random.below(5)).map(|_| self.element(keys, depth)).collect();
        format!("[{}]", elements.join(", "))
    }

    fn list(&mut self, keys: &[&str]) -> String {
        match self.random.below(12) {
            0 => String::new(),
            1..6 => {
                let elements = (0..1 + self.random.below(4)).map(|_| self.element(keys, 2));
                elements.fold("l:\n".to_owned(), |list, element| format!("{list}- {element}\n"))
            }
            _ => format!("l: {}\n", self.elements(keys, 2)),
        }
    }
}

/// How lists are merged, by how many of the keys.
fn schema(keys: &[&str]) -> String {
    let merged = |keys: &[&str], items: &str| {
        format!(
            "{{\"type\": \"array\", \"items\": {items}, \"x-kubernetes-patch-strategy\": \"merge\", \
             \"x-kubernetes-list-map-keys\": [\"{}\"]}}",
            keys.join("\", \"")
        )
    };
    let of = |inner: &str| {
        format!(
            "{{\"type\": \"object\", \"properties\": {{\"inner\": {inner}, \"s\": {{\"type\": \"array\", \"items\": \
             {{\"type\": \"string\"}}, \"x-kubernetes-patch-strategy\": \"merge\"}}}}}}"
        )
    };
    let innermost = merged(&KEYS[..2], "{\"type\": \"object\"}");
    let list = merged(keys, &of(&merged(&KEYS[..2], &of(&innermost))));
    let kind =
        "\"x-kubernetes-group-version-kind\": [{\"group\": \"\", \"version\": \"v1\", \"kind\": \"A\"}]";
    format!("{{\"definitions\": {{\"v1.A\": {{{kind}, \"properties\": {{\"l\": {list}}}}}}}}}\n")
}

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Files {
    let random = &mut Random::new(seed);
    let keys = &KEYS[..1 + random.below(KEYS.len())];
    let mut writer = Writer { random, of_patch: false };
    let mut files: Files =
        vec![("s.json".into(), schema(keys)), ("o.yaml".into(), HEAD.to_owned() + &writer.list(keys))];
    let mut kustomization = "resources: [o.yaml]\nopenapi: {path: s.json}\npatches:\n".to_owned();
    writer.of_patch = true;
    for i in 0..1 + writer.random.below(3) {
        files.push((format!("p{i}.yaml"), HEAD.to_owned() + &writer.list(keys)));
        kustomization.push_str(&format!("- path: p{i}.yaml\n"));
    }
    files.push(("kustomization.yaml".into(), kustomization));
    files
}
