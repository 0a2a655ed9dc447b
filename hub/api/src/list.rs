//! Lists as bytes: each object is written as it is read, so that a list takes the memory of its text and not of its
//! values.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use roadstead_hub_core::objects::ListEnd;
use roadstead_hub_core::{Address, HubError};
use serde_json::{Value, json};

use crate::bodies::Answer;
use crate::render::Form;
use crate::request::write_continue;

/// The text is kept in pieces of about this size, so that it never has to be moved as a whole.
const PIECE: usize = 256 * 1024;

/// Writes a list in the form that the client wants.
pub(crate) struct ListWriter<'a> {
    address: &'a Address,
    form: Form,
    now: Timestamp,
    pieces: Vec<Bytes>,
    piece: Vec<u8>,
    empty: bool,
    memory: Answer,
}

impl<'a> ListWriter<'a> {
    pub(crate) fn new(address: &'a Address, form: Form, now: Timestamp, memory: Answer) -> Self {
        // The first piece is for what stands before the items, which is known at the end.
        Self { address, form, now, pieces: vec![Bytes::new()], piece: Vec::new(), empty: true, memory }
    }

    pub(crate) fn push(&mut self, object: Value) {
        if !self.empty {
            self.piece.push(b',');
        }
        self.empty = false;
        write(&mut self.piece, &self.form.item(self.address, object, self.now));
        if self.piece.len() >= PIECE {
            let piece = std::mem::take(&mut self.piece);
            // Where there is no memory the rest is read for nothing, and what there was is given back.
            if self.memory.grow(piece.capacity()) {
                self.pieces.push(piece.into());
            } else {
                self.pieces.truncate(1);
            }
        }
    }

    /// The whole, with what is said of it.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn finish(mut self, end: &ListEnd) -> Result<Response, HubError> {
        self.memory.grow(self.piece.capacity());
        self.memory.finish()?;
        let mut metadata = json!({ "resourceVersion": end.resource_version.to_string() });
        if let Some(next) = &end.next {
            metadata["continue"] = write_continue(next).into();
        }
        if let Some(remaining) = end.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let (head, items) = self.form.list_head(self.address, &metadata);
        let mut first = Vec::with_capacity(1024);
        write(&mut first, &head);
        // The items come into the head's braces as its last field.
        first.pop();
        first.extend_from_slice(b",\"");
        first.extend_from_slice(items.as_bytes());
        first.extend_from_slice(b"\":[");
        self.pieces[0] = first.into();
        self.piece.extend_from_slice(b"]}");
        self.pieces.push(self.piece.into());
        let length: usize = self.pieces.iter().map(Bytes::len).sum();
        let (mut memory, mut sent) = (self.memory, 0);
        let pieces = self.pieces.into_iter().map(move |piece| {
            // The one before has been taken: nobody asks for a piece earlier.
            memory.shrink(std::mem::replace(&mut sent, piece.len()));
            Ok::<Bytes, std::convert::Infallible>(piece)
        });
        let mut response = Response::new(Body::from_stream(tokio_stream::iter(pieces)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, length.into());
        Ok(response)
    }
}

/// Appends a value's text.
pub(crate) fn write(to: &mut Vec<u8>, value: &Value) {
    // Neither a JSON value nor memory has a way to fail.
    let _ = serde_json::to_writer(to, value);
}
