//! Spans, and the work that they are of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use roadstead_model::{SpanId, TraceContext};

use crate::{CURRENT, Sampling, child, now};

/// Spans of one pass; what comes beyond that is dropped.
const MOST: usize = 64;
/// Attributes of one span.
const MOST_ATTRIBUTES: usize = 16;
/// Bytes of a text; what is longer is cut.
const LONGEST: usize = 256;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text, of 256 bytes at most.
    Text(String),
    /// A number.
    Number(i64),
    /// A truth.
    Truth(bool),
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What it is: the trace, and its own id.
    pub context: TraceContext,
    /// The span that it is under; none of the first of a trace.
    pub parent: Option<SpanId>,
    /// What was done: one of a few names, whatever it was done with.
    pub name: &'static str,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What it was done with, and what came of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it failed.
    pub failed: bool,
}

/// A span that has begun, under that of the work at hand. Where there is none it is nothing.
#[derive(Debug)]
#[must_use = "it is noted when it ends"]
pub struct Span(Option<Box<Finished>>);

/// The work at hand, as a span of its trace.
#[derive(Debug)]
pub struct Scope {
    /// None where it is within a trace of which this process makes no spans.
    span: Option<Mutex<Finished>>,
    context: TraceContext,
    spans: Mutex<Vec<Finished>>,
    /// Whether it was asked for within a trace.
    is_asked_for: bool,
    is_kept: AtomicBool,
    is_unfinished: AtomicBool,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(LONGEST)].to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl Finished {
    /// A span of which all but the attributes is known.
    #[must_use]
    pub fn new(
        context: TraceContext,
        parent: Option<SpanId>,
        name: &'static str,
        (start, end): (Timestamp, Timestamp),
    ) -> Self {
        // A clock that was set back in between makes no span of negative length.
        Self { context, parent, name, start, end: end.max(start), attributes: Vec::new(), failed: false }
    }

    /// The same with this said of it.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.set(key, value.into());
        self
    }

    fn set(&mut self, key: &'static str, value: Value) {
        if let Some((_, known)) = self.attributes.iter_mut().find(|(known, _)| *known == key) {
            *known = value;
        } else if self.attributes.len() < MOST_ATTRIBUTES {
            self.attributes.push((key, value));
        }
    }
}

impl Span {
    /// Begins a span under that of the work at hand.
    pub fn start(name: &'static str) -> Self {
        let under = CURRENT.try_with(|scope| scope.records().then(|| scope.context())).ok().flatten();
        Self(under.map(|parent| {
            let (context, now) = (child(Some(parent), Sampling::ALL), now());
            Box::new(Finished::new(context, Some(parent.span), name, (now, now)))
        }))
    }

    /// Says something of it.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set(key, value.into());
        }
    }

    /// Says what came of it, in a word, and whether that is a failure.
    pub fn result(&mut self, result: &str, failed: bool) {
        self.set("result", result);
        if let Some(span) = &mut self.0 {
            span.failed = failed;
        }
    }

    /// Ends it.
    pub fn end(self) {
        let Some(mut span) = self.0 else { return };
        span.end = now().max(span.start);
        let _ = CURRENT.try_with(|scope| scope.add(*span));
    }
}

impl Scope {
    pub(crate) fn new(name: &'static str, parent: Option<TraceContext>, sampling: Sampling) -> Self {
        let (context, now) = (child(parent, sampling), now());
        let parent = parent.map(|parent| parent.span);
        let span = Finished::new(context, parent, name, (now, now));
        Self { span: Some(Mutex::new(span)), is_asked_for: parent.is_some(), ..Self::over(context) }
    }

    pub(crate) fn over(context: TraceContext) -> Self {
        Self {
            span: None,
            context,
            spans: Mutex::default(),
            is_asked_for: false,
            is_kept: AtomicBool::new(false),
            is_unfinished: AtomicBool::new(false),
        }
    }

    /// What it is part of.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.context
    }

    fn records(&self) -> bool {
        self.span.is_some() && self.context.sampled
    }

    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_unfinished(&self) {
        self.is_unfinished.store(true, Ordering::Relaxed);
        // The next pass is beside this one, which has no span where nothing else came of it, or under it, the first of its trace.
        if !self.is_asked_for {
            self.keep();
        }
    }

    /// What the next pass is under, where this one has not done all.
    pub(crate) fn left_unfinished(&self) -> Option<TraceContext> {
        let span = match &self.span {
            Some(span) => locked(span).parent.unwrap_or(self.context.span),
            None => self.context.span,
        };
        let is_unfinished = self.is_unfinished.load(Ordering::Relaxed);
        is_unfinished.then_some(TraceContext { span, ..self.context })
    }

    pub(crate) fn describe(&self, key: &'static str, value: Value) {
        if let Some(span) = &self.span {
            locked(span).set(key, value);
        }
    }

    fn add(&self, span: Finished) {
        let mut spans = locked(&self.spans);
        if spans.len() < MOST {
            spans.push(span);
        }
    }

    /// Its spans, where there is anything to tell.
    pub(crate) fn end(&self) -> Vec<Finished> {
        let mut spans = std::mem::take(&mut *locked(&self.spans));
        let is_done = !self.is_unfinished.load(Ordering::Relaxed);
        let is_told =
            self.is_kept.load(Ordering::Relaxed) || (self.is_asked_for && is_done && !spans.is_empty());
        let Some(span) = self.span.as_ref().filter(|_| is_told && self.context.sampled) else {
            return Vec::new();
        };
        let mut own = locked(span).clone();
        own.end = now().max(own.start);
        own.failed = spans.iter().any(|span| span.failed);
        spans.push(own);
        spans
    }
}

/// Nothing under these locks can panic half-way through a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
