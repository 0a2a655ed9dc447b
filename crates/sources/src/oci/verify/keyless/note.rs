//! Checkpoints: what a log signs of its whole, as a signed note. Pure; the bytes are anyone's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Unfit;
use crate::oci::verify::keys::PublicKey;

/// Bytes of a checkpoint, and its signatures.
const MOST_BYTES: usize = 16 << 10;
const MOST_SIGNATURES: usize = 16;
/// What each signature begins with.
const MARK: &str = "\u{2014} ";
/// Bytes before the signature itself that say which key it is by: a hint, since it is tried with the log's.
const HINT: usize = 4;

/// What a log says of its whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) size: u64,
    pub(super) root: Vec<u8>,
}

/// Reads a checkpoint that this key signed.
pub(super) fn read(text: &str, key: &PublicKey) -> Result<Checkpoint, Unfit> {
    let unfit = || Unfit::new("the log's checkpoint is not a signed note");
    if text.len() > MOST_BYTES {
        return Err(unfit());
    }
    let end = text.find("\n\n").ok_or_else(unfit)? + 1;
    let (note, signatures) = text.split_at_checked(end).ok_or_else(unfit)?;
    let mut lines = signatures.lines().filter_map(|line| line.strip_prefix(MARK)).take(MOST_SIGNATURES);
    let is_signed = lines.any(|line| {
        let signature = line.rsplit(' ').next().and_then(|text| STANDARD.decode(text).ok());
        signature.and_then(|bytes| Some(key.made(bytes.get(HINT..)?, note.as_bytes()))).unwrap_or(false)
    });
    if !is_signed {
        return Err(Unfit::new("the log's checkpoint is not signed by the log's key"));
    }
    let mut lines = note.lines().skip(1);
    let size = lines.next().and_then(|line| line.parse().ok()).ok_or_else(unfit)?;
    let root = lines.next().and_then(|line| STANDARD.decode(line).ok()).ok_or_else(unfit)?;
    Ok(Checkpoint { size, root })
}
