//! The project's own cases: `cases/NAME/input`, built and compared byte for byte with what the real kustomize printed
//! (`cases/regenerate.sh` asks it). Where kustomize refuses, so must we; our words are our own, and stand in `error.txt`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};

use roadstead_kustomize::{Error, Generate, MemoryTree, Options, TreePath, build};

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut cases: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join("input").is_dir()).collect();
    cases.sort();
    cases
}

fn load(dir: &Path, prefix: &str, tree: &mut MemoryTree) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            load(&entry.path(), &format!("{path}/"), tree);
        } else {
            tree.insert_file(TreePath::new(&path).unwrap(), fs::read(entry.path()).unwrap());
        }
    }
}

fn run(case: &Path) -> Result<String, Error> {
    let mut tree = MemoryTree::new();
    load(&case.join("input"), "", &mut tree);
    let path = fs::read_to_string(case.join("path")).unwrap_or_default();
    let options = Options { generate: Generate::Never, ..Options::default() };
    build(&tree, &TreePath::new(path.trim()).unwrap(), &options).map(|build| build.to_yaml())
}

#[test]
fn cases_are_as_kustomize_builds_them() {
    let cases = cases();
    assert!(cases.len() >= 20, "only {} cases found", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        let expected = fs::read_to_string(case.join("expected.yaml"));
        match (run(case), expected) {
            (Ok(got), Ok(expected)) if got == expected => {}
            (Ok(got), Ok(expected)) => {
                let line = got.lines().zip(expected.lines()).position(|(a, b)| a != b);
                let at = line.unwrap_or_else(|| got.lines().count().min(expected.lines().count()));
                let show = |text: &str| text.lines().nth(at).unwrap_or("(end)").to_owned();
                wrong.push(format!(
                    "{name}:{}: got {:?}, expected {:?}",
                    at + 1,
                    show(&got),
                    show(&expected)
                ));
            }
            (Err(error), Ok(_)) => wrong.push(format!("{name}: {error}")),
            (Ok(_), Err(_)) => wrong.push(format!("{name}: kustomize refuses it")),
            (Err(error), Err(_)) => {
                assert!(
                    case.join("expected_error.txt").is_file(),
                    "{name} has no expectation; run regenerate.sh"
                );
                let ours = fs::read_to_string(case.join("error.txt")).unwrap_or_default();
                if ours.trim_end() != error.to_string() {
                    wrong.push(format!(
                        "{name}: says {:?}, error.txt {:?}",
                        error.to_string(),
                        ours.trim_end()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn building_twice_gives_the_same_bytes() {
    for case in cases() {
        let (first, second) = (run(&case), run(&case));
        assert_eq!(first.map_err(|e| e.to_string()), second.map_err(|e| e.to_string()));
    }
}
