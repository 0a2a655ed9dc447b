//! What a hub says of its database: to those who ask, and in its log.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::support::Replica;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// All lines of warning and error, as texts.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

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
    /// Those of this process, from now on: its tests take turns.
    pub(crate) fn of_this_process() -> Result<Self> {
        static LINES: OnceLock<Lines> = OnceLock::new();
        let mut failed = Ok(());
        let lines = LINES.get_or_init(|| {
            let lines = Self::default();
            let all = tracing_subscriber::registry().with(lines.clone());
            failed = tracing::subscriber::set_global_default(all);
            lines
        });
        failed.context("listen to the log")?;
        lines.take();
        Ok(lines.clone())
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

pub(crate) async fn list(replica: &Replica, http: &reqwest::Client) -> Result<reqwest::Response> {
    let request = http.get(format!("{}{MAPS}", replica.url)).bearer_auth(&replica.token);
    Ok(request.timeout(Duration::from_secs(20)).send().await?)
}

pub(crate) async fn make(replica: &Replica, http: &reqwest::Client, name: &str) -> Result<reqwest::Response> {
    let object = json!({ "metadata": { "name": name } });
    let request = http.post(format!("{}{MAPS}", replica.url)).bearer_auth(&replica.token).json(&object);
    Ok(request.timeout(Duration::from_secs(20)).send().await?)
}

pub(crate) async fn plain(
    replica: &Replica,
    http: &reqwest::Client,
    path: &str,
) -> Result<(StatusCode, String)> {
    let request = http.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    let answer = request.timeout(Duration::from_secs(20)).send().await?;
    Ok((answer.status(), answer.text().await?))
}

/// What holds while the database is away: said soon, with a reason, of each request, and nothing else is.
pub(crate) async fn is_away(
    what: &str,
    replica: &Replica,
    http: &reqwest::Client,
    reason: &str,
) -> Result<()> {
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

pub(crate) async fn is_back(what: &str, replica: &Replica, http: &reqwest::Client) -> Result<()> {
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
pub(crate) fn one_line_each(what: &str, lines: &Lines) -> Result<()> {
    let lines = lines.take();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    ensure!(
        count("lost the connection to the database") == 1 && count("the database is back") == 1,
        "{what}: {lines:#?}"
    );
    ensure!(count("ERROR") + count("WARN") == 1, "{what}: {lines:#?}");
    Ok(())
}
