//! Points in time as Go's `time` reads and writes them: with the offset that they were written with.
//!
//! Nothing is computed with them. They are read from a file and written to another, and go into the MAC as text.

use std::fmt::Write as _;

/// A date and a time of day at an offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    nanos: u32,
    /// Minutes that local time is ahead of UTC.
    offset: i32,
}

impl Time {
    /// Reads RFC 3339. As Go does, it takes an hour of one digit and a comma before the fraction.
    pub(crate) fn rfc3339(text: &str) -> Option<Self> {
        let mut reader = Reader(text.as_bytes());
        let mut time = reader.date(2)?;
        reader.takes(b'T')?;
        reader.time_of_day(&mut time, 2)?;
        time.offset = reader.offset()?;
        reader.ends(time)
    }

    /// Reads a timestamp of YAML, in the forms that go-yaml knows: month, day and the parts of the time may have one digit.
    pub(crate) fn yaml(text: &str) -> Option<Self> {
        let mut reader = Reader(text.as_bytes());
        let mut time = reader.date(1)?;
        if reader.0.is_empty() {
            return Some(time);
        }
        let zoned = reader.takes(b'T').or_else(|| reader.takes(b't')).is_some();
        if !zoned {
            reader.takes(b' ')?;
            // Before a time of day, Go takes any number of spaces for one.
            while reader.takes(b' ').is_some() {}
        }
        reader.time_of_day(&mut time, 1)?;
        if zoned {
            time.offset = reader.offset()?;
        }
        reader.ends(time)
    }

    /// RFC 3339 to the second.
    pub(crate) fn seconds(&self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        self.write_offset(&mut text);
        text
    }

    /// RFC 3339 with as much of a fraction as there is.
    pub(crate) fn nanoseconds(&self) -> String {
        let Self { year, month, day, hour, minute, second, nanos, .. } = self;
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if *nanos != 0 {
            let digits = format!("{nanos:09}");
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        self.write_offset(&mut text);
        text
    }

    fn write_offset(&self, text: &mut String) {
        if self.offset == 0 {
            text.push('Z');
            return;
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs();
        // Writing to a string does not fail.
        let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    }
}

/// What is left of a text.
struct Reader<'t>(&'t [u8]);

impl Reader<'_> {
    fn takes(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == byte).then(|| self.0 = rest)
    }

    /// A number of this many digits.
    fn number(&mut self, least: usize, most: usize) -> Option<u16> {
        let digits = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < least {
            return None;
        }
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
    }

    fn small(&mut self, least: usize, below: u16) -> Option<u8> {
        let number = self.number(least, 2)?;
        (number < below).then_some(u8::try_from(number).ok()?)
    }

    fn date(&mut self, least: usize) -> Option<Time> {
        let year = self.number(4, 4)?;
        self.takes(b'-')?;
        let month = self.small(least, 13)?;
        self.takes(b'-')?;
        let day = self.small(least, 32)?;
        let valid = (1..=days(year, month)?).contains(&day);
        valid.then_some(Time { year, month, day, hour: 0, minute: 0, second: 0, nanos: 0, offset: 0 })
    }

    fn time_of_day(&mut self, time: &mut Time, least: usize) -> Option<()> {
        time.hour = self.small(1, 24)?;
        self.takes(b':')?;
        time.minute = self.small(least, 60)?;
        self.takes(b':')?;
        time.second = self.small(least, 60)?;
        time.nanos = self.fraction();
        Some(())
    }

    /// A fraction of a second, if there is one. What is finer than nanoseconds is dropped.
    fn fraction(&mut self) -> u32 {
        let Some((b'.' | b',', rest)) = self.0.split_first() else { return 0 };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return 0;
        }
        self.0 = rest.get(digits..).unwrap_or_default();
        let padded = rest.iter().take(digits).copied().chain(std::iter::repeat(b'0')).take(9);
        padded.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))
    }

    /// `Z`, or an offset in minutes.
    fn offset(&mut self) -> Option<i32> {
        let sign = match self.0.first()? {
            b'Z' => {
                self.takes(b'Z')?;
                return Some(0);
            }
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.0 = self.0.get(1..)?;
        let hours = self.small(2, 25)?;
        self.takes(b':')?;
        let minutes = self.small(2, 61)?;
        Some(sign * (i32::from(hours) * 60 + i32::from(minutes)))
    }

    fn ends(&self, time: Time) -> Option<Time> {
        self.0.is_empty().then_some(time)
    }
}

/// How many days a month has; none for a month that there is not.
fn days(year: u16, month: u8) -> Option<u8> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if leap { 29 } else { 28 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        let both = |text| Time::rfc3339(text).map(|time| (time.seconds(), time.nanoseconds()));
        let same = |text: &str| Some((text.to_owned(), text.to_owned()));
        assert_eq!(both("2024-01-02T03:04:05Z"), same("2024-01-02T03:04:05Z"));
        assert_eq!(both("2024-01-02T03:04:05+00:00"), same("2024-01-02T03:04:05Z"));
        let nanos = both("2024-02-29T03:04:05.1200+05:30").unwrap();
        assert_eq!(nanos, ("2024-02-29T03:04:05+05:30".into(), "2024-02-29T03:04:05.12+05:30".into()));
        assert_eq!(both("2024-01-02T3:04:05-08:00"), same("2024-01-02T03:04:05-08:00"));
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "2024-01-02",
            "2024-1-2T03:04:05Z",
            "2024-01-02t03:04:05z",
            "2023-02-29T00:00:00Z",
            "2024-01-02T24:00:00Z",
            "2024-01-02T00:00:60Z",
            "2024-01-02T00:00:00",
            "2024-01-02T00:00:00.Z",
            "2024-01-02T00:00:00Z\r",
            "2024-01-02T00:00:00+5:00",
        ] {
            assert_eq!(Time::rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn timestamps_of_yaml() {
        let read = |text| Time::yaml(text).map(|time| time.nanoseconds());
        assert_eq!(read("2001-12-14").as_deref(), Some("2001-12-14T00:00:00Z"));
        assert_eq!(read("2001-1-2t3:4:5.60Z").as_deref(), Some("2001-01-02T03:04:05.6Z"));
        assert_eq!(read("2001-12-14 21:59:43.10").as_deref(), Some("2001-12-14T21:59:43.1Z"));
        assert_eq!(read("2001-12-14 21:59:43.10 -5"), None);
        assert_eq!(read("2001-12"), None);
        assert_eq!(read("20011-12-14"), None);
    }
}
