//! All public cases beside the repository (`../shared/kustomize-cases`): built in process and compared byte for byte with
//! what the real kustomize printed.
//!
//! The archive is unpacked in memory, nothing of it is written anywhere. Where `../shared` is not there, the test says so
//! and passes: the cases carry licences of their own and are not part of this repository.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use roadstead_kustomize::{Generate, LoadRestrictor, MemoryTree, Options, TreePath, build};

/// How many cases the archive holds, and how many of them kustomize refuses: less would be a test that tests nothing.
const CASES: usize = 1050;
const REFUSED: usize = 81;

/// Many small builds: two threads are what a runner of CI has.
const THREADS: usize = 2;

#[derive(Default)]
struct Case {
    input: MemoryTree,
    cmd: String,
    /// What kustomize printed; `None` where it refuses.
    expected: Option<Vec<u8>>,
}

fn unpack(archive: &Path) -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    let file = flate2::read::GzDecoder::new(File::open(archive).unwrap());
    for entry in tar::Archive::new(file).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let Some((case, rest)) = path.strip_prefix("cases/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        let kind = entry.header().entry_type();
        let case = cases.entry(case.to_owned()).or_default();
        if let Some(inner) = rest.strip_prefix("input/") {
            let inner = TreePath::new(inner).unwrap();
            if kind.is_symlink() {
                let target = entry.link_name().unwrap().unwrap().to_str().unwrap().to_owned();
                case.input.insert_symlink(inner, target);
            } else if kind.is_dir() {
                case.input.insert_directory(inner);
            } else {
                case.input.insert_file(inner, bytes(&mut entry));
            }
        } else if rest == "cmd" {
            case.cmd = String::from_utf8(bytes(&mut entry)).unwrap();
        } else if rest == "expected.yaml" {
            case.expected = Some(bytes(&mut entry));
        }
    }
    cases
}

fn bytes(entry: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).unwrap();
    bytes
}

enum Outcome {
    Identical,
    RefusedAsExpected,
    Wrong(String),
}

fn run(case: &Case) -> Outcome {
    let mut words = case.cmd.split_whitespace();
    let path = words.next().unwrap_or(".");
    let mut options = Options { generate: Generate::Never, ..Options::default() };
    while let Some(word) = words.next() {
        match word {
            "--load-restrictor" => {
                assert_eq!(words.next(), Some("LoadRestrictionsNone"));
                options.load_restrictor = LoadRestrictor::None;
            }
            "--enable-managedby-label" => options.managed_by_label = true,
            other => return Outcome::Wrong(format!("the test does not know the flag {other}")),
        }
    }
    let built = build(&case.input, &TreePath::new(path).unwrap(), &options).map(|build| build.to_yaml());
    match (built, &case.expected) {
        (Ok(got), Some(expected)) if got.as_bytes() == as_released(expected) => Outcome::Identical,
        (Err(_), None) => Outcome::RefusedAsExpected,
        (Ok(_), None) => Outcome::Wrong("kustomize refuses it".into()),
        (Err(error), Some(_)) => Outcome::Wrong(error.to_string()),
        (Ok(got), Some(expected)) => {
            Outcome::Wrong(first_difference(&got, &String::from_utf8_lossy(expected)))
        }
    }
}

/// The program that made the cases was built from source, and says so where a released one says its version.
fn as_released(expected: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(expected)
        .replace("managed-by: kustomize-(devel)", "managed-by: kustomize-v5.8.1")
        .into_bytes()
}

fn first_difference(got: &str, expected: &str) -> String {
    let same = got.lines().zip(expected.lines()).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(end)").to_owned();
    format!("line {}: got {:?}, expected {:?}", same + 1, line(got), line(expected))
}

#[test]
fn public_cases_are_identical() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if !shared.exists() {
        eprintln!(
            "NOT TESTED: {} is not there, so the public cases of kustomize are left out",
            shared.display()
        );
        return;
    }
    let cases = unpack(&shared.join("kustomize-cases/cases-public.tar.gz"));
    let cases: Vec<(&String, &Case)> = cases.iter().collect();
    let (identical, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match run(case) {
                        Outcome::Identical => identical.fetch_add(1, Ordering::Relaxed),
                        Outcome::RefusedAsExpected => refused.fetch_add(1, Ordering::Relaxed),
                        Outcome::Wrong(why) => {
                            wrong.lock().unwrap().push(format!("{name}: {why}"));
                            0
                        }
                    };
                }
            });
        }
    });
    let (identical, refused) = (identical.into_inner(), refused.into_inner());
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    let counts = format!(
        "{identical} identical, {refused} errors as expected, {} wrong (of {})",
        wrong.len(),
        cases.len()
    );
    eprintln!("{counts}");
    assert!(wrong.is_empty(), "{counts}\n{}", wrong.join("\n"));
    assert_eq!((identical, refused), (CASES - REFUSED, REFUSED), "{counts}");
}
