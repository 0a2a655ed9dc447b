//! Trees of files to build, of any size: each shape has as much of one thing as it has objects.

use std::fmt::Write as _;

use roadstead_kustomize::{MemoryTree, TreePath};

/// Objects in one file.
const OBJECTS_IN_A_FILE: usize = 100;

/// What a tree has much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A base with an overlay that does a bit of everything.
    Mixed,
    /// An image rule for each Deployment.
    Images,
    /// A rule of replicas for each Deployment.
    Replicas,
    /// A strategic merge patch for each Deployment.
    MergePatches,
    /// A JSON patch for each Deployment.
    JsonPatches,
    /// Generators in the base, and one in the overlay to merge into each.
    MergingGenerators,
    /// A var for each object, and a reference to it in the next one.
    Vars,
    /// A replacement for each object, from the object before it.
    Replacements,
    /// A base for each object.
    Bases,
    /// Names in all objects that refer to generated objects.
    References,
}

/// All shapes.
pub(crate) const SHAPES: [Shape; 10] = [
    Shape::Mixed,
    Shape::Images,
    Shape::Replicas,
    Shape::MergePatches,
    Shape::JsonPatches,
    Shape::MergingGenerators,
    Shape::Vars,
    Shape::Replacements,
    Shape::Bases,
    Shape::References,
];

impl Shape {
    /// A tree of so many objects; `overlay` is the path to build.
    pub(crate) fn tree(self, objects: usize) -> MemoryTree {
        let mut tree = Files::default();
        match self {
            Self::Mixed => mixed(&mut tree, objects),
            Self::MergingGenerators => merging_generators(&mut tree, objects),
            Self::Vars => vars(&mut tree, objects),
            Self::Bases => bases(&mut tree, objects),
            Self::References => {
                deployments(&mut tree, "base", objects / 2, &generators("configMapGenerator", objects / 2));
                overlay(&mut tree, "namePrefix: x-\n");
            }
            Self::Images => {
                let rules = (0..objects)
                    .map(|i| format!("- {{name: registry.example.com/team/app{i}, newTag: v{i}}}\n"));
                deployments(&mut tree, "base", objects, "");
                overlay(&mut tree, &field("images", rules));
            }
            Self::Replicas => {
                let rules = (0..objects).map(|i| format!("- {{name: app-{i}, count: {i}}}\n"));
                deployments(&mut tree, "base", objects, "");
                overlay(&mut tree, &field("replicas", rules));
            }
            Self::MergePatches => {
                let patches = (0..objects).map(|i| {
                    format!(
                        "- patch: '{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: app-{i}}}, \
                         spec: {{template: {{spec: {{containers: [{{name: main, tty: true}}]}}}}}}}}'\n"
                    )
                });
                deployments(&mut tree, "base", objects, "");
                overlay(&mut tree, &field("patches", patches));
            }
            Self::JsonPatches => {
                let patches = (0..objects).map(|i| {
                    format!(
                        "- target: {{kind: Deployment, name: app-{i}}}\n  \
                         patch: '[{{\"op\": \"add\", \"path\": \"/spec/paused\", \"value\": true}}]'\n"
                    )
                });
                deployments(&mut tree, "base", objects, "");
                overlay(&mut tree, &field("patches", patches));
            }
            Self::Replacements => {
                let entries = (1..objects).map(|i| {
                    let from = i - 1;
                    format!(
                        "- source: {{kind: Deployment, name: app-{from}, fieldPath: metadata.name}}\n  \
                         targets: [{{select: {{kind: Deployment, name: app-{i}}}, \
                         fieldPaths: [metadata.labels.app]}}]\n"
                    )
                });
                deployments(&mut tree, "base", objects, "");
                overlay(&mut tree, &field("replacements", entries));
            }
        }
        tree.0
    }
}

/// A tree that is being written.
#[derive(Default)]
struct Files(MemoryTree);

impl Files {
    fn add(&mut self, path: &str, text: String) {
        // The paths here are plain ones.
        if let Some(path) = TreePath::new(path) {
            self.0.insert_file(path, text);
        }
    }

    /// Writes objects into files of a directory, and gives their names.
    fn objects(&mut self, dir: &str, objects: impl Iterator<Item = String>) -> Vec<String> {
        let objects: Vec<String> = objects.collect();
        let mut names = Vec::new();
        for (i, chunk) in objects.chunks(OBJECTS_IN_A_FILE).enumerate() {
            let name = format!("objects-{i}.yaml");
            self.add(&format!("{dir}/{name}"), chunk.join("---\n"));
            names.push(name);
        }
        names
    }
}

/// A field of a kustomization that is a list.
fn field(name: &str, entries: impl Iterator<Item = String>) -> String {
    entries.fold(format!("{name}:\n"), |text, entry| text + &entry)
}

fn overlay(tree: &mut Files, fields: &str) {
    tree.add("overlay/kustomization.yaml", format!("resources: [../base]\n{fields}"));
}

fn generators(name: &str, count: usize) -> String {
    field(name, (0..count).map(|i| format!("- {{name: conf-{i}, literals: [level=info, index={i}]}}\n")))
}

fn deployments(tree: &mut Files, dir: &str, count: usize, fields: &str) {
    let names = tree.objects(dir, (0..count).map(deployment));
    tree.add(&format!("{dir}/kustomization.yaml"), format!("resources: [{}]\n{fields}", names.join(", ")));
}

fn deployment(i: usize) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-{i}\n  labels:\n    app: app-{i}\n\
         spec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app: app-{i}\n  template:\n    metadata:\n\
         \x20     labels:\n        app: app-{i}\n    spec:\n      serviceAccountName: account-{i}\n\
         \x20     containers:\n      - name: main\n        image: registry.example.com/team/app{i}:1.{i}\n\
         \x20       args: [\"--listen=:8080\", \"--name=app-{i}\"]\n        envFrom:\n        - configMapRef:\n\
         \x20           name: conf-{i}\n        env:\n        - name: LEVEL\n          valueFrom:\n\
         \x20           configMapKeyRef:\n              name: conf-{i}\n              key: level\n\
         \x20       resources:\n          requests:\n            cpu: 100m\n            memory: 64Mi\n"
    )
}

fn service(i: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: app-{i}\nspec:\n  selector:\n    app: app-{i}\n\
         \x20 ports:\n  - port: 80\n    targetPort: 8080\n"
    )
}

fn account(i: usize) -> String {
    format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: account-{i}\n")
}

fn role_binding(i: usize) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: account-{i}\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: view\nsubjects:\n\
         - kind: ServiceAccount\n  name: account-{i}\n"
    )
}

/// Of ten objects, two Deployments, with the services, accounts, bindings and configuration that belong to them.
fn mixed(tree: &mut Files, objects: usize) {
    let apps = objects.div_ceil(5);
    let one = |i| [deployment(i), service(i), account(i), role_binding(i)];
    let names = tree.objects("base", (0..apps).flat_map(one).take(objects - apps));
    let resources = names.join(", ");
    tree.add(
        "base/kustomization.yaml",
        format!("resources: [{resources}]\n{}", generators("configMapGenerator", apps)),
    );
    let mut text = String::from(
        "namePrefix: prod-\nnamespace: prod\nlabels: [{pairs: {env: prod}, includeTemplates: true}]\n\
         commonAnnotations: {owner: team}\nreplicas: [{name: app-0, count: 5}]\n",
    );
    text.push_str("images:\n");
    for i in 0..5 {
        let _ = writeln!(text, "- {{name: registry.example.com/team/app{i}, newTag: '9.{i}'}}");
    }
    text.push_str(
        "patches:\n- target: {kind: Deployment}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n\
         \x20   metadata: {name: any}\n    spec: {template: {spec: {containers: [{name: main, tty: true}]}}}\n\
         - target: {kind: Deployment, name: 'app-.*0'}\n  patch: |-\n\
         \x20   - {op: add, path: /spec/paused, value: false}\n\
         replacements:\n- source: {kind: ConfigMap, name: conf-0, fieldPath: data.level}\n\
         \x20 targets: [{select: {kind: ConfigMap}, fieldPaths: [data.level]}]\n",
    );
    overlay(tree, &text);
}

fn merging_generators(tree: &mut Files, objects: usize) {
    tree.add("base/kustomization.yaml", generators("configMapGenerator", objects));
    let merges =
        (0..objects).map(|i| format!("- {{name: conf-{i}, behavior: merge, literals: [more={i}]}}\n"));
    overlay(tree, &field("configMapGenerator", merges));
}

fn vars(tree: &mut Files, objects: usize) {
    let vars = (0..objects).map(|i| {
        format!("- {{name: VAR_{i}, objref: {{apiVersion: apps/v1, kind: Deployment, name: app-{i}}}}}\n")
    });
    let next = (0..objects).map(|i| {
        let next = (i + 1) % objects.max(1);
        deployment(i).replace(&format!("--name=app-{i}"), &format!("--next=$(VAR_{next})"))
    });
    let names = tree.objects("base", next);
    tree.add(
        "base/kustomization.yaml",
        format!("resources: [{}]\n{}", names.join(", "), field("vars", vars)),
    );
    overlay(tree, "namePrefix: x-\n");
}

fn bases(tree: &mut Files, objects: usize) {
    let mut paths = Vec::new();
    for i in 0..objects {
        deployments_of_one(tree, i);
        paths.push(format!("base-{i}"));
    }
    tree.add("base/kustomization.yaml", format!("resources: [{}]\n", paths.join(", ")));
    overlay(tree, "namespace: prod\n");
}

fn deployments_of_one(tree: &mut Files, i: usize) {
    tree.add(&format!("base/base-{i}/object.yaml"), deployment(i));
    tree.add(
        &format!("base/base-{i}/kustomization.yaml"),
        format!("resources: [object.yaml]\nnamePrefix: p{i}-\n"),
    );
}
