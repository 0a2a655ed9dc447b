//! A way between two programs that can be cut, frozen and slowed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the way does to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// It lets them pass.
    Open,
    /// It takes connections and bytes, and passes none of them on: nobody is told.
    Frozen,
    /// It ends every connection at once.
    Cut,
    /// It holds each piece for so long.
    Slow(Duration),
}

#[derive(Debug, Clone, Copy)]
struct State {
    flow: Flow,
    target: u16,
    /// Connections from before the last cut end.
    cuts: u64,
}

/// A TCP proxy on the loopback interface.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<watch::Sender<State>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A way to `target`, a port of the loopback interface.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for a proxy")?;
        let port = listener.local_addr().context("ask a proxy for its port")?.port();
        let state = Arc::new(watch::Sender::new(State { flow: Flow::Open, target, cuts: 0 }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, shared.subscribe()));
            }
        });
        Ok(Self { port, state, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, as `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).to_string()
    }

    /// Lets everything pass, new connections to where [`Self::lead_to`] said last.
    pub fn open(&self) {
        self.state.send_modify(|state| state.flow = Flow::Open);
    }

    /// Half open: connections stay, nothing passes, and nobody is told. New ones are taken, and are no better.
    pub fn freeze(&self) {
        self.state.send_modify(|state| state.flow = Flow::Frozen);
    }

    /// Ends every connection, and each new one at once, until [`Self::open`].
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            state.flow = Flow::Cut;
            state.cuts += 1;
        });
    }

    /// Holds each piece for `delay`, so that what is short takes long enough to be met in its middle.
    pub fn slow(&self, delay: Duration) {
        self.state.send_modify(|state| state.flow = Flow::Slow(delay));
    }

    /// Leads new connections elsewhere; those that are there stay.
    pub fn lead_to(&self, target: u16) {
        self.state.send_modify(|state| state.target = target);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn carry(mut near: TcpStream, mut state: watch::Receiver<State>) {
    let State { flow, cuts, .. } = *state.borrow_and_update();
    if flow == Flow::Cut {
        return;
    }
    let ended = {
        let mut state = state.clone();
        async move {
            // An error means that the proxy is gone.
            let _ = state.wait_for(|state| state.cuts > cuts).await;
        }
    };
    let carried = async {
        let Ok(target) = state.wait_for(|state| state.flow != Flow::Frozen).await.map(|state| state.target)
        else {
            return;
        };
        let Ok(mut far) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = far.split();
        tokio::join!(
            one_way(&mut from_near, &mut to_far, state.clone()),
            one_way(&mut from_far, &mut to_near, state.clone())
        );
    };
    tokio::select! {
        () = ended => {}
        () = carried => {}
    }
}

async fn one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut state: watch::Receiver<State>,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let Ok(flow) = state.wait_for(|state| state.flow != Flow::Frozen).await.map(|state| state.flow)
        else {
            return;
        };
        if let Flow::Slow(delay) = flow {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Ok(port)
    }

    async fn says(stream: &mut TcpStream, word: u8) -> Result<u8> {
        stream.write_u8(word).await?;
        let answer = tokio::time::timeout(Duration::from_millis(200), stream.read_u8()).await;
        answer.context("silence")?.context("ended")
    }

    #[tokio::test]
    async fn passes_freezes_and_cuts() {
        let proxy = Proxy::start(echo().await.unwrap()).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(says(&mut stream, 1).await.unwrap(), 1);
        proxy.freeze();
        assert_eq!(says(&mut stream, 2).await.unwrap_err().to_string(), "silence");
        let mut second = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(says(&mut second, 3).await.unwrap_err().to_string(), "silence");
        proxy.open();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
        assert_eq!(second.read_u8().await.unwrap(), 3);
        proxy.cut();
        assert!(says(&mut stream, 4).await.is_err_and(|error| error.to_string() != "silence"));
        let mut third = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(says(&mut third, 5).await.is_err_and(|error| error.to_string() != "silence"));
        proxy.open();
        let mut fourth = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(says(&mut fourth, 6).await.unwrap(), 6);
    }
}
