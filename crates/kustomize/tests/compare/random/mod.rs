//! Random trees of files, the same for the same seed: objects in all styles that YAML has, and kustomizations over them.

mod kustomizations;
pub(crate) mod labels;
pub(crate) mod lists;
pub(crate) mod nodes;
pub(crate) mod usual;
mod values;

use std::fmt::Write as _;

use kustomizations::kustomization;
use values::{LINES, Writer};

/// Files by path.
pub(crate) type Files = Vec<(String, String)>;

/// A generator of numbers (xorshift), so that a seed names an input for ever.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % bound.max(1)
    }

    /// Once in so many times.
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

fn body(random: &mut Random, key: &str) -> String {
    let mut writer = Writer { random, out: format!("{key}:"), anchors: 0, odd: true };
    writer.entries(2, 3);
    writer.out
}

/// For a patch: without what kustomize looks at in the end only, if it is still there then, and without the null in a
/// list that is a text where it comes into brackets.
fn plain_body(random: &mut Random, key: &str) -> String {
    let mut writer = Writer { random, out: format!("{key}:"), anchors: 0, odd: false };
    writer.entries(2, 3);
    writer.out
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

fn object(random: &mut Random, name: &str) -> String {
    let mut out = String::new();
    let meta = random.pick(&[
        "",
        "  labels: {app: web, \"n\": \"1\"}\n",
        "  annotations:\n    t: >\n      one\n       two\n",
        "  annotations: {a: b, t: 2020-01-02, u: }\n",
        "  annotations:\n    u: 1.0\n    \"on\": true\n  labels:\n    app: web\n    v: 1.50\n",
        "  namespace: ns\n",
        "  namespace: ''\n",
        "  creationTimestamp: null\n",
        "  labels:\n",
        "  finalizers: [a, b]\n",
    ]);
    match random.below(6) {
        5 => {
            let items: String = (0..1 + random.below(2))
                .map(|i| {
                    let inner = body(random, "spec");
                    let item =
                        format!("apiVersion: x/v1\nkind: B\nmetadata:\n  name: {name}-{i}\n{meta}{inner}\n");
                    let mut lines = String::new();
                    for (at, line) in item.lines().enumerate() {
                        let _ = match (at, line.is_empty()) {
                            (0, _) => writeln!(lines, "- {line}"),
                            (_, true) => writeln!(lines),
                            _ => writeln!(lines, "  {line}"),
                        };
                    }
                    lines
                })
                .collect();
            let _ = write!(out, "apiVersion: v1\nkind: List\nitems:\n{items}");
        }
        0 => {
            let _ = write!(
                out,
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{meta}data:\n  k: v\n  t: |\n    {}\n",
                random.pick(&LINES).trim()
            );
        }
        1 => {
            let port = random.pick(&[
                "{port: 80}",
                "{port: 80, protocol: TCP}",
                "{name: a, port: 80}, {name: b, port: 81}",
                "{port: 80, protocol: TCP}, {port: 80, protocol: UDP}",
                "{port: 80, protocol: UDP, name: u}, {port: 80}",
                "",
            ]);
            let _ = write!(
                out,
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n{meta}spec:\n  selector: {{app: web}}\n  ports: [{port}]\n"
            );
        }
        2 => {
            let env = random.pick(&[
                "",
                "        env: [{name: A, value: \"1\"}, {name: B, value: $(V)}]\n",
                "        env:\n        - name: A\n          value: \"1\"\n        - name: B # note\n          valueFrom: {configMapKeyRef: {name: gen, key: a}}\n",
                "        ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]\n        volumeMounts:\n        - {mountPath: /a, name: v}\n      volumes:\n      - name: v\n        configMap: {name: one}\n",
                "        args: [a, $(V), '']\n        command:\n        - >-\n          sh\n            -c\n      - name: side\n        image: \"nginx\"\n",
            ]);
            let _ = write!(
                out,
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n{meta}spec:\n  replicas: 2\n  template:\n    metadata:\n      labels: {{app: web}}\n    spec:\n      containers:\n      - name: main\n        image: nginx:1\n{env}"
            );
        }
        _ => {
            let _ = write!(
                out,
                "apiVersion: x/v1\nkind: B\nmetadata:\n  name: {name}\n{meta}{}\n",
                body(random, "spec")
            );
        }
    }
    if random.one_in(6) {
        out.truncate(out.trim_end_matches('\n').len());
    }
    match random.below(120) {
        0 => out.replace('\n', "\r\n"),
        1 => format!("\u{feff}{out}"),
        2 => format!("%YAML 1.1\n---\n{out}"),
        3 => format!("{out}\n..."),
        4 => out.replace("\n", " \n"),
        _ => out,
    }
}

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Files {
    let random = &mut Random::new(seed);
    let count = 1 + random.below(3);
    let objects: Vec<String> = NAMES[..count].iter().map(|name| object(random, name)).collect();
    let mut files: Files = vec![("f.txt".into(), "file\ntext\n".into())];
    let mut resources = String::from("resources:\n");
    if random.one_in(4) {
        files.push(("all.yaml".into(), objects.join(random.pick(&["\n---\n", "\n---\n# note\n"]))));
        resources.push_str("- all.yaml\n");
    } else {
        for (i, object) in objects.iter().enumerate() {
            files.push((format!("o{i}.yaml"), object.clone()));
            let _ = writeln!(resources, "- o{i}.yaml");
        }
    }
    let own = kustomization(random, &objects, &mut files);
    if random.one_in(3) {
        let mut base: Files = files.drain(..).map(|(path, text)| (format!("base/{path}"), text)).collect();
        base.push(("base/kustomization.yaml".into(), resources + &own));
        files.push(("f.txt".into(), "file\n".into()));
        let over = kustomization(random, &objects, &mut files);
        files.push(("kustomization.yaml".into(), format!("resources: [base]\n{over}")));
        files.extend(base);
    } else {
        files.push(("kustomization.yaml".into(), resources + &own));
    }
    files
}
