//! Traces: which one the work at hand is part of, the spans of that work, and its id in log lines.
//!
//! Work is done [within](pass) a context, which it hands on with [`carry`] wherever the chain crosses a row of the database or the link
//! to an agent. Spans of a pass are kept until it ends, and are dropped where nothing came of it: a look at something that stands as it
//! should leaves no trace. Without [`start`] there is nothing of all this: contexts are neither made nor written anywhere, and spans are not kept.
//!
//! Like log lines, spans are the process's: so what collects them is one for the process.

mod collector;
mod lines;
mod span;

pub use collector::{Collected, Sampling, start};
pub use lines::WithTraceId;
pub use span::{Finished, Scope, Span, Value};

use std::sync::Arc;

use jiff::Timestamp;
use roadstead_model::{SpanId, TraceContext, TraceId};

tokio::task_local! {
    static CURRENT: Arc<Scope>;
}

/// Whether traces are made in this process.
#[must_use]
pub fn is_on() -> bool {
    collector::get().is_some()
}

/// What the work at hand is part of, for log lines.
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|scope| scope.context()).ok()
}

/// What the work at hand is part of, for what follows from it elsewhere: its spans are kept from now on.
#[must_use]
pub fn carry() -> Option<TraceContext> {
    CURRENT
        .try_with(|scope| {
            scope.keep();
            scope.context()
        })
        .ok()
}

/// Says that the work at hand has led to something: its spans are kept, whether or not it was asked for within a trace.
pub fn keep() {
    let _ = CURRENT.try_with(|scope| scope.keep());
}

/// Says that the work at hand is not done, and that its next pass is part of the same trace.
pub fn unfinished() {
    let _ = CURRENT.try_with(|scope| scope.note_unfinished());
}

/// Says something of the work at hand.
pub fn describe(key: &'static str, value: impl Into<Value>) {
    let _ = CURRENT.try_with(|scope| scope.describe(key, value.into()));
}

/// Does `work` as part of what `context` is, without a span of its own: log lines have its id. Nothing where there is none.
pub async fn within<T>(context: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    match context {
        None => work.await,
        Some(context) => CURRENT.scope(Arc::new(Scope::over(context)), work).await,
    }
}

/// Does `work` as one span under `parent`, or as the first of a new trace. What it notes meanwhile are spans under that one. Says too
/// whether it was left [`unfinished`], and which context its next pass is to have then.
pub async fn pass<T>(
    name: &'static str,
    parent: Option<TraceContext>,
    work: impl Future<Output = T>,
) -> (T, Option<TraceContext>) {
    let Some(collector) = collector::get() else { return (work.await, None) };
    let scope = Arc::new(Scope::new(name, parent, collector.sampling()));
    let done = CURRENT.scope(Arc::clone(&scope), work).await;
    let context = scope.left_unfinished();
    collector.take(scope.end());
    (done, context)
}

/// Notes a span of which everything is known, such as one that happened elsewhere.
pub fn record(span: Finished) {
    if let Some(collector) = collector::get() {
        collector.take(vec![span]);
    }
}

/// A span's own context, of a new trace where there is no parent.
fn child(parent: Option<TraceContext>, sampling: Sampling) -> TraceContext {
    match parent {
        Some(parent) => TraceContext { span: random_span(), ..parent },
        None => {
            let trace = random_trace();
            TraceContext { trace, span: random_span(), sampled: trace.is_among(sampling.ratio()) }
        }
    }
}

fn random_trace() -> TraceId {
    loop {
        if let Some(id) = TraceId::new(rand::random()) {
            return id;
        }
    }
}

fn random_span() -> SpanId {
    loop {
        if let Some(id) = SpanId::new(rand::random()) {
            return id;
        }
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests;
