//! The wire over SSH, in this process: one connection by the guarded way out, on which `git-upload-pack` is run. What it
//! prints is kept as it is, in the form that its answers have over HTTP, so that whoever reads them needs to know of one.
//!
//! The host shows itself first: nothing is said to a host that `known_hosts` does not have, and the kinds of keys that are
//! there for it are all that it is asked for.

mod frames;
mod handler;
mod identity;
pub mod known_hosts;
mod session;

use roadstead_outbound::Secret;

use super::error::GitError;
use super::intake::Intake;
use super::own_runtime::OwnRuntime;
use super::request::GitRequest;
use super::unread::Phase;
use super::url::SshUrl;
use super::wire::{Ask, What};
use crate::attempt::{Answer, AttemptError, Stop};
use frames::Frames;
use session::{Heard, Session};

/// How to log in over SSH, and whom to believe: `identity`, `password` and `known_hosts` of the Secret.
#[derive(Debug, Clone)]
pub struct SshCredentials {
    /// The private key, in PEM or OpenSSH's format.
    pub identity: Secret,
    /// Its passphrase, where it has one.
    pub passphrase: Option<Secret>,
    /// The keys of hosts, as OpenSSH writes them.
    pub known_hosts: String,
}

/// Git's answers over HTTP begin so, before what the server says of itself.
const ANNOUNCED: &[u8] = b"001e# service=git-upload-pack\n0000";
const ADVERTISEMENT: &str = "application/x-git-upload-pack-advertisement";
const RESULT: &str = "application/x-git-upload-pack-result";

/// A wire to one repository, for one attempt.
pub(super) struct SshWire {
    // Before the session, whose task it runs.
    own: OwnRuntime,
    session: Option<Session>,
    to: SshUrl,
    login: SshCredentials,
    request: Conversation,
    stop: Stop,
    intake: Intake,
}

/// What is needed of a request to open a connection.
pub(super) struct Conversation {
    pub(super) shown_url: String,
    pub(super) guard: roadstead_outbound::Guard,
    /// Bytes that the server may send in all, with what SSH adds.
    pub(super) most_bytes: u64,
}

impl SshWire {
    pub(super) fn new(
        to: &SshUrl,
        request: &GitRequest,
        stop: &Stop,
        intake: Intake,
    ) -> Result<Self, GitError> {
        let shown_url = request.shown_url();
        let Some(super::Credentials::Ssh(login)) = &request.credentials else {
            let why = "invalid 'ssh' auth option: 'identity' is required; over SSH it takes a Secret with `identity` and `known_hosts` in `spec.secretRef` \
                       (`flux create secret git` makes one)";
            return Err(GitError::LoginUnusable { url: shown_url, why: why.to_owned() });
        };
        let limits = &request.limits;
        // Packets have lengths, padding and a MAC; and there are those before and around the answers.
        let most_bytes = (limits.transfer_bytes + limits.advertisement_bytes) / 8 * 9 + (4 << 20);
        Ok(Self {
            own: OwnRuntime::new(&shown_url, stop)?,
            session: None,
            to: to.clone(),
            login: login.clone(),
            request: Conversation { shown_url, guard: request.guard.clone(), most_bytes },
            stop: stop.clone(),
            intake,
        })
    }

    pub(super) fn into_intake(self) -> Intake {
        self.intake
    }

    /// Asks, and keeps what is answered.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, GitError> {
        let (phase, is_pack) = match ask {
            Ask::Greeting => (Phase::Connecting, false),
            Ask::UploadPack { what: What::References, .. } => (Phase::Listing, false),
            Ask::UploadPack { what: What::Pack(_), .. } => (Phase::Receiving, true),
        };
        self.stop.enter(phase.text());
        match ask {
            // It is there before it is asked for.
            Ask::Greeting => {
                let opened = Session::open(&self.request, &self.to, &self.login, &self.stop);
                self.session = Some(self.own.wait(opened)??);
                let answer = self.answer(is_pack, true, ANNOUNCED)?;
                Ok(Answer { heading: ADVERTISEMENT.to_owned(), body: answer })
            }
            Ask::UploadPack { version, body, .. } => {
                let session = self.session()?;
                let sent = session.send(body);
                let sent = self.own.wait(sent)?;
                sent.map_err(|detail| self.broken(&detail))?;
                // The older versions know one answer with a pack, and the server ends with it.
                let in_lines = !is_pack || *version == Some(2);
                let answer = self.answer(is_pack, in_lines, b"")?;
                Ok(Answer { heading: RESULT.to_owned(), body: answer })
            }
        }
    }

    /// Takes one answer: up to the line that ends it, or all that comes.
    fn answer(
        &mut self,
        is_pack: bool,
        in_lines: bool,
        before: &[u8],
    ) -> Result<crate::attempt::Body, GitError> {
        let mut taken = self.intake.begin(is_pack)?;
        self.intake.take(&mut taken, before)?;
        let mut frames = Frames::default();
        let mut is_empty = true;
        loop {
            let Some(session) = &mut self.session else { return Err(self.broken("the connection is gone")) };
            let bytes = match self.own.wait(session.hear())?.map_err(|detail| self.broken(&detail))? {
                Heard::Bytes(bytes) => bytes,
                Heard::End if is_empty => return Err(self.not_served()),
                // What it says when it refuses has no line at its end.
                Heard::End if !in_lines || frames.is_between_lines() => return Ok(taken.into_body()),
                Heard::End => return Err(self.broken("it closed the connection in the middle of an answer")),
            };
            is_empty = false;
            let end = if in_lines { frames.take(&bytes) } else { Ok(None) };
            let corrupt = |detail: &str| GitError::Corrupt {
                url: self.request.shown_url.clone(),
                phase: self.stop.phase(),
                detail: detail.to_owned(),
            };
            let end = end.map_err(|_| corrupt("what it sent is not Git's protocol"))?;
            let count = end.unwrap_or(bytes.len());
            self.intake.take(&mut taken, &bytes[..count])?;
            match end {
                Some(end) if end < bytes.len() => return Err(corrupt("it sent more than was asked for")),
                Some(_) => return Ok(taken.into_body()),
                None => {}
            }
        }
    }

    fn session(&self) -> Result<&Session, GitError> {
        self.session.as_ref().ok_or_else(|| self.broken("the connection is gone"))
    }

    /// `git-upload-pack` did not run, or had nothing to say but an error.
    fn not_served(&self) -> GitError {
        let said = self.session.as_ref().map(Session::said).unwrap_or_default();
        GitError::NotServed { url: self.request.shown_url.clone(), detail: super::error::detail(&said) }
    }

    fn broken(&self, detail: &str) -> GitError {
        GitError::Attempt(AttemptError::Unreachable {
            url: self.request.shown_url.clone(),
            phase: self.stop.phase(),
            detail: detail.to_owned(),
        })
    }
}
