//! Signatures as `ssh-keygen -Y sign -n git` makes them.

use russh::keys::PublicKey;
use russh::keys::ssh_key::{Algorithm, HashAlg, SshSig};

/// For what Git signs.
const NAMESPACE: &str = "git";
/// Lines of an entry, however many there are.
const MOST_LINES: usize = 1_000;

/// In the place of a line that is none of a public key.
pub(super) const NO_KEY: &str = "?";

/// Whether a line is one of a public key, as far as its beginning says.
pub(super) fn is_public(line: &str) -> bool {
    line.split_whitespace().any(|word| {
        ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"].iter().any(|begin| word.starts_with(begin))
    })
}

/// Whether one of the keys made this signature: its fingerprint, or why not. A line that is not a key spoils its entry.
pub(super) fn verify(text: &str, payload: &[u8], entries: &[(&str, &[String])]) -> Result<String, String> {
    let signature =
        SshSig::from_pem(format!("{}\n", text.trim_end())).map_err(|_| "its SSH signature is damaged")?;
    if signature.namespace() != NAMESPACE {
        return Err("its SSH signature was made for something other than Git".to_owned());
    }
    if signature.algorithm() == (Algorithm::Rsa { hash: None }) {
        return Err("its SSH signature is made with SHA-1".to_owned());
    }
    let by = PublicKey::new(signature.public_key().clone(), "");
    let name = by.fingerprint(HashAlg::Sha256).to_string();
    let mut spoiled = Vec::new();
    for (entry, lines) in entries {
        let Some(keys) = lines.iter().take(MOST_LINES).map(|line| key(line)).collect::<Option<Vec<_>>>()
        else {
            spoiled.push(*entry);
            continue;
        };
        if let Some(key) = keys.iter().find(|key| key.key_data() == by.key_data()) {
            return match key.verify(NAMESPACE, payload, &signature) {
                Ok(()) => Ok(name),
                Err(_) => Err(format!("its signature by SSH key '{name}' is bad: it is over something else")),
            };
        }
    }
    let spoiled = match spoiled.as_slice() {
        [] => String::new(),
        entries => format!(" (entries with a line that is not a plain public key: {})", entries.join(", ")),
    };
    Err(format!(
        "no matching key: it was signed by SSH key '{name}', which the Secret does not have{spoiled}"
    ))
}

/// A key without options: what those would ask for is not known here.
fn key(line: &str) -> Option<PublicKey> {
    PublicKey::from_openssh(line).ok()
}
