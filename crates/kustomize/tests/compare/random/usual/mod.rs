//! Trees as repositories have them: objects of the usual kinds that refer to each other, and kustomizations with what
//! kustomize has for them: generators, components, plugins, replacements, and the configuration of its transformers.

mod fields;
mod objects;
mod plugins;

use std::fmt::Write as _;

use super::{Files, Random};
use objects::Made;

const NAMES: [&str; 4] = ["app", "web", "conf", "gen"];
const SPACES: [&str; 3] = ["ns1", "ns2", "default"];
const IMAGES: [&str; 9] = [
    "nginx",
    "nginx:1",
    "nginx@sha256:abc",
    "nginx:1@sha256:abc",
    "localhost:5000/a/nginx:v2",
    "\"nginx:1.0\"",
    "a/nginx",
    "side:latest",
    "$(V)",
];

/// Puts names (`@N`), namespaces (`@S`) and images (`@I`) where they are asked for.
fn fill(random: &mut Random, text: &str) -> String {
    let mut parts = text.split('@');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let value = match part.chars().next() {
            Some('N') => random.pick(&NAMES),
            Some('S') => random.pick(&SPACES),
            Some('I') => random.pick(&IMAGES),
            _ => {
                out.push('@');
                out += part;
                continue;
            }
        };
        out += value;
        out += &part[1..];
    }
    out
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{indent}{line}");
        out
    })
}

/// The kustomizations that are written, and what is known of their objects.
struct Tree {
    files: Files,
    made: Vec<Made>,
    /// For names of files.
    count: usize,
}

impl Tree {
    /// Adds a file to a folder, and gives its path from there.
    fn file(&mut self, dir: &str, name: &str, text: String) -> String {
        self.count += 1;
        let path = format!("{name}{}.yaml", self.count);
        self.files.push((format!("{dir}{path}"), text));
        path
    }

    /// One of the objects.
    fn any(&self, random: &mut Random) -> Made {
        self.made[random.below(self.made.len())].clone()
    }

    /// Writes a kustomization, whose list of resources is given.
    fn layer(&mut self, random: &mut Random, dir: &str, mut resources: Vec<String>, most: usize) {
        let objects = objects::objects(random, most, &mut self.made);
        if random.one_in(3) {
            let all = objects.join(random.pick(&["---\n", "\n---\n# note\n", "---\n---\n"]));
            resources.push(self.file(dir, "all", all));
        } else {
            for object in objects {
                resources.push(self.file(dir, "o", object));
            }
        }
        let mut text = random
            .pick(&[
                "",
                "",
                "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
                "# note\n---\n",
            ])
            .to_owned();
        let _ = writeln!(text, "resources:");
        for resource in resources {
            let _ = writeln!(text, "- {resource}");
        }
        text += &fields::fields(self, random, dir, true);
        let name = random.pick(&[
            "kustomization.yaml",
            "kustomization.yaml",
            "kustomization.yaml",
            "kustomization.yml",
            "Kustomization",
        ]);
        self.files.push((format!("{dir}{name}"), text));
    }
}

/// The tree of a seed.
pub(crate) fn tree(seed: u64) -> Files {
    let random = &mut Random::new(seed);
    let mut tree = Tree { files: Vec::new(), made: Vec::new(), count: 0 };
    let resources = match random.below(6) {
        0 | 1 => Vec::new(),
        2 | 3 => {
            tree.layer(random, "base/", Vec::new(), 5);
            vec![random.pick(&["base", "./base", "base/"]).to_owned()]
        }
        4 => {
            tree.layer(random, "base/", Vec::new(), 4);
            tree.layer(random, "mid/", vec!["../base".into()], 1);
            vec!["mid".into()]
        }
        _ => {
            tree.layer(random, "base/", Vec::new(), 3);
            if random.one_in(2) {
                // Twice the same, under other names.
                for (dir, prefix) in [("left/", "l-"), ("right/", "r-")] {
                    let mut text = format!("resources: [../base]\nnamePrefix: {prefix}\n");
                    if random.one_in(2) {
                        let _ = writeln!(text, "namespace: {}", random.pick(&SPACES));
                    }
                    tree.files.push((format!("{dir}kustomization.yaml"), text));
                }
                vec!["left".into(), "right".into()]
            } else {
                tree.layer(random, "other/", Vec::new(), 3);
                vec!["base".into(), "other".into()]
            }
        }
    };
    let most = if resources.is_empty() { 6 } else { 2 };
    tree.layer(random, "", resources, most);
    for dir in ["", "base/", "mid/", "other/", "comp/"] {
        if tree.files.iter().any(|(path, text)| path.starts_with(dir) && text.contains("f.txt")) {
            tree.files.push((format!("{dir}f.txt"), "file\ntext\n".into()));
            tree.files.push((format!("{dir}e.env"), "A=1\n# note\n\nB='x y'\nC=\"q\"\nD=a=b \nE\n".into()));
        }
    }
    tree.files
}
