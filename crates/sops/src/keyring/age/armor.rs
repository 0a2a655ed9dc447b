//! The armor of age files, as strict as age itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const HEADER: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const FOOTER: &str = "-----END AGE ENCRYPTED FILE-----";
/// Characters of a line.
const COLUMNS: usize = 64;
/// White space that may stand before or after it.
const BLANKS: usize = 1024;

/// The bytes that an armored text stands for.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let mut blanks = 0;
    loop {
        let line = lines.next().ok_or("not an armored age file")?;
        if line.trim().is_empty() {
            blanks += line.len() + 1;
            if blanks > BLANKS {
                return Err("too much white space before the age file");
            }
        } else if line == HEADER {
            break;
        } else {
            return Err("not an armored age file: its first line is not the header");
        }
    }
    let mut bytes = Vec::new();
    let mut full = true;
    for line in lines.by_ref() {
        if line == FOOTER {
            return trailing(lines).map(|()| bytes);
        }
        if !full || line.is_empty() || line.len() > COLUMNS {
            return Err("the age file's armor is malformed: every line but the last must have 64 characters");
        }
        bytes.extend(STANDARD.decode(line).map_err(|_| "the age file's armor is not valid base64")?);
        full = line.len() == COLUMNS && !line.ends_with('=');
    }
    Err("the age file is truncated: its armor has no end line")
}

fn trailing<'t>(lines: impl Iterator<Item = &'t str>) -> Result<(), &'static str> {
    let mut blanks = 0;
    for line in lines {
        blanks += line.len() + 1;
        if !line.trim().is_empty() || blanks > BLANKS {
            return Err("unexpected data after the age file");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armored(body: &str) -> String {
        format!("{HEADER}\n{body}{FOOTER}\n")
    }

    #[test]
    fn what_is_armor() {
        let line = "QUJD".repeat(16);
        assert_eq!(decode(&armored("QUJD\n")).unwrap(), b"ABC");
        assert_eq!(decode(&armored(&format!("{line}\n"))).unwrap().len(), 48);
        assert_eq!(decode(&armored(&format!("{line}\nQQ==\n"))).unwrap().len(), 49);
        assert_eq!(
            decode(&format!(" \r\n\n{}\n \n", armored("QUJD\n").replace('\n', "\r\n"))).unwrap(),
            b"ABC"
        );
        assert_eq!(decode(armored("QUJD\n").trim_end()).unwrap(), b"ABC");
    }

    #[test]
    fn what_is_none() {
        let blanks = "\n".repeat(1025);
        for text in [
            String::new(),
            "QUJD".into(),
            format!("x\n{}", armored("QUJD\n")),
            format!("{}x", armored("QUJD\n")),
            format!("{blanks}{}", armored("QUJD\n")),
            format!("{}{blanks}", armored("QUJD\n")),
            armored("QUJD\nQUJD\n"),
            armored("\nQUJD\n"),
            armored("QUJ\n"),
            armored(&"QUJD".repeat(17)),
            format!("{HEADER}\nQUJD\n"),
        ] {
            assert!(decode(&text).is_err(), "{text}");
        }
    }
}
