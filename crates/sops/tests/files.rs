//! Files that are encrypted here, with a data key that is known.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA512, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use roadstead_sops::{
    Class, DataKey, DataKeys, Error, Format, KeyError, KeyProvider, Limits, MacPolicy, MacProblem, MasterKey,
    Options, UnwrappedKeys, decrypt, decrypt_object, inspect, object_metadata, read_metadata,
};
use serde_json::json;
use zeroize::Zeroizing;

const KEY: [u8; 32] = [7; 32];
const MODIFIED: &str = "2024-05-06T07:08:09Z";
/// What must never be in a message.
const CANARY: &str = "canary-3f9c";

/// Opens whatever says that it is wrapped as `known:` and the key in base64.
struct Known;

impl KeyProvider for Known {
    fn unwrap(&self, key: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        match key.enc().split_once(':') {
            Some(("known", text)) => Ok(Some(DataKey::new(Zeroizing::new(STANDARD.decode(text).unwrap())))),
            Some(("broken", _)) => Err(KeyError::new("it is broken")),
            _ => Ok(None),
        }
    }
}

fn known(key: &[u8]) -> String {
    format!("known:{}", STANDARD.encode(key))
}

fn seal(plain: &str, place: &str, kind: &str) -> String {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &KEY).unwrap());
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&digest(&SHA512, format!("{place}{plain}").as_bytes()).as_ref()[..12]);
    let mut data = plain.as_bytes().to_vec();
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(place.as_bytes()),
            &mut data,
        )
        .unwrap();
    let [data, nonce, tag] = [&data[..], &nonce, tag.as_ref()].map(|part| STANDARD.encode(part));
    format!("ENC[AES256_GCM,data:{data},iv:{nonce},tag:{tag},type:{kind}]")
}

/// The MAC of a file whose leaves are these.
fn mac(leaves: &[&str]) -> String {
    let hash = digest(&SHA512, leaves.concat().as_bytes());
    let text: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    seal(&text, MODIFIED, "str")
}

fn metadata(leaves: &[&str]) -> String {
    format!(
        "sops:\n    age:\n        - recipient: somebody\n          enc: {}\n    lastmodified: \"{MODIFIED}\"\n    mac: {}\n",
        known(&KEY),
        mac(leaves)
    )
}

fn yaml(file: &str, policy: MacPolicy) -> Result<String, Error> {
    let options = Options { mac: policy, ..Options::new(Format::Yaml) };
    decrypt(file.as_bytes(), &options, &Known).map(|file| String::from_utf8(file.bytes.to_vec()).unwrap())
}

#[test]
fn values_of_all_types() {
    let file = format!(
        "# about\na: {}\nb:\n    - {}\n    - {}\nc: {}\nd: {}\ne: \"\"\nf: null\nx_unencrypted: 5\n{}",
        seal("text: x", "a:", "str"),
        seal("12", "b:", "int"),
        seal("a comment", "b:", "comment"),
        seal("True", "c:", "bool"),
        seal("1.5", "d:", "float"),
        metadata(&["text: x", "12", "True", "1.5", "5"])
    );
    let expected = "# about\na: 'text: x'\nb:\n    - 12\n    #a comment\nc: true\nd: 1.5\ne: \"\"\nf: null\nx_unencrypted: 5\n";
    assert_eq!(yaml(&file, MacPolicy::Verify).unwrap(), expected);
}

#[test]
fn the_mac_is_looked_at_as_the_policy_says() {
    let file = format!("a: {}\n{}", seal(CANARY, "a:", "str"), metadata(&["something else"]));
    let error = yaml(&file, MacPolicy::Verify).unwrap_err();
    assert_eq!(error, Error::Mac(MacProblem::Mismatch));
    assert!(!format!("{error} {error:?}").contains(CANARY));
    let options = Options { mac: MacPolicy::Warn, ..Options::new(Format::Yaml) };
    let decrypted = decrypt(file.as_bytes(), &options, &Known).unwrap();
    assert_eq!(decrypted.warning, Some(MacProblem::Mismatch));
    assert!(!format!("{decrypted:?}").contains(CANARY));
    assert_eq!(yaml(&file, MacPolicy::Ignore).unwrap(), format!("a: {CANARY}\n"));
    // The time of the last change is bound to it.
    let file = format!("a: {}\n{}", seal("x", "a:", "str"), metadata(&["x"]).replace("08:09", "08:10"));
    assert_eq!(yaml(&file, MacPolicy::Verify).unwrap_err(), Error::Mac(MacProblem::Unreadable));
}

#[test]
fn values_belong_to_their_place() {
    let file = format!("b: {}\n{}", seal(CANARY, "a:", "str"), metadata(&[CANARY]));
    let error = yaml(&file, MacPolicy::Verify).unwrap_err();
    assert_eq!(error.class(), Class::Value);
    assert!(error.to_string().contains("\"b\""), "{error}");
    // A plain value where an encrypted one is due is not shown.
    let file = format!("a:\n    b: {CANARY}\n{}", metadata(&[CANARY]));
    let error = yaml(&file, MacPolicy::Verify).unwrap_err();
    assert!(error.to_string().contains("a:b") && !format!("{error} {error:?}").contains(CANARY), "{error}");
}

/// Which values are encrypted is said in Go's syntax, with all that it has; what Go does not take matches nothing.
#[test]
fn rules_are_regular_expressions_of_go() {
    let file = |name: &str, value: &str, rule: &str| {
        let name = serde_json::to_string(name).unwrap();
        let rule = serde_json::to_string(rule).unwrap();
        format!("{name}: {value}\n{}    encrypted_regex: {rule}\n", metadata(&["x"]))
    };
    for (rule, matches, other) in [
        ("^[a-c--]+$", "a-c", "d"),
        (r"^\141$", "a", "141"),
        (r"a\B", "ab", "a"),
        (r"^\Bé", "é", "aé"),
        (r"(?:a{10}){2}", "aaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaa"),
    ] {
        let sealed = seal("x", &format!("{matches}:"), "str");
        assert!(yaml(&file(matches, &sealed, rule), MacPolicy::Verify).unwrap().ends_with(": x\n"), "{rule}");
        assert!(yaml(&file(other, "x", rule), MacPolicy::Verify).unwrap().ends_with(": x\n"), "{rule}");
    }
    for rule in ["a**", "a+*", "a{2}{3}", "(?:a{100}){100}", r"\1", "("] {
        assert_eq!(yaml(&file("aa", "x", rule), MacPolicy::Verify).unwrap(), "aa: x\n", "{rule}");
    }
    for rule in ["a(?i)*", r"(?:\pL{100}){10}"] {
        let error = yaml(&file("aa", "x", rule), MacPolicy::Verify).unwrap_err();
        assert_eq!(error.class(), Class::Metadata, "{rule}: {error}");
    }
}

#[test]
fn groups_are_combined() {
    let field = |x: u8| {
        // A polynomial of the first degree over the field, the same for all bytes: 7 + 1·x.
        let mut share = vec![7 ^ x; 32];
        share.push(x);
        known(&share)
    };
    let with = |keys: &str, threshold: usize| {
        format!(
            "a: {}\nsops:\n    key_groups:\n{keys}    shamir_threshold: {threshold}\n    lastmodified: \"{MODIFIED}\"\n    mac: {}\n",
            seal("x", "a:", "str"),
            mac(&["x"])
        )
    };
    let group = |enc: &str| format!("        - age:\n            - recipient: r\n              enc: {enc}\n");
    let [one, two, lost] = [field(1), field(2), "broken:x".to_owned()].map(|enc| group(&enc));
    let all = format!("{one}{two}{lost}");
    assert_eq!(yaml(&with(&all, 2), MacPolicy::Verify).unwrap(), "a: x\n");
    let error = yaml(&with(&all, 3), MacPolicy::Verify).unwrap_err();
    assert_eq!(error.class(), Class::NoKey);
    assert!(error.to_string().contains("2 of 3 key groups opened, 3 are needed"), "{error}");
    assert!(error.to_string().contains("group 3: age r: it is broken"), "{error}");
    assert_eq!(yaml(&with(&lost, 0), MacPolicy::Verify).unwrap_err().class(), Class::NoKey);

    // A key of each group that opened is named, and none of what did not open.
    let named =
        |recipient: &str, keys: &str| keys.replace("recipient: r\n", &format!("recipient: {recipient}\n"));
    let file = with(&[named("first", &one), named("lost", &lost), named("second", &two)].concat(), 2);
    let opened_by = |file: &str| {
        let metadata = read_metadata(file.as_bytes(), Format::Yaml, &Limits::default()).unwrap();
        Known.data_key(metadata.wrapped()).unwrap().opened_by().to_vec()
    };
    assert_eq!(opened_by(&file), ["age first", "age second"]);
    // Names are the file's, and bounded together; one that does not fit is left out.
    let many: String = (1..=32).map(|x| named(&format!("k{x:0>99}"), &group(&field(x)))).collect();
    let names = opened_by(&with(&many, 2));
    assert!(names.len() == 4 && names.concat().len() <= 512, "{names:?}");
    let escaped = "\\u0001".repeat(300);
    let file = with(&[named(&format!("\"{escaped}\""), &one), named("second", &two)].concat(), 2);
    assert_eq!(opened_by(&file), ["age second"]);
}

/// A wrong share is named where it shows, by its group; where it makes another key, the value that does not open tells of it.
#[test]
fn a_wrong_share_is_told() {
    let file = |shares: &[&[u8]]| {
        let entry = |share: &&[u8]| {
            format!("        - age:\n            - recipient: r\n              enc: {}\n", known(share))
        };
        format!(
            "a: {}\nsops:\n    key_groups:\n{}    shamir_threshold: 2\n    lastmodified: \"{MODIFIED}\"\n    mac: {}\n",
            seal("x", "a:", "str"),
            shares.iter().map(entry).collect::<String>(),
            mac(&["x"])
        )
    };
    // A constant polynomial: each share is the key itself, and its number.
    let share = |number: u8| [&KEY[..], &[number]].concat();
    let (one, two, three) = (share(1), share(2), share(3));
    assert_eq!(yaml(&file(&[&one, &two, &three]), MacPolicy::Verify).unwrap(), "a: x\n");
    let mut flipped = share(2);
    flipped[5] ^= 1;
    let copy = share(1);
    for (shares, class, says) in [
        ([&one, &two, &copy], Class::NoKey, "the shares of groups 1 and 3 have the same number"),
        ([&one, &vec![2; 17], &three], Class::NoKey, "the shares of groups 1 and 2 have 33 and 17 bytes"),
        ([&one, &flipped, &three], Class::Value, "combined of the shares of 3 key groups"),
    ] {
        let error = yaml(&file(&shares.map(Vec::as_slice)), MacPolicy::Verify).unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// What stands as text in flat metadata is read as Go reads it.
#[test]
fn thresholds_in_flat_metadata() {
    let groups: String = [(0, 1), (1, 2)]
        .map(|(group, number): (usize, u8)| {
            let share = known(&[&KEY[..], &[number]].concat());
            format!("sops_key_groups__list_{group}__map_age__list_0__map_enc={share}\n")
        })
        .concat();
    let file = |threshold: &str| {
        let (value, mac) = (seal("x", "a:", "str"), mac(&["x"]));
        format!(
            "a={value}\n{groups}sops_shamir_threshold={threshold}\nsops_lastmodified={MODIFIED}\nsops_mac={mac}\n"
        )
    };
    let opened = |threshold: &str| decrypt(file(threshold).as_bytes(), &Options::new(Format::Dotenv), &Known);
    for two in ["2", "0x2", "0o2", "0b1_0", "02", "+2", "-1", ""] {
        assert_eq!(opened(two).unwrap().bytes.as_slice(), b"a=x\n", "{two}");
    }
    for three in ["3", "0x3", "0b11"] {
        let error = opened(three).unwrap_err().to_string();
        assert!(error.contains("2 of 2 key groups opened, 3 are needed"), "{three}: {error}");
    }
    for wrong in ["two", "08", "2.0", " 2", "1__0"] {
        let error = opened(wrong).unwrap_err().to_string();
        assert!(error.contains("shamir_threshold is not a number"), "{wrong}: {error}");
    }
}

/// A fuzzer starts from files that open, so that it comes to what is behind their data keys.
#[test]
fn what_is_fuzzed_starts_from_files_that_open() {
    struct Any;
    impl KeyProvider for Any {
        fn unwrap(&self, _: &MasterKey) -> Result<Option<DataKey>, KeyError> {
            Ok(Some(DataKey::new(Zeroizing::new(KEY.to_vec()))))
        }
    }
    let formats = [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/sops_file");
    let mut read = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let choice = usize::from(bytes[0]);
        let options = Options { output: formats[choice / 5], ..Options::new(formats[choice % 5]) };
        let opened = decrypt(&bytes[1..], &options, &Any);
        assert!(opened.is_ok(), "{}: {}", path.display(), opened.unwrap_err());
        read.insert(choice % 5);
    }
    assert_eq!(read.len(), formats.len(), "one of each format");
}

#[test]
fn data_keys_that_someone_else_unwrapped() {
    let file = format!("a: {}\n{}", seal("x", "a:", "str"), metadata(&["x"]));
    let limits = Limits::default();
    let metadata = read_metadata(file.as_bytes(), Format::Yaml, &limits).unwrap();
    let mut keys = UnwrappedKeys::default();
    assert!(keys.data_key(metadata.wrapped()).is_err());
    keys.insert(metadata.wrapped().digest(), Known.data_key(metadata.wrapped()).unwrap());
    let options = Options::new(Format::Yaml);
    assert_eq!(decrypt(file.as_bytes(), &options, &keys).unwrap().bytes.as_slice(), b"a: x\n");
    assert!(format!("{keys:?}").ends_with(": DataKey})"));
}

#[test]
fn an_object_tells_what_is_secret() {
    let limits = Limits::default();
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
        "stringData": { "a/b": seal("x", "stringData:a/b:", "str"), "n": seal("1", "stringData:n:", "int") },
        "sops": {
            "age": [{ "recipient": "r", "enc": known(&KEY) }], "encrypted_regex": "^(data|stringData)$",
            "lastmodified": MODIFIED, "mac": "ENC[of another object]",
        },
    });
    assert_eq!(object_metadata(&object, &limits).unwrap().len(), 1);
    let decrypted = decrypt_object(object, MacPolicy::Ignore, &limits, &Known).unwrap();
    assert_eq!(decrypted.secret, ["/stringData/a~1b", "/stringData/n"]);
    assert_eq!(decrypted.object["stringData"], json!({ "a/b": "x", "n": 1 }));
    assert!(decrypted.object.get("sops").is_none());

    let file = format!(
        "A={}\nsops_age__list_0__map_enc={}\nsops_lastmodified={MODIFIED}\nsops_mac=ENC[x]\n",
        seal("x", "A:", "str"),
        known(&KEY)
    );
    // As kustomize writes it.
    let mut in_lines = STANDARD.encode(file);
    in_lines.insert(70, '\n');
    in_lines.push('\n');
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a.env": in_lines, "b": "eA==" } });
    let decrypted = decrypt_object(object, MacPolicy::Ignore, &limits, &Known).unwrap();
    assert_eq!(decrypted.secret, ["/data/a.env"]);
    assert_eq!(decrypted.object["data"], json!({ "a.env": STANDARD.encode("A=x\n"), "b": "eA==" }));
}

#[test]
fn an_inspection_tells_everything() {
    let stray = seal("x", "b_unencrypted:", "str");
    let file = format!("a: {}\nb_unencrypted: {stray}\n{}", seal("x", "a:", "str"), metadata(&["x", &stray]));
    let found = inspect(file.as_bytes(), Format::Yaml, &Limits::default(), &Known).unwrap();
    assert!(found.key.is_ok() && found.value.is_none() && found.mac.is_none());
    assert_eq!(found.misplaced.len(), 1);
    assert!(found.groups[0].opened);
}

#[test]
fn everything_is_bounded() {
    let bomb: String = (1..9)
        .map(|level| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(", ")))
        .collect();
    let bomb = format!("x: 1\n---\na0: &a0 [x, x]\n{bomb}");
    let files = [
        bomb,
        format!("a: {}1{}\n", "[".repeat(2000), "]".repeat(2000)),
        format!("a: {}\n", "- ".repeat(5000)),
        format!("a: {}\n", "x".repeat(2 << 20)),
        "? ".repeat(3000),
        "x: 1\n---\na: &a [*a]\n".to_owned(),
    ];
    for file in files {
        let file = format!("{file}{}", metadata(&[]));
        let error = yaml(&file, MacPolicy::Verify).unwrap_err();
        assert_eq!(error.class(), Class::Malformed, "{error}");
    }
    let json = format!("{{\"a\": {}", "[".repeat(1_000_000));
    let error = decrypt(json.as_bytes(), &Options::new(Format::Json), &Known).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let long = "x".repeat((5 << 20) + 1);
    assert!(decrypt(long.as_bytes(), &Options::new(Format::Binary), &Known).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Texts of any kind come out as they went in, and what is written is read again as the same.
    #[test]
    fn texts_survive(text in "[ -~\\t\\n\\u{85}\\u{a0}\\u{2028}\\u{feff}é😀#:'\"\\-]{1,40}", key in "[a-z .#:'\\-]{1,8}") {
        prop_assume!(key != "sops");
        let place = format!("{key}:");
        let quoted = serde_json::to_string(&key).unwrap();
        let file = format!("{quoted}: {}\n{}", seal(&text, &place, "str"), metadata(&[&text]));
        let written = yaml(&file, MacPolicy::Verify).unwrap();
        let documents = roadstead_kustomize::yaml::read_documents(
            written.as_bytes(), roadstead_kustomize::yaml::Dialect::Object, &roadstead_kustomize::Limits::default());
        let object = documents.unwrap()[0].value.to_json();
        prop_assert_eq!(&object[&key], &json!(text), "{}", written);
    }

    /// No input leads to a panic, in any format.
    #[test]
    fn nothing_panics(text in "([ -~\\n]|sops|: |- |ENC\\[AES256_GCM,data:|# |\\[sops\\]\n|sops_|__list_0|__map_a|\\{\"|\": \"|=|\\|\n|&a |\\*a |<<: |---\n){0,40}") {
        for format in [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary] {
            let _ = decrypt(text.as_bytes(), &Options::new(format), &Known);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary] {
            let _ = decrypt(&bytes, &Options::new(format), &Known);
        }
    }
}
