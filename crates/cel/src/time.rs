//! Timestamps and durations. Of time zones, only UTC and offsets are known, as there is no database of them here.

use std::cmp::Ordering;
use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use crate::error::EvalProblem;
use crate::function::Function;
use crate::value::Value;

const NANOS: i128 = 1_000_000_000;

/// A point in time of the years 1 to 9999, and the offset that it was written with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// In UTC. The library's own type for this ends before the last day of 9999, which stands for "never" in many objects.
    utc: DateTime,
    /// East of Greenwich.
    offset_minutes: i32,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.utc == other.utc
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.utc.cmp(&other.utc)
    }
}

impl fmt::Display for Moment {
    /// As Go writes it, with no more digits of a second than there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local(self.offset_minutes).unwrap_or(self.utc);
        write!(f, "{local}")?;
        match self.offset_minutes {
            0 => f.write_str("Z"),
            minutes => {
                let (sign, minutes) = (if minutes < 0 { '-' } else { '+' }, minutes.abs());
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

impl Moment {
    const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

    /// What is so much later.
    fn after(start: DateTime, by: SignedDuration, offset_minutes: i32) -> Result<Self, EvalProblem> {
        match start.checked_add(by) {
            Ok(utc) if (1..=9999).contains(&utc.year()) => Ok(Self { utc, offset_minutes }),
            _ => Err(EvalProblem::Overflow),
        }
    }

    /// The second since 1970 that it is in.
    pub(crate) fn second(self) -> i64 {
        let since = self.utc.duration_since(Self::EPOCH);
        if since.subsec_nanos() < 0 { since.as_secs() - 1 } else { since.as_secs() }
    }

    fn local(self, offset_minutes: i32) -> Option<DateTime> {
        self.utc.checked_add(SignedDuration::from_mins(offset_minutes.into())).ok()
    }
}

pub(crate) fn to_timestamp<'a>(value: &Value<'a>) -> Result<Option<Value<'a>>, EvalProblem> {
    let moment = match value {
        Value::Timestamp(moment) => *moment,
        Value::Int(seconds) => Moment::after(Moment::EPOCH, SignedDuration::from_secs(*seconds), 0)?,
        Value::String(text) => match rfc3339(text) {
            Some((local, offset)) => {
                Moment::after(local, SignedDuration::from_mins(-i64::from(offset)), offset)?
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(Value::Timestamp(moment)))
}

/// The local time and the offset in minutes of `2006-01-02T15:04:05.999Z` or `…+01:00`; the library takes more shapes.
fn rfc3339(text: &str) -> Option<(DateTime, i32)> {
    let (whole, rest) = text.split_at_checked("2006-01-02T15:04:05".len())?;
    let shaped = whole.bytes().zip("dddd-dd-ddTdd:dd:dd".bytes()).all(|(byte, want)| match want {
        b'd' => byte.is_ascii_digit(),
        want => byte == want,
    });
    // Go refuses leap seconds.
    if !shaped || whole.get(17..)? >= "60" {
        return None;
    }
    let (digits, zone) = match rest.strip_prefix('.') {
        Some(fraction) => fraction.split_at(fraction.find(|c: char| !c.is_ascii_digit())?),
        None => ("", rest),
    };
    if rest.starts_with('.') && digits.is_empty() {
        return None;
    }
    let offset = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        ("+", offset) => minutes(offset)?,
        ("-", offset) => -minutes(offset)?,
        _ => return None,
    };
    // Nanoseconds, of which there are nine digits.
    let nanos = format!("{:0<9}", digits.get(..digits.len().min(9))?);
    let local: DateTime = whole.parse().ok()?;
    let local = local.checked_add(SignedDuration::from_nanos(nanos.parse().ok()?)).ok()?;
    Some((local, offset))
}

/// The minutes of `01:30`.
fn minutes(text: &str) -> Option<i32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<i32>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// A duration as Go writes it: `1h30m`, `-1.5s`, `100ms`.
pub(crate) fn to_duration<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    match value {
        Value::Duration(_) => Some(value.clone()),
        Value::String(text) => parse_duration(text).map(Value::Duration),
        _ => None,
    }
}

fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total: i128 = 0;
    let mut any = false;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) =
            after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let nanos = unit_nanos(unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 20 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // More digits than this are less than a nanosecond of an hour.
        let fraction = fraction.get(..fraction.len().min(18))?;
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        total =
            total.checked_add(whole.checked_mul(nanos)?)?.checked_add(part.checked_mul(nanos)? / scale)?;
        rest = after;
        any = true;
    }
    let total = i64::try_from(if negative { -total } else { total }).ok()?;
    any.then(|| SignedDuration::from_nanos(total))
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS,
        "m" => 60 * NANOS,
        "h" => 3600 * NANOS,
        _ => return None,
    })
}

/// A duration in seconds, as Go writes it.
pub(crate) fn seconds(duration: SignedDuration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// A sum or a difference with a duration or a timestamp in it; `None` where there is none of such types.
pub(crate) fn sum<'a>(
    left: &Value<'a>,
    right: &Value<'a>,
    minus: bool,
) -> Result<Option<Value<'a>>, EvalProblem> {
    Ok(Some(match (left, right) {
        (Value::Duration(left), Value::Duration(right)) => {
            let right = if minus { right.checked_neg().ok_or(EvalProblem::Overflow)? } else { *right };
            in_range(left.checked_add(right))?
        }
        (Value::Timestamp(time), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(time))
            if !minus || matches!(left, Value::Timestamp(_)) =>
        {
            let by = if minus { by.checked_neg().ok_or(EvalProblem::Overflow)? } else { *by };
            Value::Timestamp(Moment::after(time.utc, by, time.offset_minutes)?)
        }
        (Value::Timestamp(left), Value::Timestamp(right)) if minus => {
            in_range(Some(left.utc.duration_since(right.utc)))?
        }
        _ => return Ok(None),
    }))
}

/// A duration that 64 bits of nanoseconds can hold.
pub(crate) fn in_range<'a>(duration: Option<SignedDuration>) -> Result<Value<'a>, EvalProblem> {
    let duration = duration.filter(|duration| i64::try_from(duration.as_nanos()).is_ok());
    duration.map(Value::Duration).ok_or(EvalProblem::Overflow)
}

/// A field of a timestamp or of a duration; `None` where it has none of that name.
pub(crate) fn field<'a>(
    function: Function,
    value: &Value<'a>,
    zone: &[Value<'a>],
) -> Result<Option<Value<'a>>, EvalProblem> {
    let time = match (value, zone) {
        (Value::Duration(duration), []) => return Ok(of_duration(function, *duration)),
        (Value::Timestamp(moment), []) => moment.utc,
        (Value::Timestamp(moment), [Value::String(zone)]) => {
            moment.local(offset(zone)?).ok_or(EvalProblem::Overflow)?
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::Int(of_time(function, time))))
}

/// The minutes of a time zone that is an offset.
fn offset(zone: &str) -> Result<i32, EvalProblem> {
    if zone.is_empty() || zone == "UTC" {
        return Ok(0);
    }
    let (sign, digits) = match zone.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    minutes(digits).map(|minutes| sign * minutes).ok_or(EvalProblem::TimeZone)
}

fn of_time(function: Function, time: DateTime) -> i64 {
    match function {
        Function::GetFullYear => time.year().into(),
        Function::GetMonth => i64::from(time.month()) - 1,
        Function::GetDate => time.day().into(),
        Function::GetDayOfMonth => i64::from(time.day()) - 1,
        Function::GetDayOfWeek => time.weekday().to_sunday_zero_offset().into(),
        Function::GetDayOfYear => i64::from(time.day_of_year()) - 1,
        Function::GetHours => time.hour().into(),
        Function::GetMinutes => time.minute().into(),
        Function::GetSeconds => time.second().into(),
        _ => time.millisecond().into(),
    }
}

fn of_duration<'a>(function: Function, duration: SignedDuration) -> Option<Value<'a>> {
    Some(Value::Int(match function {
        Function::GetHours => duration.as_hours(),
        Function::GetMinutes => duration.as_mins(),
        Function::GetSeconds => duration.as_secs(),
        Function::GetMilliseconds => i64::try_from(duration.as_millis()).ok()?,
        _ => return None,
    }))
}
