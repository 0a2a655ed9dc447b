//! Random trees of files, the same for the same seed: objects in all styles that YAML has, and kustomizations over them.

use std::fmt::Write as _;

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

const KEYS: [&str; 14] =
    ["a", "b", "c", "name", "k10", "k9", "x-y", "spec", "env", "data", "\"q r\"", "'1'", "\"on\"", "e.f/g"];
const PLAIN: [&str; 34] = [
    "x",
    "word",
    "two words",
    "1",
    "012",
    "0x1F",
    "1.50",
    "1e3",
    "-0",
    "true",
    "yes",
    "off",
    "null",
    "~",
    "a: b",
    "2020-01-02",
    "2020-01-02T03:04:05Z",
    "1:30",
    "a#b",
    "@x",
    "-",
    "- x",
    "é",
    "$(V)",
    "a:b",
    "0o17",
    "1_000",
    "+1",
    ".5",
    "",
    "y",
    "=",
    "<<",
    "word with: colon",
];
const LINES: [&str; 9] =
    ["one", "two words", "  deeper", "", "fi", "ends in space ", "# no comment", "a: b", "- x"];

/// Writes values in random styles.
struct Writer<'r> {
    random: &'r mut Random,
    out: String,
    anchors: usize,
}

impl Writer<'_> {
    fn comment(&mut self) {
        if self.random.one_in(25) {
            self.out.push_str(" # note");
        }
    }

    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// A scalar after a key or dash, within brackets or not.
    fn scalar(&mut self, indent: usize, flow: bool) {
        match self.random.below(if flow { 5 } else { 9 }) {
            0..=1 => {
                let text = self.random.pick(&PLAIN);
                let odd = text.contains([':', '#', '@', '-', '{']) && flow;
                let text = if odd || matches!(text, "@x" | "- x" | "a: b" | "word with: colon") {
                    "w"
                } else {
                    text
                };
                self.out.push_str(text);
            }
            2 => {
                let text = self.random.pick(&PLAIN).replace('\'', "''");
                let _ = write!(self.out, "'{text}'");
            }
            3 => {
                let text = self.random.pick(&[
                    "x",
                    "a\\nb\\n",
                    "\\u00e9",
                    "  ",
                    "a \\nb",
                    "\\t",
                    "1",
                    "true",
                    "",
                    "a\\n\\n b",
                ]);
                let _ = write!(self.out, "\"{text}\"");
            }
            4 if !flow => {
                self.out.push_str("'one");
                let back = self.random.below(3);
                self.line(indent + back);
                self.out.push_str("two'");
            }
            5..=6 => self.block(indent),
            7 => {
                self.out.push_str("plain on");
                self.line(indent + 2);
                self.out.push_str("two lines");
            }
            _ => self.out.push('w'),
        }
    }

    fn block(&mut self, indent: usize) {
        let style = self.random.pick(&["|", ">"]);
        let chomp = self.random.pick(&["", "-", "+"]);
        self.out.push_str(style);
        self.out.push_str(chomp);
        let count = 1 + self.random.below(4);
        for i in 0..count {
            let line = self.random.pick(&LINES);
            let line = if i == 0 { "first" } else { line };
            if line.is_empty() {
                self.out.push('\n');
            } else {
                self.line(indent + 2);
                self.out.push_str(line);
            }
        }
    }

    /// A value after a key or a dash, whose own lines are indented by more than this.
    fn value(&mut self, indent: usize, depth: usize) {
        match self.random.below(if depth == 0 { 4 } else { 10 }) {
            0..=3 => {
                if !self.random.one_in(12) {
                    self.out.push(' ');
                    if self.random.one_in(20) {
                        let tag = self.random.pick(&["!!str ", "!t ", "! "]);
                        self.out.push_str(tag);
                    }
                    self.scalar(indent, false);
                }
            }
            4..=5 => {
                self.out.push(' ');
                self.flow(depth - 1, indent);
                self.comment();
            }
            6 if self.anchors > 0 => {
                let _ = write!(self.out, " *n{}", self.random.below(self.anchors));
            }
            6..=7 => {
                let anchored = self.anchor();
                let dash = if self.random.one_in(2) { indent } else { indent + 2 };
                for _ in 0..1 + self.random.below(3) {
                    self.line(dash);
                    self.out.push('-');
                    self.value(dash, depth - 1);
                }
                self.anchors += usize::from(anchored);
            }
            _ => {
                let anchored = self.anchor();
                self.comment();
                self.entries(indent + 2, depth - 1);
                self.anchors += usize::from(anchored);
            }
        }
    }

    /// Writes an anchor now and then. Nothing refers to it before what it is for has ended.
    fn anchor(&mut self) -> bool {
        let anchored = self.anchors == 0 && self.random.one_in(8);
        if anchored {
            let _ = write!(self.out, " &n{}", self.anchors);
        }
        anchored
    }

    fn entries(&mut self, indent: usize, depth: usize) {
        let from = self.random.below(KEYS.len());
        for i in 0..1 + self.random.below(3) {
            self.line(indent);
            if self.random.one_in(40) {
                self.out.push_str("# before");
                self.line(indent);
            }
            self.out.push_str(KEYS[(from + i) % KEYS.len()]);
            self.out.push(':');
            self.value(indent, depth);
        }
    }

    fn flow(&mut self, depth: usize, indent: usize) {
        let list = self.random.one_in(2);
        self.out.push(if list { '[' } else { '{' });
        let from = self.random.below(KEYS.len());
        let count = self.random.below(4);
        for i in 0..count {
            if i > 0 {
                self.out.push_str(", ");
            }
            if self.random.one_in(8) {
                let back = self.random.below(4);
                self.line(indent + back);
            }
            if !list {
                self.out.push_str(KEYS[(from + i) % KEYS.len()]);
                if self.random.one_in(8) {
                    continue;
                }
                self.out.push_str(": ");
            }
            if depth > 0 && self.random.one_in(3) {
                self.flow(depth - 1, indent);
            } else {
                self.scalar(indent, true);
            }
        }
        self.out.push(if list { ']' } else { '}' });
    }
}

fn body(random: &mut Random, key: &str) -> String {
    let mut writer = Writer { random, out: format!("{key}:"), anchors: 0 };
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
        "  namespace: ns\n",
    ]);
    match random.below(5) {
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
            ]);
            let _ = write!(
                out,
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n{meta}spec:\n  selector: {{app: web}}\n  ports: [{port}]\n"
            );
        }
        2 => {
            let env = random.pick(&["", "        env: [{name: A, value: \"1\"}, {name: B, value: $(V)}]\n"]);
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
    out
}

fn head(object: &str) -> String {
    let field = |name: &str| {
        let line = object.lines().find(|line| line.trim_start().starts_with(name));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    format!("{}\n{}\nmetadata: {{{}}}\n", field("apiVersion:"), field("kind:"), field("name:"))
}

fn patch(random: &mut Random, objects: &[String]) -> String {
    let object = &objects[random.below(objects.len())];
    let change = match random.below(6) {
        0 => "spec: {replicas: 3}\n".to_owned(),
        1 => "spec: {ports: [{name: z, port: 80}, {port: 82, protocol: UDP}]}\n".to_owned(),
        2 => "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        env: [{name: A, value: x}, {name: C, $patch: delete}]\n      - {name: side, image: s}\n".to_owned(),
        3 => "data: {k: null, n: \"5\", t: }\n".to_owned(),
        _ => body(random, "spec") + "\n",
    };
    head(object) + &change
}

fn operations(random: &mut Random) -> String {
    let mut out = String::new();
    for _ in 0..1 + random.below(3) {
        let path = random.pick(&[
            "/spec/a",
            "/spec/replicas",
            "/metadata/labels",
            "/data/k",
            "/spec/b/0",
            "/spec/c/-",
            "x/spec/a",
            "/metadata/annotations/n",
        ]);
        let value = random.pick(&["1", "x", "[1, 2]", "{a: b}", "null", "''", "1.0"]);
        let _ = match random.below(5) {
            0 => writeln!(out, "- {{op: remove, path: {path}}}"),
            1 => writeln!(out, "- {{op: copy, from: /metadata/name, path: {path}}}"),
            2 => writeln!(out, "- op: replace\n  path: {path}\n  value: {value}"),
            _ => writeln!(out, "- {{op: add, path: {path}, value: {value}}}"),
        };
    }
    out
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") })
        .collect()
}

fn replacement(random: &mut Random) -> String {
    let source = random.pick(&[
        "metadata.name",
        "spec.a",
        "data.k",
        "spec.template.spec.containers.0.image",
        "spec.selector",
    ]);
    let target = random.pick(&[
        "spec.b",
        "metadata.labels.app",
        "data.new",
        "spec.template.spec.containers.[name=main].image",
        "spec.m.k",
        "metadata.annotations.[x.y/z]",
    ]);
    let from = random.pick(&NAMES);
    let options =
        random.pick(&["", "    options: {create: true}\n", "    options: {delimiter: ':', index: 0}\n"]);
    format!(
        "- source: {{name: {from}, fieldPath: {source}}}\n  targets:\n  - select: {{kind: {}}}\n    fieldPaths: ['{target}']\n{options}",
        random.pick(&["B", "ConfigMap", "Deployment"])
    )
}

fn kustomization(random: &mut Random, objects: &[String], files: &mut Files) -> String {
    let mut out = String::new();
    let mut lists: [String; 3] = Default::default();
    for i in 0..random.below(4) {
        let _ = match random.below(14) {
            0 => writeln!(out, "namePrefix: p-"),
            1 => writeln!(out, "nameSuffix: -{i}"),
            2 => writeln!(out, "namespace: {}", random.pick(&["ns", "other"])),
            3 => writeln!(out, "commonLabels: {{app: {}}}", random.pick(&["new", "'1'", "web"])),
            4 => writeln!(
                out,
                "labels: [{{pairs: {{l: v}}, includeSelectors: {}, includeTemplates: {}}}]",
                random.one_in(2),
                random.one_in(2)
            ),
            5 => writeln!(out, "commonAnnotations: {{n: {}}}", random.pick(&["x", "'1'", "'a: b'"])),
            6 => writeln!(out, "images: [{{name: nginx, newTag: {}}}]", random.pick(&["'2'", "v3"])),
            7 => writeln!(out, "replicas: [{{name: {}, count: 5}}]", random.pick(&NAMES)),
            8 => {
                writeln!(out, "configMapGenerator: [{{name: gen, literals: [a=1, 'b=x y'], files: [f.txt]}}]")
            }
            9 => {
                lists[1] += &replacement(random);
                Ok(())
            }
            10 => {
                let patch = patch(random, objects);
                files.push((format!("p{i}.yaml"), patch));
                writeln!(lists[0], "- path: p{i}.yaml")
            }
            11 => {
                let target = random.pick(&[
                    "{kind: B}",
                    "{kind: ConfigMap}",
                    "{name: 't.*'}",
                    "{labelSelector: app=web}",
                ]);
                let patch = if random.one_in(2) { operations(random) } else { patch(random, objects) };
                let chomp = random.pick(&["", "-"]);
                write!(lists[0], "- target: {target}\n  patch: |{chomp}\n{}", indented(&patch, 4))
            }
            12 => writeln!(
                out,
                "vars: [{{name: V, objref: {{apiVersion: x/v1, kind: B, name: {}}}, fieldref: {{fieldPath: metadata.name}}}}]",
                random.pick(&NAMES)
            ),
            _ => writeln!(out, "buildMetadata: [originAnnotations]"),
        };
    }
    for (name, list) in ["patches", "replacements", ""].iter().zip(&lists) {
        if !list.is_empty() {
            let _ = write!(out, "{name}:\n{list}");
        }
    }
    out
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
