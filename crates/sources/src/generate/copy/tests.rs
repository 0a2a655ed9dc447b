use super::super::spec::Copy;
use super::*;
use crate::source_cases::{source_cases, tell};

/// Sources in memory.
#[derive(Default)]
struct Memory(BTreeMap<String, Arc<Files>>);

impl Workspace for Memory {
    fn source(&mut self, alias: &str) -> Result<Arc<Files>, CopyError> {
        Ok(Arc::clone(&self.0[alias]))
    }

    fn read<'p>(&self, piece: &'p Piece) -> io::Result<Cow<'p, [u8]>> {
        match piece {
            Piece::Made(bytes) => Ok(Cow::Borrowed(bytes)),
            Piece::Lies { .. } => Err(io::Error::other("it lies nowhere")),
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<Files, CopyError> {
        let tree = crate::unpack(packed, &TreeLimits::default())?;
        let files = tree.into_iter().map(|(path, entry)| match entry {
            crate::Entry::File { bytes, executable } => {
                (path, Copied { content: Piece::Made(bytes.into()), executable })
            }
            crate::Entry::Symlink { .. } => panic!("a link"),
        });
        Ok(files.collect())
    }
}

fn files(all: &[(&str, &str)]) -> Files {
    let file = |text: &str| Copied { content: Piece::Made(text.as_bytes().into()), executable: false };
    all.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
}

fn copy(from: &str, to: &str, exclude: &[&str], strategy: Strategy) -> Copy {
    let exclude = exclude.iter().map(|pattern| (*pattern).to_owned()).collect();
    Copy { from: from.to_owned(), to: to.to_owned(), exclude, strategy }
}

/// What copies come to, as `path=content`.
fn made(memory: &mut Memory, copies: &[Copy]) -> Result<Vec<String>, String> {
    let mut staged = Files::new();
    for copy in copies {
        let operation = copy.read().map_err(|error| error.to_string())?;
        apply(&operation, memory, &TreeLimits::default(), &mut staged).map_err(|error| error.to_string())?;
    }
    let line = |(path, file): (String, Copied)| match file.content {
        Piece::Made(bytes) => format!("{path}={}", String::from_utf8_lossy(&bytes)),
        Piece::Lies { .. } => path,
    };
    Ok(staged.into_iter().map(line).collect())
}

fn of(all: &[(&str, &str)], copies: &[Copy]) -> Result<Vec<String>, String> {
    let mut memory = Memory::default();
    memory.0.insert("s".to_owned(), Arc::new(files(all)));
    made(&mut memory, copies)
}

fn plain(from: &str, to: &str) -> Copy {
    copy(from, to, &[], Strategy::Overwrite)
}

/// The cases that the specification brings.
#[test]
fn cases_of_the_specification() {
    let Some(all) = source_cases("generators") else { return };
    let text = &all["generator-copy.json"];
    let cases: serde_json::Value = serde_json::from_slice(text).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    for (number, case) in cases.iter().enumerate() {
        let mut memory = Memory::default();
        for (alias, source) in case["sources"].as_object().unwrap() {
            let all: Vec<(&str, &str)> = source
                .as_object()
                .unwrap()
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str().unwrap()))
                .collect();
            memory.0.insert(alias.clone(), Arc::new(files(&all)));
        }
        let copies = case["copy"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| plain(one[0].as_str().unwrap(), one[1].as_str().unwrap()));
        let made = made(&mut memory, &copies.collect::<Vec<_>>()).unwrap();
        let mut expected: Vec<String> = match &case["result"] {
            serde_json::Value::Array(paths) => {
                paths.iter().map(|path| path.as_str().unwrap().to_owned()).collect()
            }
            serde_json::Value::Object(files) => {
                files.iter().map(|(path, text)| format!("{path}={}", text.as_str().unwrap())).collect()
            }
            other => panic!("{other}"),
        };
        expected.sort_unstable();
        let with_content = case["result"].is_object();
        let made: Vec<String> = made
            .into_iter()
            .map(|line| if with_content { line } else { line.split('=').next().unwrap().to_owned() })
            .collect();
        assert_eq!(made, expected, "case {number}: {case}");
    }
    tell(format_args!("generator-copy.json: {} of {0} as expected", cases.len()));
}

#[test]
fn files_and_folders_come_to_lie_as_cp_has_it() {
    let all = [("a.yaml", "1"), ("dir/b.yaml", "2"), ("dir/sub/c.yaml", "3"), ("other/b.yaml", "4")];
    for (copies, expected) in [
        (vec![plain("@s/a.yaml", "@artifact/x.yaml")], vec!["x.yaml=1"]),
        (vec![plain("@s/a.yaml", "@artifact/x/")], vec!["x/a.yaml=1"]),
        (
            vec![plain("@s/dir", "@artifact/x"), plain("@s/a.yaml", "@artifact/x")],
            vec!["x/a.yaml=1", "x/dir/b.yaml=2", "x/dir/sub/c.yaml=3"],
        ),
        (vec![plain("@s/dir/**", "@artifact/")], vec!["b.yaml=2", "sub/c.yaml=3"]),
        (vec![plain("@s/./dir//sub/", "@artifact/.")], vec!["sub/c.yaml=3"]),
        // Any other pattern keeps what it matched.
        (vec![plain("@s/*/b.yaml", "@artifact/x")], vec!["x/dir/b.yaml=2", "x/other/b.yaml=4"]),
        (vec![plain("@s/di*", "@artifact/x")], vec!["x/dir/b.yaml=2", "x/dir/sub/c.yaml=3"]),
        (
            vec![plain("@s/dir/b.yaml", "@artifact/"), plain("@s/other/b.yaml", "@artifact/")],
            vec!["b.yaml=4"],
        ),
    ] {
        assert_eq!(of(&all, &copies).unwrap(), expected, "{copies:?}");
    }
}

#[test]
fn what_is_excluded_stays_out_by_its_path_its_name_or_its_folder() {
    let all = [
        ("app/a.yaml", ""),
        ("app/docs/x.md", ""),
        ("app/docs/y.yaml", ""),
        ("app/test/z.yaml", ""),
        ("top.md", ""),
    ];
    for (from, exclude, expected) in [
        ("@s/", vec!["*.md"], vec!["app/a.yaml=", "app/docs/y.yaml=", "app/test/z.yaml="]),
        ("@s/app/**", vec!["docs"], vec!["a.yaml=", "test/z.yaml="]),
        ("@s/app/**", vec!["app/docs/**"], vec!["a.yaml=", "test/z.yaml="]),
        ("@s/app", vec!["docs/*.yaml", "test/**"], vec!["app/a.yaml=", "app/docs/x.md="]),
        ("@s/app/**", vec!["**/{x,z}.*"], vec!["a.yaml=", "docs/y.yaml="]),
    ] {
        let made = of(&all, &[copy(from, "@artifact/", &exclude, Strategy::Overwrite)]).unwrap();
        assert_eq!(made, expected, "{from} {exclude:?}");
    }
    let none = of(&all, &[copy("@s/*.md", "@artifact/", &["top.*"], Strategy::Overwrite)]).unwrap_err();
    assert!(none.contains("are excluded"), "{none}");
}

#[test]
fn files_that_are_there_are_merged_where_that_is_asked_for() {
    let all =
        [("base/v.yaml", "a: {x: 1, z: 1}\n"), ("over/v.yaml", "a: {z: 2}\n"), ("over/new.yaml", "n: 1\n")];
    let copies = [plain("@s/base/**", "@artifact/"), copy("@s/over/**", "@artifact/", &[], Strategy::Merge)];
    assert_eq!(of(&all, &copies).unwrap(), ["new.yaml=n: 1\n", "v.yaml=a:\n  x: 1\n  z: 2\n"]);
    let broken = [("base/v.yaml", "a: {x: 1}\n"), ("over/v.yaml", "{{ not yaml }}")];
    let why = of(&broken, &copies).unwrap_err();
    assert!(why.contains("'v.yaml' cannot be merged"), "{why}");
}

#[test]
fn archives_are_unpacked_wherever_they_lie() {
    let mut builder = crate::TreeBuilder::new(TreeLimits::default());
    let file = crate::Entry::File { bytes: b"c: 1\n".to_vec(), executable: false };
    builder.insert("chart/Chart.yaml".to_owned(), file).unwrap();
    let packed = crate::pack(&builder.finish().unwrap()).unwrap().bytes;
    let mut memory = Memory::default();
    let mut source = files(&[("charts/readme.md", "x"), ("bad.tgz", "no archive")]);
    source.insert(
        "charts/deep/a.TGZ".to_owned(),
        Copied { content: Piece::Made(packed.into()), executable: false },
    );
    memory.0.insert("s".to_owned(), Arc::new(source));
    let extract = |from: &str| copy(from, "@artifact/x", &[], Strategy::Extract);
    for from in ["@s/charts/**", "@s/charts/deep/a.TGZ", "@s/**/*.TGZ"] {
        assert_eq!(made(&mut memory, &[extract(from)]).unwrap(), ["x/chart/Chart.yaml=c: 1\n"], "{from}");
    }
    for (from, said) in [
        ("@s/charts", "requires a .tar.gz"),
        ("@s/charts/readme.md", "requires a .tar.gz"),
        ("@s/bad.tgz", "'bad.tgz' cannot be extracted"),
        ("@s/none*", "no files match"),
    ] {
        let why = made(&mut memory, &[extract(from)]).unwrap_err();
        assert!(why.contains(said), "{said}: {why}");
    }
    // A folder that a pattern names holds nothing to extract, and what is left out is missed where nothing else is named.
    assert!(made(&mut memory, &[extract("@s/char*")]).unwrap().is_empty());
    let without = |patterns: &[&str]| copy("@s/charts/**", "@artifact/x", patterns, Strategy::Extract);
    assert!(made(&mut memory, &[without(&["*.TGZ"])]).unwrap().is_empty());
    let why = made(&mut memory, &[without(&["*.TGZ", "*.md"])]).unwrap_err();
    assert!(why.contains("all files that match pattern 'charts/**' are excluded"), "{why}");
}

#[test]
fn what_is_not_there_is_named() {
    for (from, said) in [
        ("@s/nothing", "'nothing' does not exist"),
        ("@s/*.json", "no files match pattern '*.json'"),
        ("@s/a.yaml/**", "no files match"),
    ] {
        let why = of(&[("a.yaml", "1")], &[plain(from, "@artifact/")]).unwrap_err();
        assert!(why.contains(said), "{said}: {why}");
    }
}
