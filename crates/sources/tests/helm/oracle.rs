//! The real helm: what it makes is fetched, and what is packed here it reads as it reads its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use roadstead_sources::{Entry, TreeBuilder, TreeLimits, pack, unpack};
use tempfile::TempDir;

use crate::kit::{Lenders, chart_of, fetched, in_tree, in_tree_with, index_of, names, values};
use crate::server::Server;

/// The program: what the run of all tests built, or what is built now.
fn program() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os("ROADSTEAD_TEST_HELM") {
            return PathBuf::from(given);
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/helm/install.sh");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    FOLDER.get_or_init(build).join("bin/helm")
}

/// A folder to work in, which is helm's home, too.
pub(crate) struct Helm(TempDir);

impl Helm {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// What a command prints; it fails where that does.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails.
    pub(crate) fn fails(&self, args: &[&str]) {
        assert!(!self.output(args).status.success(), "helm {args:?} goes well");
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.env_clear().env("HOME", self.0.path()).current_dir(self.0.path());
        command.args(args).output().unwrap()
    }

    /// All files beneath a folder, by their paths in it.
    pub(crate) fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let (root, mut found) = (self.path(folder), BTreeMap::new());
        let mut ahead = vec![root.clone()];
        while let Some(folder) = ahead.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    ahead.push(path);
                } else {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
        found
    }

    /// A folder as the artifact of another source, without those files that `left_out` names.
    fn artifact(&self, folder: &str, left_out: impl Fn(&str) -> bool) -> Vec<u8> {
        let mut builder = TreeBuilder::new(TreeLimits::default());
        for (path, bytes) in self.files(folder) {
            if !left_out(&path) {
                builder.insert(path, Entry::File { bytes, executable: false }).unwrap();
            }
        }
        pack(&builder.finish().unwrap()).unwrap().bytes
    }

    /// A chart with a library, templates that say all that they know, and files that are none of it.
    pub(crate) fn application(&self, folder: &str, dependencies: &str) {
        let chart = format!(
            "apiVersion: v2\nname: app\nversion: 1.2.3-rc.1+old\nappVersion: \"7\"\ndescription: \"quoted: yes\"\nkeywords: [a, \"1\"]\n{dependencies}"
        );
        let values = "# A comment.\nreplicas: 1\nname: \"on\"\nlist: [1, 2]\nmap: {a: 1, b: {c: \"2\"}}\nfloat: 1.50\nempty: null\n";
        for (path, text) in [
            ("Chart.yaml", chart.as_str()),
            ("values.yaml", values),
            ("values.schema.json", "{\"type\": \"object\"}"),
            (".helmignore", "*.md\n/ci/\n.git/\n"),
            ("README.md", "left out"),
            ("ci/test.yaml", "left out"),
            ("crds/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: crd}\n"),
            ("files/data.txt", "data\n"),
            (
                "templates/_helpers.tpl",
                "{{ define \"app.name\" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}",
            ),
            ("templates/NOTES.txt", "Notes."),
            (
                "templates/all.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include \"app.name\" . }}\ndata:\n  chart: {{ .Chart.Description | quote }}\n  \
                 file: {{ .Files.Get \"files/data.txt\" | quote }}\n  values: |-\n{{ omit .Values \"db\" | toYaml | indent 4 }}\n",
            ),
        ] {
            self.write(&format!("{folder}/{path}"), text);
        }
    }
}

/// Versions, as they are shown of a chart; what is rendered does not name them.
fn without_version(shown: &str) -> Vec<&str> {
    shown.lines().filter(|line| !line.starts_with("version: ")).collect()
}

#[tokio::test]
async fn what_helm_packs_and_indexes_is_fetched() {
    let (helm, server) = (Helm::new(), Server::start(false).await);
    helm.application("app", "");
    for version in ["1.0.0", "1.1.0", "2.0.0-beta.1", "1.1.0+build"] {
        helm.run(&["package", "app", "--version", version, "--app-version", "8", "--destination", "charts"]);
    }
    helm.run(&["repo", "index", "charts", "--url", &format!("{}/charts", server.url())]);
    let made = helm.files("charts");
    assert_eq!(made.len(), 5, "{:?}", made.keys());
    for (name, bytes) in &made {
        server.put(&format!("/charts/{name}"), bytes.clone());
    }
    server.put("/index.yaml", made["index.yaml"].clone());
    let index = fetched(&index_of(&server)).await;
    for (asked, came) in
        [("", "1.1.0"), ("1.0.0", "1.0.0"), (">=2.0.0-0", "2.0.0-beta.1"), ("1.1.0+build", "1.1.0+build")]
    {
        let chart = fetched(&chart_of(server.repository(), &index, "app", asked)).await;
        assert!(chart.revision.to_string().starts_with(came), "{asked}: {}", chart.revision);
        let file = format!("app-{}.tgz", chart.revision);
        assert!(chart.artifact.bytes == made[&file], "{file} is not what helm packed");
    }
    // An index may be JSON, too.
    helm.run(&["repo", "index", "charts", "--json", "--url", &format!("{}/charts", server.url())]);
    server.put("/index.yaml", helm.files("charts")["index.yaml"].clone());
    let again = fetched(&index_of(&server)).await;
    let chart = fetched(&chart_of(server.repository(), &again, "app", "1.0.0")).await;
    assert!(chart.artifact.bytes == made["app-1.0.0.tgz"], "it is not what helm packed");
}

#[tokio::test]
async fn a_folder_is_packed_so_that_helm_reads_it_as_its_own() {
    let helm = Helm::new();
    helm.application("source/app", "");
    helm.write("source/prod.yaml", "replicas: 3\nlist: [9]\nmap: {b: {c: null, d: true}}\n");
    helm.run(&["package", "source/app", "--destination", "theirs"]);
    let theirs = helm.path("theirs/app-1.2.3-rc.1+old.tgz");
    let tree = helm.artifact("source", |_| false);
    let chart = fetched(&in_tree(tree.clone(), "app")).await;
    std::fs::write(helm.path("ours.tgz"), &chart.artifact.bytes).unwrap();
    let theirs = theirs.to_str().unwrap();
    for command in [&["show", "chart"][..], &["show", "values"], &["show", "crds"]] {
        assert_eq!(helm.run(&[command, &["ours.tgz"]].concat()), helm.run(&[command, &[theirs]].concat()));
    }
    let rendered = |path: &str, more: &[&str]| helm.run(&[&["template", "own", path][..], more].concat());
    assert_eq!(rendered("ours.tgz", &[]), rendered(theirs, &[]));
    assert_eq!(names(&chart.artifact.bytes), names_of(&std::fs::read(theirs).unwrap()));

    // Merged files of values are what helm makes of them.
    let mut request = in_tree(tree, "app");
    request.values = values(&["app/values.yaml", "prod.yaml"], false);
    request.build_metadata = Some("5394cb7f4833.2".to_owned());
    let chart = fetched(&request).await;
    std::fs::write(helm.path("merged.tgz"), &chart.artifact.bytes).unwrap();
    let expected = rendered(theirs, &["--values", "source/app/values.yaml", "--values", "source/prod.yaml"]);
    // Helm takes a null as the wish to have no such key once it renders.
    assert_eq!(rendered("merged.tgz", &[]), expected);
    let shown = helm.run(&["show", "chart", "merged.tgz"]);
    assert!(shown.contains("version: 1.2.3-rc.1+5394cb7f4833.2\n"), "{shown}");
    assert_eq!(without_version(&shown), without_version(&helm.run(&["show", "chart", theirs])));
}

/// The names in a chart that helm packed.
fn names_of(packed: &[u8]) -> Vec<String> {
    unpack(packed, &TreeLimits::default()).unwrap().iter().map(|(path, _)| path.clone()).collect()
}

// Helm asks the server while this thread waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn dependencies_are_those_that_helm_builds() {
    let (helm, server) = (Helm::new(), Server::start(false).await);
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}\ndata: {size: {{ .Values.size | quote }}}\n";
    for (name, version) in [("db", "1.0.0"), ("db", "1.4.0"), ("db", "2.0.0"), ("cache", "0.3.1")] {
        helm.write(
            &format!("{name}/Chart.yaml"),
            &format!("apiVersion: v2\nname: {name}\nversion: {version}\n"),
        );
        helm.write(&format!("{name}/values.yaml"), "size: 1\n");
        helm.write(&format!("{name}/templates/a.yaml"), template);
        helm.run(&["package", name, "--destination", "charts"]);
    }
    helm.run(&["repo", "index", "charts"]);
    for (name, bytes) in helm.files("charts") {
        server.put(&format!("/{name}"), bytes);
    }
    let url = server.url();
    helm.write("source/lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 0.1.0\ntype: library\n");
    let dependencies = format!(
        "dependencies:\n- {{name: db, version: ^1.0.0, repository: \"{url}\"}}\n- {{name: db, alias: second, version: ^1.0.0, repository: \"{url}\"}}\n\
         - {{name: cache, version: \"*\", repository: \"{url}\", condition: cache.enabled}}\n- {{name: lib, version: 0.x, repository: \"file://../lib\"}}\n"
    );
    helm.application("source/app", &dependencies);
    helm.write("source/app/values.yaml", "second: {size: 2}\ncache: {enabled: true, size: 3}\n");
    // As helm resolves them now; then an older version is locked, and helm builds that.
    for locked in [false, true] {
        if locked {
            let index = String::from_utf8(helm.files("charts")["index.yaml"].clone()).unwrap();
            assert!(index.contains("version: 1.4.0"));
            std::fs::remove_dir_all(helm.path("source/app/charts")).unwrap();
            // A newer version that fits comes after it was locked.
            helm.write("db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.5.0\n");
            helm.run(&["package", "db", "--destination", "charts"]);
            helm.run(&["repo", "index", "charts"]);
            for (name, bytes) in helm.files("charts") {
                server.put(&format!("/{name}"), bytes);
            }
            helm.run(&["repo", "add", "own", &url]);
            helm.run(&["dependency", "build", "source/app"]);
        } else {
            helm.run(&["dependency", "update", "source/app"]);
        }
        let tree = helm.artifact("source", |path| {
            path.starts_with("app/charts/") || !locked && path.ends_with("Chart.lock")
        });
        let request = in_tree_with(tree, "app", Lenders::none(&[&server]));
        let chart = fetched(&request).await;
        let ours = unpack(chart.artifact.bytes.as_slice(), &TreeLimits::default()).unwrap();
        let theirs = helm.files("source/app/charts");
        for (name, bytes) in theirs.iter().filter(|(name, _)| !name.starts_with("lib-")) {
            let Some(Entry::File { bytes: own, .. }) = ours.get(&format!("app/charts/{name}")) else {
                panic!("{name} is missing: {:?}", names_of(&chart.artifact.bytes))
            };
            assert!(own == bytes, "{name} is another one");
        }
        assert!(theirs.contains_key("db-1.4.0.tgz"), "{:?}", theirs.keys());
        std::fs::write(helm.path("ours.tgz"), &chart.artifact.bytes).unwrap();
        let theirs = helm.run(&["template", "own", "source/app"]);
        assert_eq!(helm.run(&["template", "own", "ours.tgz"]), theirs);
        assert_eq!(theirs.matches("data: {size: ").count(), 3, "{theirs}");
    }
}
