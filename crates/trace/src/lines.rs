//! Log lines that bear the id of the trace in which they are written.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::current;

/// The lines of another format, with the field `trace_id` at the end of those that are written within a trace.
pub struct WithTraceId<F> {
    inner: F,
    is_json: bool,
}

impl<F> WithTraceId<F> {
    /// Lines of text. Where it has colours, the other format has to say so itself.
    pub fn text(inner: F) -> Self {
        Self { inner, is_json: false }
    }

    /// Lines of JSON, an object each.
    pub fn json(inner: F) -> Self {
        Self { inner, is_json: true }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithTraceId<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(trace) = current() else { return self.inner.format_event(context, writer, event) };
        let mut line = String::with_capacity(256);
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        let id = trace.trace;
        match line.strip_suffix('}').filter(|_| self.is_json) {
            Some(object) => writeln!(writer, "{object},\"trace_id\":\"{id}\"}}"),
            None => writeln!(writer, "{line} trace_id={id}"),
        }
    }
}
