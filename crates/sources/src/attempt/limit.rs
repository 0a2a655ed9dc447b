//! Servers that take no more requests for a while: they are overloaded, or a rate limit is used up.

use std::time::Duration;

use http::header::{HeaderMap, RETRY_AFTER};
use http::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use super::AttemptError;

/// No server is waited for longer than this, whatever it says.
const LONGEST: Duration = Duration::from_secs(3600);
/// A number that is larger is a point in time, in seconds since 1970, and no span of time.
const POINT_IN_TIME: i64 = 1_000_000_000;

/// What headers say about how many requests are left.
const REMAINING: [&str; 2] = ["x-ratelimit-remaining", "ratelimit-remaining"];
/// And when there are more, as spans or as points in time.
const RESET: [&str; 2] = ["x-ratelimit-reset", "ratelimit-reset"];

/// Fails where an answer says that no requests are taken for a while.
pub(crate) fn check<B>(url: impl FnOnce() -> String, response: &Response<B>) -> Result<(), AttemptError> {
    let (status, now) = (response.status(), Timestamp::now());
    match until(status, response.headers(), now) {
        None => Ok(()),
        Some(until) => Err(AttemptError::RateLimited { url: url(), status: status.as_u16(), until }),
    }
}

/// Until when no requests are taken, as an answer that refuses one says it: `Retry-After` as seconds or as a date (RFC 9110), else the
/// headers by which GitHub, GitLab and others say when more may be asked for.
fn until(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let is_used_up = REMAINING.into_iter().any(|name| text(name) == Some("0"));
    let refuses = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        // GitHub says so of what is used up; else it is about who asks.
        StatusCode::FORBIDDEN => is_used_up || headers.contains_key(RETRY_AFTER),
        _ => false,
    };
    if !refuses {
        return None;
    }
    let asked = match text(RETRY_AFTER.as_str()) {
        Some(after) => from_seconds(after, now).or_else(|| from_date(after)),
        None if is_used_up => RESET.into_iter().find_map(|name| from_seconds(text(name)?, now)),
        None => None,
    };
    asked.filter(|until| *until > now).map(|until| until.min(now + LONGEST))
}

fn from_seconds(text: &str, now: Timestamp) -> Option<Timestamp> {
    let seconds: i64 = text.parse().ok().filter(|seconds| *seconds >= 0)?;
    if seconds > POINT_IN_TIME {
        return Timestamp::from_second(seconds).ok();
    }
    let span = Duration::from_secs(seconds.unsigned_abs()).min(LONGEST);
    Some(now + span)
}

fn from_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(status: u16, headers: &[(&'static str, &str)]) -> Option<i64> {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let map = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()));
        let until = until(StatusCode::from_u16(status).unwrap(), &map.collect(), now);
        until.map(|until| until.as_second() - now.as_second())
    }

    #[test]
    fn servers_say_in_several_ways_until_when() {
        for (status, headers, seconds) in [
            (429, &[("retry-after", "30")] as &[_], Some(30)),
            (503, &[("retry-after", " 7 ")], Some(7)),
            (429, &[("retry-after", "Thu, 26 Nov 2026 12:02:00 GMT")], Some(120)),
            // Used up until a point in time (GitHub, GitLab), or for a span of time (the draft of a standard).
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795694460")], Some(60)),
            (429, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "45")], Some(45)),
            (403, &[("retry-after", "60")], Some(60)),
            // No longer than an hour.
            (429, &[("retry-after", "999999")], Some(3600)),
            (429, &[("retry-after", "9223372036854775807")], None),
            (429, &[("retry-after", "Thu, 26 Nov 2099 12:02:00 GMT")], Some(3600)),
        ] {
            assert_eq!(waits(status, headers), seconds, "{status} {headers:?}");
        }
    }

    #[test]
    fn what_does_not_say_so_is_an_answer_like_any_other() {
        for (status, headers) in [
            (429, &[] as &[_]),
            (429, &[("retry-after", "soon")]),
            (429, &[("retry-after", "-5")]),
            (429, &[("retry-after", "0")]),
            (429, &[("retry-after", "Thu, 26 Nov 1999 12:02:00 GMT")]),
            (429, &[("x-ratelimit-remaining", "12"), ("x-ratelimit-reset", "1795694460")]),
            (403, &[("x-ratelimit-remaining", "12"), ("x-ratelimit-reset", "1795694460")]),
            (403, &[]),
            (401, &[("retry-after", "30")]),
            (200, &[("retry-after", "30")]),
            (404, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")]),
        ] {
            assert_eq!(waits(status, headers), None, "{status} {headers:?}");
        }
    }
}
