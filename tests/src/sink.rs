//! A service that Alerts send to, which answers as a test tells it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a sink answers.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A status, further headers, and a body.
    Http(u16, &'static str, &'static str),
    /// Nothing, for ever.
    Hang,
    /// 200, and a body without an end.
    Flood,
}

/// What it was sent: a head, in lower case, and a body.
pub type Post = (String, Vec<u8>);

/// A service that is sent events: it answers as it is told, else with 200. Clones share it.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Its address.
    pub url: String,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    otherwise: Arc<Mutex<Answer>>,
    got: Arc<Mutex<Vec<Post>>>,
}

impl Sink {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let otherwise = Arc::new(Mutex::new(Answer::Http(200, "", "")));
        let sink = Self { url, answers: Arc::default(), otherwise, got: Arc::default() };
        let shared = sink.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sink = shared.clone();
                // A client that goes ends it.
                tokio::spawn(async move { sink.serve(stream).await.ok() });
            }
        });
        Ok(sink)
    }

    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            let head = String::from_utf8(head)?.to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            // Whoever only asks for something sends none.
            let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
            stream.read_exact(&mut body).await?;
            locked(&self.got).push((head, body));
            let next = locked(&self.answers).pop_front();
            let answer = next.unwrap_or_else(|| locked(&self.otherwise).clone());
            match answer {
                Answer::Http(status, headers, body) => {
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).await?;
                }
                Answer::Hang => std::future::pending::<()>().await,
                Answer::Flood => {
                    stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 1000000000\r\n\r\n").await?;
                    loop {
                        stream.write_all(&[b'x'; 16 << 10]).await?;
                    }
                }
            }
        }
    }

    /// What it answers next, in this order.
    pub fn answers(&self, answers: &[Answer]) {
        locked(&self.answers).extend(answers.iter().cloned());
    }

    /// What it answers from now on, where nothing else was said.
    pub fn answers_always(&self, answer: Answer) {
        *locked(&self.otherwise) = answer;
    }

    /// What it was sent: each head, in lower case, and body.
    #[must_use]
    pub fn posts(&self) -> Vec<Post> {
        locked(&self.got).clone()
    }

    /// The same, with bodies that are JSON.
    #[must_use]
    pub fn got(&self) -> Vec<(String, Value)> {
        let read = |body: Vec<u8>| serde_json::from_slice(&body).unwrap_or_default();
        self.posts().into_iter().map(|(head, body)| (head, read(body))).collect()
    }

    /// The `message` of each.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        let text = |(_, body): (String, Value)| body["message"].as_str().unwrap_or_default().to_owned();
        self.got().into_iter().map(text).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
