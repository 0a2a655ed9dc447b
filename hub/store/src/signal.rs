//! Signals between tasks and between replicas: *check again*, never *here is what changed*. Losing one costs a timer's
//! period and nothing else.
//!
//! A NOTIFY inside every transaction would make all commits queue for one lock; so signals are sent after the commit,
//! by one sender per replica that folds together what comes while it is busy.

use std::sync::Arc;
use std::time::Duration;

use roadstead_model::{Queue, Topic};
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::{Notify, mpsc, watch};
use uuid::Uuid;

use crate::{Health, StoreError};

const CHANNEL: &str = "roadstead";
const RECONNECT: Duration = Duration::from_secs(1);
/// So long a signal to other replicas waits for others to go with it.
const COALESCE: Duration = Duration::from_millis(5);

/// Where the loops' topics begin: behind those that are not a loop's.
const FIRST_LOOP: usize = 3;
const TOPICS: usize = FIRST_LOOP + Queue::ALL.len();

type Counters = [watch::Sender<u64>; TOPICS];

/// Sends and receives signals. Clones share them.
#[derive(Clone)]
pub struct Signals {
    counters: Arc<Counters>,
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
        // Unbounded, but what it holds is drained and folded whenever the sender wakes: each topic is sent once at most.
        let (outbox, inbox) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        let sender = Sender(Uuid::new_v4());
        tokio::spawn(send_to_replicas(pool.clone(), health.clone(), sender, inbox));
        let listening = listen(pool, health, sender, Arc::clone(&counters));
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

/// Who has sent a notification. A replica hears its own as well, and has no use for them: it has woken its loops already.
#[derive(Clone, Copy)]
struct Sender(Uuid);

impl Sender {
    fn message(self, topic: Topic) -> String {
        format!("{} {}", word(topic), self.0)
    }

    /// The topic of somebody else's message. A word that a newer replica sends means nothing here.
    fn others_topic(self, message: &str) -> Option<Topic> {
        let (said, sender) = message.split_once(' ')?;
        let topic = topics().find(|topic| word(*topic) == said)?;
        (sender.parse() != Ok(self.0)).then_some(topic)
    }
}

fn topics() -> impl Iterator<Item = Topic> {
    [Topic::Resources, Topic::Dispatch, Topic::News].into_iter().chain(Queue::ALL.into_iter().map(Topic::Due))
}

fn index(topic: Topic) -> usize {
    match topic {
        Topic::Resources => 0,
        Topic::Dispatch => 1,
        Topic::News => 2,
        Topic::Due(queue) => FIRST_LOOP + queue as usize,
    }
}

/// A topic's word in a notification.
fn word(topic: Topic) -> String {
    match topic {
        Topic::Resources => "resources".to_owned(),
        Topic::Dispatch => "dispatch".to_owned(),
        Topic::News => "news".to_owned(),
        Topic::Due(queue) => format!("due/{}", queue.as_str()),
    }
}

fn bump(counters: &Counters, topic: Topic) {
    counters[index(topic)].send_modify(|count| *count = count.wrapping_add(1));
}

async fn send_to_replicas(
    pool: PgPool,
    health: Health,
    sender: Sender,
    mut inbox: mpsc::UnboundedReceiver<Topic>,
) {
    while let Some(first) = inbox.recv().await {
        // What follows within a moment goes with it: many commit at the same time, and each of them wakes the same loops.
        tokio::time::sleep(COALESCE).await;
        let mut topics = vec![first];
        while let Ok(topic) = inbox.try_recv() {
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        // While the database is away there is nothing to tell: whoever listens looks at everything when it is back.
        health.back().await;
        let messages: Vec<String> = topics.into_iter().map(|topic| sender.message(topic)).collect();
        let sent = sqlx::query("SELECT pg_notify($1, message) FROM unnest($2::text[]) message");
        let sent = tokio::select! {
            sent = sent.bind(CHANNEL).bind(messages).execute(&pool) => sent,
            _ = health.lost() => continue,
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

async fn listen(pool: PgPool, health: Health, sender: Sender, counters: Arc<Counters>) {
    while !pool.is_closed() {
        health.back().await;
        let listened = tokio::select! {
            listened = listen_once(&pool, sender, &counters) => listened,
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

async fn listen_once(pool: &PgPool, sender: Sender, counters: &Counters) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // Whatever was sent while nobody listened is lost: look at everything once.
    topics().for_each(|topic| bump(counters, topic));
    while let Some(message) = listener.try_recv().await? {
        if let Some(topic) = sender.others_topic(message.payload()) {
            bump(counters, topic);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_has_a_place_and_a_word_of_its_own() {
        let (one, other) = (Sender(Uuid::new_v4()), Sender(Uuid::new_v4()));
        assert_eq!(topics().count(), TOPICS);
        for (place, topic) in topics().enumerate() {
            assert_eq!(index(topic), place);
            assert_eq!(other.others_topic(&one.message(topic)), Some(topic));
        }
    }

    #[test]
    fn a_replica_does_not_listen_to_itself_nor_to_what_it_does_not_know() {
        let (one, other) = (Sender(Uuid::new_v4()), Sender(Uuid::new_v4()));
        assert_eq!(one.others_topic(&one.message(Topic::Dispatch)), None);
        for unknown in ["", "dispatch", &format!("due/helmrelease {}", other.0)] {
            assert_eq!(one.others_topic(unknown), None, "{unknown}");
        }
    }
}
