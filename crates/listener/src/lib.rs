//! What the hub's TLS listeners have in common: a bounded number of connections, of which those that have not said who
//! they are go first; deadlines for handshakes, idleness and writes; TLS as we want it.
//!
//! A listener [admits](Connections::admit) each connection, which starts as an anonymous client's. Once its client has shown
//! who it is, it is [known](Connection::known). Anonymous clients have places and memory of their own, so however many come, they take none
//! from those who are known. Where anonymous clients are short of either, the address that has most of them makes room, and where
//! those who are known are, whoever has been idle for longest does.

mod connection;
mod connections;
mod pace;
mod patient;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

pub use connection::{Connection, UnderWay};
pub use connections::{Bounds, Connections, Cost, Costs, Full, Net, Party, Refused, Registered};
pub use pace::{Pace, Paces};
pub use patient::Patient;
pub use tls::{ClientAuthorities, TlsError, server_config, server_config_asking};

/// When accepting fails (too many open files, say), it is not tried again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// The next connection, and whence it comes. Failures are logged and waited out; `name` is the listener's in the log.
pub async fn accept(listener: &TcpListener, name: &'static str) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // For latency; without it, things work too.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    listener = name,
                    "no connection was accepted"
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
