//! One connection: opened, logged in at, and with `git-upload-pack` at its other end.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use roadstead_outbound::{ConnectError, Detail, Veil, Wire};
use russh::client::{AuthResult, Handle, Msg, connect_stream};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKeyWithHashAlg};
use russh::{AlgorithmKind, Channel, ChannelMsg};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::handler::{Judge, Verdict};
use super::known_hosts::{Distrust, KnownHosts, Trust, fingerprint};
use super::{Conversation, SshCredentials, identity};
use crate::attempt::{AttemptError, Stop, TrustedBy, chain};
use crate::git::error::GitError;
use crate::git::unread::Phase;
use crate::git::url::SshUrl;

/// Bytes that a server may send before they are taken. A channel of ours holds no more in memory.
const WINDOW: u32 = 1 << 20;
/// Bytes that are kept of what a server prints as errors.
const MOST_SAID: usize = 2 << 10;

/// An open connection on which `git-upload-pack` runs.
pub(super) struct Session {
    channel: Channel<Msg>,
    _handle: Handle<Judge>,
    said: Vec<u8>,
    exit: Option<u32>,
}

/// What came on it.
pub(super) enum Heard {
    /// Bytes of an answer.
    Bytes(Bytes),
    /// Nothing more will come.
    End,
}

impl Session {
    pub(super) async fn open(
        with: &Conversation,
        to: &SshUrl,
        login: &SshCredentials,
        stop: &Stop,
    ) -> Result<Self, GitError> {
        let url = || with.shown_url.clone();
        let unusable = |why: String| GitError::LoginUnusable { url: url(), why };
        let known = KnownHosts::parse(&login.known_hosts)
            .map_err(|error| unusable(format!("`known_hosts` of the Secret in `spec.secretRef`: {error}")))?;
        let trust = known.trust(&to.host_in_file(), to.authority.port);
        trust.is_known().map_err(|distrust| distrusted(with, to, &distrust))?;
        let key = identity::read(&login.identity, login.passphrase.as_ref());
        let key = Arc::new(key.map_err(|error| unusable(error.to_string()))?);

        let veil = Veil::default();
        stop.hide_behind(veil.clone());
        let stream = connect(with, to, &veil).await?;
        let mut handle = shake_hands(with, to, trust, stream, &veil).await?;
        // It is the one that was meant: what it says may be told.
        veil.set(false);
        stop.enter(Phase::LoggingIn.text());
        log_in(&mut handle, with, to, &key).await?;
        stop.enter(Phase::Connecting.text());
        let broken = |error: russh::Error| broken(with, Phase::Connecting, &error);
        let channel = handle.channel_open_session().await.map_err(broken)?;
        // A server that does not take it speaks an older version of the protocol.
        channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(broken)?;
        channel.exec(false, to.command()).await.map_err(broken)?;
        Ok(Self { channel, _handle: handle, said: Vec::new(), exit: None })
    }

    pub(super) async fn send(&self, body: &[u8]) -> Result<(), String> {
        self.channel.data_bytes(body.to_vec()).await.map_err(|error| chain(&error))
    }

    /// What comes next.
    pub(super) async fn hear(&mut self) -> Result<Heard, String> {
        loop {
            match self.channel.wait().await {
                Some(ChannelMsg::Data { data }) if !data.is_empty() => return Ok(Heard::Bytes(data)),
                Some(ChannelMsg::ExtendedData { data, ext: 1 }) => {
                    let room = MOST_SAID.saturating_sub(self.said.len());
                    self.said.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => self.exit = Some(exit_status),
                // What it printed as errors comes after the end of its output, and so does how it ended.
                Some(ChannelMsg::Close) | None => return Ok(Heard::End),
                Some(_) => {}
            }
        }
    }

    /// What the server printed as errors, and how it ended.
    pub(super) fn said(&self) -> String {
        let said = String::from_utf8_lossy(&self.said);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        match self.exit {
            Some(status) if said.is_empty() => format!("it ended with status {status}"),
            _ if said.is_empty() => "it said nothing".to_owned(),
            _ => said,
        }
    }
}

async fn connect(with: &Conversation, to: &SshUrl, veil: &Veil) -> Result<Metered, GitError> {
    let tell = |detail| veil.set(detail == Detail::Coarse);
    match with.guard.connect_telling(&to.authority, tell).await {
        Ok(connection) => Ok(Metered { stream: connection.stream, left: with.most_bytes }),
        Err(ConnectError::Refused(refusal)) => Err(GitError::Attempt(AttemptError::AddressRefused {
            url: with.shown_url.clone(),
            refusal: Box::new(refusal),
        })),
        Err(error) if error.detail() == Detail::Coarse => {
            Err(AttemptError::not_reached(with.shown_url.clone(), TrustedBy::KnownHosts, &chain(&error))
                .into())
        }
        Err(error) => Err(GitError::Attempt(AttemptError::Unreachable {
            url: with.shown_url.clone(),
            phase: Phase::Connecting.text(),
            detail: chain(&error),
        })),
    }
}

/// Agrees on keys with the server, and judges its own.
async fn shake_hands(
    with: &Conversation,
    to: &SshUrl,
    trust: Trust,
    stream: Metered,
    veil: &Veil,
) -> Result<Handle<Judge>, GitError> {
    let config = Arc::new(config(&trust));
    let verdict = Verdict::default();
    let error = match connect_stream(config, stream, Judge::new(trust, &verdict)).await {
        Ok(handle) => return Ok(handle),
        Err(error) => error,
    };
    if veil.is_drawn() {
        let why = verdict.take().map_or_else(|| chain(&error), |distrust| distrust.to_string());
        return Err(AttemptError::not_reached(with.shown_url.clone(), TrustedBy::KnownHosts, &why).into());
    }
    if let Some(distrust) = verdict.take() {
        return Err(distrusted(with, to, &distrust));
    }
    match error {
        russh::Error::NoCommonAlgo { kind: AlgorithmKind::Key, ours, .. } => {
            let why = format!(
                "knownhosts: key mismatch: known_hosts has keys of other kinds for it than the server ({})",
                ours.join(", ")
            );
            Err(untrusted(with, to, why))
        }
        russh::Error::NoCommonAlgo { kind, .. } => Err(GitError::Attempt(AttemptError::Unreachable {
            url: with.shown_url.clone(),
            phase: Phase::Connecting.text(),
            detail: format!("the server supports no {kind:?} algorithm of SSH that is considered safe"),
        })),
        error => Err(broken(with, Phase::Connecting, &error)),
    }
}

async fn log_in(
    handle: &mut Handle<Judge>,
    with: &Conversation,
    to: &SshUrl,
    key: &Arc<russh::keys::PrivateKey>,
) -> Result<(), GitError> {
    let broken = |error: russh::Error| broken(with, Phase::LoggingIn, &error);
    let hash = match key.algorithm() {
        // SHA-1 is not used, whether or not the server knows better.
        Algorithm::Rsa { .. } => {
            let best = handle.best_supported_rsa_hash().await.map_err(broken)?;
            Some(best.flatten().unwrap_or(HashAlg::Sha256))
        }
        _ => None,
    };
    let login = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
    match handle.authenticate_publickey(to.user.clone(), login).await.map_err(broken)? {
        AuthResult::Success => Ok(()),
        AuthResult::Failure { partial_success, .. } => Err(GitError::KeyNotAccepted {
            url: with.shown_url.clone(),
            user: to.user.clone(),
            key: fingerprint(key.public_key()),
            partial: partial_success,
        }),
    }
}

fn config(trust: &Trust) -> russh::client::Config {
    let mut kinds: Vec<Algorithm> = Vec::new();
    for key in trust.keys() {
        match key.algorithm() {
            Algorithm::Rsa { .. } => kinds.extend(RSA),
            other => kinds.push(other),
        }
    }
    // The safest first, each once.
    let offered: Vec<Algorithm> = all_kinds().into_iter().filter(|kind| kinds.contains(kind)).collect();
    let certified = if trust.has_authorities() { all_kinds() } else { Vec::new() };
    let preferred = russh::Preferred {
        key: Cow::Owned(offered),
        host_key_certificates: Cow::Owned(certified),
        ..russh::Preferred::DEFAULT
    };
    russh::client::Config {
        client_id: russh::SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-Roadstead_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        preferred,
        ..russh::client::Config::default()
    }
}

const RSA: [Algorithm; 2] =
    [Algorithm::Rsa { hash: Some(HashAlg::Sha512) }, Algorithm::Rsa { hash: Some(HashAlg::Sha256) }];

fn all_kinds() -> Vec<Algorithm> {
    let curves = [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521];
    let curves = curves.map(|curve| Algorithm::Ecdsa { curve });
    [Algorithm::Ed25519].into_iter().chain(curves).chain(RSA).collect()
}

fn distrusted(with: &Conversation, to: &SshUrl, distrust: &Distrust) -> GitError {
    untrusted(with, to, distrust.to_string())
}

fn untrusted(with: &Conversation, to: &SshUrl, why: String) -> GitError {
    GitError::HostUntrusted { url: with.shown_url.clone(), why, scan: to.scan() }
}

fn broken(with: &Conversation, phase: Phase, error: &russh::Error) -> GitError {
    GitError::Attempt(AttemptError::Unreachable {
        url: with.shown_url.clone(),
        phase: phase.text(),
        detail: chain(error),
    })
}

/// A stream of which no more than so many bytes are taken: a server that sends without end is cut, whatever it sends.
struct Metered {
    stream: Wire,
    left: u64,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            let count = (buffer.filled().len() - before) as u64;
            match self.left.checked_sub(count) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Err(io::Error::other("it sends more than is taken"))),
            }
        }
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
