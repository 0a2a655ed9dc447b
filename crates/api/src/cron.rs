//! Times that come again, by a cron expression and a time zone.

use std::time::Duration;

use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest expression, in bytes.
const MAX_EXPRESSION: usize = 256;
/// So much a clock is put forward or back at most, where summer begins or ends.
const MOST_SHIFTED: SignedDuration = SignedDuration::from_hours(3);
/// Times that are tried for the next one: those of each minute of the hours that a clock may have been put back, and more.
const MOST_TRIED: usize = 500;

/// CronSchedule says at which times something is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronSchedule {
    /// A cron expression of five fields: minute, hour, day of the month, month, day of the week.
    #[schemars(length(min = 9, max = 256))]
    pub cron: String,
    /// The time zone by whose clocks that is, as Europe/Berlin. Defaults to UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The expression cannot be used.
    #[error("must be a cron expression of five fields, as \"0 8 * * MON-FRI\"")]
    Expression,
    /// The time zone is not known.
    #[error("must be the name of a time zone, as Europe/Berlin")]
    TimeZone,
    /// It names a day that does not come.
    #[error("names a time that does not come within four years")]
    Never,
}

/// The times of a [`CronSchedule`].
///
/// They are those that a clock on the wall shows. Where it is put forward past one, that one is as much later; where it is put back, one that it
/// shows twice is the first. Those of each hour (`* ` in the place of hours) are by the time that passes: there is one more, or one less.
#[derive(Debug)]
pub struct Times {
    cron: Crontab,
    zone: TimeZone,
    is_hourly: bool,
}

impl Times {
    /// Of a schedule.
    ///
    /// # Errors
    /// Where it cannot be used.
    pub fn of(schedule: &CronSchedule) -> Result<Self, CronError> {
        let expression = schedule.cron.trim();
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        // What stands behind the fifth would be a time zone.
        if expression.len() > MAX_EXPRESSION || fields.len() != 5 {
            return Err(CronError::Expression);
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let cron = parse_crontab_with(expression, options).map_err(|_| CronError::Expression)?;
        let zone = match schedule.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| CronError::TimeZone)?,
        };
        let times = Self { cron, zone, is_hourly: fields[1].starts_with('*') };
        // Any time will do: what comes at all comes within four years of it.
        times.next(Timestamp::UNIX_EPOCH).map(|_| times).ok_or(CronError::Never)
    }

    /// The first time after that one; none where there is none within four years.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        if self.is_hourly {
            return self.next_hourly(after);
        }
        // From before a clock may have been put forward past one.
        let mut shown = self.zone.to_datetime(after).checked_sub(MOST_SHIFTED).ok()?;
        for _ in 0..MOST_TRIED {
            shown = self.next_shown(shown)?;
            let at = self.zone.to_ambiguous_timestamp(shown).compatible().ok()?;
            if at > after {
                return Some(at);
            }
        }
        None
    }

    /// The first time of those that came less than `within` ago, if one did.
    #[must_use]
    pub fn first(&self, now: Timestamp, within: Duration) -> Option<Timestamp> {
        self.next(now.checked_sub(within).ok()?).filter(|at| *at <= now)
    }

    /// The next time that a clock shows, as if none were ever put forward or back.
    fn next_shown(&self, after: DateTime) -> Option<DateTime> {
        let after = TimeZone::UTC.to_timestamp(after).ok()?;
        Some(self.cron.find_next(after).ok()?.datetime())
    }

    /// Offsets are of whole minutes nearly everywhere, and of whole hours not: what is shown of the minutes counts.
    fn next_hourly(&self, after: Timestamp) -> Option<Timestamp> {
        let offset = self.zone.to_offset(after);
        let shown = self.next_shown(offset.to_datetime(after))?;
        let at = offset.to_timestamp(shown).ok()?;
        // The clock was put forward or back before that: what it shows then counts.
        if self.zone.to_offset(at) == offset {
            return Some(at);
        }
        let change = self.zone.following(after).next()?.timestamp();
        let offset = self.zone.to_offset(change);
        let before = offset.to_datetime(change).checked_sub(SignedDuration::from_secs(1)).ok()?;
        offset.to_timestamp(self.next_shown(before)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(cron: &str, zone: &str) -> Times {
        let time_zone = Some(zone.to_owned()).filter(|zone| !zone.is_empty());
        Times::of(&CronSchedule { cron: cron.to_owned(), time_zone }).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_those_that_a_clock_shows() {
        for (cron, zone, after, expected) in [
            ("0 8 * * MON-FRI", "Europe/Berlin", "2026-11-28T06:00:00Z", "2026-11-30T07:00:00Z"),
            ("0 8 * * *", "", "2026-11-28T08:00:00Z", "2026-11-29T08:00:00Z"),
            // 02:30 is skipped when summer begins: it is an hour later then, and on the next day as ever.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", "2026-03-29T01:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"),
            // It comes twice when summer ends: the first counts.
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
            // Each hour, also where there is one more.
            ("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"),
            // Half an hour is put back, and the offset is one of half an hour.
            ("15 * * * *", "Australia/Lord_Howe", "2026-04-04T14:50:00Z", "2026-04-04T15:45:00Z"),
            ("0 12 29 2 *", "", "2026-03-01T00:00:00Z", "2028-02-29T12:00:00Z"),
        ] {
            assert_eq!(times(cron, zone).next(at(after)), Some(at(expected)), "{cron} {zone} {after}");
        }
    }

    #[test]
    fn a_time_is_over_when_so_long_ago() {
        let nightly = times("0 22 * * *", "");
        let within = Duration::from_secs(8 * 3600);
        for (now, expected) in [
            ("2026-11-28T21:59:59Z", None),
            ("2026-11-28T22:00:00Z", Some("2026-11-28T22:00:00Z")),
            ("2026-11-29T05:59:59Z", Some("2026-11-28T22:00:00Z")),
            ("2026-11-29T06:00:00Z", None),
        ] {
            assert_eq!(nightly.first(at(now), within), expected.map(at), "{now}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (cron, zone, expected) in [
            ("", "UTC", CronError::Expression),
            ("0 8 * *", "UTC", CronError::Expression),
            ("0 8 * * * Europe/Berlin", "UTC", CronError::Expression),
            ("60 8 * * *", "UTC", CronError::Expression),
            ("@daily", "UTC", CronError::Expression),
            (&format!("{}0 8 * * *", "0,".repeat(200)), "UTC", CronError::Expression),
            ("0 8 * * *", "Europe/Atlantis", CronError::TimeZone),
            ("0 8 * * *", "../../etc/passwd", CronError::TimeZone),
            ("0 8 30 2 *", "UTC", CronError::Never),
        ] {
            let schedule = CronSchedule { cron: cron.to_owned(), time_zone: Some(zone.to_owned()) };
            assert_eq!(Times::of(&schedule).err(), Some(expected), "{cron} {zone}");
        }
    }

    proptest! {
        #[test]
        fn the_next_time_is_later_and_any_text_is_taken_or_refused(
            text in "[0-9*/,A-Z# L-]{1,12}( [0-9*/,LW#-]{1,4}){4}", second in 0..4_000_000_000_i64, zone in 0..4_usize,
        ) {
            let time_zone = Some(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"][zone].to_owned());
            let after = Timestamp::from_second(second).unwrap();
            if let Ok(times) = Times::of(&CronSchedule { cron: text, time_zone }) {
                prop_assert!(times.next(after).is_none_or(|at| at > after));
            }
        }

        #[test]
        fn a_daily_time_comes_once_a_day(hour in 0..24_u8, minute in 0..60_u8, second in 0..2_000_000_000_i64) {
            let times = times(&format!("{minute} {hour} * * *"), "America/New_York");
            let first = times.next(Timestamp::from_second(second).unwrap()).unwrap();
            let hours = times.next(first).unwrap().duration_since(first).as_hours();
            prop_assert!((23..=25).contains(&hours), "{}", hours);
        }
    }
}
