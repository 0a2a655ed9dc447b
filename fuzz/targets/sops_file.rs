//! Fuzzes files that are encrypted with SOPS, in the format that their first byte names. The data key is known, so what follows
//! its recovery is reached.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use oracle::{Allowance, hold};
use roadstead_sops::{
    DataKey, Format, KeyError, KeyProvider, Limits, MacPolicy, MasterKey, Options, decrypt,
};

const ALLOWANCE: Allowance = Allowance { bytes: 3_000, nanos: 50_000 };
const FORMATS: [Format; 5] = [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary];

/// Opens everything.
struct Open;

impl KeyProvider for Open {
    fn unwrap(&self, _: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        Ok(Some(DataKey::new(vec![7; 32].into())))
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((choice, file)) = bytes.split_first() else { return };
    let choice = usize::from(*choice);
    let (Some(input), Some(output)) = (FORMATS.get(choice % 5), FORMATS.get(choice / 5 % 5)) else { return };
    // Much comes of few aliases by design, within these.
    let mut limits = Limits::default();
    limits.nodes = 10_000;
    limits.made_bytes = 1 << 20;
    let options = Options { input: *input, output: *output, mac: MacPolicy::Warn, limits };
    if let Err(error) = decrypt(file, &options, &Open) {
        // What is said of it goes into a condition.
        assert!(error.to_string().len() < 16 << 10);
    }
}));
