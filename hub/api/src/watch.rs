//! Watches as streams of JSON lines.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use roadstead_hub_core::{Address, EventType, HubError, Identity, ListOptions, ObjectList, ObjectWatch};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::render::Form;
use crate::request::Query;
use crate::{Api, status};

/// A watch without a timeout of its own ends after this; clients begin anew.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// How often a client that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(30);
/// A client that takes no line for so long is cut.
const SLOWEST: Duration = Duration::from_secs(30);
/// Lines that wait for a slow client. What is behind them waits in the change log's reader, which is bounded too.
const LINES: usize = 32;

/// How a watch is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    form: Form,
    from: Option<i64>,
    bookmarks: bool,
    initial_events_end: bool,
    timeout: Duration,
}

impl Settings {
    pub(crate) fn read(query: &Query, form: Form) -> Result<Self, HubError> {
        let initial = query.flag("sendInitialEvents");
        let from = match query.get("resourceVersion") {
            // All present objects first, then changes.
            "" | "0" => None,
            _ if initial => None,
            text => {
                let version = text.parse().ok().filter(|version: &i64| *version > 0);
                let bad = || HubError::BadRequest(format!("resourceVersion: {text:?} is no version"));
                Some(version.ok_or_else(bad)?)
            }
        };
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        Ok(Self {
            form,
            from,
            bookmarks,
            initial_events_end: initial && bookmarks,
            timeout: timeout.map_or(LONGEST, |seconds| Duration::from_secs(seconds).min(LONGEST)),
        })
    }
}

/// Answers a watch: the response begins at once, its lines follow.
pub(crate) async fn start(
    api: &Api,
    who: &Identity,
    address: Address,
    options: ListOptions,
    settings: Settings,
) -> Result<Response, HubError> {
    let (first, watch) = api.hub.watch_objects(who, address.clone(), options, settings.from).await?;
    let (lines, receiver) = mpsc::channel(LINES);
    let writer = Writer { api: api.clone(), address, settings, lines, first: true };
    tokio::spawn(writer.run(first, watch));
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The client went, or takes nothing.
struct Cut;

struct Writer {
    api: Api,
    address: Address,
    settings: Settings,
    lines: mpsc::Sender<Bytes>,
    /// Whether nothing has been sent yet.
    first: bool,
}

impl Writer {
    async fn run(mut self, first: ObjectList, watch: ObjectWatch) {
        let stop = self.api.stop.clone();
        let timeout = self.settings.timeout;
        tokio::select! {
            // The client learns that it is over by the end of the stream, and comes back.
            _ = self.events(first, watch) => {}
            () = tokio::time::sleep(timeout) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn events(&mut self, first: ObjectList, mut watch: ObjectWatch) -> Result<(), Cut> {
        for object in first.items {
            self.object("ADDED", object).await?;
        }
        if self.settings.initial_events_end {
            self.bookmark(first.resource_version, true).await?;
        }
        let mut bookmarks = tokio::time::interval(BOOKMARK);
        bookmarks.tick().await;
        let mut told = 0;
        let lines = self.lines.clone();
        loop {
            tokio::select! {
                event = watch.next() => match event {
                    Ok(event) => {
                        let type_ = match event.type_ {
                            EventType::Added => "ADDED",
                            EventType::Modified => "MODIFIED",
                            EventType::Deleted => "DELETED",
                        };
                        self.object(type_, event.object).await?;
                    }
                    Err(error) => {
                        let (_, status) = status::status(&error, Some(&self.address));
                        return self.line("ERROR", &status).await;
                    }
                },
                _ = bookmarks.tick(), if self.settings.bookmarks => {
                    let version = watch.resource_version();
                    if version > told {
                        told = version;
                        self.bookmark(version, false).await?;
                    }
                }
                () = lines.closed() => return Err(Cut),
            }
        }
    }

    async fn object(&mut self, type_: &str, object: Value) -> Result<(), Cut> {
        let shown = self.settings.form.event(&self.address, object, self.api.hub.now(), self.first);
        self.first = false;
        self.line(type_, &shown).await
    }

    async fn bookmark(&mut self, version: i64, initial_events_end: bool) -> Result<(), Cut> {
        let kind = self.address.kind.get();
        let mut object = json!({
            "kind": kind.kind, "apiVersion": self.address.version.api_version(),
            "metadata": { "resourceVersion": version.to_string() },
        });
        if initial_events_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.object("BOOKMARK", object).await
    }

    async fn line(&self, type_: &str, object: &Value) -> Result<(), Cut> {
        // A JSON value has no way to fail.
        let mut line = serde_json::to_vec(&json!({ "type": type_, "object": object })).unwrap_or_default();
        line.push(b'\n');
        match tokio::time::timeout(SLOWEST, self.lines.send(line.into())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Cut),
        }
    }
}
