//! Whether the database answers: asked all the time on a connection of its own, so that nobody else has to wait to find out.
//!
//! A request that needs the database while it is away is answered at once; loops wait here until it is back; and the
//! log has one line when it goes and one when it comes back, however many there are that miss it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::StoreError;

/// How often it is asked, and how long an answer may take: together less than a second.
const PERIOD: Duration = Duration::from_millis(250);
const ANSWER: Duration = Duration::from_millis(700);
/// How long a new connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How often it is tried whether new connections can be made while the one that is there works.
const FRESH: Duration = Duration::from_secs(10);
/// An error of the database's own that comes again and again is logged this often.
const REPEAT: Duration = Duration::from_secs(60);

/// What the probe knows. Clones share it.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    /// Why the database is of no use at the moment; none while it answers.
    outage: watch::Sender<Option<&'static str>>,
    /// When the last outage ended.
    back: Mutex<Option<Instant>>,
    /// What was logged last of errors while it answers.
    noted: Mutex<Option<(&'static str, Instant)>>,
}

impl Health {
    /// Begins to ask; ends when the last clone is gone.
    pub(crate) fn start(options: PgConnectOptions) -> Self {
        let health = Self(Arc::new(Inner {
            outage: watch::Sender::new(None),
            back: Mutex::default(),
            noted: Mutex::default(),
        }));
        let weak = Arc::downgrade(&health.0);
        // On a thread of its own: a runtime that is busy would take its own slowness for the database's.
        let probe = std::thread::Builder::new().name("database-probe".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(probe(&weak, &options.disable_statement_logging())),
                Err(error) => tracing::error!(%error, "the database is not watched"),
            }
        });
        if let Err(error) = probe {
            tracing::error!(%error, "the database is not watched");
        }
        health
    }

    /// Of a database that nobody asks, and that is as [`Self::is`] says.
    #[cfg(test)]
    pub(crate) fn unasked() -> Self {
        Self(Arc::new(Inner {
            outage: watch::Sender::new(None),
            back: Mutex::default(),
            noted: Mutex::default(),
        }))
    }

    #[cfg(test)]
    pub(crate) fn is(&self, outage: Option<&'static str>) {
        self.0.outage.send_replace(outage);
    }

    /// Why the database is of no use at the moment; none while it answers.
    #[must_use]
    pub fn outage(&self) -> Option<&'static str> {
        *self.0.outage.borrow()
    }

    /// Waits until the database is of no use, and says why.
    pub async fn lost(&self) -> &'static str {
        let mut told = self.0.outage.subscribe();
        match told.wait_for(Option::is_some).await.map(|told| *told) {
            Ok(Some(why)) => why,
            // The sender is in `self`.
            _ => std::future::pending().await,
        }
    }

    /// Waits until the database has been of no use for so long.
    pub async fn lost_for(&self, long: Duration) {
        loop {
            self.lost().await;
            if timeout(long, self.back()).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the database answers.
    pub async fn back(&self) {
        let mut told = self.0.outage.subscribe();
        // The sender is in `self`.
        let _ = told.wait_for(Option::is_none).await;
    }

    /// Whether an outage has ended within this span: what is older than that is from before it. A connection may then lead to
    /// a server that is no longer the one, and a silence of other replicas says nothing.
    #[must_use]
    pub fn was_away_within(&self, span: Duration) -> bool {
        let back = self.0.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.is_some_and(|back| span >= back.elapsed())
    }

    /// Notes a failure of something that will be tried again by itself. What the outage's own line says is not said again;
    /// what is wrong with the database otherwise is said once in a while.
    pub async fn note(&self, what: &'static str, error: &StoreError) {
        let Some(reason) = error.outage() else {
            tracing::error!(error = error as &dyn std::error::Error, "{what}");
            return;
        };
        // The probe may be about to say it.
        if self.outage().is_some() || timeout(2 * (PERIOD + ANSWER), self.lost()).await.is_ok() {
            return;
        }
        if self.is_news(reason) {
            tracing::error!(
                error = error as &dyn std::error::Error,
                reason,
                "the database rejects statements: {what}"
            );
        }
    }

    /// Notes that a request was refused for this reason (a [`StoreError::outage`]), once in a while. What the probe finds
    /// out by itself has its own line.
    pub fn request_refused(&self, reason: &'static str) {
        if [DISK_FULL, DISK_FAILS, OUT_OF_RESOURCES].contains(&reason)
            && self.outage().is_none()
            && self.is_news(reason)
        {
            tracing::error!(
                reason,
                "the database is reachable but rejects statements; such requests are answered with 503"
            );
        }
    }

    /// Whether this was not said lately.
    fn is_news(&self, reason: &'static str) -> bool {
        let mut noted = self.0.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = noted.is_none_or(|(last, at)| last != reason || at.elapsed() >= REPEAT);
        if is_news {
            *noted = Some((reason, Instant::now()));
        }
        is_news
    }
}

impl Inner {
    fn tell(&self, outage: Option<(&'static str, String)>) {
        let before = *self.outage.borrow();
        match (before, outage) {
            (None, Some((reason, error))) => {
                tracing::error!(
                    reason,
                    error,
                    "lost the connection to the database; requests are answered with 503 until it is back"
                );
                self.outage.send_replace(Some(reason));
            }
            (Some(_), None) => {
                *self.back.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                self.outage.send_replace(None);
                tracing::info!("the database is back");
            }
            // The reason may change: refused connections, then a server that is starting.
            (Some(before), Some((reason, _))) if before != reason => {
                self.outage.send_replace(Some(reason));
            }
            _ => {}
        }
    }
}

async fn probe(health: &Weak<Inner>, options: &PgConnectOptions) {
    let (mut connection, mut fresh, mut refused) = (None, Instant::now(), false);
    while let Some(inner) = health.upgrade() {
        let begin = Instant::now();
        let answer = ask(&mut connection, options).await;
        let well = answer.is_ok();
        inner.tell(answer.err());
        drop(inner);
        if well && fresh.elapsed() >= FRESH {
            fresh = Instant::now();
            let told = connect(options).await.err();
            match &told {
                Some((reason, error)) if !refused => {
                    tracing::error!(reason, error, "the database takes no new connections");
                }
                None if refused => tracing::info!("the database takes new connections again"),
                _ => {}
            }
            refused = told.is_some();
        }
        tokio::time::sleep(PERIOD.saturating_sub(begin.elapsed())).await;
    }
}

type Failure = (&'static str, String);

/// One question, on the connection that is there or on a new one.
async fn ask(connection: &mut Option<PgConnection>, options: &PgConnectOptions) -> Result<(), Failure> {
    if let Some(mut present) = connection.take() {
        match question(&mut present).await {
            Ok(()) => {
                *connection = Some(present);
                return Ok(());
            }
            // That one connection was cut says nothing yet, and is found out soon.
            Err((NO_ANSWER, error)) => return Err((NO_ANSWER, error)),
            Err(_) => {}
        }
    }
    let mut fresh = connect(options).await?;
    question(&mut fresh).await?;
    *connection = Some(fresh);
    Ok(())
}

const NO_ANSWER: &str = "it does not answer";

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Failure> {
    match timeout(CONNECT, PgConnection::connect_with(options)).await {
        Ok(connected) => connected.map_err(failure),
        Err(late) => Err((NO_ANSWER, late.to_string())),
    }
}

/// Whether it takes writes: a standby answers, and is of no use. On a standby the setting is on as well.
async fn question(connection: &mut PgConnection) -> Result<(), Failure> {
    let asked = sqlx::query_scalar("SELECT current_setting('transaction_read_only')");
    let read_only: String = match timeout(ANSWER, asked.fetch_one(connection)).await {
        Ok(answer) => answer.map_err(failure)?,
        Err(late) => return Err((NO_ANSWER, late.to_string())),
    };
    if read_only == "off" { Ok(()) } else { Err((READ_ONLY, "transaction_read_only is on".to_owned())) }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: sqlx::Error) -> Failure {
    (reason(&error).unwrap_or("it answers with an error"), error.to_string())
}

const READ_ONLY: &str = "it is read-only: is it a standby?";
const DISK_FULL: &str = "its disk is full";
const DISK_FAILS: &str = "its disk fails";
const OUT_OF_RESOURCES: &str = "it is out of resources";

/// What is wrong with the database as a whole, where an error says that; none where it is about one statement.
pub(crate) fn reason(error: &sqlx::Error) -> Option<&'static str> {
    let code = match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) => return Some("it cannot be reached"),
        sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
            return Some("no connection to it became free in time");
        }
        sqlx::Error::Database(error) => error.code()?,
        _ => return None,
    };
    match &*code {
        "53100" => Some(DISK_FULL),
        "53300" => Some("all of its connections are in use"),
        "25006" => Some(READ_ONLY),
        "28P01" | "28000" => Some("it refuses the hub's credentials"),
        "3D000" => Some("it has no database of this name"),
        "57P01" | "57P02" | "57P03" | "57P05" => Some("it is starting or stopping"),
        code if code.starts_with("08") => Some("it cannot be reached"),
        code if code.starts_with("53") => Some(OUT_OF_RESOURCES),
        code if code.starts_with("58") => Some(DISK_FAILS),
        _ => None,
    }
}
