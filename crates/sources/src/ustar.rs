//! Headers of a tar, as Flux's artifacts have them: USTAR, and in the PAX form before it what USTAR has no room for. Written here, byte for
//! byte: what a library changes about them would give every artifact another digest.

use std::io::{self, Write};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// Bytes of a header's field for a name, and of the one for the folders before it.
const NAME: usize = 100;
const PREFIX: usize = 155;
/// Where the fields are.
const MODE: usize = 100;
const UID: usize = 108;
const GID: usize = 116;
const SIZE: usize = 124;
const TIME: usize = 136;
const SUM: usize = 148;
const KIND: usize = 156;
const TARGET: usize = 157;
const MAGIC: usize = 257;
const DEVICES: usize = 329;
const FOLDERS: usize = 345;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A file of so many bytes.
    File {
        size: u64,
        executable: bool,
    },
    Folder,
    /// A symbolic link.
    Link(&'a str),
}

/// Writes the header of an entry, which belongs to nobody and is of the beginning of time.
pub(crate) fn write(to: &mut impl Write, path: &str, kind: Kind<'_>) -> io::Result<()> {
    let mut header = [0; BLOCK];
    let (sign, mode, size) = match kind {
        Kind::File { size, executable } => (b'0', if executable { 0o700 } else { 0o600 }, size),
        Kind::Folder => (b'5', 0o750, 0),
        Kind::Link(_) => (b'2', 0o777, 0),
    };
    let target = if let Kind::Link(target) = kind { target } else { "" };
    let mut records = Vec::new();
    if !target.is_ascii() || target.len() > NAME {
        records.push(("linkpath", target));
    }
    match split(path) {
        Some((folders, name)) if records.is_empty() => {
            put(&mut header, FOLDERS, PREFIX, folders.as_bytes());
            put(&mut header, 0, NAME, name.as_bytes());
        }
        fits => {
            if fits.is_none_or(|(folders, _)| !folders.is_empty()) {
                records.push(("path", path));
            }
            put(&mut header, 0, NAME, &ascii(path));
        }
    }
    if !records.is_empty() {
        write_records(to, path, &records)?;
    }
    put(&mut header, TARGET, NAME, &ascii(target));
    octal(&mut header, MODE, 8, mode);
    octal(&mut header, SIZE, 12, size);
    for at in [DEVICES, DEVICES + 8] {
        octal(&mut header, at, 8, 0);
    }
    finish(&mut header, sign);
    to.write_all(&header)
}

/// Fills the last block of a content of so many bytes.
pub(crate) fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    // Less than a block.
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { Ok(()) } else { to.write_all(&[0; BLOCK][over..]) }
}

/// Two empty blocks.
pub(crate) fn end(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 2 * BLOCK])
}

/// What USTAR has no room for: lines with their own lengths, as the content of an entry.
fn write_records(to: &mut impl Write, path: &str, records: &[(&str, &str)]) -> io::Result<()> {
    let lines: String = records.iter().map(|(field, value)| record(field, value)).collect();
    let mut header = [0; BLOCK];
    let name = match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/PaxHeaders.0/{name}"),
        None => format!("PaxHeaders.0/{path}"),
    };
    let mut name = ascii(&name);
    name.truncate(NAME);
    while name.last() == Some(&b'/') {
        name.pop();
    }
    put(&mut header, 0, NAME, &name);
    octal(&mut header, MODE, 8, 0);
    octal(&mut header, SIZE, 12, lines.len() as u64);
    finish(&mut header, b'x');
    to.write_all(&header)?;
    to.write_all(lines.as_bytes())?;
    pad(to, lines.len() as u64)
}

/// `LENGTH FIELD=VALUE` and a newline, the length being that of all of it.
fn record(field: &str, value: &str) -> String {
    let rest = field.len() + value.len() + " =\n".len();
    let mut length = rest + rest.to_string().len();
    // The length's own digits may make it one longer.
    length = rest + length.to_string().len();
    format!("{length} {field}={value}\n")
}

/// Where USTAR has a path: the folders before its name, if it is too long for one field. None where it has no room.
fn split(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= NAME {
        return Some(("", path));
    }
    let at = path[..path.len().min(PREFIX + 1)].rfind('/').filter(|at| *at > 0)?;
    let (folders, name) = (&path[..at], &path[at + 1..]);
    (!name.is_empty() && name.len() <= NAME).then_some((folders, name))
}

fn ascii(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii).collect()
}

/// Writes as much of a text as there is room for.
fn put(header: &mut [u8; BLOCK], at: usize, room: usize, text: &[u8]) {
    let length = text.len().min(room);
    header[at..at + length].copy_from_slice(&text[..length]);
}

fn octal(header: &mut [u8; BLOCK], at: usize, room: usize, number: u64) {
    put(header, at, room, format!("{number:0width$o}\0", width = room - 1).as_bytes());
}

fn finish(header: &mut [u8; BLOCK], sign: u8) {
    octal(header, UID, 8, 0);
    octal(header, GID, 8, 0);
    octal(header, TIME, 12, 0);
    header[KIND] = sign;
    put(header, MAGIC, 8, b"ustar\x0000");
    put(header, SUM, 8, b"        ");
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    octal(header, SUM, 7, sum);
}

#[cfg(test)]
mod tests {
    use super::{record, split};

    #[test]
    fn a_record_says_how_long_it_is() {
        for length in [1, 80, 86, 87, 88, 89, 90, 91, 980, 985, 986, 987, 988, 989, 990, 991, 992] {
            let line = record("path", &"x".repeat(length));
            assert_eq!(line.split_once(' ').unwrap().0.parse::<usize>().unwrap(), line.len(), "{length}");
        }
    }

    #[test]
    fn long_paths_are_split_where_they_can_be() {
        let (a, b) = ("a".repeat(90), "b".repeat(90));
        assert_eq!(split("a/b"), Some(("", "a/b")));
        assert_eq!(split(&format!("{a}/{b}")), Some((a.as_str(), b.as_str())));
        assert_eq!(split(&format!("{a}/x/{b}")), Some((format!("{a}/x").as_str(), b.as_str())));
        for none in
            ["ü".to_owned(), "a".repeat(101), format!("{a}/{}", "b".repeat(101)), format!("{a}/{a}/{a}")]
        {
            assert_eq!(split(&none), None, "{none}");
        }
    }
}
