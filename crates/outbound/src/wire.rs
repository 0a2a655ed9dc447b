//! What the bytes of a connection are read from and written to: TCP, or TLS to a proxy that is spoken to that way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// An open connection's bytes. What was written may wait until it is flushed.
#[derive(Debug)]
pub struct Wire(Over);

#[derive(Debug)]
enum Over {
    Tcp(TcpStream),
    /// Boxed, since most connections are not that, and it is a kilobyte.
    Tls(Box<TlsStream<TcpStream>>),
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Self {
        Self(Over::Tcp(stream))
    }
}

impl From<TlsStream<TcpStream>> for Wire {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        Self(Over::Tls(Box::new(stream)))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Over::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Over::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Over::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Over::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Over::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Over::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Over::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Over::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
