//! Pages of lists of objects, and what a server that says no calls the reason.

use std::io::BufRead;

use crate::xml;

/// Objects of one page.
pub const MOST_PER_PAGE: usize = 10_000;

/// An object as a page has it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its tag, as it stands there.
    pub etag: String,
    /// Its bytes, where that is said.
    pub size: Option<u64>,
}

/// Reads a page, and gives its objects to `take`. Gives what the next page is called; none after the last.
///
/// # Errors
/// It is not a list, or holds too much; what `take` says.
pub fn read(
    from: impl BufRead,
    take: &mut dyn FnMut(Listed) -> Result<(), String>,
) -> Result<Option<String>, String> {
    let (mut objects, mut object) = (Vec::new(), Listed::default());
    let (mut is_list, mut is_encoded, mut is_truncated) = (false, false, false);
    let mut next = None;
    xml::read(from, &mut |path, text, _| {
        let Some(field) = path.strip_prefix("/ListBucketResult") else { return Ok(()) };
        match field {
            "" => is_list = true,
            "/EncodingType" => is_encoded = text == "url",
            "/IsTruncated" => is_truncated = text == "true",
            "/NextContinuationToken" => next = Some(text.to_owned()),
            "/Contents/Key" => text.clone_into(&mut object.key),
            "/Contents/ETag" => text.clone_into(&mut object.etag),
            "/Contents/Size" => object.size = text.trim().parse().ok(),
            "/Contents" => {
                if objects.len() == MOST_PER_PAGE {
                    return Err(format!("a page holds more than {MOST_PER_PAGE} objects"));
                }
                objects.push(std::mem::take(&mut object));
            }
            _ => {}
        }
        Ok(())
    })?;
    if !is_list {
        return Err("it is not a list of objects".to_owned());
    }
    let mut follows = None;
    if is_truncated {
        let next = next.filter(|next| !next.is_empty());
        follows = Some(next.ok_or("it is not the whole list, and does not say how it goes on")?);
    }
    // Some say only at the end that keys are encoded.
    for mut object in objects {
        if is_encoded {
            object.key = decoded(&object.key.replace('+', " "))?;
        }
        take(object)?;
    }
    Ok(follows)
}

/// Each `%` with two digits as the byte that it stands for.
///
/// # Errors
/// It is not encoded so, or not UTF-8 then.
pub fn decoded(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            out.push(*byte);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(decoded.ok_or("it has a key that is not encoded as it says")?);
        at += 3;
    }
    String::from_utf8(out).map_err(|_| "it has a key that is not UTF-8".to_owned())
}

/// What an answer that says no calls the reason, in the server's words: who shows it to others looks whether it may.
#[must_use]
pub fn refusal(answer: impl BufRead) -> Option<String> {
    let mut code = None;
    let read = xml::read(answer, &mut |path, text, _| {
        if path == "/Error/Code" {
            code = Some(text.to_owned());
        }
        Ok(())
    });
    read.ok()?;
    code
}
