//! Hashes by what documents call them.

use sha2::Digest as _;

/// SHA-256 of bytes, or of several one behind the other.
pub(super) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = sha2::Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The hash of bytes by the algorithm of a name; none if it is not known.
pub(super) fn named(algorithm: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        "sha256" | "SHA2_256" => Some(sha256(&[bytes]).to_vec()),
        "sha384" | "SHA2_384" => Some(sha2::Sha384::digest(bytes).to_vec()),
        "sha512" | "SHA2_512" => Some(sha2::Sha512::digest(bytes).to_vec()),
        _ => None,
    }
}

/// The same by its identifier, as DER has that.
pub(super) fn identified(oid: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, which] = oid else { return None };
    match which {
        1 => named("sha256", bytes),
        2 => named("sha384", bytes),
        3 => named("sha512", bytes),
        _ => None,
    }
}

/// Hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
