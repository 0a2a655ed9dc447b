//! Ten thousand connections that say nothing, to a hub with the limits that it has by itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::{HubProcess, HubSetup, PATIENCE, eventually};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Somewhat more than there are places: `--max-connections` is 10,000.
const CONNECTIONS: usize = 10_500;

#[tokio::test]
async fn ten_thousand_idle_connections_starve_nobody() -> Result<()> {
    let setup = HubSetup::new("idle").await?;
    let hub = HubProcess::start(&setup).await?;
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let opened = TcpStream::connect(("127.0.0.1", hub.api_port())).await;
        idle.push(opened.with_context(|| {
            format!("open connection {number}; this test needs 11,000 open files (ulimit -n)")
        })?);
    }
    // New connections all the while, by a client that knows nothing of this.
    let began = Instant::now();
    for number in 0..5 {
        let map = format!("map-{number}");
        hub.kubectl().run(&["create", "configmap", &map, "--from-literal=word=here"]).await?;
    }
    ensure!(began.elapsed() < Duration::from_secs(20), "five requests took {:?}", began.elapsed());
    let mut oldest = idle.swap_remove(0);
    let mut byte = [0];
    let closed = tokio::time::timeout(PATIENCE, oldest.read(&mut byte)).await;
    ensure!(matches!(closed, Ok(Ok(0) | Err(_))), "the oldest one is still open");
    // Those that never say anything do not stay.
    eventually("the silent ones are closed", PATIENCE, || async {
        let open =
            idle.iter().filter(|stream| stream.try_read(&mut [0]).is_err_and(|error| would_block(&error)));
        let open = open.count();
        ensure!(open == 0, "{open} are open");
        Ok(())
    })
    .await?;
    hub.kubectl().run(&["get", "configmaps"]).await.map(drop)
}

fn would_block(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}
