//! Signals between tasks and between replicas: *look again*, never *here is what changed*. Losing one costs a timer's
//! period and nothing else.
//!
//! A NOTIFY inside every transaction would make all commits queue for one lock; so signals are sent after the commit,
//! by one sender per replica that folds together what comes while it is busy.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::{Notify, mpsc, watch};

use crate::{Health, StoreError};

const CHANNEL: &str = "roadstead";
const RECONNECT: Duration = Duration::from_secs(1);

/// What may be worth a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The change log grew: watches.
    Resources,
    /// Something is due: the planner and the source fetcher.
    Schedule,
    /// A reconciliation waits to be sent, or to be cancelled: the link.
    Dispatch,
}

const TOPICS: [(Topic, &str); 3] =
    [(Topic::Resources, "resources"), (Topic::Schedule, "schedule"), (Topic::Dispatch, "dispatch")];

/// Sends and receives signals. Clones share them.
#[derive(Clone)]
pub struct Signals {
    counters: Arc<[watch::Sender<u64>; TOPICS.len()]>,
    outbox: mpsc::UnboundedSender<Topic>,
    _stop: Arc<Stop>,
}

struct Stop(Arc<Notify>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Signals {
    pub(crate) fn start(pool: PgPool, health: Health) -> Self {
        let counters = Arc::new(std::array::from_fn(|_| watch::Sender::new(0)));
        // Unbounded, but what it holds is drained and folded whenever the sender wakes: three topics at most are sent.
        let (outbox, inbox) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        tokio::spawn(send_to_replicas(pool.clone(), health.clone(), inbox));
        let listening = listen(pool, health, Arc::clone(&counters));
        let stopped = Arc::clone(&stop);
        tokio::spawn(async move {
            tokio::select! {
                () = listening => {}
                () = stopped.notified() => {}
            }
        });
        Self { counters, outbox, _stop: Arc::new(Stop(stop)) }
    }

    /// Wakes those who wait for `topic`, here at once and in the other replicas soon.
    pub fn send(&self, topic: Topic) {
        bump(&self.counters, topic);
        // The receiver lives as long as the runtime; after that nobody waits.
        let _ = self.outbox.send(topic);
    }

    /// A receiver whose value changes with each signal of `topic`; what came before this call counts as seen.
    #[must_use]
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.counters[index(topic)].subscribe()
    }
}

fn index(topic: Topic) -> usize {
    match topic {
        Topic::Resources => 0,
        Topic::Schedule => 1,
        Topic::Dispatch => 2,
    }
}

fn bump(counters: &[watch::Sender<u64>; TOPICS.len()], topic: Topic) {
    counters[index(topic)].send_modify(|count| *count = count.wrapping_add(1));
}

async fn send_to_replicas(pool: PgPool, health: Health, mut inbox: mpsc::UnboundedReceiver<Topic>) {
    while let Some(first) = inbox.recv().await {
        let mut topics = vec![first];
        while let Ok(topic) = inbox.try_recv() {
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        // While the database is away there is nothing to tell: whoever listens looks at everything when it is back.
        health.back().await;
        for topic in topics {
            let sent = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(TOPICS[index(topic)].1);
            let sent = tokio::select! {
                sent = sent.execute(&pool) => sent,
                _ = health.lost() => break,
            };
            if let Err(error) = sent {
                if pool.is_closed() {
                    return;
                }
                // The other replicas' timers cover for it.
                let error = StoreError::query("notify")(error);
                health.note("signal not sent to other replicas", &error).await;
            }
        }
    }
}

async fn listen(pool: PgPool, health: Health, counters: Arc<[watch::Sender<u64>; TOPICS.len()]>) {
    while !pool.is_closed() {
        health.back().await;
        let listened = tokio::select! {
            listened = listen_once(&pool, &counters) => listened,
            // A connection to a server that is gone without a word would be listened to for ever.
            _ = health.lost() => continue,
        };
        match listened {
            Ok(()) => {}
            Err(_) if pool.is_closed() => return,
            Err(error) => {
                let error = StoreError::query("listen")(error);
                health.note("listening for other replicas' signals was cut", &error).await;
            }
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen_once(
    pool: &PgPool,
    counters: &[watch::Sender<u64>; TOPICS.len()],
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // Whatever was sent while nobody listened is lost: look at everything once.
    for (topic, _) in TOPICS {
        bump(counters, topic);
    }
    loop {
        match listener.try_recv().await? {
            Some(message) => {
                if let Some((topic, _)) = TOPICS.iter().find(|(_, name)| *name == message.payload()) {
                    bump(counters, *topic);
                }
            }
            None => return Ok(()),
        }
    }
}
