//! What goes over the pipes: messages in frames.
//!
//! A frame is a tag (one byte; the top bit says that the message ends with this frame), the payload's length (four bytes,
//! little-endian, at most [`CHUNK`]) and the payload. A message is one or more frames of the same tag.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Most bytes of one frame's payload: what either side buffers of a message that it does not keep.
pub(crate) const CHUNK: usize = 256 << 10;
const LAST: u8 = 0x80;
const HEAD: usize = 5;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// From the worker, once: it is ready, and these protections are on.
    Hello = 1,
    /// To the worker: a job.
    Job = 2,
    /// From the worker: a question.
    Ask = 3,
    /// To the worker: the answer.
    Answer = 4,
    /// To the worker: there is no answer, and why.
    Refusal = 5,
    /// From the worker: the job's result.
    Done = 6,
    /// From the worker, before that: how many bytes the result has (eight bytes, little-endian).
    Size = 7,
}

impl Tag {
    fn parse(byte: u8) -> Option<Self> {
        [Self::Hello, Self::Job, Self::Ask, Self::Answer, Self::Refusal, Self::Done, Self::Size]
            .into_iter()
            .find(|tag| *tag as u8 == byte)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) tag: Tag,
    pub(crate) last: bool,
    pub(crate) length: usize,
}

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX).to_le_bytes();
        let tag = self.tag as u8 | if self.last { LAST } else { 0 };
        [tag, length[0], length[1], length[2], length[3]]
    }

    fn parse(bytes: [u8; HEAD]) -> io::Result<Self> {
        let tag = Tag::parse(bytes[0] & !LAST).ok_or_else(|| malformed("a frame has an unknown tag"))?;
        let length = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > CHUNK {
            return Err(malformed("a frame is larger than the protocol allows"));
        }
        let last = bytes[0] & LAST != 0;
        if length == 0 && !last {
            return Err(malformed("a frame is empty and not the last of its message"));
        }
        Ok(Self { tag, last, length })
    }
}

pub(crate) fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The frames of a message: heads and payloads.
fn frames(tag: Tag, message: &[u8]) -> impl Iterator<Item = (Head, &[u8])> {
    let count = message.len().div_ceil(CHUNK).max(1);
    (0..count).map(move |index| {
        let rest = message.get(index * CHUNK..).unwrap_or_default();
        let payload = rest.get(..CHUNK).unwrap_or(rest);
        (Head { tag, last: index + 1 == count, length: payload.len() }, payload)
    })
}

/// Reads a head; none where the stream ends before it.
pub(crate) fn read_head(from: &mut impl Read) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD];
    let mut filled = 0;
    while filled < HEAD {
        match from.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Head::parse(bytes).map(Some)
}

/// Writes a message, and sends it.
pub(crate) fn write(to: &mut impl Write, tag: Tag, message: &[u8]) -> io::Result<()> {
    for (head, payload) in frames(tag, message) {
        to.write_all(&head.bytes())?;
        to.write_all(payload)?;
    }
    to.flush()
}

/// Writes a message.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), tag: Tag, message: &[u8]) -> io::Result<()> {
    for (head, payload) in frames(tag, message) {
        if payload.len() < 4096 {
            // One write where two would cost more than the copy.
            let mut frame = Vec::with_capacity(HEAD + payload.len());
            frame.extend_from_slice(&head.bytes());
            frame.extend_from_slice(payload);
            to.write_all(&frame).await?;
        } else {
            to.write_all(&head.bytes()).await?;
            to.write_all(payload).await?;
        }
    }
    to.flush().await
}

/// A message that was read, or how it passed its bound.
#[derive(Debug)]
pub(crate) enum Received {
    /// All of it.
    Message(Tag, Vec<u8>),
    /// It is of this tag, and larger than that may be.
    TooLarge(Tag),
}

/// Reads a message; `most` says how many bytes one of a tag may have.
pub(crate) async fn receive(
    from: &mut (impl AsyncRead + Unpin),
    most: impl Fn(Tag) -> usize,
) -> io::Result<Received> {
    let mut message = Vec::new();
    let mut of: Option<Tag> = None;
    loop {
        let mut bytes = [0; HEAD];
        from.read_exact(&mut bytes).await?;
        let head = Head::parse(bytes)?;
        if of.is_some_and(|tag| tag != head.tag) {
            return Err(malformed("a frame of another message arrived within one"));
        }
        of = Some(head.tag);
        let start = message.len();
        if start + head.length > most(head.tag) {
            return Ok(Received::TooLarge(head.tag));
        }
        message.resize(start + head.length, 0);
        from.read_exact(&mut message[start..]).await?;
        if head.last {
            return Ok(Received::Message(head.tag, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(bytes: &[u8], most: usize) -> io::Result<Received> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut from = bytes;
        runtime.block_on(receive(&mut from, |_| most))
    }

    #[test]
    fn a_message_of_any_length_comes_back_as_it_was() {
        for length in [0, 1, 4095, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let message: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut wire = Vec::new();
            write(&mut wire, Tag::Done, &message).unwrap();
            let Received::Message(tag, back) = read_back(&wire, length).unwrap() else {
                panic!("{length} bytes were too many")
            };
            assert!(tag == Tag::Done && back == message, "{length} bytes");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_read() {
        let mut wire = Vec::new();
        write(&mut wire, Tag::Done, &vec![0; CHUNK + 10]).unwrap();
        assert!(matches!(read_back(&wire, CHUNK + 9), Ok(Received::TooLarge(Tag::Done))));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let head = |tag: u8, length: u32| {
            let mut bytes = vec![tag];
            bytes.extend(length.to_le_bytes());
            bytes.extend([0; 16]);
            bytes
        };
        for (bytes, why) in [
            (head(0, 1), "no such tag"),
            (head(0x40 | LAST, 1), "no such tag"),
            (head(Tag::Done as u8 | LAST, u32::MAX), "too large"),
            (head(Tag::Done as u8, 0), "empty and not the last: it could be sent without end"),
            (b"\x86\x00".to_vec(), "cut short"),
        ] {
            assert!(read_back(&bytes, 1 << 20).is_err(), "{why}");
        }
        let mut mixed = Vec::new();
        write(&mut mixed, Tag::Done, &vec![0; CHUNK + 1]).unwrap();
        mixed[HEAD + CHUNK] = Tag::Ask as u8 | LAST;
        assert!(read_back(&mixed, 1 << 20).is_err(), "two messages in one");
    }
}
