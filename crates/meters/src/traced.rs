//! How long things took, each bucket with the trace of something that fell into it: an exemplar of OpenMetrics.

use std::fmt;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The label that an exemplar has, by which Grafana and others find the trace.
const TRACE_ID: &str = "trace_id";

/// A histogram of durations with exemplars. It has a lock: for what happens once in a reconciliation, and not in each statement.
/// Clones share it.
#[derive(Debug, Clone)]
pub struct Traced(HistogramWithExemplars<[(&'static str, String); 1]>);

impl Traced {
    /// Empty; `ends` are [`crate::QUICK`] or [`crate::SLOW`].
    #[must_use]
    pub fn new(ends: &'static [f64]) -> Self {
        Self(HistogramWithExemplars::new(ends.iter().copied()))
    }

    /// Something took so long, as a part of this trace, if it is one that can be found.
    pub fn observe(&self, took: Duration, trace: Option<String>) {
        let labels = trace.map(|trace| [(TRACE_ID, trace)]);
        self.0.observe(took.as_secs_f64(), labels, Some(SystemTime::now()));
    }
}

impl TypedMetric for Traced {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Traced {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn a_bucket_has_the_trace_of_what_fell_into_it_last() {
        let times = Traced::new(crate::SLOW);
        times.observe(Duration::from_secs(2), Some("first".to_owned()));
        times.observe(Duration::from_secs(3), Some("second".to_owned()));
        times.observe(Duration::from_secs(4), None);
        times.observe(Duration::from_secs(100), None);
        let mut registry = Registry::default();
        registry.register_with_unit("took", "How long", Unit::Seconds, times);
        let text = crate::text(&registry).unwrap();
        let bucket = |end: &str| {
            let begins = format!("took_seconds_bucket{{le=\"{end}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&begins)).unwrap().to_owned()
        };
        assert!(bucket("5.0").starts_with("3 # {trace_id=\"second\"} 3.0 "), "{text}");
        assert_eq!(bucket("300.0"), "4");
        assert!(
            text.contains("took_seconds_count 4\n") && text.contains("took_seconds_sum 109.0\n"),
            "{text}"
        );
    }
}
