//! Watches as streams of JSON lines.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::{AtVersion, ListOptions, ObjectEvent, ObjectWatch, WatchFrom};
use roadstead_hub_core::{Address, HubError};
use roadstead_listener::Connection;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::bodies::Answer;
use crate::lasting::LONGEST;
use crate::lasting::Lasts;
use crate::render::Form;
use crate::request::Query;
use crate::{Api, list, status};

/// A watch without a timeout of its own ends after this; clients start over.
/// How often a client that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(30);
/// The objects that are there at a watch's start are sent in pieces of about this size.
const PIECE: usize = 64 * 1024;
/// Lines that wait for a slow client. What is behind them waits in the change log's reader, which is bounded too.
const LINES: usize = 32;

/// How a watch is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    form: Form,
    from: WatchFrom,
    bookmarks: bool,
    initial_events_end: bool,
    timeout: Duration,
}

impl Settings {
    pub(crate) fn read(query: &Query, form: Form) -> Result<Self, HubError> {
        let version = query.version()?;
        let from = match (query.get("sendInitialEvents"), version) {
            ("true" | "1", Some(version)) if version > 0 => {
                WatchFrom::Objects(AtVersion::NotOlderThan(version))
            }
            ("true" | "1", _) | ("", None | Some(0)) => WatchFrom::Objects(AtVersion::Present),
            (_, None | Some(0)) => WatchFrom::Now,
            (_, Some(version)) => WatchFrom::Version(version),
        };
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        Ok(Self {
            form,
            from,
            bookmarks,
            initial_events_end: query.flag("sendInitialEvents") && bookmarks,
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
    connection: Option<Connection>,
) -> Result<Response, HubError> {
    let place = api.watches.take(&who.username)?;
    let (lines, receiver) = mpsc::channel(LINES);
    let mut writer = Writer {
        api: api.clone(),
        address: address.clone(),
        settings,
        lines,
        first: true,
        sending: true,
        connection,
    };
    let mut pieces = Pieces::new(api.bodies.answer());
    let each = |object| pieces.push(&writer.show("ADDED", object));
    let (version, watch) = api.hub.objects.watch(who, address, options, settings.from, each).await?;
    let pieces = pieces.finish()?;
    let refused = watch.until_refused(who.clone());
    let open = api.hub.meters().watch_begins();
    tokio::spawn(async move {
        writer.run(pieces, version, watch, refused).await;
        drop((place, open));
    });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(Lasts);
    Ok(response)
}

/// The client went, or takes nothing.
struct Cut;

/// Lines in pieces of a size that is worth sending, in memory that is set aside for them.
struct Pieces {
    done: VecDeque<Bytes>,
    open: Vec<u8>,
    memory: Answer,
}

impl Pieces {
    fn new(memory: Answer) -> Self {
        Self { done: VecDeque::new(), open: Vec::new(), memory }
    }

    fn push(&mut self, line: &[u8]) {
        self.open.extend_from_slice(line);
        if self.open.len() >= PIECE {
            self.close();
        }
    }

    fn close(&mut self) {
        let piece: Bytes = std::mem::take(&mut self.open).into();
        // Where there is no memory the rest is read for nothing, and what there was is given back.
        if self.memory.grow(piece.len()) {
            self.done.push_back(piece);
        } else {
            self.done.clear();
        }
    }

    fn finish(mut self) -> Result<Self, HubError> {
        if !self.open.is_empty() {
            self.close();
        }
        self.memory.finish()?;
        Ok(self)
    }

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.done.pop_front()?;
        self.memory.shrink(piece.len());
        Some(piece)
    }
}

struct Writer {
    api: Api,
    address: Address,
    settings: Settings,
    lines: mpsc::Sender<Bytes>,
    /// Whether nothing has been sent yet.
    first: bool,
    /// Whether something that the watch has given out is not with the connection yet.
    sending: bool,
    /// None where it is served without a listener of ours.
    connection: Option<Connection>,
}

impl Writer {
    /// Until it is over; once it is `refused`, nothing more is told.
    async fn run(
        mut self,
        pieces: Pieces,
        version: i64,
        mut watch: ObjectWatch,
        refused: impl Future<Output = ()> + Send,
    ) {
        let stop = self.api.stop.clone();
        let timeout = tokio::time::sleep(self.settings.timeout);
        let cut = tokio::select! {
            biased;
            () = refused => true,
            // The client learns that it is over by the end of the stream, and comes back.
            ended = self.events(pieces, version, &mut watch) => ended.is_err(),
            () = timeout => false,
            () = stop.cancelled() => false,
        };
        // What was cut off in the middle of being sent would be stepped over by the bookmark.
        if !cut && !self.sending && self.settings.bookmarks {
            // Where to go on from, for a client that may have been told nothing for long.
            let line = self.bookmark_line(watch.resource_version(), false);
            let _ = self.lines.try_send(line);
        }
    }

    async fn events(&mut self, mut pieces: Pieces, version: i64, watch: &mut ObjectWatch) -> Result<(), Cut> {
        while let Some(piece) = pieces.next() {
            self.send(piece).await?;
            self.sending = true;
        }
        drop(pieces);
        self.sending = false;
        if self.settings.initial_events_end {
            let line = self.bookmark_line(version, true);
            self.send(line).await?;
        }
        let mut bookmarks = tokio::time::interval(BOOKMARK);
        bookmarks.tick().await;
        let mut told = 0;
        let lines = self.lines.clone();
        loop {
            tokio::select! {
                event = watch.next() => {
                    let line = match event {
                        Ok(event) => self.event(&event),
                        Err(error) => Err(error),
                    };
                    match line {
                        Ok(line) => self.send(line).await?,
                        Err(error) => return self.error(&error).await,
                    }
                }
                _ = bookmarks.tick(), if self.settings.bookmarks => {
                    let version = watch.resource_version();
                    if version > told {
                        told = version;
                        let line = self.bookmark_line(version, false);
                        self.send(line).await?;
                    }
                }
                () = lines.closed() => return Err(Cut),
            }
        }
    }

    fn event(&mut self, event: &ObjectEvent) -> Result<Bytes, HubError> {
        let type_ = event.type_.as_str();
        match self.settings.form.shared_name() {
            Some(name) => event.rendered(name, |object| self.show(type_, object).into()),
            None => Ok(self.show(type_, event.object()?).into()),
        }
    }

    /// The line for an object.
    fn show(&mut self, type_: &str, object: Value) -> Vec<u8> {
        let shown = self.settings.form.event(&self.address, object, self.api.hub.now(), self.first);
        self.first = false;
        line(type_, &shown)
    }

    fn bookmark_line(&mut self, version: i64, initial_events_end: bool) -> Bytes {
        let kind = self.address.kind.get();
        let mut object = json!({
            "kind": kind.kind, "apiVersion": self.address.version.api_version(),
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        });
        if initial_events_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.show("BOOKMARK", object).into()
    }

    async fn error(&mut self, error: &HubError) -> Result<(), Cut> {
        let (_, status) = status::status(error, Some(&self.address));
        self.send(line("ERROR", &status).into()).await?;
        // Nothing may follow it, a bookmark least of all.
        Err(Cut)
    }

    async fn send(&mut self, line: Bytes) -> Result<(), Cut> {
        self.sending = true;
        match tokio::time::timeout(self.api.options.write_timeout, self.lines.send(line)).await {
            Ok(Ok(())) => {
                self.sending = false;
                Ok(())
            }
            Ok(Err(_)) => Err(Cut),
            Err(_) => {
                // What waits in the connection is only given up with the connection.
                if let Some(connection) = &self.connection {
                    connection.end();
                }
                Err(Cut)
            }
        }
    }
}

fn line(type_: &str, object: &Value) -> Vec<u8> {
    let mut line = Vec::with_capacity(512);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(type_.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    list::write(&mut line, object);
    line.extend_from_slice(b"}\n");
    line
}
