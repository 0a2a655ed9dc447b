//! A proxy as companies have them: CONNECT, with a password.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const USER: &str = "ann";
const PASSWORD: &str = "hunter2";

/// A running proxy; ends when dropped, with what goes through it.
#[derive(Debug)]
pub struct ConnectProxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts one that wants a user's name and password.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for a proxy")?;
        let port = listener.local_addr().context("ask a proxy for its port")?.port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut tunnels = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tunnels.spawn(tunnel(stream, Arc::clone(&noted)));
            }
        });
        Ok(Self { port, asked, task })
    }

    /// Its URL, for `HTTPS_PROXY`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// Where clients wanted to go, as `host:port`, each time that the password was right.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(stream: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let Some(target) = line.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) else {
        bail!("no CONNECT: {line}")
    };
    let target = target.to_owned();
    let want = format!("basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let mut known = false;
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let value = value.trim();
            let scheme_lower = value.replacen("Basic ", "basic ", 1);
            known |= name.eq_ignore_ascii_case("proxy-authorization") && scheme_lower == want;
        }
    }
    if !known {
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await?;
        return Ok(());
    }
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(target.clone());
    let mut far = TcpStream::connect(&target).await?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    tokio::io::copy_bidirectional(&mut stream, &mut far).await?;
    Ok(())
}
