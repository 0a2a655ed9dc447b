//! Watches: how soon a write is seen, how many events come through, and what an idle watcher costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::Plan;
use crate::api::{Api, path};
use crate::figures::Figure;
use crate::memory::Processes;

const PATIENCE: Duration = Duration::from_secs(120);

/// A watch of all objects from now on; each line is told with when it came.
async fn open(api: &Api, version: &str, lines: mpsc::UnboundedSender<(Instant, Vec<u8>)>) -> Result<()> {
    let path = format!("{}?watch=true&resourceVersion={version}&timeoutSeconds=1500", path(None));
    let answer = api.request(Method::GET, &path).send().await?.error_for_status()?;
    let mut stream = answer.bytes_stream();
    tokio::spawn(async move {
        let mut buffer = Vec::new();
        while let Some(Ok(chunk)) = stream.next().await {
            let came = Instant::now();
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.drain(..=end).collect();
                if lines.send((came, line)).is_err() {
                    return;
                }
            }
        }
    });
    Ok(())
}

async fn version(api: &Api) -> Result<String> {
    let list = api.get(&format!("{}?limit=1", path(None))).await?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned())
}

async fn write(api: &Api, index: usize, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { "bench/value": value } } }).to_string();
    api.ask(Method::PATCH, &path(Some(index)), "application/merge-patch+json", patch).await.map(drop)
}

/// From the moment a write is asked for to the moment its event is there, for the last of `count` watchers.
pub(crate) async fn latency(api: &Api, plan: &Plan, count: usize) -> Result<Figure> {
    let version = version(api).await?;
    let (lines, mut came) = mpsc::unbounded_channel();
    // As many connections as clients: watches of one informer's process share one.
    let doors: Vec<Api> = (0..plan.clients).map(|_| api.another()).collect::<Result<_>>()?;
    for index in 0..count {
        open(&doors[index % doors.len()], &version, lines.clone()).await?;
    }
    let (mut last, mut answered) = (Vec::new(), Vec::new());
    for round in 0..plan.latencies {
        let value = format!("latency {count} {round}");
        let begin = Instant::now();
        write(api, round % plan.objects, &value).await?;
        answered.push(begin.elapsed());
        let (mut seen, mut at) = (0, begin);
        while seen < count {
            let (time, line) = tokio::time::timeout(PATIENCE, came.recv())
                .await
                .context("an event")?
                .context("a watcher")?;
            // What else changes is not what is waited for.
            if find(&line, value.as_bytes()) {
                seen += 1;
                at = at.max(time);
            }
        }
        last.push(at - begin);
    }
    let name = format!("write to watch event, {count} watchers");
    let mut figure = Figure::latency(&name, last);
    let write = Figure::latency("", answered);
    figure.values.extend(write.values.first().map(|(_, p50)| ("p50 ms of the write".into(), *p50)));
    Ok(figure)
}

fn find(line: &[u8], text: &[u8]) -> bool {
    let quoted: Vec<u8> = [b"\"", text, b"\""].concat();
    line.windows(quoted.len()).any(|window| window == quoted)
}

/// Events that come through to `count` watchers while several clients write as fast as they can.
pub(crate) async fn throughput(api: &Api, plan: &Plan, count: usize) -> Result<Figure> {
    let version = version(api).await?;
    let (lines, mut came) = mpsc::unbounded_channel();
    let doors: Vec<Api> = (0..plan.clients).map(|_| api.another()).collect::<Result<_>>()?;
    for index in 0..count {
        open(&doors[index % doors.len()], &version, lines.clone()).await?;
    }
    drop(lines);
    let writes = plan.objects.min(2000);
    let begin = Instant::now();
    let (done, counted) = oneshot::channel();
    tokio::spawn(async move {
        let mut events = 0;
        while events < writes * count && came.recv().await.is_some() {
            events += 1;
        }
        // Nobody may be waiting any more.
        let _ = done.send((events, begin.elapsed()));
    });
    let mut writers = JoinSet::new();
    for client in 0..plan.clients {
        let (api, clients) = (api.another()?, plan.clients);
        writers.spawn(async move {
            for index in (client..writes).step_by(clients) {
                write(&api, index, "throughput").await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let (events, took) = tokio::time::timeout(PATIENCE, counted).await.context("all events")??;
    let name = format!("events to {count} watchers, {} writers", plan.clients);
    Ok(Figure { name, values: vec![("events per second".into(), events as f64 / took.as_secs_f64())] })
}

/// MiB that a server needs. Of one in Go, what is in its heap and stacks once its collector has run: how much memory it
/// holds depends on when that was last, and may shrink while watchers come.
async fn in_use(api: &Api, processes: &Processes) -> Result<f64> {
    if !processes.is_collected() {
        return processes.front_rss();
    }
    api.ask(Method::GET, "/debug/pprof/heap?gc=1", "", String::new()).await.context("collect garbage")?;
    let metrics = api.request(Method::GET, "/metrics").send().await?.error_for_status()?.text().await?;
    let bytes = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("{name} in the metrics"))?.trim();
        value.parse::<f64>().context("a number of bytes")
    };
    Ok((bytes("go_memstats_heap_inuse_bytes ")? + bytes("go_memstats_stack_inuse_bytes ")?)
        / f64::from(1 << 20))
}

/// What idle watchers cost, once each has been told of a change.
pub(crate) async fn memory(api: &Api, processes: &Processes, plan: &Plan) -> Result<Vec<Figure>> {
    let before = (processes.front_rss()?, in_use(api, processes).await?);
    let version = version(api).await?;
    let (lines, mut came) = mpsc::unbounded_channel();
    // Each watcher is a client of its own, with its own connection, as agents and controllers are.
    let mut doors = Vec::new();
    for _ in 0..plan.watchers {
        let door = api.another()?;
        open(&door, &version, lines.clone()).await?;
        doors.push(door);
    }
    write(api, 0, "memory").await?;
    let mut seen = 0;
    while seen < plan.watchers {
        let next = tokio::time::timeout(PATIENCE, came.recv()).await.context("an event")?;
        let (_, line) = next.context("a watcher")?;
        let event: Value = serde_json::from_slice(&line)?;
        seen += usize::from(event["object"]["metadata"]["annotations"]["bench/value"] == "memory");
    }
    let after = (processes.front_rss()?, in_use(api, processes).await?);
    let per_thousand = |before, after| (after - before) / plan.watchers as f64 * 1000.0;
    let one = Figure {
        name: "1,000 watchers, each its own connection".to_owned(),
        values: vec![
            ("MiB VmRSS".into(), per_thousand(before.0, after.0)),
            ("MiB in use".into(), per_thousand(before.1, after.1)),
        ],
    };
    Ok(vec![one, processes.figure("memory at the end")?])
}
