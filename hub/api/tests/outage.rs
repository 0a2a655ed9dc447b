//! A database that goes away, and what comes back with it. The server is this test's own.

mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_devpostgres::{Options, PrivatePostgres};
use roadstead_hub_api::ApiOptions;
use roadstead_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use support::{Replica, client, replica_over};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// All lines of warning and error, as texts.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, "{}={value:?} ", field.name());
            }
        }
        if *event.metadata().level() <= Level::INFO && event.metadata().target().starts_with("roadstead") {
            let mut text = Text(format!("{} ", event.metadata().level()));
            event.record(&mut text);
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text.0);
        }
    }
}

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// A server that can be hurt.
struct Server {
    state: PathBuf,
    running: Option<PrivatePostgres>,
}

impl Server {
    async fn start(state: &Path) -> Result<Self> {
        let mut server = Self { state: state.to_owned(), running: None };
        server.start_again().await?;
        Ok(server)
    }

    async fn start_again(&mut self) -> Result<()> {
        let (state, before) = (self.state.clone(), self.running.take());
        let started = tokio::task::spawn_blocking(move || {
            if let Some(before) = before {
                before.stop()?;
            }
            PrivatePostgres::start(
                &state,
                &Options { fsync: false, max_connections: 40, ..Options::default() },
            )
        });
        self.running = Some(started.await??);
        Ok(())
    }

    fn url(&self) -> Result<String> {
        Ok(self.running.as_ref().context("a server")?.url().to_owned())
    }

    /// The server's process and all that serve sessions.
    fn processes(&self) -> Result<Vec<Pid>> {
        let text = std::fs::read_to_string(self.state.join("data/postmaster.pid"))?;
        let postmaster: i32 = text.lines().next().context("a process")?.trim().parse()?;
        let mut found = vec![postmaster];
        for entry in std::fs::read_dir("/proc")? {
            let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
            // PID (NAME) STATE PARENT …
            let (Some((pid, _)), Some((_, rest))) = (stat.split_once(' '), stat.rsplit_once(')')) else {
                continue;
            };
            if rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) == Some(postmaster) {
                found.push(pid.parse()?);
            }
        }
        Ok(found.into_iter().filter_map(Pid::from_raw).collect())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        for pid in self.processes()? {
            // Some end with the first of them.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    async fn execute(&self, statement: &str) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url()?).await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.signal(Signal::CONT);
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

async fn list(replica: &Replica, http: &reqwest::Client) -> Result<reqwest::Response> {
    let request = http.get(format!("{}{MAPS}", replica.url)).bearer_auth(&replica.token);
    Ok(request.timeout(Duration::from_secs(20)).send().await?)
}

async fn make(replica: &Replica, http: &reqwest::Client, name: &str) -> Result<reqwest::Response> {
    let object = json!({ "metadata": { "name": name } });
    let request = http.post(format!("{}{MAPS}", replica.url)).bearer_auth(&replica.token).json(&object);
    Ok(request.timeout(Duration::from_secs(20)).send().await?)
}

async fn plain(replica: &Replica, http: &reqwest::Client, path: &str) -> Result<(StatusCode, String)> {
    let request = http.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    let answer = request.timeout(Duration::from_secs(20)).send().await?;
    Ok((answer.status(), answer.text().await?))
}

/// What holds while the database is away: said soon, with a reason, of each request, and nothing else is.
async fn is_away(what: &str, replica: &Replica, http: &reqwest::Client, reason: &str) -> Result<()> {
    let begin = Instant::now();
    let told = loop {
        let asked = Instant::now();
        let answer = list(replica, http).await?;
        let took = asked.elapsed();
        ensure!(took < Duration::from_secs(5), "{what}: a request was answered after {took:?}");
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            ensure!(answer.headers()["retry-after"] == "1", "{what}: no Retry-After");
            break answer.json::<Value>().await?;
        }
        ensure!(
            answer.status() == StatusCode::OK && begin.elapsed() < PATIENCE,
            "{what}: {}",
            answer.status()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{what}: said after {:?}: {}", begin.elapsed(), told["message"]);
    ensure!(told["kind"] == "Status" && told["reason"] == "ServiceUnavailable", "{what}: {told}");
    ensure!(told["message"].as_str().is_some_and(|text| text.contains("database")), "{what}: {told}");
    // From here on nobody waits to be told.
    eventually("the hub is not ready", PATIENCE, || async {
        let (code, text) = plain(replica, http, "/readyz").await?;
        ensure!(code == StatusCode::SERVICE_UNAVAILABLE && text.contains(reason), "{code}: {text}");
        Ok(())
    })
    .await?;
    let begin = Instant::now();
    for _ in 0..10 {
        let answer = list(replica, http).await?;
        ensure!(answer.status() == StatusCode::SERVICE_UNAVAILABLE, "{what}: a list: {}", answer.status());
        let told = answer.json::<Value>().await?;
        ensure!(told["message"].as_str().is_some_and(|text| text.contains(reason)), "{what}: {told}");
        ensure!(
            make(replica, http, "x").await?.status() == StatusCode::SERVICE_UNAVAILABLE,
            "{what}: a write"
        );
    }
    println!("{what}: 20 requests were answered in {:?}", begin.elapsed());
    ensure!(begin.elapsed() < Duration::from_secs(5), "{what}: 20 requests took {:?}", begin.elapsed());
    for path in ["/livez", "/api", "/apis", "/version", "/openapi/v3", "/ui/"] {
        let (code, text) = plain(replica, http, path).await?;
        ensure!(code == StatusCode::OK, "{what}: {path}: {code}: {text}");
    }
    Ok(())
}

async fn is_back(what: &str, replica: &Replica, http: &reqwest::Client) -> Result<()> {
    let begin = Instant::now();
    eventually("requests are served again", PATIENCE, || async {
        ensure!(list(replica, http).await?.status() == StatusCode::OK, "not yet");
        let made = make(replica, http, what).await?;
        ensure!(matches!(made.status(), StatusCode::CREATED | StatusCode::CONFLICT), "{}", made.status());
        Ok(())
    })
    .await?;
    println!("{what}: back after {:?}", begin.elapsed());
    Ok(())
}

/// One line when it begins and one when it ends, however many requests and loops there were.
fn one_line_each(what: &str, lines: &Lines) -> Result<()> {
    let lines = lines.take();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    ensure!(count("the database is lost") == 1 && count("the database is back") == 1, "{what}: {lines:#?}");
    ensure!(count("ERROR") + count("WARN") == 1, "{what}: {lines:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_goes_away_is_said_at_once_and_comes_back_by_itself() -> Result<()> {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines.clone()))?;
    let folder = tempfile::Builder::new().prefix("rs").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let mut server = Server::start(&folder.path().join("pg")).await?;
    // A role that is bound by limits, unlike the superuser.
    server
        .execute(
            "CREATE ROLE hub LOGIN; ALTER DATABASE roadstead OWNER TO hub; ALTER SCHEMA public OWNER TO hub",
        )
        .await?;
    let url = server.url()?.replace("//roadstead@", "//hub@");
    let replica = replica_over(&url, ApiOptions::default()).await?;
    let stop = tokio_util::sync::CancellationToken::new();
    let tasks = roadstead_hub_tasks::start(&replica.hub, &stop);
    let http = client(&replica)?;
    is_back("first", &replica, &http).await?;
    let mut watch =
        http.get(format!("{}{MAPS}?watch=1", replica.url)).bearer_auth(&replica.token).send().await?;
    lines.take();

    server.signal(Signal::KILL)?;
    is_away("killed", &replica, &http, "cannot be reached").await?;
    server.start_again().await?;
    is_back("killed", &replica, &http).await?;
    one_line_each("killed", &lines)?;

    server.signal(Signal::STOP)?;
    is_away("frozen", &replica, &http, "does not answer").await?;
    server.signal(Signal::CONT)?;
    is_back("frozen", &replica, &http).await?;
    one_line_each("frozen", &lines)?;

    server.execute("ALTER ROLE hub SET default_transaction_read_only = on").await?;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'hub'";
    server.execute(cut).await?;
    is_away("read-only", &replica, &http, "read-only").await?;
    server.execute("ALTER ROLE hub RESET default_transaction_read_only").await?;
    is_back("read-only", &replica, &http).await?;
    one_line_each("read-only", &lines)?;

    server.execute(&format!("ALTER ROLE hub CONNECTION LIMIT 0; {cut}")).await?;
    is_away("used-up", &replica, &http, "connections are in use").await?;
    server.execute("ALTER ROLE hub CONNECTION LIMIT -1").await?;
    is_back("used-up", &replica, &http).await?;
    one_line_each("used-up", &lines)?;

    server.execute(&format!("ALTER ROLE hub NOLOGIN; {cut}")).await?;
    is_away("refused", &replica, &http, "credentials").await?;
    server.execute("ALTER ROLE hub LOGIN").await?;
    is_back("refused", &replica, &http).await?;
    one_line_each("refused", &lines)?;

    // The watch was open all the time, and misses nothing.
    let mut seen = String::new();
    while !["killed", "frozen", "read-only", "used-up", "refused"]
        .iter()
        .all(|name| seen.contains(&format!("\"name\":\"{name}\"")))
    {
        let chunk = tokio::time::timeout(PATIENCE, watch.chunk()).await.context("the watch is silent")??;
        seen.push_str(std::str::from_utf8(&chunk.context("the watch has ended")?)?);
    }
    ensure!(!seen.contains("ERROR"), "{seen}");
    stop.cancel();
    tasks.join_all().await;
    Ok(())
}
