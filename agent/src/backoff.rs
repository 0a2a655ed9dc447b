//! How long to wait before the next try: exponential with full jitter, so that a thousand agents that lost one hub do
//! not come back in one moment.

use std::time::Duration;

/// The span within which the first try comes.
pub const FIRST: Duration = Duration::from_millis(200);

/// The longest such span.
pub const LONGEST: Duration = Duration::from_secs(15);

/// Counts failures in a row.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The span within which the next try comes: it doubles with each failure in a row, up to [`LONGEST`].
    #[must_use]
    pub fn span(&self) -> Duration {
        FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST)
    }

    /// A point within the span, by chance; the next span is longer.
    pub fn draw(&mut self) -> Duration {
        let span = self.span();
        self.failures = self.failures.saturating_add(1);
        span.mul_f64(rand::random::<f64>())
    }

    /// A try went well: begin again with the shortest span.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST, LONGEST};

    #[test]
    fn spans_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let mut spans = Vec::new();
        for _ in 0..100 {
            let span = backoff.span();
            assert!(backoff.draw() <= span);
            spans.push(span);
        }
        assert_eq!(spans[0], FIRST);
        assert_eq!(spans[1], FIRST * 2);
        assert_eq!(spans[6], FIRST * 64);
        assert_eq!(spans[7], LONGEST);
        assert_eq!(spans[99], LONGEST);
        backoff.reset();
        assert_eq!(backoff.span(), FIRST);
    }

    #[test]
    fn the_whole_span_is_used() {
        let drawn: Vec<_> = (0..200).map(|_| Backoff::default().draw()).collect();
        assert!(drawn.iter().any(|wait| *wait < FIRST / 4) && drawn.iter().any(|wait| *wait > FIRST * 3 / 4));
    }
}
