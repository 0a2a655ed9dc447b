//! Which spans come of a pass. The collector is the process's, so these make their own scopes.

use std::io::Write;
use std::sync::Mutex;

use tracing_subscriber::fmt::format::Format;

use super::*;
use crate::collector::Collector;

fn parent() -> TraceContext {
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap()
}

/// The spans of a pass under `parent`.
async fn spans(parent: Option<TraceContext>, work: impl Future<Output = ()>) -> Vec<Finished> {
    let scope = Arc::new(Scope::new("pass", parent, Sampling::ALL));
    CURRENT.scope(Arc::clone(&scope), work).await;
    scope.end()
}

fn names(spans: &[Finished]) -> Vec<&'static str> {
    spans.iter().map(|span| span.name).collect()
}

#[tokio::test]
async fn a_pass_of_which_nothing_comes_is_no_trace() {
    let looks = async || Span::start("fetch").end();
    assert!(spans(None, looks()).await.is_empty());
    assert!(spans(Some(parent()), async {}).await.is_empty());
    assert_eq!(names(&spans(Some(parent()), looks()).await), ["fetch", "pass"]);
    let keeps = async || {
        looks().await;
        keep();
    };
    assert_eq!(names(&spans(None, keeps()).await), ["fetch", "pass"]);
}

#[tokio::test]
async fn what_is_handed_on_is_the_pass_and_its_spans_are_under_it() {
    let work = async || {
        let carried = carry().unwrap();
        let mut span = Span::start("build");
        span.set("cached", true);
        span.result("BuildFailed", true);
        span.end();
        describe("name", "app");
        assert_eq!(current(), Some(carried));
    };
    let spans = spans(Some(parent()), work()).await;
    let [build, pass] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((pass.context.trace, pass.parent), (parent().trace, Some(parent().span)));
    assert_eq!(build.parent, Some(pass.context.span));
    assert!(build.failed && pass.failed);
    assert_eq!(pass.attributes, [("name", Value::Text("app".to_owned()))]);
    assert_eq!(build.attributes[0], ("cached", Value::Truth(true)));
    assert!(current().is_none() && carry().is_none());
}

#[tokio::test]
async fn what_is_not_sampled_makes_no_spans_and_is_handed_on_all_the_same() {
    let unsampled = parent().unsampled();
    let work = async || {
        Span::start("build").end();
        assert_eq!(carry().map(|carried| (carried.trace, carried.sampled)), Some((unsampled.trace, false)));
    };
    assert!(spans(Some(unsampled), work()).await.is_empty());
}

#[tokio::test]
async fn spans_attributes_and_texts_are_bounded() {
    let work = async || {
        for _ in 0..1_000 {
            let mut span = Span::start("build");
            span.set("text", "é".repeat(1_000));
            span.end();
        }
    };
    let spans = spans(Some(parent()), work()).await;
    assert_eq!(spans.len(), 65);
    assert_eq!(spans[0].attributes, [("text", Value::Text("é".repeat(128)))]);
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let (collector, mut collected) = Collector::new(Sampling::ALL, 2);
    let now = Timestamp::now();
    let span = |name| Finished::new(parent(), None, name, (now, now));
    collector.take(vec![span("one"), span("two"), span("three")]);
    assert_eq!(collector.dropped(), 1);
    assert_eq!(names(&collected.next(10).await), ["one", "two"]);
    collector.take(vec![span("four")]);
    collector.take(vec![Finished::new(parent().unsampled(), None, "five", (now, now))]);
    assert_eq!(names(&collected.ready(10)), ["four"]);
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn lines_within_a_trace_bear_its_id() {
    let sink = Sink::default();
    let writer = sink.clone();
    let text = tracing_subscriber::fmt()
        .event_format(WithTraceId::text(Format::default().with_ansi(false).without_time()))
        .with_writer(move || writer.clone())
        .finish();
    let writer = sink.clone();
    let json = tracing_subscriber::fmt()
        .json()
        .map_event_format(|format| WithTraceId::json(format.flatten_event(true)))
        .with_writer(move || writer.clone())
        .finish();
    let log = || tracing::info!(object = "a\nb", "done");
    tracing::subscriber::with_default(text, || {
        log();
        CURRENT.sync_scope(Arc::new(Scope::over(parent())), log);
    });
    tracing::subscriber::with_default(json, || {
        log();
        CURRENT.sync_scope(Arc::new(Scope::over(parent())), log);
    });
    let written = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    let [plain, traced, json_plain, json_traced] = lines.as_slice() else { panic!("{written}") };
    assert!(!plain.contains("trace_id"), "{plain}");
    assert_eq!(*traced, format!("{plain} trace_id={}", parent().trace));
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    assert!(json(json_plain)["trace_id"].is_null(), "{json_plain}");
    assert_eq!(json(json_traced)["trace_id"], parent().trace.to_string());
    assert_eq!(json(json_traced)["message"], "done");
}
