//! The cases beside the repository (`../shared/sops-cases`), most of them encrypted by SOPS itself: decrypted in process and
//! compared byte for byte with what `sops` wrote, or held to the class of its error.
//!
//! The archive is unpacked in memory, nothing of it is written anywhere. Where `../shared` is not there, the test says so and
//! passes. Cases that need a key service are for whoever speaks to one.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod cases;

use std::collections::BTreeMap;
use std::path::Path;

use roadstead_sops::{
    Class, DecryptedObject, Error, KeyRing, Limits, MacPolicy, Options, decrypt, decrypt_object,
};
use serde_json::Value as Json;

use cases::{Files, format, unpack};

/// How many cases the archive holds that need no key service: less would be a test that tests nothing.
const CASES: usize = 326;

/// What rPGP does not know, with the word that the error then has.
const UNSUPPORTED: [(&str, &str); 1] = [("key-pgp-bp256", "brainpool")];

struct Case<'c> {
    about: &'c Json,
    files: &'c Files,
}

/// What came of a case: what was written, or the class of the error with its message.
type Outcome = Result<Vec<u8>, (String, String)>;

impl Case<'_> {
    fn text(&self, field: &str) -> Option<&str> {
        self.about.get(field)?.as_str()
    }

    fn file(&self, name: &str) -> Option<&Vec<u8>> {
        self.files.get(&format!("cases/{}/{name}", self.text("name").unwrap()))
    }

    fn keys(&self) -> Result<KeyRing, (String, String)> {
        let mut ring = KeyRing::default();
        let no_key = |error: &dyn std::fmt::Display| ("no-key".to_owned(), error.to_string());
        for name in self.about["keys"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()) {
            let bytes = &self.files[&format!("keys/{name}")];
            if !ring.add(name, bytes).map_err(|error| no_key(&error))? && KeyRing::is_ssh(bytes) {
                ring.add_ssh(name, bytes).map_err(|error| no_key(&error))?;
            }
        }
        Ok(ring)
    }

    fn run(&self, mac: MacPolicy) -> Outcome {
        let keys = self.keys()?;
        let input = self.file(self.text("input").unwrap()).unwrap();
        let from = format(self.text("format").unwrap());
        let options =
            Options { output: self.text("output_format").map_or(from, format), mac, ..Options::new(from) };
        let classified = |error: Error| (error.class().to_string(), error.to_string());
        decrypt(input, &options, &keys).map(|file| file.bytes.to_vec()).map_err(classified)
    }

    fn run_object(&self) -> Result<DecryptedObject, (String, String)> {
        let input = self.file(self.text("input").unwrap()).unwrap();
        let limits = roadstead_kustomize::Limits::default();
        let dialect = roadstead_kustomize::yaml::Dialect::Object;
        let documents = roadstead_kustomize::yaml::read_documents(input, dialect, &limits).unwrap();
        let object = documents[0].value.to_json();
        decrypt_object(object, MacPolicy::Ignore, &Limits::default(), &self.keys()?)
            .map_err(|error| (error.error.class().to_string(), error.to_string()))
    }

    /// Does an error have one of the classes that the case allows?
    fn allows(&self, class: &str) -> bool {
        match &self.about["class"] {
            Json::String(only) => only == class,
            Json::Array(several) => several.iter().any(|allowed| allowed == class),
            _ => false,
        }
    }

    /// What is wrong with an outcome.
    fn check(&self, outcome: &Outcome, expected: &str) -> Option<String> {
        let unsupported = UNSUPPORTED.iter().find(|(name, _)| Some(*name) == self.text("name"));
        if let (Some((_, word)), Err((class, message))) = (unsupported, outcome) {
            return (class != "no-key" || !message.contains(word)).then(|| format!("[{class}] {message}"));
        }
        match (self.text("result").unwrap(), outcome) {
            ("any", _) => None,
            ("ok", Ok(got)) => {
                let expected = self.file(expected).unwrap();
                (got != expected).then(|| difference(got, expected))
            }
            ("ok", Err((class, message))) => Some(format!("[{class}] {message}")),
            ("error", Err((class, message))) => {
                (!self.allows(class)).then(|| format!("wrong class [{class}] {message}"))
            }
            ("error", Ok(_)) => Some("it was decrypted, and sops refuses it".into()),
            (other, _) => Some(format!("unknown result {other}")),
        }
    }

    fn check_object(&self) -> Option<String> {
        match self.run_object() {
            Ok(got) => {
                let expected =
                    self.file("expected").map(|bytes| serde_json::from_slice::<Json>(bytes).unwrap());
                (Some(&got.object) != expected.as_ref()).then(|| "another object".into())
            }
            Err(error) => self.check(&Err(error), ""),
        }
    }

    /// The same without a look at the MAC: all that differs is what only the MAC notices.
    fn check_without_mac(&self) -> Option<String> {
        let outcome = self.run(MacPolicy::Ignore);
        let (only_mac, plain) = (self.allows("mac"), self.file("expected-without-mac"));
        match (only_mac, plain, &outcome) {
            (true, Some(expected), Ok(got)) => (got != expected).then(|| difference(got, expected)),
            (true, Some(_), Err((class, message))) => Some(format!("without the MAC: [{class}] {message}")),
            (true, None, _) => None,
            (false, ..) => self.check(&outcome, "expected"),
        }
    }
}

fn difference(got: &[u8], expected: &[u8]) -> String {
    let (got, expected) = (String::from_utf8_lossy(got), String::from_utf8_lossy(expected));
    let same = got.split('\n').zip(expected.split('\n')).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.split('\n').nth(same).unwrap_or("(end)").to_owned();
    format!("line {}: got {:?}, expected {:?}", same + 1, line(&got), line(&expected))
}

#[test]
fn public_cases() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if !shared.exists() {
        eprintln!("NOT TESTED: {} is not there, so the cases of SOPS are left out", shared.display());
        return;
    }
    let files = unpack(&shared.join("sops-cases/cases.tar.gz"));
    let all: Json = serde_json::from_slice(&files["cases.json"]).unwrap();
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for about in all["cases"].as_array().unwrap() {
        let case = Case { about, files: &files };
        if case.text("tier") == Some("kms") {
            continue;
        }
        let name = case.text("name").unwrap();
        let problem = if case.text("kind") == Some("object") {
            case.check_object()
        } else {
            case.check(&case.run(MacPolicy::Verify), "expected").or_else(|| case.check_without_mac())
        };
        let kind = name.split('-').next().unwrap_or(name).to_owned();
        let count = counts.entry(kind).or_default();
        match problem {
            None => count.0 += 1,
            Some(problem) => {
                count.1 += 1;
                wrong.push(format!("{name}: {problem}"));
            }
        }
    }
    let passed: usize = counts.values().map(|(passed, _)| passed).sum();
    for (kind, (passed, failed)) in &counts {
        eprintln!("{kind:12} {passed:4} passed {failed:4} failed");
    }
    assert!(wrong.is_empty(), "{passed} passed, {} failed\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(passed, CASES);
}

/// Files that were damaged in some way lead to an error or an answer.
#[test]
fn damaged_files_do_no_harm() {
    /// Of each case.
    const TRIES: usize = 12;
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if !shared.exists() {
        eprintln!("NOT TESTED: {} is not there, so the cases of SOPS are left out", shared.display());
        return;
    }
    let files = unpack(&shared.join("sops-cases/cases.tar.gz"));
    let all: Json = serde_json::from_slice(&files["cases.json"]).unwrap();
    let mut random = Random(0x5eed);
    for about in all["cases"].as_array().unwrap() {
        let case = Case { about, files: &files };
        let (Some("core" | "exotic"), None) = (case.text("tier"), case.text("kind")) else { continue };
        let Ok(keys) = case.keys() else { continue };
        let input = case.file(case.text("input").unwrap()).unwrap();
        for _ in 0..TRIES {
            let options =
                Options { mac: MacPolicy::Warn, ..Options::new(format(case.text("format").unwrap())) };
            // Whatever comes of it.
            let _ = decrypt(&random.damage(input), &options, &keys);
        }
    }
}

/// Bytes that mean something in one of the formats.
const SPECIAL: &[u8] = b"\n\"':-#[{&*!|>%@`\t\\=,?]}<~";

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % limit.max(1)
    }

    fn damage(&mut self, file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        for _ in 0..=self.below(3) {
            let (at, length) = (self.below(file.len()), self.below(64));
            let end = (at + length).min(file.len());
            match self.below(5) {
                0 => drop(file.drain(at..end)),
                1 => {
                    let part = file[at..end].to_vec();
                    file.splice(at..at, part);
                }
                2 => file.truncate(at),
                3 => file.insert(at, SPECIAL[self.below(SPECIAL.len())]),
                _ => {
                    if let Some(byte) = file.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        file
    }
}

/// Errors say which class they are of, for programs.
#[test]
fn classes_have_names() {
    let classes = [Class::Malformed, Class::NotEncrypted, Class::NoKey, Class::Mac];
    assert_eq!(classes.map(|class| class.to_string()), ["malformed", "not-encrypted", "no-key", "mac"]);
}
