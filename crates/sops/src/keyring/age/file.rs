//! An age file: its header, which wraps a key for each recipient, and its payload in chunks.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

use super::{Secret16, decode_base64, hkdf};

const VERSION: &str = "age-encryption.org/v1";
/// Characters of a line of a stanza's body.
const COLUMNS: usize = 64;
/// Recipients of one file.
const STANZAS: usize = 1024;
/// Bytes of a chunk of the payload, with its tag.
const CHUNK: usize = (64 << 10) + 16;
const NONCE: usize = 16;

/// What the header has for one recipient.
pub(super) struct Stanza<'f> {
    /// Its type, and what belongs to that.
    pub(super) args: Vec<&'f str>,
    pub(super) body: Vec<u8>,
}

/// A file that was taken apart.
pub(super) struct File<'f> {
    pub(super) stanzas: Vec<Stanza<'f>>,
    /// What the MAC is over.
    header: &'f [u8],
    mac: [u8; 32],
    payload: &'f [u8],
}

/// Lines of a header.
struct Lines<'f> {
    bytes: &'f [u8],
    at: usize,
}

impl<'f> Lines<'f> {
    fn next(&mut self) -> Option<&'f str> {
        let rest = self.bytes.get(self.at..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        std::str::from_utf8(rest.get(..end)?).ok()
    }
}

impl<'f> File<'f> {
    pub(super) fn parse(bytes: &'f [u8]) -> Result<Self, &'static str> {
        const CUT: &str = "the age file's header is truncated";
        let mut lines = Lines { bytes, at: 0 };
        if lines.next() != Some(VERSION) {
            return Err("not an age file of version 1");
        }
        let mut stanzas = Vec::new();
        loop {
            let begin = lines.at;
            let line = lines.next().ok_or(CUT)?;
            if let Some(mac) = line.strip_prefix("--- ") {
                let mac = decode_base64(mac).ok_or("the age file's header MAC is malformed")?;
                let header = bytes.get(..begin + 3).ok_or(CUT)?;
                let payload = bytes.get(lines.at..).ok_or(CUT)?;
                return Ok(Self { stanzas, header, mac, payload });
            }
            let args = line.strip_prefix("-> ").ok_or("the age file's header has an unexpected line")?;
            let args: Vec<&str> = args.split(' ').collect();
            if args.iter().any(|arg| arg.is_empty() || !arg.bytes().all(|byte| byte.is_ascii_graphic())) {
                return Err("the age file's header has an invalid stanza");
            }
            if stanzas.len() == STANZAS {
                return Err("the age file has too many recipients");
            }
            stanzas.push(Stanza { args, body: body(&mut lines)? });
        }
    }

    /// Opens the payload.
    pub(super) fn open(&self, key: &Secret16) -> Result<Zeroizing<Vec<u8>>, &'static str> {
        let mac_key = hmac::Key::new(hmac::HMAC_SHA256, &*hkdf(b"", &**key, b"header"));
        hmac::verify(&mac_key, self.header, &self.mac).map_err(|_| "the age file's header was modified")?;
        let (nonce, sealed) =
            self.payload.split_at_checked(NONCE).ok_or("the age file's payload is truncated")?;
        let key = hkdf(nonce, &**key, b"payload");
        let mut opened = Zeroizing::new(Vec::new());
        let chunks = sealed.chunks(CHUNK);
        let last = chunks.len().checked_sub(1).ok_or("the age file's payload is truncated")?;
        for (index, chunk) in chunks.enumerate() {
            let mut nonce = [0; 12];
            let counter = u32::try_from(index).map_err(|_| "the age file is too long")?;
            nonce.iter_mut().skip(7).zip(counter.to_be_bytes()).for_each(|(byte, from)| *byte = from);
            if let Some(flag) = nonce.last_mut() {
                *flag = u8::from(index == last);
            }
            let chunk =
                open_chunk(&key, nonce, chunk).ok_or("the age file's payload was modified or truncated")?;
            if chunk.is_empty() && index > 0 {
                return Err("the age file's payload ends with an empty chunk");
            }
            opened.extend_from_slice(&chunk);
        }
        Ok(opened)
    }
}

/// Lines of base64 up to one that is not full.
fn body(lines: &mut Lines<'_>) -> Result<Vec<u8>, &'static str> {
    const INVALID: &str = "the age file's header has an invalid stanza";
    let mut body = Vec::new();
    loop {
        let line = lines.next().ok_or(INVALID)?;
        if line.len() > COLUMNS {
            return Err(INVALID);
        }
        body.extend(STANDARD_NO_PAD.decode(line).map_err(|_| INVALID)?);
        if line.len() < COLUMNS {
            return Ok(body);
        }
    }
}

/// Opens what ChaCha20-Poly1305 sealed.
pub(super) fn open_chunk(key: &[u8; 32], nonce: [u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let length = key.open_in_place(nonce, Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}
