//! Variables, one on each line. Nothing is trimmed, quoted or expanded, and all but line feeds is taken as it stands.

use zeroize::Zeroizing;

use super::{Format, Tally, as_text};
use crate::buffer::Buffer;
use crate::error::{Error, Place};
use crate::metadata::unescape_line_feeds;
use crate::tree::{Comment, Item, Key, Map, Text, Value};

pub(super) fn read(file: &[u8], tally: &mut Tally<'_>) -> Result<Map, Error> {
    let mut map = Map::new();
    for (index, line) in file.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        tally.count(line.len())?;
        if let Some(comment) = line.strip_prefix(b"#") {
            map.push(Item::comment(Comment::new(comment)));
            continue;
        }
        let equals = line.iter().position(|byte| *byte == b'=');
        let parts = equals.and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)));
        let (name, value) =
            parts.ok_or_else(|| tally.malformed(format!("line {}: expected NAME=value", index + 1)))?;
        map.push(Item::new(name, Value::Text(Text::new(unescape_line_feeds(value)))));
    }
    Ok(map)
}

pub(super) fn write(documents: &[Map]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut out = Buffer::default();
    for item in documents.first().into_iter().flatten() {
        match &item.key {
            Key::Comment(comment) => {
                out.push(b'#');
                out.extend_from_slice(comment.text.bytes());
            }
            Key::Name(name) => {
                let text = as_text(&item.value).ok_or_else(|| Error::Emit {
                    format: Format::Dotenv,
                    place: Place::new(1, name),
                    problem: "a dotenv variable cannot hold a map or a list",
                })?;
                out.extend_from_slice(name);
                out.push(b'=');
                for byte in text.iter() {
                    match byte {
                        b'\n' => out.extend_from_slice(b"\\n"),
                        other => out.push(*other),
                    }
                }
            }
        }
        out.push(b'\n');
    }
    Ok(out.into_inner())
}
