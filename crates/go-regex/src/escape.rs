//! What begins with a backslash.

use crate::translate::Fault;

const INVALID: Fault = Fault::Invalid("invalid escape sequence");

/// A class of characters, as it is written here, and the length of what was read.
pub(crate) struct Class {
    pub(crate) written: String,
    pub(crate) length: usize,
}

/// `\d` and its like, and `\pL`, `\p{Greek}`; none where it is something else.
pub(crate) fn class(text: &str) -> Result<Option<Class>, Fault> {
    let written = match text.as_bytes().get(1) {
        Some(b'd') => "[0-9]",
        Some(b'D') => "[^0-9]",
        Some(b'w') => "[0-9A-Za-z_]",
        Some(b'W') => "[^0-9A-Za-z_]",
        Some(b's') => r"[\t\n\f\r ]",
        Some(b'S') => r"[^\t\n\f\r ]",
        Some(b'p' | b'P') => return unicode(text).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(Class { written: written.to_owned(), length: 2 }))
}

fn unicode(text: &str) -> Result<Class, Fault> {
    const RANGE: Fault = Fault::Invalid("invalid character class range");
    let (head, after) = text.split_at_checked(2).ok_or(RANGE)?;
    let first = after.chars().next().ok_or(RANGE)?;
    let (name, length) = if first == '{' {
        let (name, _) = after[1..].split_once('}').ok_or(RANGE)?;
        (name, head.len() + name.len() + 2)
    } else {
        (&after[..first.len_utf8()], head.len() + first.len_utf8())
    };
    let (name, other) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    // Other signs would have a meaning to the library that they have not in Go.
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ')) {
        return Err(RANGE);
    }
    let kind = if (head == r"\P") == other { 'p' } else { 'P' };
    Ok(Class { written: format!("\\{kind}{{{name}}}"), length })
}

/// A character by its escape, as a number, and the length of what was read.
pub(crate) fn character(text: &str) -> Result<(u32, usize), Fault> {
    let after = text.get(1..).unwrap_or_default();
    let Some(c) = after.chars().next() else {
        return Err(Fault::Invalid("trailing backslash at end of expression"));
    };
    let short = |number: u32| Ok((number, 2));
    match c {
        'a' => short(0x07),
        'f' => short(0x0c),
        'n' => short(0x0a),
        'r' => short(0x0d),
        't' => short(0x09),
        'v' => short(0x0b),
        'x' => hexadecimal(&after[1..]).map(|(number, length)| (number, length + 2)),
        '0'..='7' => {
            let digits = after.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            // One digit that is not zero would refer to a group.
            if digits == 1 && c != '0' {
                return Err(INVALID);
            }
            let number = u32::from_str_radix(&after[..digits], 8).map_err(|_| INVALID)?;
            Ok((number, 1 + digits))
        }
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => short(u32::from(c)),
        _ => Err(INVALID),
    }
}

/// `41` or `{41}`.
fn hexadecimal(text: &str) -> Result<(u32, usize), Fault> {
    let (digits, length) = match text.strip_prefix('{') {
        Some(braced) => {
            let (digits, _) = braced.split_once('}').ok_or(INVALID)?;
            (digits, digits.len() + 2)
        }
        None => (text.get(..2).ok_or(INVALID)?, 2),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(INVALID);
    }
    // Zeros before it do not make it larger.
    let significant = digits.trim_start_matches('0');
    let number = if significant.is_empty() { Ok(0) } else { u32::from_str_radix(significant, 16) };
    let number = number.ok().filter(|number| *number <= u32::from(char::MAX)).ok_or(INVALID)?;
    Ok((number, length))
}

/// The character of a number. Go knows surrogates, too, which are in no text.
pub(crate) fn known(number: u32) -> Result<char, Fault> {
    char::from_u32(number).ok_or(Fault::Unsupported("a surrogate"))
}

/// Writes a character that stands for itself, in brackets or not.
pub(crate) fn write(c: char, out: &mut String) {
    if "\\.+*?()|[]{}^$#&-~".contains(c) {
        out.push('\\');
    }
    out.push(c);
}
