//! What agents' messages take of the hub's memory: reserved before their bytes are read, given back once they are handled.
//!
//! A message says how long it is before it comes. Whatever is too long to be small is let in only once as much as it can
//! become is reserved, out of its cluster's share and of what all have. Until then its bytes stay with the agent. Whoever has
//! been let in has to send: nobody holds memory for a message that does not come.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prost::bytes::{Buf as _, Bytes};
use roadstead_budget::{MemoryBudget, Pool, PoolName, Reservation};
use roadstead_model::ClusterUid;
use roadstead_proto::codec::most_elements;
use roadstead_proto::limits::{MAX_MESSAGE_BYTES, MAX_RUNNING, MAX_SEEN};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, http};

/// Messages up to this many bytes (heartbeats, acknowledgements) are covered by what a session reserves when it begins.
pub(crate) const SMALL: u64 = 64;
/// What an agent's connection takes, and what a session on it does besides. Measured with 1,000 agents at rest: 79 KiB each.
pub(crate) const CONNECTION: u64 = 24 * 1024;
/// See [`CONNECTION`].
pub(crate) const SESSION: u64 = 56 * 1024;
/// How often a message's bytes are there while it is handled: as they came, in texts, and bound to a statement.
const COPIES: u64 = 3;
/// What an element of a list becomes besides its texts: in a list that has room for twice as many, and with an allocation
/// for each of its texts.
const ELEMENT: u64 = 280;
/// A session's first message: the dispatches that the agent is at work on, of 128 bytes each, those that it has seen, of 64, and a few
/// texts.
const FIRST: u64 = MAX_RUNNING as u64 * 128 + MAX_SEEN as u64 * 64 + 64 * 1024;
/// Messages up to this many bytes have room of their own: what a dispatch of a few dozen objects says, and progress. So they
/// do not wait for those who announce long messages and let them come slowly.
const SHORT: u64 = 16 * 1024;
/// They have this part of what there is for messages, and each cluster this part of that.
const SHORT_SHARE: u64 = 8;
/// First messages have this part of what there is for messages: a certificate is enough to send one, also that of a Cluster
/// which is gone.
const FIRST_SHARE: u64 = 8;
/// So long a message waits for memory. What holds it is given back sooner than that.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a gRPC message begins: whether it is compressed, and its length.
const HEADER: usize = 5;

/// What a message of so many bytes becomes at most.
fn cost(length: u64) -> u64 {
    let elements = most_elements(usize::try_from(length).unwrap_or(usize::MAX));
    length * COPIES + elements as u64 * ELEMENT
}

/// What a message has reserved; nothing for a small one.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    _reserved: Option<(Reservation, Reservation)>,
}

/// The receipts of a session's messages, in their order, and when something was heard.
#[derive(Debug, Clone)]
pub(crate) struct Receipts(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    queue: VecDeque<Receipt>,
    /// When bytes came last.
    heard: Instant,
    /// Memory is waited for, so nothing can be heard.
    waits: bool,
}

impl Receipts {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State { queue: VecDeque::new(), heard: Instant::now(), waits: false })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole at any time: a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receipt of the message that was read last.
    pub(crate) fn next(&self) -> Receipt {
        self.lock().queue.pop_front().unwrap_or_default()
    }

    /// Since when the agent has been silent. A part of a message is heard, too; that the whole comes in time is seen to
    /// where it is read.
    pub(crate) fn silent_since(&self) -> Instant {
        let state = self.lock();
        if state.waits { Instant::now() } else { state.heard }
    }
}

/// The memory for all agents' messages.
pub(crate) struct Meter {
    first: Pool,
    short: Pool,
    later: Pool,
    /// A message that has begun is there within this time.
    whole: Duration,
    shares: Mutex<HashMap<ClusterUid, Weak<Share>>>,
}

/// What a cluster has of it, on however many connections and streams.
struct Share {
    first: Pool,
    short: Pool,
    later: Pool,
}

impl Meter {
    pub(crate) fn new(budget: &MemoryBudget, whole: Duration) -> Arc<Self> {
        let size = budget.pool(PoolName::Messages).size();
        let first = Pool::new("agents' first messages", size / FIRST_SHARE);
        let short = Pool::new("agents' short messages", size / SHORT_SHARE);
        let later = Pool::new("agents' messages", size - size / FIRST_SHARE - size / SHORT_SHARE);
        Arc::new(Self { first, short, later, whole, shares: Mutex::default() })
    }

    fn share(&self, cluster: ClusterUid) -> Arc<Share> {
        // Whole at any time: a panic elsewhere does not spoil it.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&cluster).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        // One message of the longest kind, as far as that leaves something to others.
        let most = cost(MAX_MESSAGE_BYTES as u64).min(self.later.size() / 4 * 3).max(self.later.size() / 2);
        let share = Arc::new(Share {
            first: Pool::new("first messages of an agent", self.first.size() / 4 * 3),
            short: Pool::new("short messages of an agent", self.short.size() / SHORT_SHARE),
            later: Pool::new("messages of an agent", most),
        });
        shares.insert(cluster, Arc::downgrade(&share));
        share
    }

    /// Has the request's messages reserve what they take, and puts their receipts into its extensions.
    pub(crate) fn metered(
        self: &Arc<Self>,
        request: http::Request<Body>,
        cluster: ClusterUid,
    ) -> http::Request<Body> {
        let receipts = Receipts::new();
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(receipts.clone());
        let body = Metered {
            body,
            meter: Arc::clone(self),
            share: self.share(cluster),
            receipts,
            header: [0; HEADER],
            have: 0,
            left: 0,
            is_first: true,
            data: Bytes::new(),
            waiting: None,
            deadline: None,
        };
        http::Request::from_parts(parts, Body::new(body))
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<(Reservation, Reservation), Status>> + Send>>;

/// The body of an agent's request: passes messages on as memory for them is there.
struct Metered {
    body: Body,
    meter: Arc<Meter>,
    share: Arc<Share>,
    receipts: Receipts,
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the message that have not.
    left: usize,
    /// No message has begun yet.
    is_first: bool,
    /// Came, and was not passed on.
    data: Bytes,
    waiting: Option<Waiting>,
    /// Until when the message that has begun has to be there.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Reserves of the cluster's own first, so that no more of one cluster than that waits among others.
async fn reserve(own: Pool, all: Pool, bytes: u64) -> Result<(Reservation, Reservation), Status> {
    let bytes = bytes.min(own.size());
    let both = async {
        let own = own.reserve(bytes).await?;
        Ok((all.reserve(bytes).await?, own))
    };
    let exhausted = |error: roadstead_budget::Exhausted| Status::resource_exhausted(error.to_string());
    match tokio::time::timeout(PATIENCE, both).await {
        Ok(reserved) => reserved.map_err(exhausted),
        Err(_) => Err(Status::resource_exhausted(format!(
            "the hub had no memory for a message of this agent for {PATIENCE:?}"
        ))),
    }
}

impl Metered {
    /// The header is there: what comes behind it is let in, or memory for it is waited for.
    fn begin(&mut self) -> Result<(), Status> {
        let [_, length @ ..] = self.header;
        let length = u64::from(u32::from_be_bytes(length));
        let is_first = std::mem::take(&mut self.is_first);
        if is_first && length > FIRST {
            let why = format!("a session's first message has {length} bytes, more than the limit of {FIRST}");
            return Err(Status::resource_exhausted(why));
        }
        self.have = 0;
        self.left = usize::try_from(length).unwrap_or(usize::MAX);
        let mut state = self.receipts.lock();
        if length <= SMALL {
            state.queue.push_back(Receipt::default());
            drop(state);
            self.expect();
            return Ok(());
        }
        state.waits = true;
        // Of a small budget a short message can take more than its cluster has for such, and is to be charged in full.
        let is_short = length <= SHORT && cost(length) <= self.share.short.size();
        let (own, all) = match (is_first, is_short) {
            (true, _) => (&self.share.first, &self.meter.first),
            (false, true) => (&self.share.short, &self.meter.short),
            (false, false) => (&self.share.later, &self.meter.later),
        };
        self.waiting = Some(Box::pin(reserve(own.clone(), all.clone(), cost(length))));
        Ok(())
    }

    /// From now on the rest of the message has its time.
    fn expect(&mut self) {
        self.deadline = (self.left > 0).then(|| Box::pin(sleep(self.meter.whole)));
    }

    /// What of the data belongs to the message that is coming.
    fn part(&mut self) -> Bytes {
        let part = self.data.split_to(self.left.min(self.data.len()));
        self.left -= part.len();
        self.receipts.lock().heard = Instant::now();
        if self.left == 0 {
            self.deadline = None;
        }
        part
    }

    /// Fails once a message has taken too long.
    fn check(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        let is_over = |deadline: &mut Pin<Box<Sleep>>| deadline.as_mut().poll(context).is_ready();
        if !self.deadline.as_mut().is_some_and(is_over) {
            return Ok(());
        }
        let whole = self.meter.whole;
        Err(Status::deadline_exceeded(format!("a message was not complete within {whole:?}")))
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes))));
        loop {
            if let Some(waiting) = &mut this.waiting {
                let reserved = ready!(waiting.as_mut().poll(context));
                this.waiting = None;
                let mut state = this.receipts.lock();
                (state.waits, state.heard) = (false, Instant::now());
                match reserved {
                    Ok(reserved) => state.queue.push_back(Receipt { _reserved: Some(reserved) }),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
                drop(state);
                this.expect();
                return frame(Bytes::copy_from_slice(&this.header));
            }
            if this.data.is_empty() {
                let Poll::Ready(come) = Pin::new(&mut this.body).poll_frame(context) else {
                    return match this.check(context) {
                        Ok(()) => Poll::Pending,
                        Err(late) => Poll::Ready(Some(Err(late))),
                    };
                };
                match come {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => this.data = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    end => return Poll::Ready(end),
                }
            } else if this.left > 0 {
                // Also where bytes come one by one.
                if let Err(late) = this.check(context) {
                    return Poll::Ready(Some(Err(late)));
                }
                return frame(this.part());
            } else {
                let come = (HEADER - this.have).min(this.data.len());
                this.header[this.have..this.have + come].copy_from_slice(&this.data[..come]);
                this.data.advance(come);
                this.have += come;
                if this.have == HEADER {
                    if let Err(refused) = this.begin() {
                        return Poll::Ready(Some(Err(refused)));
                    }
                    if this.waiting.is_none() {
                        return frame(Bytes::copy_from_slice(&this.header));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::{Full, StreamBody};
    use prost::Message as _;
    use roadstead_proto::limits::MAX_OBJECTS;
    use roadstead_proto::v1::{self, AgentMessage, InventoryIntent, ObjectRef, agent_message};

    use super::*;

    const WHOLE: Duration = Duration::from_secs(30);

    /// Messages of these lengths, as they come over the wire.
    fn wire(lengths: &[usize]) -> Bytes {
        let mut bytes = Vec::new();
        for length in lengths {
            bytes.push(0);
            bytes.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
            bytes.extend(std::iter::repeat_n(7, *length));
        }
        bytes.into()
    }

    fn meter() -> Arc<Meter> {
        Meter::new(&MemoryBudget::new(1 << 30), WHOLE)
    }

    #[test]
    fn what_an_agent_has_seen_fits_into_a_small_hubs_memory() {
        let key = v1::DispatchKey {
            epoch: 1 << 20,
            applier_uid: uuid::Uuid::nil().to_string(),
            generation: 1 << 20,
            attempt: 1 << 40,
            digest: String::new(),
        };
        let hello = v1::Hello { seen: vec![key; MAX_SEEN], ..v1::Hello::default() };
        let share = meter().share(ClusterUid::random());
        let cost = cost(hello.encoded_len() as u64);
        assert!(cost <= share.first.size(), "{cost} of {}", share.first.size());
        assert!(hello.encoded_len() as u64 <= FIRST);
    }

    /// The body of a request of `cluster`, which sends `bytes` and then nothing.
    fn request(
        meter: &Arc<Meter>,
        cluster: ClusterUid,
        bytes: &Bytes,
        ends: bool,
    ) -> (Pin<Box<Body>>, Receipts) {
        let body = if ends {
            Body::new(Full::new(bytes.clone()))
        } else {
            let first = Ok::<_, Status>(http_body::Frame::data(bytes.clone()));
            let frames = tokio_stream::StreamExt::chain(tokio_stream::once(first), tokio_stream::pending());
            Body::new(StreamBody::new(frames))
        };
        let request = meter.metered(http::Request::new(body), cluster);
        let receipts = request.extensions().get::<Receipts>().unwrap().clone();
        (Box::pin(request.into_body()), receipts)
    }

    fn cluster(number: u128) -> ClusterUid {
        ClusterUid(uuid::Uuid::from_u128(number))
    }

    async fn frame(body: &mut Pin<Box<Body>>) -> Option<Result<Bytes, Status>> {
        let frame = poll_fn(|context| body.as_mut().poll_frame(context)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    async fn length(body: &mut Pin<Box<Body>>) -> Option<usize> {
        frame(body).await.map(|part| part.unwrap().len())
    }

    #[tokio::test]
    async fn what_comes_is_passed_on_unchanged() {
        let meter = meter();
        let bytes = wire(&[0, 10, 3_000, 1, 0, 5_000]);
        let (mut body, receipts) = request(&meter, cluster(1), &bytes, true);
        let mut come = Vec::new();
        let mut held = Vec::new();
        while let Some(part) = frame(&mut body).await {
            come.extend_from_slice(&part.unwrap());
        }
        assert_eq!(come, bytes);
        held.extend((0..6).map(|_| receipts.next()));
        assert_eq!(held.iter().filter(|receipt| receipt._reserved.is_some()).count(), 2);
        assert!(meter.short.used() >= cost(3_000) + cost(5_000));
        drop(held);
        assert_eq!(meter.short.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn short_messages_do_not_wait_for_long_ones() {
        let meter = meter();
        let mut slow = Vec::new();
        // Together they announce more than there is, and send nothing of it.
        for number in 0..3 {
            let announced = wire(&[10, 8 << 20]).slice(..2 * HEADER + 10);
            let (mut body, receipts) = request(&meter, cluster(number), &announced, false);
            let task =
                tokio::spawn(async move { while frame(&mut body).await.is_some_and(|part| part.is_ok()) {} });
            slow.push((task, receipts));
        }
        sleep(WHOLE / 10).await;
        assert!(meter.later.used() > meter.later.size() / 2, "{}", meter.later.used());
        let longest = usize::try_from(SHORT).unwrap();
        let (mut body, _receipts) = request(&meter, cluster(9), &wire(&[10, longest]), false);
        let begun = Instant::now();
        for want in [HEADER, 10, HEADER, longest] {
            assert_eq!(length(&mut body).await, Some(want));
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        for (task, receipts) in slow {
            task.abort();
            drop(receipts);
        }
    }

    #[tokio::test]
    async fn a_short_message_is_charged_in_full_whatever_the_budget() {
        for total in [64 << 20, 256 << 20, 1 << 30] {
            let meter = Meter::new(&MemoryBudget::new(total), WHOLE);
            let bytes = wire(&[10, usize::try_from(SHORT).unwrap()]);
            let (mut body, _receipts) = request(&meter, cluster(1), &bytes, true);
            while frame(&mut body).await.is_some_and(|part| part.is_ok()) {}
            let charged = meter.short.used() + meter.later.used();
            assert!(charged >= cost(SHORT), "{total}: {charged} of {}", cost(SHORT));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_message_waits_for_memory_before_its_bytes_are_read() {
        let meter = meter();
        let others = meter.later.try_reserve(meter.later.size()).unwrap();
        let (mut body, receipts) = request(&meter, cluster(1), &wire(&[10, 200_000]), false);
        assert_eq!(length(&mut body).await, Some(HEADER));
        assert_eq!(length(&mut body).await, Some(10));
        let waiting = tokio::time::timeout(PATIENCE / 2, frame(&mut body)).await;
        assert!(waiting.is_err(), "a large message was let in without memory");
        // It is not the agent's silence.
        assert!(receipts.lock().waits && receipts.silent_since().elapsed() < Duration::from_secs(1));
        drop(others);
        assert_eq!(length(&mut body).await, Some(HEADER));
        assert_eq!(length(&mut body).await, Some(200_000));
        assert_eq!(meter.later.used(), cost(200_000).div_ceil(1024) * 1024);
        // And where there never is any, it is told so.
        let _others = meter.later.try_reserve(meter.later.size() - meter.later.used()).unwrap();
        let (mut body, _receipts) = request(&meter, cluster(2), &wire(&[10, 200_000]), false);
        assert_eq!(length(&mut body).await, Some(HEADER));
        assert_eq!(length(&mut body).await, Some(10));
        let refused = frame(&mut body).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_cluster_announces_is_bounded_and_given_back() {
        let meter = meter();
        let mut bodies = Vec::new();
        // Three connections with two streams each, of which none sends what it has announced.
        for _ in 0..6 {
            let announced = wire(&[10, 8 << 20]).slice(..2 * HEADER + 10);
            let (mut body, receipts) = request(&meter, cluster(1), &announced, false);
            assert_eq!(length(&mut body).await, Some(HEADER));
            assert_eq!(length(&mut body).await, Some(10));
            let task =
                tokio::spawn(async move { while frame(&mut body).await.is_some_and(|part| part.is_ok()) {} });
            bodies.push((task, receipts));
        }
        sleep(WHOLE / 10).await;
        assert!(meter.later.used() <= meter.later.size() / 4 * 3, "{}", meter.later.used());
        let (mut body, _receipts) = request(&meter, cluster(2), &wire(&[10, 100_000]), false);
        let begun = Instant::now();
        for want in [HEADER, 10, HEADER, 100_000] {
            assert_eq!(length(&mut body).await, Some(want));
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        for (task, receipts) in bodies {
            task.await.unwrap();
            drop(receipts);
        }
        assert!(meter.later.used() < 2 * cost(100_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_was_begun_has_to_come() {
        let meter = meter();
        for (lengths, sent) in [(&[10, 200_000][..], 2 * HEADER + 10 + 50), (&[10, 30], 2 * HEADER + 10 + 5)]
        {
            let (mut body, _receipts) = request(&meter, cluster(1), &wire(lengths).slice(..sent), false);
            let begun = Instant::now();
            let ended = loop {
                match frame(&mut body).await.unwrap() {
                    Ok(_) => {}
                    Err(ended) => break ended,
                }
            };
            assert_eq!(ended.code(), tonic::Code::DeadlineExceeded, "{ended}");
            assert!(begun.elapsed() >= WHOLE && begun.elapsed() < WHOLE * 2);
        }
        // Between messages there is no hurry.
        let (mut body, _receipts) = request(&meter, cluster(1), &wire(&[10]), false);
        assert_eq!(length(&mut body).await, Some(HEADER));
        assert_eq!(length(&mut body).await, Some(10));
        assert!(tokio::time::timeout(WHOLE * 10, frame(&mut body)).await.is_err());
    }

    /// What a decoded message takes: its lists' room, and for each text an allocation.
    fn heap(intent: &InventoryIntent) -> usize {
        let texts = |object: &ObjectRef| {
            let ObjectRef { group, version, kind, namespace, name } = object;
            let texts = [group, version, kind, namespace, name];
            texts
                .iter()
                .filter(|text| text.capacity() > 0)
                .map(|text| text.capacity().max(8) + 16)
                .sum::<usize>()
        };
        intent.objects.capacity() * size_of::<ObjectRef>() + intent.objects.iter().map(texts).sum::<usize>()
    }

    #[test]
    fn many_small_elements_are_charged_for_what_they_become() {
        let object = ObjectRef {
            version: "v".to_owned(),
            kind: "K".to_owned(),
            name: "n".to_owned(),
            ..ObjectRef::default()
        };
        for count in [10, 200, 1_000, 2 * MAX_OBJECTS] {
            let intent = InventoryIntent { key: None, objects: vec![object.clone(); count] };
            let bytes =
                AgentMessage { seq: 2, ack: 1, body: Some(agent_message::Body::InventoryIntent(intent)) }
                    .encode_to_vec();
            let decoded = AgentMessage::decode(&bytes[..]).unwrap();
            let Some(agent_message::Body::InventoryIntent(decoded)) = decoded.body else {
                panic!("another body")
            };
            let (taken, charged) = (heap(&decoded) + bytes.len(), cost(bytes.len() as u64));
            assert!(taken as u64 <= charged, "{count} elements take {taken} bytes, charged are {charged}");
        }
    }

    /// With the hub's default budget: their sessions, messages of the longest kind, and what they tell.
    #[test]
    fn a_thousand_agents_fit_the_default() {
        let budget = MemoryBudget::default();
        let sessions = budget.pool(PoolName::Sessions);
        let held: Vec<_> =
            (0..1_000).map(|_| (sessions.try_reserve(CONNECTION), sessions.try_reserve(SESSION))).collect();
        assert!(held.iter().all(|(connection, session)| connection.is_ok() && session.is_ok()));
        // Some come again before the hub knows that they have gone.
        assert!(sessions.try_reserve(100 * (CONNECTION + SESSION)).is_ok());
        let meter = Meter::new(&budget, WHOLE);
        let share = meter.share(cluster(1));
        assert!(cost(6 << 20) <= share.later.size(), "{} > {}", cost(6 << 20), share.later.size());
        // What is at work on a thousand dispatches says so in its first message; a longer one is charged with the share.
        assert!(cost(128 * 1024) <= share.first.size(), "{}", share.first.size());
        // Each is at work on a few dozen objects.
        assert!(budget.pool(PoolName::Progress).size() / 1_000 >= 10 * 1024);
    }
}
