//! The context of a trace as W3C's `traceparent` writes it: which trace, which of its spans, and whether it is recorded.

use std::fmt;
use std::str::FromStr;

use crate::Digest;

/// The length of a context that is written: `00-`, 32 digits, `-`, 16 digits, `-`, two digits.
const LENGTH: usize = 55;
/// The version that is written.
const VERSION: u8 = 0;
/// The flag of a trace whose spans are recorded.
const SAMPLED: u8 = 1;

/// The id of a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// A span of a trace, for whatever happens because of it: it crosses rows of the database and the link to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// Its span under which the next ones are.
    pub span: SpanId,
    /// Whether its spans are recorded. Where they are not, log lines have its id all the same.
    pub sampled: bool,
}

/// Why a text is not the context of a trace. What it was is not told: it came from anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent: 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits, neither id all zeros")]
pub struct BadTraceparent;

impl TraceId {
    /// The id of these bytes; none where all are zero.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether the trace is among the `ratio` of all that are recorded: from 0, none, to 1, all. Each process that is asked of the same
    /// trace says the same.
    #[must_use]
    pub fn is_among(&self, ratio: f64) -> bool {
        let [.., a, b, c, d, e, f, g] = self.0;
        // The 56 bits that are random in any case; that many are exact in no f64, and need not be.
        let place = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        (place as f64) < ratio * (1_u64 << 56) as f64
    }
}

impl SpanId {
    /// The id of these bytes; none where all are zero.
    #[must_use]
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceContext {
    /// The context of the span that is `what` under this one. It is the same for whoever asks, so that what is noted twice, by two replicas
    /// say, is one span.
    #[must_use]
    pub fn derived(&self, what: &str) -> Self {
        let digest = Digest::of(format!("{self} {what}").as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        // A digest of eight zeros is as likely as none.
        let span = SpanId::new([a, b, c, d, e, f, g, h]).unwrap_or(self.span);
        Self { span, ..*self }
    }

    /// The same without spans that are recorded.
    #[must_use]
    pub fn unsampled(self) -> Self {
        Self { sampled: false, ..self }
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.sampled { SAMPLED } else { 0 };
        write!(formatter, "{VERSION:02x}-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

impl FromStr for TraceContext {
    type Err = BadTraceparent;

    /// As W3C has it: of a later version the beginning counts, which is the same, and what follows a further `-` is left aside.
    fn from_str(text: &str) -> Result<Self, BadTraceparent> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(LENGTH).ok_or(BadTraceparent)?;
        let [version] = hex(&head[..2])?;
        let is_whole = if version == VERSION { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        if version == 0xff || !is_whole || [2, 35, 52].iter().any(|at| head[*at] != b'-') {
            return Err(BadTraceparent);
        }
        let trace = TraceId::new(hex(&head[3..35])?).ok_or(BadTraceparent)?;
        let span = SpanId::new(hex(&head[36..52])?).ok_or(BadTraceparent)?;
        let [flags] = hex(&head[53..])?;
        Ok(Self { trace, span, sampled: flags & SAMPLED != 0 })
    }
}

/// The bytes of so many lower-case digits, two for each.
fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], BadTraceparent> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(BadTraceparent),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_as_it_is_written() {
        let context: TraceContext = TEXT.parse().unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.sampled);
        assert_eq!(context.to_string(), TEXT);
        let unsampled = context.unsampled();
        assert_eq!(unsampled.to_string(), TEXT.replace("-01", "-00"));
        assert_eq!(unsampled.to_string().parse(), Ok(unsampled));
    }

    #[test]
    fn flags_and_versions_that_are_not_known_yet_are_taken() {
        let context: TraceContext = TEXT.parse().unwrap();
        for text in [
            TEXT.replace("-01", "-03"),
            TEXT.replacen("00", "cc", 1),
            format!("{}-what-the-future-holds", TEXT.replacen("00", "cc", 1)),
        ] {
            assert_eq!(text.parse(), Ok(context), "{text}");
        }
        assert!(!TEXT.replace("-01", "-02").parse::<TraceContext>().unwrap().sampled);
    }

    #[test]
    fn what_is_no_context_is_refused() {
        let zeros = "0".repeat(32);
        for text in [
            "",
            "00",
            "4bf92f3577b34da6a3ce929d0e0e4736",
            &TEXT[..LENGTH - 1],
            &format!("{TEXT}-more"),
            &format!("{TEXT} "),
            &format!(" {TEXT}"),
            &TEXT.to_uppercase(),
            &TEXT.replace('-', "_"),
            &TEXT.replacen("00", "ff", 1),
            &TEXT.replacen("00", "cc", 1).replace("-01", "-01x"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            &TEXT.replace("00f067aa0ba902b7", "0000000000000000"),
            &TEXT.replace("-01", "-0g"),
            &TEXT.replace('4', "é"),
            &"-".repeat(LENGTH),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(BadTraceparent), "{text}");
        }
    }

    #[test]
    fn a_derived_span_is_the_same_for_everybody_and_no_other() {
        let context: TraceContext = TEXT.parse().unwrap();
        let (one, other) = (context.derived("attempt 1"), context.derived("attempt 2"));
        assert_eq!(one, context.derived("attempt 1"));
        assert_ne!(one.span, other.span);
        assert_ne!(one.span, context.span);
        assert_eq!((one.trace, one.sampled), (context.trace, true));
    }

    #[test]
    fn the_ratio_is_kept_to() {
        let of = |number: u64| {
            let digest = Digest::of(&number.to_be_bytes());
            TraceId::new(digest.as_bytes()[..16].try_into().unwrap()).unwrap()
        };
        let among = |ratio| (0..2_000).filter(|number| of(*number).is_among(ratio)).count();
        assert_eq!(among(0.0), 0);
        assert_eq!(among(1.0), 2_000);
        assert!((400..600).contains(&among(0.25)), "{}", among(0.25));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_written_alike(text in "\\PC{0,80}") {
            if let Ok(context) = text.parse::<TraceContext>() {
                prop_assert_eq!(context.to_string().parse(), Ok(context));
            }
        }

        #[test]
        fn each_context_survives(trace: [u8; 16], span: [u8; 8], sampled: bool) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let context = TraceContext {
                trace: TraceId::new(trace).unwrap(),
                span: SpanId::new(span).unwrap(),
                sampled,
            };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn a_context_with_one_byte_changed_is_read_or_refused(at in 0..LENGTH, byte: u8) {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(context) = text.parse::<TraceContext>()
            {
                let read = context.to_string();
                prop_assert_eq!(&read[3..52], &text[3..52]);
            }
        }
    }
}
