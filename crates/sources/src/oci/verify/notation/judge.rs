//! Whether a signature counts: an envelope, what a policy says, trusted certificates, what was signed and the time go in. Pure.
//!
//! That the signature is whole, made by the certificate that it brings along, that the certificates are a chain, and that it is about
//! this artifact holds in any case. Of the rest the policy says what comes of a failure.

use roadstead_model::Digest;
use serde::Deserialize;

use super::chain::Chain;
use super::envelope::{self, Envelope, Facts, Scheme};
use super::name;
use super::policy::{Action, Checks, Store};
use super::revocation::{Answers, Inquiry};
use super::stamp::{self, Stamped};
use crate::oci::verify::Unfit;

/// What a manifest is where it does not say so.
const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What is to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    media_type: String,
    digest: String,
    size: u64,
}

/// What comes of a signature that is let pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is by somebody who is trusted; these checks failed, and the policy has that told only.
    Proven(Vec<String>),
    /// Whose it is is not proven, and the policy does not insist.
    Unproven(Vec<String>),
    /// All else is as it should be; whether its certificates are revoked is to be asked first.
    Open(Vec<Inquiry>),
}

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "targetArtifact")]
    target: SignedTarget,
}

#[derive(Deserialize)]
struct SignedTarget {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "mediaType", default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl Target {
    /// The artifact that has this manifest.
    pub(super) fn of(manifest: &[u8]) -> Self {
        let read: Option<Manifest> = serde_json::from_slice(manifest).ok();
        let unsaid = if read.as_ref().is_some_and(|read| read.manifests.is_some()) { INDEX } else { IMAGE };
        let media_type = read.and_then(|read| read.media_type).unwrap_or_else(|| unsaid.to_owned());
        Self { media_type, digest: Digest::of(manifest).to_string(), size: manifest.len() as u64 }
    }

    /// Whether this is what a payload says that is signed.
    fn is_signed_by(&self, payload: &[u8]) -> Result<(), Unfit> {
        let payload: Payload = serde_json::from_slice(payload)
            .map_err(|error| Unfit::new(format!("its payload is not one of notation: {error}")))?;
        let signed = payload.target;
        if signed.digest != self.digest {
            let shown = crate::tree::shown(&signed.digest);
            return Err(Unfit::new(format!("it is a signature of another artifact, {shown}")));
        }
        if signed.size != self.size || signed.media_type != self.media_type {
            let shown = crate::tree::shown(&signed.media_type);
            return Err(Unfit::new(format!(
                "it is a signature of {} bytes of {shown}, and the artifact's manifest has {} bytes of {}",
                signed.size,
                self.size,
                crate::tree::shown(&self.media_type)
            )));
        }
        Ok(())
    }
}

/// Judges the signature of an envelope at a time, in seconds. `answers` are those that are there of who issued certificates.
pub(super) fn judge(
    bytes: &[u8],
    checks: &Checks,
    trusted: &[Vec<u8>],
    target: &Target,
    answers: &dyn Answers,
    now: i64,
) -> Result<Verdict, Unfit> {
    let envelope = envelope::parse(bytes)?;
    let chain = Chain::parse(&envelope.chain)?;
    chain.made(&envelope.headers.algorithm, &envelope.signature, &envelope.signed)?;
    let facts = envelope.headers.check()?;
    chain.check()?;
    target.is_signed_by(&envelope.payload)?;

    let trust = is_authentic(&facts, &chain, &envelope.chain, checks, trusted);
    let is_proven = trust.is_ok();
    let mut told = Vec::new();
    let mut weigh = |what: &str, action: Action, found: Result<(), Unfit>| match (action, found) {
        (Action::Enforce, Err(unfit)) => Err(unfit),
        (Action::Log, Err(unfit)) => {
            told.push(format!("{what}: {unfit}"));
            Ok(())
        }
        (Action::Skip, _) | (_, Ok(())) => Ok(()),
    };
    weigh("authenticity", checks.authenticity, trust)?;
    weigh("expiry", checks.expiry, is_fresh(&facts, now))?;
    let time = Time { facts: &facts, envelope: &envelope, chain: &chain, checks, trusted, is_proven };
    match time.check(answers, now) {
        Ok(found) => weigh("authenticTimestamp", checks.timestamp, found)?,
        Err(open) => return Ok(Verdict::Open(open)),
    }
    // The last, since others are asked for it.
    if checks.revocation != Action::Skip {
        let at = (facts.scheme == Scheme::Authority).then_some(facts.time);
        let found = match chain.check_for_revocation(answers, at, now) {
            Ok(found) => found,
            Err(open) if is_proven => return Ok(Verdict::Open(open)),
            // What somebody wrote into a certificate who is not trusted is not asked.
            Err(_) => {
                Err(Unfit::new("nobody was asked, since none of its certificates is one that is trusted"))
            }
        };
        weigh("revocation", checks.revocation, found)?;
    }
    Ok(if is_proven { Verdict::Proven(told) } else { Verdict::Unproven(told) })
}

/// Whether a certificate of the chain is trusted, and the signer is somebody who may sign.
fn is_authentic(
    facts: &Facts,
    chain: &Chain<'_>,
    certificates: &[Vec<u8>],
    checks: &Checks,
    trusted: &[Vec<u8>],
) -> Result<(), Unfit> {
    let (store, named) = match facts.scheme {
        Scheme::Signer => (Store::Ca, "ca"),
        Scheme::Authority => (Store::SigningAuthority, "signingAuthority"),
    };
    if !checks.stores.contains(&store) {
        return Err(Unfit::new(format!(
            "the policy has no trust store of the type {named}, which its signing scheme asks for"
        )));
    }
    if !certificates.iter().any(|one| trusted.contains(one)) {
        return Err(Unfit::new("none of its certificates is one that is trusted"));
    }
    let Some(identities) = &checks.identities else { return Ok(()) };
    if identities.is_empty() {
        return Err(Unfit::new("the policy names no x509.subject whose signatures count"));
    }
    let subject = name::of_subject(chain.leaf())?;
    if identities.iter().any(|identity| name::includes(&subject, identity)) {
        return Ok(());
    }
    let shown: Vec<String> = subject.iter().map(|(kind, value)| format!("{kind}={value}")).collect();
    let shown = crate::tree::shown(&shown.join(","));
    Err(Unfit::new(format!("its signer '{shown}' is none of the policy's trusted identities")))
}

fn is_fresh(facts: &Facts, now: i64) -> Result<(), Unfit> {
    match facts.expiry {
        Some(expiry) if expiry <= now => Err(Unfit::new(format!("it expired on {}", shown_time(expiry)))),
        _ => Ok(()),
    }
}

fn shown_time(time: i64) -> String {
    jiff::Timestamp::from_second(time).map_or_else(|_| time.to_string(), |time| time.to_string())
}

/// What says when a signature was made.
struct Time<'a> {
    facts: &'a Facts,
    envelope: &'a Envelope,
    chain: &'a Chain<'a>,
    checks: &'a Checks,
    trusted: &'a [Vec<u8>],
    is_proven: bool,
}

impl Time<'_> {
    /// Whether its certificates were valid when it was made: at the time that an authority says, else now. The error is what is still to
    /// be asked.
    fn check(&self, answers: &dyn Answers, now: i64) -> Result<Result<(), Unfit>, Vec<Inquiry>> {
        if self.facts.scheme == Scheme::Authority {
            return Ok(self.chain.is_valid_at(self.facts.time));
        }
        let Checks { stores, stamp_after_expiry, .. } = self.checks;
        if !stores.contains(&Store::Tsa) || (*stamp_after_expiry && !self.chain.has_expired(now)) {
            return Ok(self.chain.is_valid_at(now));
        }
        let stamped = match self.stamped() {
            Ok(stamped) => stamped,
            Err(unfit) => return Ok(Err(unfit)),
        };
        // It was read before.
        let authority = match Chain::parse(&stamped.chain) {
            Ok(authority) => authority,
            Err(unfit) => return Ok(Err(unfit)),
        };
        match authority.check_for_revocation(answers, None, now) {
            Err(_) if !self.is_proven => Ok(Err(unasked())),
            other => other,
        }
    }

    /// The countersignature, at a time at which all certificates were valid.
    fn stamped(&self) -> Result<Stamped, Unfit> {
        let token = self.envelope.stamp.as_ref();
        let token = token.ok_or_else(|| Unfit::new("the policy asks for a timestamp, and it has none"))?;
        let stamped = stamp::read(token, &self.envelope.signature, self.trusted)?;
        self.chain.is_valid_between(stamped.first, stamped.last)?;
        Ok(stamped)
    }
}

/// What somebody wrote into a certificate who is not trusted is not asked.
fn unasked() -> Unfit {
    Unfit::new("nobody was asked, since none of its certificates is one that is trusted")
}
