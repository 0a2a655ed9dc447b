//! What is noted of a bucket's objects: their keys, etags and sizes; and the revision that follows from it.

use std::fmt::Write as _;

use roadstead_model::{Hasher, Revision};
use serde::{Deserialize, Serialize};

use super::error::Why;
use super::request::BucketLimits;
use crate::tree::{Measure, TreeError, TreeLimits, check_path};

/// An object that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: String,
    /// As the revision has it.
    pub(super) etag: String,
    pub(super) size: u64,
    /// Of Google's, by which it is asked for.
    pub(super) generation: u64,
    /// Where its content lies, once it was received.
    pub(super) offset: u64,
}

/// Where bytes lie in the file of what was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// An etag as it is compared: lists and answers write the same one with and without quotation marks.
pub(super) fn plain_etag(text: &str) -> &str {
    let text = text.strip_prefix("W/").unwrap_or(text);
    text.trim_matches('"')
}

/// A key that can be a file beneath a folder.
pub(super) fn check_key(key: &str, limits: &TreeLimits) -> Result<(), TreeError> {
    if key.contains('\\') {
        let why = "keys that hold `\\` are paths of their own on some systems";
        return Err(TreeError::BadPath { path: key.to_owned(), why: why.into() });
    }
    check_path(key, limits)
}

/// The revision of a bucket with these objects, which are in the order of their keys.
pub(super) fn revision<'o>(objects: impl Iterator<Item = (&'o str, &'o str)>) -> Option<Revision> {
    let mut hasher = Hasher::default();
    let mut line = String::new();
    for (key, etag) in objects {
        line.clear();
        // Writing to a String does not fail.
        let _ = writeln!(line, "{key} {etag}");
        hasher.update(line.as_bytes());
    }
    hasher.finish().to_string().parse().ok()
}

/// The objects, on their way from a reader.
pub(super) fn encode<'o>(objects: impl Iterator<Item = &'o Listed>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for object in objects {
        for text in [&object.key, &object.etag] {
            // Bounded far below that where they were read.
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for number in [object.size, object.generation, object.offset] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    bytes
}

/// The same where they arrive. They come from a process that read untrusted bytes: each is checked again.
pub(super) fn decode(mut bytes: &[u8], limits: &BucketLimits) -> Result<Vec<Listed>, Why> {
    let invalid = || Why::Internal("the reader's list of objects is invalid".to_owned());
    let mut objects: Vec<Listed> = Vec::new();
    let mut total = 0_u64;
    while !bytes.is_empty() {
        let key = text(&mut bytes).ok_or_else(invalid)?;
        let etag = text(&mut bytes).ok_or_else(invalid)?;
        let size = number(&mut bytes).ok_or_else(invalid)?;
        let generation = number(&mut bytes).ok_or_else(invalid)?;
        let offset = number(&mut bytes).ok_or_else(invalid)?;
        check_key(&key, &limits.tree)?;
        if objects.last().is_some_and(|last| last.key >= key) || etag.chars().any(char::is_control) {
            return Err(invalid());
        }
        let too_many = |measure, limit| Err(Why::TooLarge { measure, limit, path: None });
        total = total.saturating_add(size);
        if total > limits.tree.total_bytes {
            return too_many(Measure::TotalBytes, limits.tree.total_bytes);
        }
        if objects.len() >= limits.tree.entries {
            return too_many(Measure::Entries, limits.tree.entries as u64);
        }
        objects.push(Listed { key, etag, size, generation, offset });
    }
    Ok(objects)
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?);
    String::from_utf8(take(bytes, usize::from(length))?.to_vec()).ok()
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str) -> Listed {
        Listed { key: key.to_owned(), etag: "e\"1".to_owned(), size: 3, generation: 9, offset: 5 }
    }

    #[test]
    fn what_a_reader_notes_arrives_and_is_checked() {
        let limits = BucketLimits::default();
        let objects = [listed("a"), listed("a/ü")];
        let bytes = encode(objects.iter());
        assert_eq!(decode(&bytes, &limits).unwrap(), objects);
        assert!(decode(&bytes[..bytes.len() - 1], &limits).is_err());
        for lie in [
            vec![listed("b"), listed("a")],
            vec![listed("a"), listed("a")],
            vec![listed("../a")],
            vec![listed("/a")],
            vec![listed("a\\b")],
            vec![Listed { size: u64::MAX, ..listed("a") }, Listed { size: u64::MAX, ..listed("b") }],
            vec![Listed { etag: "a\nb".to_owned(), ..listed("a") }],
        ] {
            assert!(decode(&encode(lie.iter()), &limits).is_err(), "{lie:?}");
        }
        let tree = TreeLimits { entries: 1, ..TreeLimits::default() };
        assert!(decode(&bytes, &BucketLimits { tree, ..limits }).is_err());
    }

    #[test]
    fn etags_are_compared_without_their_marks() {
        for text in ["abc-2", "\"abc-2\"", "W/\"abc-2\""] {
            assert_eq!(plain_etag(text), "abc-2");
        }
    }
}
