//! Passes over Alerts: what they are for is sent, in its order, one event at a time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use roadstead_api::{Alert, AlertSpec, KindId, Provider, ProviderType};
use roadstead_budget::PoolName;
use roadstead_hub_store::{Attempted, Delivery, IncidentId, Stored};
use roadstead_model::{ApplierUid, Reason, ResourceUid};
use roadstead_notify::{
    Event, Next, Question, Request, Selector, Takes, Target, Unsendable, after, backoff, begin, heard,
    is_git, makes_statuses, refused, takes, thread,
};
use roadstead_outbound::{SendError, secret_header};

use crate::HubError;
use crate::clock::MOST_APART;
use crate::meters::Delivered;
use crate::notify::bus::Published;
use crate::notify::provider::unsendable;
use crate::notify::rollouts::Grouped;
use crate::notify::way::Way;
use crate::notify::words::{Words, status_id};
use crate::notify::{Fault, LOGGER, Notifier, tell, tell_suspended};
use crate::objects::triggers;

/// How often an Alert is looked at that has nothing to send.
const INTERVAL: Duration = Duration::from_secs(600);
/// Where nothing is to be done.
const LONG: Duration = Duration::from_secs(3600);
/// While something waits that cannot be sent now.
const HELD: Duration = Duration::from_secs(60);
/// Events that are read at once.
const BATCH: i64 = 10;
/// A pass that took so long lets others have its place.
const LONGEST_PASS: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read, of services that say in it whether they took something.
const ANSWER: usize = 64 << 10;
/// Bytes of an answer that says what is there already: a page of comments.
const LISTED: usize = 1 << 20;
/// Answers whose `Retry-After` counts: GitHub bounds its callers by 403.
const WITH_RETRY_AFTER: [StatusCode; 3] =
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN];
/// Questions that telling one event takes at most.
const MOST_QUESTIONS: usize = 60;

/// What came of sending one event.
pub(super) enum Came {
    /// It arrived; with the answer to the last request.
    Sent(Bytes),
    /// It is tried again, at a time that the service named.
    Again { why: String, after: Option<Duration> },
    /// It would not be taken the next time either.
    Failed(String),
}

/// An event that is sent.
pub(super) struct Message<'a> {
    /// Whose it is.
    pub(super) alert: &'a Stored,
    /// What is the same each time that it is sent, and of nothing else that the Alert sends.
    pub(super) id: String,
    /// Whether it may have been sent already.
    pub(super) is_repeat: bool,
    /// The event, as the Alert tells it but for its words.
    pub(super) event: Event,
    /// What is kept of the first message of its incident, where anything is.
    pub(super) thread: Option<String>,
}

/// What a pass comes to: what is wrong, if that is known to be something, and when the next pass is due.
struct Passed {
    failure: Option<String>,
    next: Timestamp,
}

impl Notifier {
    /// Makes a pass over an Alert, and tells when the next one is due.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the Alert, or with what it sends to, becomes its condition.
    pub async fn process_alert(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let Some(seen) = self.store.get_by_uid(uid).await? else { return Ok(now + LONG) };
        if seen.kind != KindId::Alert || seen.deletion_timestamp.is_some() {
            return Ok(now + LONG);
        }
        let spec = seen.decode::<Alert>()?.spec;
        let since = now - self.options.give_up_notifications;
        let given_up = self.store.give_up_deliveries(uid, &spec.provider_ref.name, since, now).await?;
        if given_up > 0 {
            self.meters.delivered(Delivered::GivenUp, given_up.unsigned_abs());
            let alert = format!("{}/{}", seen.namespace, seen.name);
            tracing::error!(target: LOGGER, alert, given_up, "events could not be sent in time, and are given up");
        }
        if spec.suspend {
            return self.record(&seen, None, LONG).await;
        }
        self.close_at_former_providers(&seen, &spec).await?;
        let Grouped { look_at, left_out: uncounted } = self.tell_grouped(&seen, &spec).await?;
        let kept = self.tell_gathered(&seen, &spec).await?;
        let (found, next) = match self.ready(&seen, &spec).await? {
            Ok(Some(way)) => {
                let Passed { failure, next } = self.send_waiting(&seen, &spec, &way).await?;
                let mut sends = format!("its events are sent to Provider '{}'", spec.provider_ref.name);
                if let Some(told) = kept.told {
                    sends = format!("{sends}; {told}");
                }
                if uncounted > 0 {
                    sends = format!(
                        "{sends}; there are too many commits and environments: {uncounted} statuses are left out"
                    );
                }
                let found = match failure {
                    None => Ok(sends),
                    Some(why) => {
                        Err((Reason::NotificationDispatchFailed, format!("an event was not sent: {why}")))
                    }
                };
                (found, next)
            }
            Ok(None) => {
                let held = format!("Provider '{}' is suspended: its events wait", spec.provider_ref.name);
                (Ok(held), now + INTERVAL)
            }
            Err(fault) => (Err(fault), now + HELD),
        };
        let left_out = self.store.left_out(uid).await?;
        let found = match left_out {
            Some(count) => Err((
                Reason::NotificationDispatchFailed,
                format!("more events came than may wait to be sent, and {count} of them were left out"),
            )),
            None => found,
        };
        let next = look_at.into_iter().chain(kept.look_at).fold(next, Timestamp::min);
        let wait = Duration::try_from(next.duration_since(self.clock.now())).unwrap_or_default();
        self.record(&seen, Some(found), wait).await
    }

    /// Tells what an Alert groups: incidents, or the statuses of commits; and ends what it grouped otherwise before.
    async fn tell_grouped(&self, seen: &Stored, spec: &AlertSpec) -> Result<Grouped, HubError> {
        let provider = self.provider_of(seen, spec).await?;
        let counts = provider.as_ref().map(|(_, provider)| makes_statuses(provider.type_));
        let digest = provider.as_ref().and_then(|(_, provider)| provider.digest.as_ref());
        match &spec.group {
            Some(group) if counts == Some(true) => {
                self.end_grouping(seen.uid).await?;
                self.tell_together(seen, spec, None, digest).await?;
                return self.tell_rollouts(seen, spec, group).await;
            }
            // While its Provider is not there, it may be either.
            Some(_) if counts.is_none() => {}
            _ => self.end_rollouts(seen, spec).await?,
        }
        let incidents = match &spec.group {
            Some(group) => self.tell_incidents(seen, spec, group).await?,
            None => {
                self.end_grouping(seen.uid).await?;
                None
            }
        };
        let news = self.tell_together(seen, spec, spec.group.as_ref(), digest).await?;
        Ok(Grouped { look_at: incidents.into_iter().chain(news).min(), left_out: 0 })
    }

    /// How an Alert's Provider is reached; none while that is suspended.
    async fn ready(&self, stored: &Stored, spec: &AlertSpec) -> Result<Result<Option<Way>, Fault>, HubError> {
        if let Err(why) = Selector::new(spec, &stored.namespace) {
            return Ok(Err((Reason::ValidationFailed, why.to_string())));
        }
        let (namespace, name) = (&stored.namespace, &spec.provider_ref.name);
        let Some(provider) = self.store.get(KindId::Provider, namespace, name).await? else {
            let why = format!("Provider '{namespace}/{name}' not found");
            return Ok(Err((Reason::NotFound, why)));
        };
        let of_provider = provider.decode::<Provider>()?.spec;
        if spec.group.is_some() && is_git(of_provider.type_) && !makes_statuses(of_provider.type_) {
            let why = format!(
                "spec.group: Provider '{namespace}/{name}' writes comments or starts workflows, and is told of each object by itself; \
                 remove spec.group, or name another Provider"
            );
            return Ok(Err((Reason::ValidationFailed, why)));
        }
        if of_provider.suspend {
            return Ok(Ok(None));
        }
        let words = match Words::of(spec) {
            Ok(words) => words,
            Err(fault) => return Ok(Err(fault)),
        };
        let about = |(reason, why): Fault| (reason, format!("Provider '{namespace}/{name}': {why}"));
        let way = self.way(&provider, &of_provider).await?.map_err(about);
        Ok(way.map(|mut way| {
            way.words = words;
            Some(way)
        }))
    }

    /// Sends what waits, until something cannot be sent: what came later waits behind it, so that nobody hears of an end before the
    /// beginning.
    async fn send_waiting(&self, alert: &Stored, spec: &AlertSpec, way: &Way) -> Result<Passed, HubError> {
        let began = Instant::now();
        let mut failure = None;
        loop {
            let waiting = self.store.waiting_deliveries(alert.uid, BATCH).await?;
            let now = self.clock.now();
            if waiting.is_empty() {
                let next = now + roadstead_hub_plan::jittered(INTERVAL, ApplierUid::from(alert.uid));
                return Ok(Passed { failure, next });
            }
            for delivery in waiting {
                let now = self.clock.now();
                // A clock that was put back holds nothing up.
                let was_put_back = delivery.tried_at.is_some_and(|tried_at| tried_at > now + MOST_APART);
                if delivery.due_at > now && !was_put_back {
                    let failure = Some(delivery.error).filter(|error| !error.is_empty()).or(failure);
                    return Ok(Passed { failure, next: delivery.due_at });
                }
                if began.elapsed() > LONGEST_PASS {
                    return Ok(Passed { failure, next: self.clock.now() });
                }
                let attempted = self.attempt(alert, spec, way, &delivery).await?;
                match attempted {
                    Attempted::Sent => failure = None,
                    Attempted::Failed { why } => failure = Some(why),
                    Attempted::Again { why, at } => return Ok(Passed { failure: Some(why), next: at }),
                }
            }
        }
    }

    async fn attempt(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        way: &Way,
        delivery: &Delivery,
    ) -> Result<Attempted, HubError> {
        let event = serde_json::from_value::<Event>(delivery.event.clone()).ok();
        if let Some(event) = &event
            && !self.is_news(alert, way, delivery, event).await?
        {
            self.store.drop_delivery(delivery.id).await?;
            return Ok(Attempted::Sent);
        }
        let to = (spec.provider_ref.name.as_str(), way.provider.uid);
        if !self.store.begin_attempt(delivery.id, to, self.clock.now()).await? {
            // What it was to tell is told by something else, or nobody is left who would tell it.
            return Ok(Attempted::Sent);
        }
        let came = match event {
            Some(event) => self.send_traced(alert, way, delivery, event).await?,
            None => Came::Failed("this version cannot read the event".to_owned()),
        };
        let now = self.clock.now();
        let attempted = match came {
            Came::Sent(_) => Attempted::Sent,
            Came::Failed(why) => Attempted::Failed { why },
            Came::Again { why, after } => {
                let attempts = u32::try_from(delivery.attempts).unwrap_or_default() + 1;
                let wait = after.unwrap_or_else(|| backoff(attempts, delivery.id.unsigned_abs()));
                Attempted::Again { why, at: now + wait }
            }
        };
        self.store.end_attempt(delivery.id, &attempted, now).await?;
        let result = match &attempted {
            Attempted::Sent => Delivered::Sent,
            Attempted::Again { .. } => Delivered::Again,
            Attempted::Failed { .. } => Delivered::Failed,
        };
        self.meters.delivered(result, 1);
        Ok(attempted)
    }

    /// Whether a Provider of this type is told of an event at all.
    async fn is_news(
        &self,
        alert: &Stored,
        way: &Way,
        delivery: &Delivery,
        event: &Event,
    ) -> Result<bool, HubError> {
        match takes(way.type_, event) {
            Takes::Always => Ok(true),
            Takes::Never => Ok(false),
            Takes::Recovery => Ok(self.store.told_of_failure(alert.uid, &delivery.event).await?),
        }
    }

    /// Sends an event as part of what it comes of, which is not the pass at hand.
    async fn send_traced(
        &self,
        alert: &Stored,
        way: &Way,
        delivery: &Delivery,
        event: Event,
    ) -> Result<Came, HubError> {
        let Some(trace) = delivery.trace else { return self.send(alert, way, delivery, event).await };
        let sending = async {
            roadstead_trace::keep();
            roadstead_trace::describe("namespace", alert.namespace.as_str());
            roadstead_trace::describe("name", alert.name.as_str());
            let came = self.send(alert, way, delivery, event).await;
            let result = match &came {
                Ok(Came::Sent(_)) => "sent",
                Ok(Came::Again { .. }) => "again",
                Ok(Came::Failed(_)) | Err(_) => "failed",
            };
            roadstead_trace::describe("result", result);
            came
        };
        roadstead_trace::pass("notification", Some(trace), sending).await.0
    }

    async fn send(
        &self,
        alert: &Stored,
        way: &Way,
        delivery: &Delivery,
        event: Event,
    ) -> Result<Came, HubError> {
        let incident = event.incident.as_ref().and_then(|incident| incident.id.parse::<IncidentId>().ok());
        let thread = match incident {
            Some(incident) => self.store.incident_thread(incident).await?,
            None => None,
        };
        let id = delivery.id.to_string();
        let message = Message { alert, id, is_repeat: delivery.is_repeat, event, thread };
        let (came, begun) = self.send_message(way, message).await?;
        if let (Some(incident), Some(begun)) = (incident, begun) {
            self.store.keep_incident_thread(incident, &begun).await?;
        }
        Ok(came)
    }

    /// Sends a message; with what is to be kept of it for those that follow, where it arrived and nothing was.
    pub(super) async fn send_message(
        &self,
        way: &Way,
        message: Message<'_>,
    ) -> Result<(Came, Option<String>), HubError> {
        let Message { alert, id, is_repeat, event, thread: kept } = message;
        // It was for whoever decides that it is sent.
        let event = Event { statuses_and_comments: false, ..event };
        let mut target = way.target.clone();
        target.now = self.clock.now();
        target.is_repeat = is_repeat;
        target.delivery = format!("{}-{id}", alert.uid);
        target.alert_uid = alert.uid.to_string();
        target.alert = format!("{}/{}", alert.namespace, alert.name);
        // Words are for what happens to an object.
        let event = if event.is_summary() { event } else { way.words.tell(event).await };
        if let Some(expression) = &way.status_id {
            match status_id(expression, alert, &way.provider, &event).await {
                Ok(id) => target.status_id = Some(id),
                Err(why) => return Ok((Came::Failed(why), None)),
            }
        }
        // A thread is one of its channel.
        let place = format!("{} {} ", target.uid, target.channel);
        target.thread = kept.and_then(|kept| kept.strip_prefix(&place).map(str::to_owned));
        let slow = || Came::Again { why: format!("it did not answer within {:?}", way.timeout), after: None };
        let told = tokio::time::timeout(way.timeout, self.tell(way, &target, &event)).await;
        let came = told.unwrap_or_else(|_| Ok(slow()))?;
        let begun = match (&came, &target.thread) {
            (Came::Sent(answer), None) => thread(way.type_, &target, answer),
            _ => None,
        };
        Ok((came, begun.map(|begun| format!("{place}{begun}"))))
    }

    /// Asks what has to be known first, and sends what follows from it.
    async fn tell(&self, way: &Way, target: &Target, event: &Event) -> Result<Came, HubError> {
        let logged_in = match self.log_in(way, target, event).await? {
            Ok(logged_in) => logged_in,
            Err((why, after)) => return Ok(Came::Again { why, after }),
        };
        let target = logged_in.as_ref().unwrap_or(target);
        let mut next = begin(way.type_, target, event);
        for _ in 0..MOST_QUESTIONS {
            let (requests, question) = match next {
                Ok(Next::Tell(requests)) => (requests, None),
                Ok(Next::Ask(request, question)) => (vec![request], Some(question)),
                Ok(Next::Publish(publication)) => {
                    return Ok(match self.publish(way, &publication).await? {
                        Published::Taken => Came::Sent(Bytes::new()),
                        Published::Again(why) => Came::Again { why, after: None },
                        Published::Never(why) => Came::Failed(why),
                    });
                }
                // The next one may be told.
                Err(why @ Unsendable::Event(_)) => return Ok(Came::Failed(why.to_string())),
                Err(why) => return Ok(Came::Again { why: unsendable(&why).1, after: None }),
            };
            if let Err((_, why)) = self.may_send_all(way, &requests).await? {
                return Ok(Came::Again { why, after: None });
            }
            // Answers, and what is read of them, until it is known what follows.
            let room =
                question.map(|_| self.options.budget.pool(PoolName::Decoded).try_reserve(2 * LISTED as u64));
            let Ok(_room) = room.transpose() else {
                return Ok(Came::Again { why: "the hub is short of memory".to_owned(), after: None });
            };
            let mut answer = Bytes::new();
            for request in requests {
                match self.exchange(way, request, question).await {
                    Ok(answered) => answer = answered,
                    Err(came) => return Ok(came),
                }
            }
            let Some(question) = question else { return Ok(Came::Sent(answer)) };
            next = heard(way.type_, target, event, question, &answer);
        }
        Ok(Came::Failed("more had to be asked than is asked for one event".to_owned()))
    }

    /// Sends one request, and gives what was answered. Nothing that the other side says is told on but its status: it may repeat what it was
    /// sent.
    async fn exchange(&self, way: &Way, request: Request, question: Option<Question>) -> Result<Bytes, Came> {
        let again = |why: &str| Came::Again { why: why.to_owned(), after: None };
        // Exposed to be sent.
        let mut building = http::Request::builder().method(request.method.as_str()).uri(request.url.expose());
        for (name, value) in &request.headers {
            let Ok(value) = secret_header(value.expose()) else {
                return Err(again("a header would have characters that no header has"));
            };
            building = building.header(name, value);
        }
        let Ok(request) = building.body(Full::new(Bytes::from(request.body))) else {
            return Err(again("the address is not a valid URL"));
        };
        let answer = match way.client.send(request).await {
            Ok(answer) => answer,
            Err(SendError { refusal: Some(refusal), .. }) => return Err(again(&refusal.to_string())),
            Err(_) => return Err(again("the connection failed")),
        };
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && question.is_some_and(|asked| asked.may_be_absent(way.type_)) {
            return Ok(Bytes::new());
        }
        if status == StatusCode::UNAUTHORIZED {
            self.forget_login(way);
        }
        if !status.is_success() {
            let asked = answer.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let asks = WITH_RETRY_AFTER.contains(&status);
            let asked = asked.filter(|_| asks).and_then(|asked| after(asked, self.clock.now()));
            return Err(not_taken(way.type_, status, asked));
        }
        let most = if question.is_some() { LISTED } else { ANSWER };
        let body = Limited::new(answer.into_body(), most).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if question.is_some() {
            return body.map_err(|_| again("its answer is incomplete, or longer than 1 MiB"));
        }
        // Of most types nothing in it counts, so it may be cut off, or be as long as it likes.
        let body = body.unwrap_or_default();
        match refused(way.type_, &way.target, &body) {
            None => Ok(body),
            Some(why) => {
                Err(again(&format!("it answered HTTP {}, but did not take it: {why}", status.as_u16())))
            }
        }
    }

    async fn record(
        &self,
        seen: &Stored,
        found: Option<Result<String, Fault>>,
        wait: Duration,
    ) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = Self::again(&mut tx, seen).await? else { return Ok(now) };
        // An older replica may have written the Alert, which knew nothing of this.
        triggers::listen(&mut tx, &stored).await?;
        match &found {
            None => tell_suspended::<Alert>(&mut tx, &mut stored, now).await?,
            Some(found) => {
                let found = self.with_rights(&stored, found.clone()).await?;
                if tell::<Alert>(&mut tx, &mut stored, &found, now).await?
                    && let Err((_, error)) = &found
                {
                    let alert = format!("{}/{}", seen.namespace, seen.name);
                    tracing::error!(target: LOGGER, alert, error, "an Alert's events cannot be sent");
                }
            }
        }
        tx.commit().await?;
        Ok(now + wait)
    }

    /// What is wrong with the sources of an Alert that otherwise is well: those of other namespaces that it has no leave for.
    async fn with_rights(
        &self,
        stored: &Stored,
        found: Result<String, Fault>,
    ) -> Result<Result<String, Fault>, HubError> {
        if found.is_err() {
            return Ok(found);
        }
        for (index, source) in stored.decode::<Alert>()?.spec.event_sources.iter().enumerate() {
            if let Some(cluster) = &source.cluster {
                // Of those that it does not name, it is told of those that it may be.
                if cluster != "*"
                    && let Err(why) = self.access.may_hear_of_cluster(stored, cluster).await?
                {
                    let why = format!("spec.eventSources[{index}]: the Alert {why}");
                    return Ok(Err((Reason::AccessDenied, why)));
                }
                continue;
            }
            let namespace = source.namespace.as_deref().unwrap_or(&stored.namespace);
            if let Err(why) = self.access.may_use_in(stored, namespace).await? {
                let why = format!(
                    "spec.eventSources[{index}]: namespace '{namespace}' {why}; its events are not sent"
                );
                return Ok(Err((Reason::AccessDenied, why)));
            }
        }
        Ok(found)
    }
}

/// What becomes of an event that was answered with this status.
fn not_taken(type_: ProviderType, status: StatusCode, asked: Option<Duration>) -> Came {
    let code = status.as_u16();
    let why = if status.is_redirection() {
        format!("it answered HTTP {code}, a redirect: set the address that it redirects to")
    } else if code == 404 && is_git(type_) {
        "it answered HTTP 404: the repository, or the commit or request in it, does not exist, or the token may not see it"
            .to_owned()
    } else {
        format!("it answered HTTP {code}")
    };
    match code {
        // About this very event: the next one may be taken.
        400 | 413 | 414 | 415 | 422 | 431 => Came::Failed(why),
        404 if is_git(type_) => Came::Failed(why),
        _ => Came::Again { why, after: asked },
    }
}
