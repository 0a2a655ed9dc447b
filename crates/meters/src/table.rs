//! Metrics of one name by labels whose values are known beforehand: found by an index, and there from the beginning, so that a rate is
//! known from the first one on.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A label, by the type of its values.
pub trait Label: Copy {
    /// Its name.
    const NAME: &'static str;
    /// All of its values.
    const VALUES: &'static [&'static str];

    /// Which of them this is.
    fn index(self) -> usize;
}

/// A label as an enum: each value stands beside what it is called.
#[macro_export]
macro_rules! label {
    ($(#[$about:meta])* $visible:vis enum $name:ident of $label:literal {
        $($(#[$of_value:meta])* $value:ident = $text:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$of_value])* $value,)+
        }

        impl $crate::Label for $name {
            const NAME: &'static str = $label;
            const VALUES: &'static [&'static str] = &[$($text),+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// For metrics with one label.
impl Label for () {
    const NAME: &'static str = "";
    const VALUES: &'static [&'static str] = &[""];

    fn index(self) -> usize {
        0
    }
}

/// A metric for each pair of values. Clones share them.
pub struct Table<A, B, M> {
    metrics: Arc<[M]>,
    labels: PhantomData<fn(A, B)>,
}

impl<A, B, M> Clone for Table<A, B, M> {
    fn clone(&self) -> Self {
        Self { metrics: Arc::clone(&self.metrics), labels: PhantomData }
    }
}

impl<A, B, M> fmt::Debug for Table<A, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} metrics", self.metrics.len())
    }
}

impl<A: Label, B: Label, M> Table<A, B, M> {
    /// As `new` makes each.
    pub fn of(new: impl Fn() -> M) -> Self {
        let metrics = (0..A::VALUES.len() * B::VALUES.len()).map(|_| new()).collect();
        Self { metrics, labels: PhantomData }
    }

    /// That of these values.
    ///
    /// # Panics
    /// Where a label's index is not one of its values: what implements [`Label`] is wrong then.
    #[must_use]
    pub fn at(&self, first: A, second: B) -> &M {
        &self.metrics[first.index() * B::VALUES.len() + second.index()]
    }
}

impl<A: Label, B: Label, M: Default> Default for Table<A, B, M> {
    fn default() -> Self {
        Self::of(M::default)
    }
}

impl<A: Label, B: Label, M: EncodeMetric + TypedMetric> EncodeMetric for Table<A, B, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (index, metric) in self.metrics.iter().enumerate() {
            let (first, second) = (index / B::VALUES.len(), index % B::VALUES.len());
            let labels = [(A::NAME, A::VALUES[first]), (B::NAME, B::VALUES[second])];
            let known = if B::NAME.is_empty() { &labels[..1] } else { &labels[..] };
            metric.encode(encoder.encode_family(&known)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

impl<A: Label, B: Label, M: TypedMetric> TypedMetric for Table<A, B, M> {
    const TYPE: MetricType = M::TYPE;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StatusClass;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::registry::Registry;

    crate::label! {
        enum Way of "direction" {
            In = "in",
            Out = "out",
        }
    }

    #[test]
    fn all_values_are_there_from_the_beginning() {
        let (one, two) =
            (Table::<Way, (), Counter>::default(), Table::<Way, StatusClass, Counter>::default());
        one.at(Way::Out, ()).inc();
        two.at(Way::In, StatusClass::of(Some(404))).inc_by(3);
        let mut registry = Registry::default();
        registry.register("bytes", "Bytes", one);
        registry.register("answers", "Answers", two);
        let text = crate::text(&registry).unwrap();
        for line in [
            "bytes_total{direction=\"in\"} 0",
            "bytes_total{direction=\"out\"} 1",
            "answers_total{direction=\"in\",code=\"4xx\"} 3",
            "answers_total{direction=\"out\",code=\"none\"} 0",
        ] {
            assert!(text.lines().any(|is| is == line), "no {line} in {text}");
        }
        assert_eq!(text.matches("answers_total{").count(), 12);
    }
}
