//! What a process counts of its own work for monitoring, and what it takes of its machine: the same for the hub and for agents.
//!
//! Counting happens where the work is done, so it costs a few atomic additions and never waits. Labels have few values, which are
//! known beforehand: [`Table`] finds its entry by an index.

mod process;
mod table;
mod times;
mod traced;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use process::Process;
pub use table::{Label, Table};
pub use times::{QUICK, SLOW, Times};
pub use traced::Traced;

/// The media type of what [`text`] writes.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A gauge of a real number.
pub type Real = Gauge<f64, AtomicU64>;

/// As a gauge has it.
pub fn signed<T: TryInto<i64>>(count: T) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// All that is registered, as OpenMetrics.
///
/// # Errors
/// Where a metric cannot be written.
pub fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// What goes on at the moment: one of a gauge, for as long as this is held.
#[derive(Debug)]
pub struct Open(Gauge);

impl Open {
    /// One more.
    #[must_use]
    pub fn one(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The class of an HTTP status: `2xx` and so on; `none` where there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusClass(usize);

impl StatusClass {
    /// That of a status; none where no answer came.
    #[must_use]
    pub fn of(status: Option<u16>) -> Self {
        Self(status.map_or(0, |status| usize::from(status / 100).min(5)))
    }
}

impl Label for StatusClass {
    const NAME: &'static str = "code";
    const VALUES: &'static [&'static str] = &["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

    fn index(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_classes() {
        let of = |status| StatusClass::VALUES[StatusClass::of(status).index()];
        assert_eq!([of(None), of(Some(101)), of(Some(204)), of(Some(503))], ["none", "1xx", "2xx", "5xx"]);
        assert_eq!([of(Some(0)), of(Some(999))], ["none", "5xx"]);
    }

    #[test]
    fn what_is_open_is_counted_while_it_is() {
        let gauge = Gauge::default();
        let one = Open::one(&gauge);
        let other = Open::one(&gauge);
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(other);
        assert_eq!(gauge.get(), 0);
    }
}
