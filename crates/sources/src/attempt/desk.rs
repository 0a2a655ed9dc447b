//! What a reader can ask for and bring while it is at it, and where that is answered: outside of the process that reads.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use roadstead_budget::Reservation;

use super::room::Room;
use super::stop::Stop;

/// Bytes of an answer that are given at once.
const GIVEN: usize = 256 << 10;
/// Bytes of an artifact that are brought at once.
const PIECE: usize = 256 << 10;
/// The longest question.
pub const MOST_QUESTION: usize = PIECE + 1;

/// What a reader asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question<'a> {
    /// Bytes of an answer of the server's, from there on; none come at its end.
    Answer { number: usize, offset: u64 },
    /// Room for an artifact of so many bytes.
    Room(u64),
    /// The next bytes of the artifact.
    Piece(&'a [u8]),
}

impl<'a> Question<'a> {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Answer { number, offset } => {
                let number = u8::try_from(*number).unwrap_or(u8::MAX);
                [[1, number].as_slice(), offset.to_le_bytes().as_slice()].concat()
            }
            Self::Room(bytes) => [[2].as_slice(), bytes.to_le_bytes().as_slice()].concat(),
            Self::Piece(bytes) => [[3].as_slice(), bytes].concat(),
        }
    }

    fn decode(text: &'a [u8]) -> Option<Self> {
        let (kind, rest) = text.split_first()?;
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        match kind {
            1 => {
                let (which, offset) = rest.split_first()?;
                Some(Self::Answer { number: usize::from(*which), offset: number(offset)? })
            }
            2 => Some(Self::Room(number(rest)?)),
            3 => Some(Self::Piece(rest)),
            _ => None,
        }
    }
}

type Asking = dyn FnMut(&[u8]) -> io::Result<Vec<u8>> + Send;

/// The reader's way to a [`Desk`].
#[derive(Clone)]
pub struct Line(Arc<Mutex<Asking>>);

impl Line {
    /// A way that takes a question and brings the answer.
    pub fn new(asking: impl FnMut(&[u8]) -> io::Result<Vec<u8>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(asking)))
    }

    pub(crate) fn ask(&self, question: &Question<'_>) -> io::Result<Vec<u8>> {
        let mut asking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asking(&question.encode())
    }
}

/// An answer of the server's, as it came.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) heading: String,
    pub(crate) body: Body,
}

/// The body of an answer.
#[derive(Clone)]
pub(crate) enum Body {
    /// A small one.
    Memory(Vec<u8>),
    /// A large one, in a temporary folder.
    File(Arc<File>),
}

impl Body {
    async fn part(&self, offset: u64) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(start..).unwrap_or_default();
                Ok(Bytes::copy_from_slice(rest.get(..GIVEN).unwrap_or(rest)))
            }
            Self::File(file) => {
                let file = Arc::clone(file);
                let read = move || {
                    let mut buffer = vec![0; GIVEN];
                    let count = file.read_at(&mut buffer, offset)?;
                    buffer.truncate(count);
                    Ok(Bytes::from(buffer))
                };
                tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
            }
        }
    }
}

/// Answers the questions of a reader that is at one repository. It is untrusted: what it can have are this
/// repository's answers, and what it can bring is one artifact of so many bytes.
pub struct Desk {
    pub(crate) answers: Vec<Answer>,
    most: u64,
    room: Option<Room>,
    stop: Stop,
    artifact: Option<Artifact>,
}

/// An artifact that is being brought.
pub(crate) struct Artifact {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes were announced.
    size: usize,
    pub(crate) held: Option<Reservation>,
}

impl Desk {
    pub(crate) fn new(most: u64, room: Option<Room>, stop: &Stop) -> Self {
        Self { answers: Vec::new(), most, room, stop: stop.clone(), artifact: None }
    }

    /// A reader begins: what another brought before counts for nothing.
    pub fn begin(&mut self) {
        self.artifact = None;
    }

    /// The answer to a question, or why there is none: a text for the reader.
    ///
    /// # Errors
    /// Where it is not to be answered.
    pub async fn answer(&mut self, question: &[u8]) -> Result<Bytes, String> {
        match Question::decode(question).ok_or("nobody asks that")? {
            Question::Answer { number, offset } => {
                let answer = self.answers.get(number).ok_or("that is not answered yet")?;
                answer.body.part(offset).await.map_err(|error| error.to_string())
            }
            Question::Room(size) => self.make_room(size).await,
            Question::Piece(bytes) => {
                let artifact = self.artifact.as_mut().ok_or("there is no room for it")?;
                if artifact.bytes.len() + bytes.len() > artifact.size {
                    return Err("that is more than was announced".to_owned());
                }
                artifact.bytes.extend_from_slice(bytes);
                Ok(Bytes::new())
            }
        }
    }

    async fn make_room(&mut self, size: u64) -> Result<Bytes, String> {
        if self.artifact.is_some() || size > self.most {
            return Err(format!("an artifact has {} bytes at most", self.most));
        }
        let length = usize::try_from(size).map_err(|error| error.to_string())?;
        let held = match &self.room {
            None => None,
            Some(room) => {
                self.stop.enter("waiting for other sources to be stored");
                Some(room.reserve(size).await.map_err(|error| error.to_string())?)
            }
        };
        self.stop.enter("taking the artifact");
        self.artifact = Some(Artifact { bytes: Vec::with_capacity(length), size: length, held });
        Ok(Bytes::new())
    }

    /// The artifact that was brought, if it is whole.
    pub(crate) fn take_artifact(&mut self) -> Option<Artifact> {
        self.artifact.take().filter(|artifact| artifact.bytes.len() == artifact.size)
    }
}

/// An answer, as it is read by a reader, from some byte on.
pub(crate) struct AnswerReader {
    line: Line,
    number: usize,
    offset: u64,
    chunk: io::Cursor<Vec<u8>>,
}

impl AnswerReader {
    pub(crate) fn new(line: &Line, number: usize, offset: u64) -> Self {
        Self { line: line.clone(), number, offset, chunk: io::Cursor::default() }
    }

    /// Goes on from there; what was received and lies there is not asked for again.
    pub(crate) fn go_to(&mut self, offset: u64) {
        let length = self.chunk.get_ref().len() as u64;
        match offset.checked_sub(self.offset - length) {
            Some(within) if within <= length => self.chunk.set_position(within),
            _ => {
                self.offset = offset;
                self.chunk = io::Cursor::default();
            }
        }
    }
}

impl io::Read for AnswerReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.chunk.read(buffer)?;
        if count > 0 || buffer.is_empty() {
            return Ok(count);
        }
        let bytes = self.line.ask(&Question::Answer { number: self.number, offset: self.offset })?;
        self.offset += bytes.len() as u64;
        self.chunk = io::Cursor::new(bytes);
        self.chunk.read(buffer)
    }
}

/// Brings an artifact that lies in a file.
pub(crate) fn bring_file(file: &mut File, size: u64, line: &Line) -> io::Result<()> {
    file.flush()?;
    file.rewind()?;
    bring(file, size, line)
}

/// Brings so many bytes.
pub(crate) fn bring(file: &mut impl io::Read, size: u64, line: &Line) -> io::Result<()> {
    line.ask(&Question::Room(size))?;
    let mut buffer = vec![0; PIECE];
    let mut left = size;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        file.read_exact(&mut buffer[..count])?;
        line.ask(&Question::Piece(&buffer[..count]))?;
        left -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn an_answer_is_read_from_anywhere_and_asked_for_once() {
        let all: Vec<u8> = (0..=255).collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (told, bytes) = (Arc::clone(&asked), all.clone());
        let line = Line::new(move |question| {
            let Some(Question::Answer { number: 3, offset }) = Question::decode(question) else { panic!() };
            told.lock().unwrap().push(offset);
            let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            Ok(rest[..rest.len().min(100)].to_vec())
        });
        let mut reader = AnswerReader::new(&line, 3, 10);
        for (at, asks) in
            [(10, vec![10]), (60, vec![10]), (20, vec![10]), (110, vec![10, 110]), (5, vec![10, 110, 5])]
        {
            reader.go_to(at as u64);
            let mut some = [0; 20];
            reader.read_exact(&mut some).unwrap();
            assert_eq!(some, all[at..at + 20]);
            assert_eq!(*asked.lock().unwrap(), asks);
        }
    }

    fn desk(most: u64) -> Desk {
        let stop = Stop::new(Instant::now() + Duration::from_secs(60), CancellationToken::new());
        Desk::new(most, None, &stop)
    }

    #[test]
    fn questions_arrive() {
        for question in [
            Question::Answer { number: 2, offset: 1 << 40 },
            Question::Room(u64::MAX),
            Question::Piece(b""),
            Question::Piece(b"\x01bytes"),
        ] {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        for wrong in [b"".as_slice(), b"\x01", b"\x02123", b"\x04", b"\x011234567890"] {
            assert_eq!(Question::decode(wrong), None, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_has_the_answers_and_nothing_else() {
        let mut desk = desk(10);
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"from a file").unwrap();
        for body in [Body::Memory(b"from memory".to_vec()), Body::File(Arc::new(file))] {
            desk.answers.push(Answer { heading: String::new(), body });
        }
        let mut part =
            async |number, offset| desk.answer(&Question::Answer { number, offset }.encode()).await;
        assert_eq!(part(0, 5).await.unwrap(), "memory");
        assert_eq!(part(1, 7).await.unwrap(), "file");
        for end in [11, 12, 1 << 40] {
            assert_eq!(part(0, end).await.unwrap(), "");
            assert_eq!(part(1, end).await.unwrap(), "");
        }
        assert!(part(2, 0).await.is_err());
    }

    #[tokio::test]
    async fn a_reader_brings_what_it_announced_and_no_more() {
        let mut desk = desk(10);
        let piece = |bytes: &'static [u8]| Question::Piece(bytes).encode();
        assert!(desk.answer(&piece(b"1")).await.is_err(), "without room");
        assert!(desk.answer(&Question::Room(11).encode()).await.is_err(), "more than allowed");
        desk.answer(&Question::Room(3).encode()).await.unwrap();
        assert!(desk.answer(&Question::Room(3).encode()).await.is_err(), "twice");
        desk.answer(&piece(b"12")).await.unwrap();
        assert!(desk.answer(&piece(b"34")).await.is_err(), "more than announced");
        desk.answer(&piece(b"3")).await.unwrap();
        assert_eq!(desk.take_artifact().map(|artifact| artifact.bytes), Some(b"123".to_vec()));
        // What is not whole is none, and who starts over begins with nothing.
        desk.answer(&Question::Room(3).encode()).await.unwrap();
        desk.answer(&piece(b"12")).await.unwrap();
        desk.begin();
        assert!(desk.take_artifact().is_none());
        desk.answer(&Question::Room(3).encode()).await.unwrap();
        assert!(desk.take_artifact().is_none());
    }
}
