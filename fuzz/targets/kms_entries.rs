//! Fuzzes entries of a decryption Secret that hold credentials of key services; the first byte says which. And lines of a key file.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_kms::{Address, Entry, Environment, import};

const ALLOWANCE: Allowance = Allowance { bytes: 1_000, nanos: 20_000 };
const NAMES: [&str; 5] =
    ["sops.aws-kms", "sops.azure-kv", "sops.gcp-kms", "sops.vault-token", "sops.vault-address"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, entry)) = bytes.split_first() else { return };
    let name = NAMES[usize::from(*which) % NAMES.len()];
    match import([(name, entry)]) {
        Ok(imported) => assert!(format!("{imported:?}").len() < 256),
        Err(error) => assert!(error.to_string().contains(name) && error.to_string().len() < 1024),
    }
    let Ok(text) = std::str::from_utf8(entry) else { return };
    if let Ok(address) = Address::parse(text) {
        assert_eq!(Address::parse(&address.to_string()).map(|again| again.to_string()), Ok(address.to_string()));
    }
    if let Ok(Entry::Wrapped(envelope)) = Entry::parse(text) {
        let line = envelope.to_string();
        assert!(matches!(Entry::parse(&line), Ok(Entry::Wrapped(again)) if again == envelope));
    }
    // And the same in the environment.
    let get = |name: &str| (name == "GOOGLE_CREDENTIALS" && text.starts_with('{')).then(|| text.to_owned());
    let _ = Environment::new(&get).credentials(false);
}));
