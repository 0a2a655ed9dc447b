//! A fetch that is under way: the side that has the network. It asks, has the answers read, and asks what the reader wants to know
//! next; what a reader says is held against what can be known without it.

use std::cell::RefCell;
use std::time::Instant;

use roadstead_model::{Digest, Revision};

use super::error::GitError;
use super::greeting::Advertisement;
use super::include::Told;
use super::intake::Intake;
use super::known::Unverified;
use super::modules::FetchedModule;
use super::reader::{self, Answered, Found, Order, Pointed, Reply};
use super::remote::Target;
use super::request::{GitReference, GitRequest};
use super::unread::{Phase, Unread};
use super::url::Location;
use super::wire::{Ask, What, Wire};
use super::{guarded, local, ssh, verify, versions, wire};
use crate::artifact::Artifact;
use crate::attempt::{Answer, Desk, Ended, Engine, MOST_NOTES, Note, Scratch, Stop, on_a_thread};
use crate::reading::Job;
use crate::source::{Facts, Fetched, Outcome};

/// The greeting, the references, the pack.
const MOST_REQUESTS: usize = 3;

/// A fetch of one repository: what is asked for, and how far it is.
pub(super) struct Attempt<'a> {
    pub(super) request: &'a GitRequest,
    pub(super) location: &'a Location,
    engine: &'a dyn Engine,
    pub(super) stop: &'a Stop,
    pub(super) order: Order,
    pub(super) desk: Desk,
    /// What was read last.
    about: String,
    /// The submodules that are there, as the order has them.
    pub(super) modules: Vec<FetchedModule>,
}

/// How far a conversation with a server came.
struct Conversation {
    wire: Wire,
    reply: Reply,
    /// What is to be known of the server if it comes to a good end.
    advertisement: Option<Advertisement>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        request: &'a GitRequest,
        location: &'a Location,
        engine: &'a dyn Engine,
        stop: &'a Stop,
        find_only: bool,
    ) -> Self {
        let unverified = request.verify.as_ref().and_then(|_| request.known_server.unverified());
        let order = Order {
            known: request.known.clone(),
            unverified: unverified.map(|unverified| (unverified.object, unverified.tag)),
            remembered: request.known_server.objects(),
            find_only,
            ..Order::plain(request)
        };
        let desk = Desk::new(request.limits.artifact_bytes, request.room.clone(), stop);
        Self { request, location, engine, stop, order, desk, about: String::new(), modules: Vec::new() }
    }

    pub(super) async fn run(self) -> Result<Outcome, GitError> {
        let intake = Intake::new(self.request);
        match self.location.clone() {
            Location::File(path) => self.on_disk(path, intake).await,
            location => {
                let wire = Self::wire(&location, self.request, self.stop, intake)?;
                self.over_network(wire).await
            }
        }
    }

    /// The way to a server.
    pub(super) fn wire(
        to: &Location,
        request: &GitRequest,
        stop: &Stop,
        intake: Intake,
    ) -> Result<Wire, GitError> {
        match to {
            Location::Http(to) => Ok(Wire::Http(guarded::GuardedWire::new(to, request, stop, intake)?)),
            Location::Ssh(to) => Ok(Wire::Ssh(ssh::SshWire::new(to, request, stop, intake)?)),
            Location::File(_) => {
                let what = "a submodule on this machine";
                Err(GitError::Unsupported { url: request.shown_url(), what })
            }
        }
    }

    /// Over the network: asks until the reader has all that it wants.
    async fn over_network(mut self, wire: Wire) -> Result<Outcome, GitError> {
        let known_server = self.request.known_server.clone();
        let Conversation { wire, mut reply, advertisement } = self.converse(wire).await?;
        let mut intake = wire.into_intake();
        let mut remembered = None;
        let outcome = loop {
            match reply {
                Reply::Modules(wanted) => {
                    intake = self.fetch_modules(wanted, intake).await?;
                    reply = self.read_again().await?;
                }
                // What is included is taken only once it is known to be needed.
                Reply::Include => {
                    self.take_includes(&mut intake).await?;
                    reply = self.read_again().await?;
                }
                Reply::Unread(Unread::Unverified { fault, detail, object, tag }) => {
                    let error =
                        Unread::Unverified { fault, detail, object: object.clone(), tag: tag.clone() };
                    let error = error.of(self.request);
                    if let GitError::Unverified { reason, detail, .. } = &error {
                        let (reason, detail) = (*reason, detail.clone());
                        let since = Instant::now();
                        known_server.keep_unverified(Some(Unverified { object, tag, reason, detail, since }));
                    }
                    break Err(error);
                }
                Reply::StillUnverified => break Err(self.still_unverified()),
                mut reply => {
                    if let Reply::Found { remembered: all, .. } | Reply::Read { remembered: all, .. } =
                        &mut reply
                    {
                        remembered = Some(std::mem::take(all));
                    }
                    break self.done(reply);
                }
            }
        };
        // A server that was understood is known, whatever is thought of what it has.
        if let Some(advertisement) =
            advertisement.filter(|_| matches!(outcome, Ok(_) | Err(GitError::Unverified { .. })))
        {
            known_server.keep(advertisement);
        }
        if let Some(remembered) = remembered.filter(|_| outcome.is_ok()) {
            known_server.keep_objects(remembered);
            known_server.keep_unverified(None);
        }
        outcome
    }

    fn still_unverified(&self) -> GitError {
        match self.request.known_server.unverified().filter(|_| self.order.unverified.is_some()) {
            Some(Unverified { reason, detail, .. }) => {
                GitError::Unverified { url: self.request.shown_url(), reason, detail }
            }
            None => self.internal("the reader reports a commit as not verified that is not known"),
        }
    }

    /// Asks one server, and has the answers read, until there is nothing more to ask of it.
    async fn converse(&mut self, mut wire: Wire) -> Result<Conversation, GitError> {
        let known_server = self.request.known_server.clone();
        let mut known = known_server.take();
        let mut is_known = false;
        let mut ask = Ask::Greeting;
        if let Some(advertisement) = known.take_if(|_| !wire.always_greets()) {
            let (answer, next) = advertisement.into_parts();
            self.take_answer(answer);
            (is_known, ask) = (true, next);
        }
        let mut second = is_known.then(|| ask.clone());
        let most = match &self.request.reference {
            GitReference::SemVer(_) => MOST_REQUESTS + versions::MOST_PACKS,
            _ => MOST_REQUESTS,
        };
        while self.desk.answers.len() < most {
            let about = about(&ask);
            let answer;
            (wire, answer) = self.ask(wire, ask, &about).await?;
            let reply = match answer {
                Ok(answer) => {
                    // What comes of the same words is known.
                    let same = known.take().filter(|known| known.is_still(&answer));
                    self.take_answer(answer);
                    if let Some(known) = same {
                        ask = known.into_next();
                        second = Some(ask.clone());
                        continue;
                    }
                    Ok(self.read(&about).await?)
                }
                Err(error) => Err(error),
            };
            match reply {
                Ok(Reply::Ask(next)) if next.is_sound() && next != Ask::Greeting => {
                    second.get_or_insert_with(|| next.clone());
                    ask = next;
                }
                // The advertisement may be out of date.
                Ok(Reply::Unread(unread)) if is_known && unread.is_of_the_conversation() => {
                    (is_known, second, ask) = (false, None, self.start_over());
                }
                Err(error) if is_known && error.is_an_answer() => {
                    (is_known, second, ask) = (false, None, self.start_over());
                }
                reply => {
                    // A repository that was redirected is asked each time where it is.
                    let first = self.desk.answers.first().filter(|_| !wire.was_redirected());
                    let advertisement =
                        first.zip(second).and_then(|(answer, next)| Advertisement::new(answer, &next));
                    return Ok(Conversation { wire, reply: reply?, advertisement });
                }
            }
        }
        Err(self.internal("the reader asks too many questions"))
    }

    /// Asks the server.
    pub(super) async fn ask(
        &mut self,
        mut wire: Wire,
        ask: Ask,
        about: &str,
    ) -> Result<(Wire, Result<Answer, GitError>), GitError> {
        self.engine.admit(about).await.map_err(|ended| self.ended(ended))?;
        let asked = tokio::task::spawn_blocking(move || {
            let answer = wire.ask(&ask);
            (wire, answer)
        });
        asked.await.map_err(|error| self.internal(&error.to_string()))
    }

    fn take_answer(&mut self, answer: Answer) {
        self.order.headings.push(answer.heading.clone());
        self.desk.answers.push(answer);
    }

    /// Forgets all answers; gives what to ask first.
    fn start_over(&mut self) -> Ask {
        self.order.headings.clear();
        self.desk.answers.clear();
        Ask::Greeting
    }

    async fn read(&mut self, about: &str) -> Result<Reply, GitError> {
        if wire::is_object_id(about) {
            self.stop.enter(Phase::Reading.text());
        }
        about.clone_into(&mut self.about);
        let order = Job::Git(&self.order).encode().map_err(|error| self.internal(&error.to_string()))?;
        let Answered { reply, learned } = self.read_by(about, order).await?;
        self.learn(learned);
        Ok(reply)
    }

    /// Notes what a reader says that the reference points to: it is for messages, and nothing is fetched by it.
    fn learn(&self, pointed: Option<Pointed>) {
        let found = pointed.and_then(|pointed| self.revision(pointed.tag.as_deref(), &pointed.commit));
        found.into_iter().for_each(|found| self.stop.progress().learn(found));
    }

    /// The revision of a commit that a reader names.
    fn revision(&self, tag: Option<&str>, commit: &str) -> Option<Revision> {
        self.request.reference.revision(tag, commit).filter(|_| wire::is_object_id(commit))
    }

    /// Has all answers read, with what came since.
    async fn read_again(&mut self) -> Result<Reply, GitError> {
        // The same as it was about before.
        let about = self.about.clone();
        self.read(&about).await
    }

    pub(super) async fn read_by(&mut self, about: &str, order: Vec<u8>) -> Result<Answered, GitError> {
        let reply = self.engine.run(about, order, &mut self.desk).await;
        let reply = reply.map_err(|ended| self.ended(ended))?;
        serde_json::from_slice(&reply).map_err(|_| self.internal("the reader's reply cannot be parsed"))
    }

    /// Has the artifacts that are to be included lie where the reader can have them.
    async fn take_includes(&mut self, intake: &mut Intake) -> Result<(), GitError> {
        if !self.order.include.is_empty() {
            return Err(self.internal("the reader asks twice for what is included"));
        }
        for include in &self.request.include {
            self.stop.enter("reading what is included");
            let stored = include.artifact.bytes().await.map_err(|why| GitError::NotIncluded {
                url: self.request.shown_url(),
                repository: include.repository.clone(),
                why,
            })?;
            let mut taken = intake.begin_own(stored.bytes.len())?;
            // With what was reserved for them, which is given back before anything else is asked for.
            let write = move || taken.write(&stored.bytes).map(|()| taken);
            let written = tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other).flatten();
            let taken = written.map_err(|error| self.internal(&format!("temporary folder: {error}")))?;
            self.order.include.push(Told::new(include, self.desk.answers.len()));
            self.desk.answers.push(Answer { heading: String::new(), body: taken.into_body() });
        }
        Ok(())
    }

    /// A repository of this machine.
    async fn on_disk(mut self, path: std::path::PathBuf, mut intake: Intake) -> Result<Outcome, GitError> {
        if !self.order.find_only {
            self.take_includes(&mut intake).await?;
        }
        self.stop.enter(Phase::Reading.text());
        let internal = |error: std::io::Error| self.internal(&format!("temporary folder: {error}"));
        let folder = Scratch::new(self.request.scratch.as_deref()).map_err(internal)?;
        let (request, order) = (self.request.clone(), self.order);
        let read = on_a_thread(&mut self.desk, move |line, stop| {
            let local = local::Local::open(&path, &request)?;
            let target = local.find(&order)?;
            if order.find_only {
                let Target { commit, tag, .. } = target;
                let reply = Reply::Found { commit, tag, remembered: Vec::new() };
                return Ok::<_, GitError>((Answered { reply, learned: None }, order));
            }
            let (found, learned) = (Found { target, remembered: Vec::new() }, RefCell::default());
            let reply =
                reader::bring(&[local.objects()], &found, &order, folder.path(), line, (stop, &learned));
            let reply = reply.unwrap_or_else(Reply::Unread);
            Ok((Answered { reply, learned: learned.into_inner() }, order))
        });
        let answered;
        let url = self.request.shown_url();
        (answered, self.order) =
            read.await.map_err(|error| GitError::Internal { url, detail: error.to_string() })??;
        self.learn(answered.learned);
        self.done(answered.reply)
    }

    /// What a reader's last word comes to. It is untrusted: what can be known without it is not taken from it.
    fn done(mut self, reply: Reply) -> Result<Outcome, GitError> {
        match reply {
            Reply::Unread(unread) => Err(unread.of(self.request)),
            Reply::Found { commit, tag, .. } => match self.revision(tag.as_deref(), &commit) {
                Some(found) if self.order.find_only || self.request.known.as_ref() == Some(&found) => {
                    Ok(Outcome::Unchanged(found))
                }
                _ => {
                    Err(self.internal("the reader reports a revision as unchanged that is not the known one"))
                }
            },
            Reply::Read { commit, tag, subject, files, unpacked_bytes, mut notes, verified, .. } => {
                let verified = match &self.request.verify {
                    None => None,
                    Some(_) => match verify::told(&verified, self.request, tag.as_deref(), &commit) {
                        None => return Err(self.internal("the reader returned what it did not verify")),
                        told => told,
                    },
                };
                let revision = self.revision(tag.as_deref(), &commit);
                let (Some(revision), Some(brought)) = (revision, self.desk.take_artifact()) else {
                    return Err(self.internal("the reader returned an incomplete artifact"));
                };
                notes.truncate(MOST_NOTES);
                if self.request.credentials.is_some() && self.request.url.starts_with("http://") {
                    notes.insert(0, Note::CredentialsInTheClear);
                }
                let digest = Digest::of(&brought.bytes);
                let artifact = Artifact { digest, bytes: brought.bytes, files, unpacked_bytes };
                Ok(Outcome::Fetched(Box::new(Fetched {
                    revision,
                    artifact,
                    notes,
                    metadata: std::collections::BTreeMap::new(),
                    verified,
                    facts: Facts::Commit(super::subject(subject.as_bytes())),
                    room: brought.held,
                    turn: None,
                })))
            }
            Reply::Modules(_) if matches!(self.location, Location::File(_)) => {
                let what = "fetching the submodules of a repository on this machine";
                Err(GitError::Unsupported { url: self.request.shown_url(), what })
            }
            Reply::Ask(_) | Reply::Modules(_) | Reply::Include | Reply::StillUnverified => {
                Err(self.internal("the reader asks a question where its result was expected"))
            }
        }
    }

    pub(super) fn internal(&self, detail: &str) -> GitError {
        Unread::Internal { detail: detail.to_owned() }.of(self.request)
    }

    fn ended(&self, Ended { why, transient }: Ended) -> GitError {
        GitError::Ended { url: self.request.shown_url(), why, transient }
    }
}

/// What a question is about, for those who decide whether its answer is read.
pub(super) fn about(ask: &Ask) -> String {
    match ask {
        Ask::Greeting => "greeting",
        Ask::UploadPack { what: What::References, .. } => "references",
        Ask::UploadPack { what: What::Pack(id), .. } => id,
    }
    .to_owned()
}
