//! A server of HTTP on loopback that answers as a test says, also in ways that no server should.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A request.
pub(crate) struct Request {
    /// How many there were before.
    pub(crate) number: usize,
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
enum Kind {
    Whole { status: u16, headers: String, body: String },
    Flood { chunked: bool },
    Drip,
    Hang,
    Nonsense,
}

/// An answer.
#[derive(Clone)]
pub(crate) struct Answer(Kind);

impl Answer {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self(Kind::Whole { status, headers: String::new(), body: body.to_owned() })
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Whole { headers, .. } = &mut self.0 {
            headers.push_str(&format!("{name}: {value}\r\n"));
        }
        self
    }

    /// A gigabyte, or no end at all.
    pub(crate) fn flood(chunked: bool) -> Self {
        Self(Kind::Flood { chunked })
    }

    /// A byte each half second.
    pub(crate) fn drip() -> Self {
        Self(Kind::Drip)
    }

    pub(crate) fn hang() -> Self {
        Self(Kind::Hang)
    }

    pub(crate) fn nonsense() -> Self {
        Self(Kind::Nonsense)
    }
}

pub(crate) struct Server {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: AtomicUsize,
    flooded: AtomicUsize,
    writing: AtomicUsize,
    over: AtomicBool,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, answer) = (Arc::new(State::default()), Arc::new(answer));
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.over.load(Ordering::Relaxed) {
                    return;
                }
                let (state, answer) = (Arc::clone(&served), Arc::clone(&answer));
                // A client may leave early.
                thread::spawn(move || serve(&stream.unwrap(), &state, &*answer).ok());
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// How much of floods was taken, once nobody takes any more.
    pub(crate) fn sent_after_end(&self) -> usize {
        while self.state.writing.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        self.state.flooded.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        // For the listener to notice.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn read(reader: &mut BufReader<&TcpStream>, state: &State) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let number = state.requests.fetch_add(1, Ordering::Relaxed);
    let (line, body) = (line.trim_end().to_owned(), String::from_utf8(body).unwrap());
    Ok(Some(Request { number, line, headers, body }))
}

fn serve(stream: &TcpStream, state: &State, answer: &dyn Fn(&Request) -> Answer) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(request) = read(&mut reader, state)? {
        match answer(&request).0 {
            Kind::Whole { status, headers, body } => {
                let length = body.len();
                write!(writer, "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}\r\n{body}")?;
            }
            Kind::Flood { chunked } => {
                state.writing.fetch_add(1, Ordering::Relaxed);
                let ended = flood(writer, state, chunked);
                state.writing.fetch_sub(1, Ordering::Relaxed);
                return ended;
            }
            Kind::Drip => {
                writer.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 1000\r\n\r\n")?;
                loop {
                    writer.write_all(b" ")?;
                    thread::sleep(Duration::from_millis(500));
                }
            }
            // Until the client closes.
            Kind::Hang => return reader.read_to_end(&mut Vec::new()).map(drop),
            Kind::Nonsense => return writer.write_all(b"220 smtp.example ESMTP\r\n"),
        }
    }
    Ok(())
}

fn flood(mut writer: &TcpStream, state: &State, chunked: bool) -> std::io::Result<()> {
    let head = if chunked { "transfer-encoding: chunked" } else { "content-length: 1073741824" };
    write!(writer, "HTTP/1.1 200 x\r\n{head}\r\n\r\n")?;
    let block = vec![b' '; 1 << 16];
    for _ in 0..(1 << 14) {
        if chunked {
            write!(writer, "{:x}\r\n", block.len())?;
        }
        writer.write_all(&block)?;
        if chunked {
            writer.write_all(b"\r\n")?;
        }
        state.flooded.fetch_add(block.len(), Ordering::Relaxed);
    }
    Ok(())
}
