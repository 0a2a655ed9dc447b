//! Four times the values take about four times the time, in every format and wherever a name is looked for among others: a list
//! that is searched for each of them would make it sixteen times.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use roadstead_sops::{
    DataKey, Format, KeyError, KeyProvider, MacPolicy, MasterKey, Options, decrypt, read_metadata,
};
use zeroize::Zeroizing;

const SMALL: usize = 12_000;
const LARGE: usize = 4 * SMALL;
/// Well above what is linear, and below what is quadratic.
const MOST: f64 = 9.0;
/// Other processes may take the processor: the best of some runs counts, and they may be as many as this.
const RUNS: usize = 20;

/// Everything opens: nothing here is encrypted.
struct Any;

impl KeyProvider for Any {
    fn unwrap(&self, _: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        Ok(Some(DataKey::new(Zeroizing::new(vec![7; 32]))))
    }
}

fn time(run: &impl Fn()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

#[track_caller]
fn check(what: &str, work: impl Fn(&str), file: impl Fn(usize) -> String) {
    /// One at a time: they are not to take the processor from one another.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (small, large) = (file(SMALL), file(LARGE));
    let (mut best_small, mut best_large) = (Duration::MAX, Duration::MAX);
    let mut ratio = f64::MAX;
    for _ in 0..RUNS {
        best_small = best_small.min(time(&|| work(&small)));
        best_large = best_large.min(time(&|| work(&large)));
        ratio = best_large.as_secs_f64() / best_small.as_secs_f64();
        if ratio < MOST {
            return;
        }
    }
    panic!("{what}: four times as much takes {ratio:.1} times as long ({best_large:?})");
}

/// Decrypts a file; only names that end with the suffix would be encrypted.
fn decrypted(input: Format, output: Format) -> impl Fn(&str) {
    move |file| {
        let options = Options { output, mac: MacPolicy::Ignore, ..Options::new(input) };
        std::hint::black_box(decrypt(file.as_bytes(), &options, &Any).unwrap());
    }
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

const IN_YAML: &str = "sops:\n    encrypted_suffix: _secret\n    age: [{recipient: r, enc: e}]\n    lastmodified: '2024-05-06T07:08:09Z'\n";
const IN_INI: &str =
    "[sops]\nencrypted_suffix=_secret\nage__list_0__map_enc=e\nlastmodified=2024-05-06T07:08:09Z\n";
const IN_VARIABLES: &str =
    "sops_encrypted_suffix=_secret\nsops_age__list_0__map_enc=e\nsops_lastmodified=2024-05-06T07:08:09Z\n";

fn json(values: &str) -> String {
    format!(
        "{{{values}\"sops\": {{\"encrypted_suffix\": \"_secret\", \"age\": [{{\"enc\": \"e\"}}], \"lastmodified\": \"2024-05-06T07:08:09Z\"}}}}"
    )
}

#[test]
fn yaml() {
    let file = |count| format!("{}{IN_YAML}", lines(count, |n| format!("name-{n}: value\n")));
    check("names of a map", decrypted(Format::Yaml, Format::Yaml), file);
    let file = |count| format!("a: 1\n{IN_YAML}---\n{}", lines(count, |_| "sops: 1\n".into()));
    check("metadata in a second document", decrypted(Format::Yaml, Format::Yaml), file);
}

#[test]
fn json_objects() {
    let file = |count| json(&lines(count, |n| format!("\"name-{n}\": \"value\", ")));
    check("names of an object", decrypted(Format::Json, Format::Json), file);
}

#[test]
fn ini() {
    let file = |count| format!("[a]\n{}{IN_INI}", lines(count, |n| format!("name-{n} = value\n")));
    check("names of a section", decrypted(Format::Ini, Format::Json), file);
    let file = |count| format!("{}{IN_INI}", lines(count, |n| format!("[name-{n}]\na = b\n")));
    check("sections", decrypted(Format::Ini, Format::Ini), file);
    let file =
        |count| json(&format!("\"a\": {{{}\"z\": 1}}, ", lines(count, |n| format!("\"name-{n}\": 1, "))));
    check("names of a section that is written", decrypted(Format::Json, Format::Ini), file);
}

#[test]
fn dotenv() {
    let file = |count| format!("{}{IN_VARIABLES}", lines(count, |n| format!("NAME_{n}=value\n")));
    check("variables", decrypted(Format::Dotenv, Format::Dotenv), file);
}

#[test]
fn flat_metadata() {
    let work = |file: &str| {
        // What is in there does not matter to the lists of keys.
        read_metadata(file.as_bytes(), Format::Dotenv, &roadstead_sops::Limits::default()).unwrap();
    };
    for (what, name) in
        [("unknown fields", "x-"), ("fields of a map", "x__map_"), ("items of a list", "x__list_")]
    {
        let file = |count| format!("{}{IN_VARIABLES}", lines(count, |n| format!("sops_{name}{n}=value\n")));
        check(what, work, file);
    }
    let work = |file: &str| {
        read_metadata(file.as_bytes(), Format::Dotenv, &roadstead_sops::Limits::default()).unwrap_err();
    };
    check("levels of one name", work, |count| {
        format!("sops_x{}=value\n{IN_VARIABLES}", "__map_".repeat(count))
    });
}
