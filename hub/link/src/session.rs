//! One session: a loop that reads, hands what it reads to tasks, sends what they answer and what the database holds for
//! the cluster, and notices silence.

mod handler;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prost::Message as _;
use roadstead_budget::Reservation;
use roadstead_hub_core::Hub;
use roadstead_hub_core::clusters::pki::AgentIdentity;
use roadstead_hub_core::clusters::{Begun, Greeting, NOT_CURRENT, Session, SessionStanding};
use roadstead_hub_core::meters::{Direction, SessionEnd};
use roadstead_listener::{Paces, UnderWay};
use roadstead_model::{ApplierUid, Capabilities, ClusterUid, OrderKind, chain};
use roadstead_proto::limits::bounded;
use roadstead_proto::v1::{
    self, AgentMessage, BuildChunk, Heartbeat, Hello, HubMessage, Welcome, agent_message, hub_message,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use crate::builds::{Builds, Part, refusal};
use crate::meter::{Receipt, Receipts};
use crate::numbers::Numbers;
use crate::switchboard::{Place, Switchboard};
use crate::{LinkOptions, convert, status};
use handler::{Answer, Handler};

/// Messages that wait for the transport. Few, since some are parts of builds.
const BUFFERED: usize = 4;
/// Messages of one agent that are handled side by side. More wait in the transport, and so does the agent.
const IN_HAND: usize = 8;
/// Certificates are not signed more often than that in one session.
const RENEWAL: Duration = Duration::from_secs(5);
/// Bytes of a version's name, and of an image's.
const MAX_NAME: usize = 512;
/// An agent that connects and says nothing.
const HELLO: Duration = Duration::from_secs(10);

type Outgoing = mpsc::Sender<Result<HubMessage, Status>>;

/// Starts a session's task and gives the stream of what it sends.
pub(crate) fn start(opening: Opening, stop: CancellationToken) -> ReceiverStream<Result<HubMessage, Status>> {
    let (outgoing, stream) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let heartbeat = opening.options.heartbeat;
        if let Err(refusal) = opening.run(outgoing.clone(), stop).await {
            // Where the agent is gone already, nobody is to be told.
            let _ = timeout(heartbeat, outgoing.send(Err(refusal))).await;
        }
    });
    ReceiverStream::new(stream)
}

/// A stream that an agent has opened.
pub(crate) struct Opening {
    pub(crate) hub: Hub,
    pub(crate) board: Arc<Switchboard>,
    pub(crate) identity: AgentIdentity,
    /// The connection counts as idle once this is dropped.
    pub(crate) _under_way: UnderWay,
    /// What the session itself takes of the hub's memory.
    pub(crate) _reserved: Reservation,
    pub(crate) receipts: Receipts,
    /// Turns at the database, of which all sessions have a few.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) warnings: Arc<Paces<ClusterUid>>,
    pub(crate) incoming: Streaming<AgentMessage>,
    pub(crate) options: LinkOptions,
}

impl Opening {
    async fn run(mut self, outgoing: Outgoing, stop: CancellationToken) -> Result<(), Status> {
        let mut numbers = Numbers::default();
        let hello = self.hello(&mut numbers).await?;
        let greeting = Greeting {
            agent_version: name(&hello.agent_version),
            kube_system_uid: name(&hello.kube_system_uid),
            kubernetes_version: name(&hello.kubernetes_version),
            image: (!hello.image.is_empty()).then(|| name(&hello.image)),
            upgrade: hello.upgrade.as_ref().and_then(convert::upgrade_report),
            clock: (hello.unix_millis != 0)
                .then(|| Timestamp::from_millisecond(hello.unix_millis).ok())
                .flatten(),
            capabilities: Capabilities::named(&hello.capabilities),
            seen: convert::seen(hello.seen).map_err(|error| Status::invalid_argument(error.to_string()))?,
        };
        let turn = self.turns.acquire().await;
        let begun = self.hub.sessions.begin(&self.identity, &greeting).await;
        drop(turn);
        let Begun { session, unknown } = begun.map_err(|error| status(&error))?;
        // It looks at once, for what was planned before it had a place.
        let place = self.board.place(session.id);
        let welcome = hub_message::Body::Welcome(Welcome {
            hub_version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: u64::try_from(session.epoch.0).unwrap_or_default(),
            cluster_name: session.name.clone(),
            session_id: session.id.to_string(),
            heartbeat_millis: u32::try_from(self.options.heartbeat.as_millis()).unwrap_or(u32::MAX),
            unix_millis: self.hub.now().as_millisecond(),
            capabilities: Capabilities::of_this_hub().names(),
        });
        let now = Instant::now();
        let (builds, parts) = Builds::start(self.hub.clone(), session.clone(), self.options.transfer);
        let mut running = Running {
            expires: now + until(self.identity.expires, self.hub.now()),
            renewed: None,
            hub: self.hub,
            identity: self.identity,
            session,
            outgoing,
            receipts: self.receipts,
            turns: self.turns,
            warnings: self.warnings,
            builds,
            numbers,
            silence: self.options.heartbeat * 3,
            heartbeat: self.options.heartbeat,
            heard: now,
            said: now,
            in_hand: JoinSet::new(),
            order: None,
        };
        let open = running.hub.meters().session_begins();
        let ended = match running.welcome(welcome, &unknown).await {
            Ok(()) => running.converse(self.incoming, parts, &place, stop).await,
            Err(end) => end,
        };
        let Running { hub, session, .. } = running;
        drop(open);
        hub.meters().session_ends(ended.class);
        if let Err(error) = hub.sessions.end(session.cluster, session.id, &ended.why).await
            && error.outage().is_none()
        {
            tracing::error!(
                error = chain(&error),
                cluster = session.name,
                "a session's end was not recorded"
            );
        }
        ended.status.map_or(Ok(()), Err)
    }

    async fn hello(&mut self, numbers: &mut Numbers) -> Result<Hello, Status> {
        let first = timeout(HELLO, self.incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello arrived"))??
            .ok_or_else(|| Status::cancelled("the stream ended before its Hello"))?;
        drop(self.receipts.next());
        self.hub.meters().message(Direction::Received, first.encoded_len());
        numbers.receive(first.seq, first.ack).map_err(Status::invalid_argument)?;
        numbers.done(first.seq);
        match first.body {
            Some(agent_message::Body::Hello(hello)) => Ok(hello),
            _ => Err(Status::invalid_argument("the first message is not a Hello")),
        }
    }
}

/// Why a session ended: for the Cluster's condition, and for the agent.
struct Ended {
    why: String,
    class: SessionEnd,
    status: Option<Status>,
}

impl Ended {
    fn because(class: SessionEnd, why: impl Into<String>) -> Self {
        Self { why: why.into(), class, status: None }
    }

    fn gone() -> Self {
        Self::because(SessionEnd::Connection, "the connection is gone")
    }

    fn with(status: Status) -> Self {
        let class = match status.code() {
            Code::Aborted => SessionEnd::Replaced,
            Code::Unauthenticated => SessionEnd::Certificate,
            Code::Unavailable | Code::Internal => SessionEnd::Hub,
            Code::Cancelled => SessionEnd::Connection,
            Code::DeadlineExceeded => SessionEnd::Silence,
            _ => SessionEnd::Refused,
        };
        Self { why: status.message().to_owned(), class, status: Some(status) }
    }
}

struct Running {
    /// When the certificate does.
    expires: Instant,
    /// When a certificate was asked for last.
    renewed: Option<Instant>,
    receipts: Receipts,
    turns: Arc<Semaphore>,
    warnings: Arc<Paces<ClusterUid>>,
    builds: Builds,
    hub: Hub,
    identity: AgentIdentity,
    session: Session,
    outgoing: Outgoing,
    numbers: Numbers,
    heartbeat: Duration,
    silence: Duration,
    heard: Instant,
    said: Instant,
    in_hand: JoinSet<(u64, Answer)>,
    /// What the agent was told to do with itself, and in which message.
    order: Option<(u64, OrderKind)>,
}

impl Running {
    async fn converse(
        &mut self,
        mut incoming: Streaming<AgentMessage>,
        mut parts: mpsc::Receiver<Part>,
        place: &Place,
        stop: CancellationToken,
    ) -> Ended {
        let outgoing = self.outgoing.clone();
        // The part of a build that is to be sent next, once the transport has room: nothing else waits for that.
        let mut part: Option<BuildChunk> = None;
        loop {
            let has_room = self.in_hand.len() < IN_HAND;
            if !has_room {
                // It is not read from, so it cannot be heard.
                self.heard = Instant::now();
            }
            let step = tokio::select! {
                () = stop.cancelled() => Err(Ended::with(Status::unavailable("this hub replica is shutting down"))),
                message = incoming.message(), if has_room => self.receive(message).await,
                Some(handled) = self.in_hand.join_next() => self.handled(handled).await,
                () = place.woken.notified() => self.check().await,
                Some(next) = parts.recv(), if part.is_none() => {
                    next.map(|next| part = Some(next)).map_err(Ended::with)
                }
                room = outgoing.reserve(), if part.is_some() => {
                    let body = part.take().map(hub_message::Body::BuildChunk);
                    room.map(|room| room.send(Ok(self.stamped(body)))).map_err(|_| Ended::gone())
                }
                () = sleep_until(self.said + self.heartbeat) => {
                    self.say(hub_message::Body::Heartbeat(Heartbeat {})).await
                }
                () = sleep_until(self.heard + self.silence) => self.listen(),
                () = sleep_until(self.expires) => {
                    Err(Ended::with(Status::unauthenticated("the agent's certificate has expired")))
                }
            };
            if let Err(ended) = step {
                return ended;
            }
        }
    }

    /// No message came for too long. One that is on its way is waited for.
    fn listen(&mut self) -> Result<(), Ended> {
        self.heard = self.heard.max(self.receipts.silent_since());
        if self.heard.elapsed() < self.silence {
            return Ok(());
        }
        Err(Ended::because(SessionEnd::Silence, format!("nothing was received for {:?}", self.silence)))
    }

    async fn receive(&mut self, message: Result<Option<AgentMessage>, Status>) -> Result<(), Ended> {
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => {
                return Err(Ended::because(
                    SessionEnd::Agent,
                    "the agent ended it (it is shutting down, or another one took its place)",
                ));
            }
            Err(status) => {
                let why = format!("reading failed: {}", status.message());
                return Err(Ended::because(SessionEnd::Connection, why));
            }
        };
        self.heard = Instant::now();
        let receipt = self.receipts.next();
        self.hub.meters().message(Direction::Received, message.encoded_len());
        let AgentMessage { seq, ack, body } = message;
        self.numbers.receive(seq, ack).map_err(|why| Ended::with(Status::invalid_argument(why)))?;
        match body {
            // Nothing takes effect, so nothing is waited for.
            Some(agent_message::Body::Heartbeat(_)) => self.numbers.done(seq),
            Some(agent_message::Body::BuildRequest(request)) => {
                self.numbers.done(seq);
                // What waits is a digest, however long the text was.
                let Ok(digest) = request.digest.parse() else {
                    let refusal = refusal(&request.digest, "not a digest".to_owned());
                    return self.say(hub_message::Body::BuildChunk(refusal)).await;
                };
                if !self.builds.ask(digest) {
                    return Err(Ended::with(Status::resource_exhausted(
                        "too many builds are asked for at once",
                    )));
                }
            }
            body => self.hand(seq, body, receipt),
        }
        Ok(())
    }

    /// Has a message handled, beside others.
    fn hand(&mut self, seq: u64, body: Option<agent_message::Body>, receipt: Receipt) {
        let is_renewal = matches!(body, Some(agent_message::Body::CertificateRequest(_)));
        let too_soon = is_renewal && self.renewed.is_some_and(|before| before.elapsed() < RENEWAL);
        if is_renewal {
            self.renewed = Some(Instant::now());
        }
        let handler = Handler {
            hub: self.hub.clone(),
            session: self.session.clone(),
            identity: self.identity.clone(),
            seq,
            order: self.order.clone(),
            warnings: Arc::clone(&self.warnings),
            too_soon,
        };
        let turns = Arc::clone(&self.turns);
        self.in_hand.spawn(async move {
            // Never closed; sessions take turns in the order in which they come.
            let turn = turns.acquire().await;
            let answer = handler.handle(body).await;
            drop(turn);
            // What the message took is free only now.
            drop(receipt);
            (seq, answer)
        });
    }

    async fn handled(&mut self, handled: Result<(u64, Answer), tokio::task::JoinError>) -> Result<(), Ended> {
        let (seq, answer) = match handled {
            Ok(handled) => handled,
            Err(error) => {
                tracing::error!(%error, cluster = self.session.name, "handling a message was interrupted");
                return Err(Ended::with(Status::internal("a message could not be handled")));
            }
        };
        let bodies = match answer {
            Answer::Cut(status) => return Err(Ended::with(status)),
            Answer::Silence => Vec::new(),
            Answer::Say(bodies) => bodies,
            Answer::Renewed(certificate, expires) => {
                self.expires = Instant::now() + until(expires, self.hub.now());
                vec![hub_message::Body::Certificate(certificate)]
            }
        };
        self.numbers.done(seq);
        for body in bodies {
            self.say(body).await?;
        }
        // An agent keeps what it told until it knows that it arrived; do not let it wait for a heartbeat.
        if self.in_hand.is_empty() && self.numbers.owes_ack() {
            self.say(hub_message::Body::Heartbeat(Heartbeat {})).await?;
        }
        Ok(())
    }

    async fn check(&mut self) -> Result<(), Ended> {
        match self.hub.sessions.standing(&self.session).await {
            Ok(SessionStanding { is_current: true, has_resting, has_order }) => {
                if has_order {
                    self.send_order().await?;
                }
                if has_resting {
                    self.send_resting().await?;
                }
                self.send_dispatches().await
            }
            Ok(_) => Err(Ended::with(Status::aborted(NOT_CURRENT))),
            // The database is away: the session stays, nothing can be recorded. The outage has its own line in the log.
            Err(error) if error.outage().is_some() => Ok(()),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    cluster = self.session.name,
                    "could not check a session"
                );
                Ok(())
            }
        }
    }

    /// Begins the conversation. What the agent has of appliers that the hub does not know is to rest: nobody can say any more what is wanted
    /// of it.
    async fn welcome(&mut self, welcome: hub_message::Body, unknown: &[ApplierUid]) -> Result<(), Ended> {
        self.say(welcome).await?;
        if self.session.corrects() {
            for applier in unknown {
                let rest = v1::Rest { applier_uid: applier.to_string(), health_goes_on: false };
                self.say(hub_message::Body::Rest(rest)).await?;
            }
        }
        Ok(())
    }

    async fn send_order(&mut self) -> Result<(), Ended> {
        let order =
            self.hub.agents.take_order(&self.session).await.map_err(|error| Ended::with(status(&error)))?;
        let Some(order) = order else { return Ok(()) };
        let timeout_millis = u64::try_from(self.hub.agents.pace().timeout.as_millis()).unwrap_or(u64::MAX);
        self.say(match &order.kind {
            OrderKind::Run(image) => {
                let signatures = self.hub.agents.signatures_of(image).into_iter();
                let signatures = signatures
                    .map(|one| v1::ImageSignature { payload: one.payload, signature: one.signature })
                    .collect();
                hub_message::Body::Upgrade(v1::Upgrade { image: image.clone(), timeout_millis, signatures })
            }
            OrderKind::Remove => hub_message::Body::Remove(v1::Remove {}),
        })
        .await?;
        self.order = Some((self.numbers.sent(), order.kind));
        Ok(())
    }

    /// Says which appliers rest. Where this fails, some may count as told and were not: a new session is told of them all.
    async fn send_resting(&mut self) -> Result<(), Ended> {
        let resting = self.hub.delivery.take_resting(&self.session).await;
        for (applier, health_goes_on) in resting.map_err(|error| Ended::with(status(&error)))? {
            let rest = v1::Rest { applier_uid: applier.to_string(), health_goes_on };
            self.say(hub_message::Body::Rest(rest)).await?;
        }
        Ok(())
    }

    async fn send_dispatches(&mut self) -> Result<(), Ended> {
        loop {
            // Where this fails, some may be marked as sent and were not: a new session is sent them all.
            let taken = self.hub.delivery.take_dispatches(&self.session).await;
            let taken = taken.map_err(|error| Ended::with(status(&error)))?;
            for mut dispatch in taken.dispatches {
                let completed = self.hub.delivery.complete_dispatch(&self.session, &mut dispatch).await;
                completed.map_err(|error| Ended::with(status(&error)))?;
                let dispatch = v1::Dispatch::from(dispatch);
                self.say(hub_message::Body::Dispatch(dispatch)).await?;
            }
            if !taken.more {
                return Ok(());
            }
        }
    }

    fn stamped(&mut self, body: Option<hub_message::Body>) -> HubMessage {
        let (seq, ack) = self.numbers.stamp();
        self.said = Instant::now();
        let message = HubMessage { seq, ack, body };
        self.hub.meters().message(Direction::Sent, message.encoded_len());
        message
    }

    async fn say(&mut self, body: hub_message::Body) -> Result<(), Ended> {
        let message = self.stamped(Some(body));
        match timeout(self.silence, self.outgoing.send(Ok(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Ended::gone()),
            Err(_) => {
                let why = format!("the agent received nothing for {:?}", self.silence);
                Err(Ended::because(SessionEnd::Silence, why))
            }
        }
    }
}

/// A version's or an image's name, as far as it is kept.
fn name(text: &str) -> String {
    bounded(&text[..text.floor_char_boundary(MAX_NAME)])
}

/// How long it is until then; nothing where that is past.
fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}
