//! Files for very many recipients take little time and memory, or are refused by the number that is too much.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_sops::{DataKey, KeyProvider as _, KeyRing, MacPolicy, MasterKey, Options, decrypt};
use roadstead_sops::{Format, Limits};

const DATA_KEY: &[u8] = b"01234567890123456789012345678901";
const THOUSAND: usize = 1000;
/// A debug build beside others takes some of it.
const MOST_TIME: Duration = Duration::from_secs(20);
const MOST_MEMORY: u64 = 64 << 20;

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The most memory that the process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// An OpenPGP message that has `count` recipients before its own, whose key ids `id` makes up.
fn with_recipients(message: &str, count: usize, id: impl Fn(usize) -> u64, own: bool) -> String {
    let body =
        message.lines().skip_while(|line| !line.is_empty()).take_while(|line| !line.starts_with(['=', '-']));
    let bytes = STANDARD.decode(body.collect::<String>()).unwrap();
    // The packet of the recipient: a byte, its length in one byte, the version, and the key id.
    assert_eq!((bytes[0], bytes[2]), (0x84, 3));
    let (first, rest) = bytes.split_at(2 + usize::from(bytes[1]));
    let mut all = Vec::new();
    for number in 0..count {
        let mut other = first.to_vec();
        other[3..11].copy_from_slice(&id(number).to_be_bytes());
        // Not what this key opens.
        *other.last_mut().unwrap() ^= 1;
        all.extend(other);
    }
    let mut last = first.to_vec();
    if !own {
        last[3..11].copy_from_slice(&[0; 8]);
    }
    all.extend(last);
    all.extend(rest);
    format!("-----BEGIN PGP MESSAGE-----\n\n{}\n-----END PGP MESSAGE-----\n", STANDARD.encode(all))
}

/// A file for `count` age recipients, of whom the last is this one.
fn for_age(count: usize) -> String {
    let entry = |enc: &str| {
        let enc = enc.replace('\n', "\n          ");
        format!("    - recipient: age1somebody\n      enc: |\n          {}\n", enc.trim_end())
    };
    let (other, own) = (entry(&text("age/ssh-ed25519.age")), entry(&text("age/x25519.age")));
    format!(
        "a: 1\nsops:\n    encrypted_suffix: _secret\n    lastmodified: '2024-05-06T07:08:09Z'\n    age:\n{}{own}",
        other.repeat(count - 1)
    )
}

// One test, so that the memory is that of what is measured.
#[test]
fn very_many_recipients() {
    let mut ring = KeyRing::default();
    for (name, file) in [("key.agekey", "age/key.agekey"), ("key.asc", "openpgp/revoked.asc")] {
        assert_eq!(ring.add(name, text(file).as_bytes()), Ok(true));
    }
    let message = text("openpgp/to-revoked.asc");
    let unwrap = |enc: String| ring.unwrap(&MasterKey::Pgp { fingerprint: String::new(), enc });
    let opens = |found: Option<DataKey>| found.is_some_and(|key| key.expose() == DATA_KEY);
    assert!(opens(unwrap(message.clone()).unwrap()));
    let (began, before) = (Instant::now(), peak());

    // Named ones cost nothing: no key is tried on them.
    let named = |count| with_recipients(&message, count, |number| 0x5eed_0000 + number as u64, true);
    assert!(opens(unwrap(named(THOUSAND)).unwrap()));
    let error = unwrap(named(2 * THOUSAND)).unwrap_err().to_string();
    assert!(error.contains("more than 1024 recipients"), "{error}");
    // For hidden ones each key has to be tried, which is done so often and no more.
    let hidden = |count| with_recipients(&message, count, |_| 0, false);
    assert!(opens(unwrap(hidden(10)).unwrap()));
    let error = unwrap(hidden(THOUSAND)).unwrap_err().to_string();
    assert!(error.contains("32 attempts to decrypt it failed"), "{error}");

    // A thousand entries in the metadata.
    let mut options = Options::new(Format::Yaml);
    options.mac = MacPolicy::Ignore;
    let most = Limits::default().keys;
    assert_eq!(decrypt(for_age(most).as_bytes(), &options, &ring).unwrap().bytes.as_slice(), b"a: 1\n");
    let error = decrypt(for_age(THOUSAND).as_bytes(), &options, &ring).unwrap_err().to_string();
    assert!(error.contains(&format!("too many master keys: the limit is {most}")), "{error}");
    // Of those whom nobody knows the first are told.
    let error = decrypt(for_age(most).as_bytes(), &options, &KeyRing::default()).unwrap_err().to_string();
    assert!(error.contains("and 248 more") && error.len() < 2000, "{error}");

    let (took, memory) = (began.elapsed(), peak() - before);
    assert!(took < MOST_TIME && memory < MOST_MEMORY, "{took:?} and {memory} bytes");
}
