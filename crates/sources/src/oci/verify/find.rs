//! The search for an image's signatures in its registry. What is sent is kept as it comes; the reader says what is in it.

use roadstead_model::Digest;

use super::reading::{Order, Reply, Step};
use super::{Verification, referrers};
use crate::attempt::{Answer, Body};
use crate::oci::manifest::Descriptor;
use crate::oci::reader;
use crate::oci::{Attempt, OciError};

/// Whys of one message.
const MOST_WHYS: usize = 3;

/// What was found, and why it did not count.
#[derive(Default)]
pub(super) struct Looked {
    signatures: usize,
    left_out: usize,
    pub(super) why: Vec<String>,
}

/// What came of a search that went well.
pub(in crate::oci) enum Proof {
    /// Nobody asks for a signature.
    NotAsked,
    /// There is one that counts.
    Proven,
    /// There is none by somebody who is trusted, and that is not insisted on; why.
    Unproven(String),
}

impl Attempt<'_> {
    /// Looks for a signature of the image whose manifest is the first answer, by those who are trusted; if there is none, that
    /// is the error. Afterwards that manifest is the only answer again.
    pub(in crate::oci) async fn verify(&mut self, image: Digest) -> Result<Proof, OciError> {
        let Some(trust) = self.request.verify.clone() else { return Ok(Proof::NotAsked) };
        if let Verification::Notation(notation) = &trust {
            let proof = self.verify_by_notation(image, notation).await?;
            self.desk.answers.truncate(1);
            return Ok(proof);
        }
        let mut looked = Looked::default();
        let is_verified = self.has_a_bundle(image, &trust, &mut looked).await?
            || self.has_an_old_one(image, &trust, &mut looked).await?;
        self.desk.answers.truncate(1);
        if is_verified { Ok(Proof::Proven) } else { Err(self.unverified(image, &trust, &looked)) }
    }

    pub(super) fn unverified(&self, image: Digest, trust: &Verification, looked: &Looked) -> OciError {
        let url = self.request.shown_url();
        let mut detail = format!("no matching signatures were found for '{url}@{image}': ");
        if looked.left_out > 0 {
            let (all, most) = (looked.signatures, referrers::MOST_SIGNATURES);
            detail.push_str(&format!("of its {all} signatures the last {most} were looked at: "));
        }
        if looked.signatures == 0 && looked.why.is_empty() {
            detail.push_str("it is not signed");
        } else {
            let why: Vec<_> = looked.why.iter().take(MOST_WHYS).map(String::as_str).collect();
            detail.push_str(&why.join("; "));
        }
        OciError::Unverified { provider: trust.provider(), detail: crate::attempt::plain(&detail) }
    }

    async fn has_a_bundle(
        &mut self,
        image: Digest,
        trust: &Verification,
        looked: &mut Looked,
    ) -> Result<bool, OciError> {
        let manifest_bytes = self.request.limits.manifest_bytes;
        let pages = self.wire.referrers(image).await?;
        if pages.is_empty() {
            return Ok(false);
        }
        self.desk.answers.extend(pages);
        let manifests = self.listed(image, Step::Referrers, manifest_bytes, looked).await?;
        let mut answers = Vec::new();
        for manifest in &manifests {
            let digest = self.digest_of(manifest)?;
            let received = self.wire.manifest(&digest.to_string(), Some(digest)).await;
            answers.extend(passable(received.map(|(_, answer)| answer), looked)?);
        }
        if answers.is_empty() {
            return Ok(false);
        }
        self.replace(answers);
        let bundles = self.listed(image, Step::Manifests, manifest_bytes, looked).await?;
        let mut answers = Vec::new();
        for bundle in bundles.iter().filter(|bundle| bundle.size <= referrers::MOST_BUNDLE) {
            let received = self.wire.blob(self.digest_of(bundle)?, bundle.size).await;
            answers.extend(passable(received, looked)?);
        }
        if answers.is_empty() {
            return Ok(false);
        }
        self.replace(answers);
        self.judged(image, Step::Bundles, referrers::MOST_BUNDLE, trust, looked).await
    }

    async fn has_an_old_one(
        &mut self,
        image: Digest,
        trust: &Verification,
        looked: &mut Looked,
    ) -> Result<bool, OciError> {
        let manifest_bytes = self.request.limits.manifest_bytes;
        let Some(manifest) = self.wire.old_signatures(image).await? else { return Ok(false) };
        self.replace(vec![manifest]);
        let payloads = self.listed(image, Step::Payloads, manifest_bytes, looked).await?;
        for payload in payloads.iter().filter(|payload| payload.size <= referrers::MOST_PAYLOAD) {
            let digest = self.digest_of(payload)?;
            // Who signs with several keys has one payload for all.
            let already = payloads.iter().position(|other| other.digest == payload.digest);
            let already = already.and_then(|at| self.desk.answers.get(2 + at)).and_then(copy);
            let answer = match already {
                Some(answer) => answer,
                None => {
                    let received = self.wire.blob(digest, payload.size).await;
                    // Each has its place.
                    passable(received, looked)?.unwrap_or_else(|| in_memory(Vec::new()))
                }
            };
            self.desk.answers.push(answer);
        }
        if payloads.is_empty() {
            return Ok(false);
        }
        self.judged(image, Step::Old, manifest_bytes, trust, looked).await
    }

    /// Has these behind the image's manifest.
    pub(super) fn replace(&mut self, answers: Vec<Answer>) {
        self.desk.answers.truncate(1);
        self.desk.answers.extend(answers);
    }

    pub(super) async fn listed(
        &mut self,
        image: Digest,
        step: Step,
        most: u64,
        looked: &mut Looked,
    ) -> Result<Vec<Descriptor>, OciError> {
        match self.ask(image, step, most, None).await? {
            Reply::Listed { mut found, count, why } => {
                if !matches!(step, Step::Manifests | Step::NotationManifests) {
                    looked.signatures = looked.signatures.saturating_add(count);
                    looked.left_out = looked.left_out.max(count.saturating_sub(referrers::MOST_SIGNATURES));
                }
                looked.why.extend(why);
                found.truncate(referrers::MOST_SIGNATURES);
                Ok(found)
            }
            _ => Err(self.internal("the reader answers another question")),
        }
    }

    async fn judged(
        &mut self,
        image: Digest,
        step: Step,
        most: u64,
        trust: &Verification,
        looked: &mut Looked,
    ) -> Result<bool, OciError> {
        self.stop.enter("verifying signatures");
        match self.ask(image, step, most, Some(trust.clone())).await? {
            Reply::Verified => Ok(true),
            Reply::Unverified { why } => {
                looked.why.extend(why);
                Ok(false)
            }
            Reply::Listed { .. } | Reply::Unproven { .. } | Reply::Open { .. } => {
                Err(self.internal("the reader answers another question"))
            }
        }
    }

    pub(super) async fn ask(
        &mut self,
        image: Digest,
        step: Step,
        most: u64,
        trust: Option<Verification>,
    ) -> Result<Reply, OciError> {
        let told = Vec::new();
        let order =
            Order { step, answers: self.desk.answers.len(), most, image: image.to_string(), trust, told };
        self.read_signatures(image, order).await
    }

    pub(super) async fn read_signatures(&mut self, image: Digest, order: Order) -> Result<Reply, OciError> {
        let about = format!("signatures of {image}");
        self.admit(&about).await?;
        match self.read(&about, &reader::Order::Signatures(Box::new(order))).await? {
            reader::Reply::Signatures(reply) => Ok(reply),
            reader::Reply::Unread(unread) => Err(unread.of(self.request, "")),
            _ => Err(self.internal("the reader answers another question")),
        }
    }
}

/// What is not there, or is not what it should be, must not hide a signature beside it.
pub(super) fn passable(
    received: Result<Answer, OciError>,
    looked: &mut Looked,
) -> Result<Option<Answer>, OciError> {
    match received {
        Ok(answer) => Ok(Some(answer)),
        Err(OciError::NotFound { what, .. }) => {
            looked.why.push(format!("there is no {what}"));
            Ok(None)
        }
        Err(OciError::Corrupt { detail, .. }) => {
            looked.why.push(detail);
            Ok(None)
        }
        Err(OciError::TooLarge { measure, limit, .. }) => {
            looked.why.push(format!("it has more than {limit} {measure}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn copy(answer: &Answer) -> Option<Answer> {
    match &answer.body {
        Body::Memory(bytes) => Some(in_memory(bytes.clone())),
        Body::File(_) => None,
    }
}

fn in_memory(bytes: Vec<u8>) -> Answer {
    Answer { heading: String::new(), body: Body::Memory(bytes) }
}
