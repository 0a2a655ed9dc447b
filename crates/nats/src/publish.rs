//! A connection, a login, a message, and the word that it was looked at.

use std::time::Duration;

use roadstead_outbound::{ConnectError, Connection, Detail, Guard, Tls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::decode::{Decoder, Info, Op};
use crate::encode::{self, PONG};
use crate::error::PublishError;
use crate::login::Login;
use crate::servers::{Server, Servers};
use crate::subject::Subject;

/// What a server says while it is asked one thing.
const MOST_OPS: usize = 64;
/// Bytes that are read at once.
const CHUNK: usize = 4 << 10;

/// Publishes to some servers' subject.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// The way out.
    pub guard: Guard,
    /// Whom to trust, and what to show.
    pub tls: Tls,
    /// Whether nothing is said but over TLS.
    pub wants_tls: bool,
    /// Whether what is secret may be said in the clear.
    pub may_be_clear: bool,
    /// Where to.
    pub servers: Servers,
    /// As whom, where a server's URL does not say so.
    pub login: Login,
    /// The subject.
    pub subject: Subject,
    /// For one server to be connected to and to take the login, where there are others.
    pub patience: Duration,
}

/// What is published.
#[derive(Debug, Clone, Copy)]
pub struct Message<'m> {
    /// Headers, where the server knows them.
    pub headers: &'m [(&'static str, String)],
    /// The message.
    pub body: &'m [u8],
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One that took the login.
struct Session {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    info: Info,
}

impl Publisher {
    /// Publishes a message to the first server that takes the login. The caller bounds the time.
    ///
    /// # Errors
    /// [`PublishError`]: of the last server that was tried. After `Slow` and `Closed` it may have been taken.
    pub async fn publish(&self, message: Message<'_>) -> Result<(), PublishError> {
        let mut last = PublishError::Unreachable;
        for server in &self.servers.0 {
            let opened = tokio::time::timeout(self.patience, self.open(server));
            match opened.await.unwrap_or(Err(PublishError::Slow)) {
                // From here on it may have been taken: no other server is asked.
                Ok(session) => return session.publish(&self.subject, message).await,
                Err(error) if error.is_of_server() => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    async fn open(&self, server: &Server) -> Result<Session, PublishError> {
        let Connection { mut stream, detail, .. } = self.guard.connect(&server.to).await.map_err(failed)?;
        let mut decoder = Decoder::default();
        // Until a server has said who it is, what is there is not for whoever chose the address to know.
        let veiled = |error| if detail == Detail::Coarse { PublishError::Unreachable } else { error };
        let info = match read(&mut stream, &mut decoder).await.map_err(veiled)? {
            Op::Info(info) => info,
            Op::Err(refusal) => return Err(PublishError::Refused(refusal)),
            _ => return Err(veiled(PublishError::NotNats)),
        };
        let wants_tls = self.wants_tls || server.is_secure;
        if wants_tls && !info.tls_required && !info.tls_available {
            return Err(PublishError::NoTls);
        }
        let is_secure = wants_tls || info.tls_required;
        let stream: Box<dyn Stream> = if is_secure {
            if !decoder.is_empty() {
                // It would be taken for something that was said over TLS.
                return Err(PublishError::NotNats);
            }
            let secured = self.tls.secure(&server.to.host, stream).await;
            Box::new(secured.map_err(|_| PublishError::Tls)?)
        } else {
            Box::new(stream)
        };
        let login = if server.login.is_somebody() { &server.login } else { &self.login };
        if !is_secure && login.shows() && !self.may_be_clear {
            return Err(PublishError::InTheClear);
        }
        let mut session = Session { stream, decoder, info };
        let said = encode::connect(&session.info, login, is_secure)?;
        session.say(&said).await?;
        session.pong().await?;
        Ok(session)
    }
}

impl Session {
    async fn publish(mut self, subject: &Subject, message: Message<'_>) -> Result<(), PublishError> {
        let said = encode::publish(&self.info, subject, &message)?;
        self.say(&said).await?;
        self.pong().await?;
        // It was looked at; how the connection ends tells nothing more.
        let _ = self.stream.shutdown().await;
        Ok(())
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), PublishError> {
        let said = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match said.await {
            Ok(()) => Ok(()),
            // It may have said why, before it went.
            Err(_) => match self.pong().await {
                Err(refused @ PublishError::Refused(_)) => Err(refused),
                _ => Err(PublishError::Closed),
            },
        }
    }

    /// Waits until all that was said was looked at.
    async fn pong(&mut self) -> Result<(), PublishError> {
        for _ in 0..MOST_OPS {
            match read(&mut self.stream, &mut self.decoder).await? {
                Op::Pong => return Ok(()),
                Op::Err(refusal) => return Err(PublishError::Refused(refusal)),
                Op::Ping => {
                    // Where it cannot be said any more, the next thing that is read tells so.
                    let _ = self.stream.write_all(PONG).await;
                    let _ = self.stream.flush().await;
                }
                Op::Info(info) => self.info.max_payload = info.max_payload.or(self.info.max_payload),
                Op::Ok => {}
            }
        }
        Err(PublishError::NotNats)
    }
}

/// The next thing that a server says.
async fn read(stream: &mut (impl AsyncRead + Unpin), decoder: &mut Decoder) -> Result<Op, PublishError> {
    let mut chunk = [0_u8; CHUNK];
    loop {
        if let Some(op) = decoder.next_op().map_err(|_| PublishError::NotNats)? {
            return Ok(op);
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return Err(PublishError::Closed),
            Ok(length) => decoder.push(&chunk[..length]),
        }
    }
}

fn failed(error: ConnectError) -> PublishError {
    match error {
        ConnectError::Refused(refusal) => PublishError::NotAllowed(refusal),
        _ => PublishError::Unreachable,
    }
}
