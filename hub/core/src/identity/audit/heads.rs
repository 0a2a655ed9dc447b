//! Lines of the stream: entries, and heads, by which the log is checked later on.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use roadstead_hub_store::{AuditHead, AuditRecord, ToldEntry, WrittenEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AuditItem;
use crate::HubError;

/// Heads, and entries, that are compared at once.
const MOST: usize = 1_000;

/// What somebody kept of the stream, to be held against the log.
#[derive(Debug, Default, Deserialize)]
pub(super) struct KeptLines {
    /// Heads.
    #[serde(default)]
    heads: Vec<KeptHead>,
    /// Entries.
    #[serde(default)]
    entries: Vec<KeptEntry>,
}

/// A head as the stream has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptHead {
    /// The newest batch.
    batch: i64,
    /// Its MAC, hexadecimal.
    mac: String,
    /// When that was.
    at: Timestamp,
    /// The MAC of all this, hexadecimal.
    signature: String,
}

/// Of an entry, as the stream has it, what tells it from others.
#[derive(Debug, Deserialize)]
pub(super) struct KeptEntry {
    /// Its number.
    id: i64,
    /// When it was written.
    at: Timestamp,
    /// Its MAC, hexadecimal.
    mac: String,
}

/// What came of the comparison.
#[derive(Debug, Serialize)]
pub struct AuditComparison {
    /// All fits.
    pub sound: bool,
    /// Heads that were compared.
    pub heads: usize,
    /// Entries that were compared.
    pub entries: usize,
    /// What does not fit, the first few.
    pub problems: Vec<String>,
}

impl KeptLines {
    pub(super) fn read(given: &Value) -> Result<(Vec<AuditHead>, Vec<ToldEntry>), HubError> {
        if given.is_null() {
            return Ok((Vec::new(), Vec::new()));
        }
        let kept = Self::deserialize(given).map_err(|error| {
            HubError::BadRequest(format!("want heads and entries of the stream: {error}"))
        })?;
        if kept.heads.len() > MOST || kept.entries.len() > MOST {
            return Err(HubError::BadRequest(format!("want at most {MOST} heads and as many entries")));
        }
        let bytes = |text: &str| {
            let decoded = HEXLOWER.decode(text.as_bytes());
            decoded.map_err(|_| HubError::BadRequest("mac, signature: want hexadecimal digits".to_owned()))
        };
        let heads = kept.heads.into_iter().map(|KeptHead { batch, mac, at, signature }| {
            Ok(AuditHead { batch, mac: bytes(&mac)?, at, signature: bytes(&signature)? })
        });
        let heads = heads.collect::<Result<_, HubError>>()?;
        let entries = kept
            .entries
            .into_iter()
            .map(|KeptEntry { id, at, mac }| Ok(ToldEntry { id, at, mac: bytes(&mac)? }));
        Ok((heads, entries.collect::<Result<_, HubError>>()?))
    }
}

/// The line of an entry.
pub(super) fn entry_line(written: WrittenEntry) -> String {
    let WrittenEntry { id, at, entry, mac } = written;
    let item = AuditItem::from(AuditRecord { id, at, entry, batch: None, signed: true });
    let mut line = serde_json::to_value(item).unwrap_or_default();
    if let Some(fields) = line.as_object_mut() {
        // Of what is just written nothing is to be said of that.
        fields.remove("batch");
        fields.remove("signed");
        fields.insert("type".to_owned(), "entry".into());
        fields.insert("mac".to_owned(), HEXLOWER.encode(&mac).into());
    }
    plain(&line)
}

/// The line of a head. `lost` is how many lines this process has lost so far.
pub(super) fn head_line(head: &AuditHead, lost: u64) -> String {
    let AuditHead { batch, mac, at, signature } = head;
    let (mac, signature) = (HEXLOWER.encode(mac), HEXLOWER.encode(signature));
    let head = KeptHead { batch: *batch, mac, at: *at, signature };
    let mut line = serde_json::to_value(head).unwrap_or_default();
    line["type"] = "head".into();
    line["lost"] = json!(lost);
    plain(&line)
}

/// JSON in one line whoever reads it: what ends a line, moves a cursor or turns the direction of writing is escaped.
fn plain(line: &Value) -> String {
    let text = line.to_string();
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{7f}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                plain.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_model::AuditEntry;

    use super::*;

    proptest! {
        #[test]
        fn no_text_breaks_a_line(text in "\\PC{0,40}|[\u{0}-\u{ff}\u{2028}\u{2029}\u{202e}\\\\\"\n\r]{0,40}") {
            let entry = AuditEntry {
                username: text.clone(),
                detail: text.clone(),
                name: text.clone(),
                changes: Some(json!([{ "path": text.clone(), "to": text.clone() }]).to_string()),
                ..AuditEntry::default()
            };
            let line = entry_line(WrittenEntry { id: 1, at: Timestamp::UNIX_EPOCH, entry, mac: vec![1] });
            let breaks = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
            prop_assert!(!line.chars().any(breaks));
            let read: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(read["user"].as_str(), Some(text.as_str()));
            prop_assert_eq!(read["changes"][0]["to"].as_str(), Some(text.as_str()));
        }
    }
}
