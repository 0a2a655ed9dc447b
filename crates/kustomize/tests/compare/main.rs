//! Random inputs, built by the real kustomize and by us: the bytes must be the same, and where it refuses, so must we.
//!
//! The real one runs in one process for many inputs (`compare/oracle`, which `compare/build.sh` builds with Go where the
//! cache does not have it). Without further words the first inputs are compared, which takes some seconds;
//! `KUSTOMIZE_COMPARE` says how many instead and `KUSTOMIZE_COMPARE_FROM` the first seed: `make compare` takes many.
//! `KUSTOMIZE_COMPARE_SHOWN` says how many of the differences are shrunk and shown.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod random;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use random::Files;
use roadstead_kustomize::{Generate, MemoryTree, Options, TreePath, build};

/// The real kustomize.
struct Oracle {
    program: PathBuf,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    fn start() -> Self {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare/build.sh");
        let built = Command::new(&build).stderr(Stdio::inherit()).output().unwrap();
        assert!(built.status.success(), "{} builds the real kustomize, and failed", build.display());
        Self::run(String::from_utf8(built.stdout).unwrap().trim().into())
    }

    fn run(program: PathBuf) -> Self {
        let child =
            Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { program, child, input, output }
    }

    /// What kustomize makes of the files; none where it goes round in circles, or crashes.
    fn build(&mut self, files: &Files) -> Option<Result<String, String>> {
        let files: serde_json::Map<_, _> =
            files.iter().map(|(path, text)| (path.clone(), text.as_str().into())).collect();
        let mut line = serde_json::json!({ "files": files }).to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).unwrap();
        self.input.flush().unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        let Ok(answer) = serde_json::from_str::<serde_json::Value>(&answer) else {
            *self = Self::run(self.program.clone());
            return None;
        };
        Some(match (answer["yaml"].as_str(), answer["error"].as_str()) {
            // The oracle is built from source, and says so where a released one says its version.
            (Some(yaml), _) => {
                Ok(yaml.replace("managed-by: kustomize-(devel)", "managed-by: kustomize-v5.8.1"))
            }
            (_, error) => Err(error.unwrap_or_default().to_owned()),
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ours(files: &Files) -> Result<String, String> {
    let mut tree = MemoryTree::new();
    for (path, text) in files {
        tree.insert_file(TreePath::new(path).unwrap(), text.as_str());
    }
    let options = Options { generate: Generate::Never, ..Options::default() };
    build(&tree, &TreePath::root(), &options).map(|build| build.to_yaml()).map_err(|error| error.to_string())
}

/// How the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    Content,
    OnlyWeRefuse,
    OnlyTheyRefuse,
}

/// What we refuse wherever it stands, and kustomize only where it is still there in the end: no patch took it away. And what
/// it takes and does not keep apart itself.
const STRICTER: [&str; 9] = [
    "which kustomize would change in all",
    "which kustomize confuses",
    "a list of more than 512 elements",
    "a block starts with a tab",
    "is not a number that JSON has",
    "a value with the tag !!",
    "a mapping key must be a string",
    "does not fit where",
    "!!binary value is not base64",
];

fn is_stricter(why: &str) -> bool {
    STRICTER.iter().any(|known| why.contains(known))
}

/// Does kustomize refuse a difference between two objects that it writes alike? It does so where a validator sets `replicas`
/// of an object which holds a null and was changed by a JSON patch.
fn is_contradictory(why: &str) -> bool {
    let nodes = why.split_once("nodes unequal: \n -- ").and_then(|(_, nodes)| nodes.split_once(",\n -- "));
    nodes.is_some_and(|(a, rest)| rest.strip_prefix(a).is_some_and(|rest| rest.starts_with('\n')))
}

fn difference(theirs: &Result<String, String>, ours: &Result<String, String>) -> Option<Difference> {
    match (theirs, ours) {
        (Ok(a), Ok(b)) if a == b => None,
        (Ok(_), Ok(_)) => Some(Difference::Content),
        (Ok(_), Err(why)) if is_stricter(why) => None,
        (Ok(_), Err(_)) => Some(Difference::OnlyWeRefuse),
        (Err(why), Ok(_)) if is_contradictory(why) => None,
        (Err(_), Ok(_)) => Some(Difference::OnlyTheyRefuse),
        (Err(_), Err(_)) => None,
    }
}

/// Takes files and lines away for as long as the two differ in the same way.
fn shrink(oracle: &mut Oracle, mut files: Files, wanted: Difference) -> Files {
    let has_schema = |files: &Files| files.iter().any(|(_, text)| text.contains("openapi:"));
    let with_schema = has_schema(&files);
    let mut differs = |files: &Files| {
        // Without a schema of its own, an input is built with the last one that kustomize was given.
        has_schema(files) == with_schema
            && oracle.build(files).and_then(|theirs| difference(&theirs, &ours(files))) == Some(wanted)
    };
    loop {
        let before: usize = files.iter().map(|(_, text)| text.len() + 1).sum();
        for at in (0..files.len()).rev() {
            let mut fewer = files.clone();
            fewer.remove(at);
            if differs(&fewer) {
                files = fewer;
            }
        }
        for at in 0..files.len() {
            for size in [8, 4, 2, 1] {
                let mut line = 0;
                loop {
                    let lines: Vec<&str> = files[at].1.split_inclusive('\n').collect();
                    if line >= lines.len() {
                        break;
                    }
                    let end = (line + size).min(lines.len());
                    let text: String = lines[..line].iter().chain(&lines[end..]).copied().collect();
                    let mut fewer = files.clone();
                    fewer[at].1 = text;
                    if differs(&fewer) {
                        files = fewer;
                    } else {
                        line += 1;
                    }
                }
            }
        }
        if files.iter().map(|(_, text)| text.len() + 1).sum::<usize>() == before {
            return files;
        }
    }
}

fn show(files: &Files) -> String {
    files.iter().map(|(path, text)| format!("--- {path}\n{text}\n")).collect()
}

#[test]
fn random_inputs_are_built_as_kustomize_builds_them() {
    compare(random::tree, 1_500);
}

#[test]
fn lists_are_merged_by_keys_as_kustomize_merges_them() {
    compare(random::lists::tree, 1_500);
}

#[test]
fn nodes_in_several_places_are_changed_as_kustomize_changes_them() {
    compare(random::nodes::tree, 1_500);
}

#[test]
fn labels_are_written_as_kustomize_writes_them() {
    compare(random::labels::tree, 1_500);
}

#[test]
fn usual_repositories_are_built_as_kustomize_builds_them() {
    compare(random::usual::tree, 1_500);
}

/// Compares as many inputs as the environment says, or `few`.
fn compare(tree: fn(u64) -> Files, few: u64) {
    let mut oracle = Oracle::start();
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let (count, from) = (number("KUSTOMIZE_COMPARE", few), number("KUSTOMIZE_COMPARE_FROM", 1));
    // Differences that are shrunk and shown.
    let shown = usize::try_from(number("KUSTOMIZE_COMPARE_SHOWN", 12)).unwrap();
    let (mut built, mut refused, mut stricter, mut found) = (0, 0, 0, Vec::new());
    for seed in from..from + count {
        let files = tree(seed);
        let ours = ours(&files);
        let Some(theirs) = oracle.build(&files) else { continue };
        match (&theirs, &ours) {
            (Ok(_), Err(why)) if is_stricter(why) => stricter += 1,
            (Ok(_), _) => built += 1,
            (Err(_), _) => refused += 1,
        }
        if let Some(difference) = difference(&theirs, &ours) {
            found.push((seed, difference));
        }
    }
    let of = |wanted| found.iter().filter(|(_, difference)| *difference == wanted).count();
    eprintln!(
        "seeds {from} to {}: {built} built, {refused} refused, {stricter} refused here as known; {} differ in content, {} only we refuse, {} only kustomize refuses",
        from + count,
        of(Difference::Content),
        of(Difference::OnlyWeRefuse),
        of(Difference::OnlyTheyRefuse)
    );
    for (seed, wanted) in found.iter().take(shown) {
        let files = shrink(&mut oracle, tree(*seed), *wanted);
        let (theirs, ours) = (oracle.build(&files), ours(&files));
        eprintln!("==== seed {seed}: {wanted:?}\n{}kustomize: {theirs:?}\nours: {ours:?}\n", show(&files));
    }
    // Inputs that both refuse compare nothing.
    assert!(built > count / 3, "only {built} of {count} inputs are built");
    assert!(found.is_empty(), "{} of {count} inputs differ: {found:?}", found.len());
}
