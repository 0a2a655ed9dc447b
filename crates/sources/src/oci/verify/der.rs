//! What DER consists of: a tag, a length and a content. As much of it as is needed where bytes are taken apart to be put together again,
//! and for timestamps and what authorities say of revoked certificates. Tags of one byte and lengths of a known size are all that there
//! is in any of these.

use super::Unfit;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const BITS: u8 = 0x03;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const UTF8: u8 = 0x0c;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// One of a row.
pub(super) struct Item<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// With its tag and length.
    pub(super) whole: &'a [u8],
}

fn unfit() -> Unfit {
    Unfit::new("it has bytes that are not DER")
}

/// Takes the first one of a row off.
pub(super) fn next<'a>(row: &mut &'a [u8]) -> Result<Item<'a>, Unfit> {
    let (&[tag, first], rest) = row.split_first_chunk().ok_or_else(unfit)?;
    if tag & 0x1f == 0x1f {
        return Err(unfit());
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or_else(unfit)?;
            let length = digits.iter().fold(0_u64, |length, digit| length << 8 | u64::from(*digit));
            // The shortest form is the only one.
            if length < 0x80 || digits.first() == Some(&0) {
                return Err(unfit());
            }
            (usize::try_from(length).map_err(|_| unfit())?, rest)
        }
        _ => return Err(unfit()),
    };
    let (content, behind) = rest.split_at_checked(length).ok_or_else(unfit)?;
    let (whole, _) = row.split_at_checked(row.len() - behind.len()).ok_or_else(unfit)?;
    *row = behind;
    Ok(Item { tag, content, whole })
}

/// Takes the first one of a row off, which must have this tag; gives its content.
pub(super) fn take<'a>(row: &mut &'a [u8], tag: u8) -> Result<&'a [u8], Unfit> {
    let item = next(row)?;
    if item.tag == tag { Ok(item.content) } else { Err(unfit()) }
}

/// The same where the tag may not be there at all.
pub(super) fn maybe<'a>(row: &mut &'a [u8], tag: u8) -> Result<Option<&'a [u8]>, Unfit> {
    if row.first() == Some(&tag) { take(row, tag).map(Some) } else { Ok(None) }
}

/// The content of what is the only one, and has this tag.
pub(super) fn only(mut bytes: &[u8], tag: u8) -> Result<&[u8], Unfit> {
    let content = take(&mut bytes, tag)?;
    if bytes.is_empty() { Ok(content) } else { Err(unfit()) }
}

/// The bytes of a signature, of which the last one is whole.
pub(super) fn bits(content: &[u8]) -> Result<&[u8], Unfit> {
    content.strip_prefix(&[0]).ok_or_else(unfit)
}

/// The seconds of a time, of either form (RFC 5280, 4.1.2.5): `20260102030405Z`, perhaps with parts of a second, or `260102030405Z`.
pub(super) fn time(item: &Item<'_>) -> Result<i64, Unfit> {
    let seconds = match item.tag {
        TIME => seconds(item.content, 4),
        UTC_TIME => seconds(item.content, 2),
        _ => None,
    };
    seconds.ok_or_else(|| Unfit::new("it has a time that cannot be read"))
}

fn seconds(text: &[u8], year_digits: usize) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (whole, parts) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.len() != year_digits + 10 || !is_digits(whole) || !is_digits(parts) {
        return None;
    }
    let (year, rest) = whole.split_at_checked(year_digits)?;
    let year: i16 = match (year_digits, year.parse().ok()?) {
        (2, year @ 0..50) => 2000 + year,
        (2, year) => 1900 + year,
        (_, year) => year,
    };
    let number = |from: usize| rest.get(from..from + 2)?.parse::<i8>().ok();
    let time =
        jiff::civil::DateTime::new(year, number(0)?, number(2)?, number(4)?, number(6)?, number(8)?, 0);
    Some(jiff::tz::TimeZone::UTC.to_timestamp(time.ok()?).ok()?.as_second())
}

/// A content with its tag and length.
pub(super) fn with(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    if let (Ok(short), true) = (u8::try_from(length), length < 0x80) {
        out.push(short);
    } else {
        let digits = length.to_be_bytes();
        let digits: Vec<u8> = digits.into_iter().skip_while(|digit| *digit == 0).collect();
        // A length has eight digits at most.
        out.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
        out.extend(digits);
    }
    out.extend_from_slice(content);
    out
}
