//! A database that goes away, and what comes back with it. The servers are this test's own.

#[path = "../support/mod.rs"]
mod support;

mod server;
mod told;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_hub_api::ApiOptions;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use server::{Disk, Server, folder};
use support::{Replica, client, replica_over};
use told::{Lines, MAPS, PATIENCE, is_away, is_back, one_line_each};

/// A hub over a database of the test's, with its tasks.
struct Site {
    replica: Replica,
    http: reqwest::Client,
    lines: Lines,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _turn: MutexGuard<'static, ()>,
}

/// The log is the process's, so tests take turns.
static TURN: Mutex<()> = Mutex::const_new(());

impl Site {
    async fn new(url: &str) -> Result<Self> {
        let turn = TURN.lock().await;
        let lines = Lines::of_this_process()?;
        let replica = replica_over(url, ApiOptions::default()).await?;
        let stop = CancellationToken::new();
        let tasks = roadstead_hub_tasks::start(&replica.hub, &stop);
        let http = client(&replica)?;
        is_back("first", &replica, &http).await?;
        lines.take();
        Ok(Self { replica, http, lines, stop, tasks, _turn: turn })
    }

    async fn is_away(&self, what: &str, reason: &str) -> Result<()> {
        is_away(what, &self.replica, &self.http, reason).await
    }

    /// It is back, and the log has one line of its going and one of its coming.
    async fn is_back(&self, what: &str) -> Result<()> {
        is_back(what, &self.replica, &self.http).await?;
        one_line_each(what, &self.lines)
    }

    async fn watch(&self) -> Result<reqwest::Response> {
        let request = self.http.get(format!("{}{MAPS}?watch=1", self.replica.url));
        Ok(request.bearer_auth(&self.replica.token).send().await?)
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

/// A watch that was open all the time misses nothing.
async fn has_seen(watch: &mut reqwest::Response, names: &[&str]) -> Result<()> {
    let mut seen = String::new();
    while !names.iter().all(|name| seen.contains(&format!("\"name\":\"{name}\""))) {
        let chunk = tokio::time::timeout(PATIENCE, watch.chunk()).await.context("the watch is silent")??;
        seen.push_str(std::str::from_utf8(&chunk.context("the watch has ended")?)?);
    }
    ensure!(!seen.contains("ERROR"), "{seen}");
    Ok(())
}

/// Makes a role that is bound by limits, unlike the superuser, and gives its URL.
async fn plain_role(server: &Server) -> Result<String> {
    server
        .execute(
            "CREATE ROLE hub LOGIN; ALTER DATABASE roadstead OWNER TO hub; ALTER SCHEMA public OWNER TO hub",
        )
        .await?;
    Ok(server.url()?.replace("//roadstead@", "//hub@"))
}

const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'hub'";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_goes_away_is_said_at_once_and_comes_back_by_itself() -> Result<()> {
    let folder = folder()?;
    let mut server = Server::start(&folder.path().join("pg")).await?;
    let site = Site::new(&plain_role(&server).await?).await?;
    let mut watch = site.watch().await?;

    server.signal(Signal::KILL)?;
    site.is_away("killed", "cannot be reached").await?;
    server.start_again().await?;
    site.is_back("killed").await?;

    server.signal(Signal::STOP)?;
    site.is_away("frozen", "does not answer").await?;
    server.signal(Signal::CONT)?;
    site.is_back("frozen").await?;

    server.execute("ALTER ROLE hub SET default_transaction_read_only = on").await?;
    server.execute(CUT).await?;
    site.is_away("read-only", "read-only").await?;
    server.execute("ALTER ROLE hub RESET default_transaction_read_only").await?;
    site.is_back("read-only").await?;

    server.execute(&format!("ALTER ROLE hub CONNECTION LIMIT 0; {CUT}")).await?;
    site.is_away("used-up", "connections are in use").await?;
    server.execute("ALTER ROLE hub CONNECTION LIMIT -1").await?;
    site.is_back("used-up").await?;

    server.execute(&format!("ALTER ROLE hub NOLOGIN; {CUT}")).await?;
    site.is_away("refused", "credentials").await?;
    server.execute("ALTER ROLE hub LOGIN").await?;
    site.is_back("refused").await?;

    has_seen(&mut watch, &["killed", "frozen", "read-only", "used-up", "refused"]).await?;
    site.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_password_that_changed_is_said_and_works_again_when_it_is_put_back() -> Result<()> {
    let folder = folder()?;
    let server = Server::start(&folder.path().join("pg")).await?;
    let url = plain_role(&server).await?.replace("//hub@", "//hub:first@");
    server.execute("ALTER ROLE hub PASSWORD 'first'").await?;
    server.put_rule("local all hub scram-sha-256").await?;
    let site = Site::new(&url).await?;

    server.execute(&format!("ALTER ROLE hub PASSWORD 'second'; {CUT}")).await?;
    site.is_away("changed-password", "credentials").await?;
    server.execute("ALTER ROLE hub PASSWORD 'first'").await?;
    site.is_back("changed-password").await?;
    site.end().await;
    Ok(())
}

/// A standby takes the place of a server that is gone, under the same name: here a folder's that is turned, as a name's
/// address is elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_failover_behind_the_same_name_work_goes_on() -> Result<()> {
    let folder = folder()?;
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let server = Server::start(&first).await?;
    let url = plain_role(&server).await?;
    let standby = server.standby(&second).await?;
    let name = folder.path().join("database");
    std::os::unix::fs::symlink(server.socket()?, &name)?;
    let site = Site::new(&named(&url, &server, &name)?).await?;
    let mut watch = site.watch().await?;

    standby.has_all_of(&server).await?;
    server.signal(Signal::KILL)?;
    site.is_away("failover", "cannot be reached").await?;
    // The name leads to the standby before that one is promoted.
    std::fs::remove_file(&name)?;
    std::os::unix::fs::symlink(standby.socket()?, &name)?;
    site.is_away("failover", "read-only").await?;
    standby.execute("SELECT pg_promote()").await?;
    site.is_back("failover").await?;
    has_seen(&mut watch, &["first", "failover"]).await?;
    site.end().await;
    Ok(())
}

/// The URL by which a server is reached under another name of its folder.
fn named(url: &str, server: &Server, name: &Path) -> Result<String> {
    // Of plain letters, as all of the test's folders are.
    let socket = server.socket()?;
    let (socket, name) = (socket.to_str().context("a plain path")?, name.to_str().context("a plain path")?);
    ensure!(url.contains(socket), "{url} does not name {socket}");
    Ok(url.replace(socket, name))
}

/// While the disk is full, what can be read is; what cannot be written is refused with the reason, and never anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_is_said_and_writes_go_on_when_there_is_room() -> Result<()> {
    let folder = folder()?;
    let Some(disk) = Disk::mount(&folder.path().join("disk"), 160 << 20)? else {
        println!("NOT RUN: only root can mount a small disk");
        return Ok(());
    };
    let mut server = Server::start(&disk.path().join("pg")).await?;
    let site = Site::new(&plain_role(&server).await?).await?;

    let ballast = disk.fill()?;
    let (mut refused, begin) = (0, Instant::now());
    for number in 0.. {
        ensure!(begin.elapsed() < PATIENCE, "writes went on without room");
        let answer = make_large(&site, number).await?;
        match answer.status() {
            StatusCode::CREATED => {}
            StatusCode::SERVICE_UNAVAILABLE => {
                ensure!(answer.headers()["retry-after"] == "1", "no Retry-After");
                let told: serde_json::Value = answer.json().await?;
                ensure!(told["message"].as_str().is_some_and(|text| text.contains("database")), "{told}");
                refused += 1;
                if refused == 20 {
                    break;
                }
            }
            other => anyhow::bail!("a write without room: {other}: {}", answer.text().await?),
        }
    }
    let read = told::list(&site.replica, &site.http).await?.status();
    ensure!(matches!(read, StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE), "a list: {read}");
    let lines = site.lines.take();
    let loud = lines.iter().filter(|line| line.starts_with("ERROR") || line.starts_with("WARN")).count();
    ensure!((1..=4).contains(&loud), "{lines:#?}");

    std::fs::remove_file(ballast)?;
    if server.has_ended() {
        server.start_again().await?;
    }
    is_back("full-disk", &site.replica, &site.http).await?;
    site.end().await;
    Ok(())
}

async fn make_large(site: &Site, number: u64) -> Result<reqwest::Response> {
    // What no database makes smaller.
    let mut state = number + 1;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:08x}", state >> 32)
    });
    let text: String = words.take(20_000).collect();
    let object = json!({ "metadata": { "name": format!("large-{number}") }, "data": { "text": text } });
    let request = site.http.post(format!("{}{MAPS}", site.replica.url)).bearer_auth(&site.replica.token);
    Ok(request.json(&object).timeout(Duration::from_secs(20)).send().await?)
}
