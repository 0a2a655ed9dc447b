//! The search for notation's signatures of an image in its registry.

use roadstead_model::Digest;

use super::NotationTrust;
use super::reading::KIND;
use super::revocation::Inquiry;
use super::scope;
use crate::oci::verify::find::{Looked, Proof, passable};
use crate::oci::verify::reading::{Order, Reply, Step};
use crate::oci::verify::{Verification, referrers};
use crate::oci::{Attempt, OciError};

/// What is asked of who issued certificates, for all signatures of an artifact.
const MOST_INQUIRIES: usize = 32;

/// What was asked, and the number of the answer or why there is none.
type Told = Vec<(Inquiry, Result<usize, String>)>;

impl Attempt<'_> {
    /// Looks for a signature of the image that counts by the policy for this repository; if there is none, that is the error.
    pub(in crate::oci::verify) async fn verify_by_notation(
        &mut self,
        image: Digest,
        trust: &NotationTrust,
    ) -> Result<Proof, OciError> {
        let scopes = scope::of_url(&self.request.url, &self.wire.name);
        let Some(statement) = trust.statement_of(&scopes) else {
            let named = scopes.last().map(String::as_str).unwrap_or_default();
            let detail = format!(
                "the trust policy is for other registry scopes than '{named}', and has none for all (*)"
            );
            let detail = crate::attempt::plain(&detail);
            return Err(OciError::Unverified { provider: "notation", detail });
        };
        if statement.is_skip() {
            return Ok(Proof::NotAsked);
        }
        let name = statement.name().to_owned();
        let narrowed = Verification::Notation(trust.narrowed(statement));
        let mut looked = Looked::default();
        let reply = self.envelopes_judged(image, &narrowed, &mut looked).await?;
        match reply {
            Some(Reply::Verified) => Ok(Proof::Proven),
            Some(Reply::Unproven { why }) => {
                let why = why.join("; ");
                let why = format!("trust policy '{}': {why}", crate::tree::shown(&name));
                Ok(Proof::Unproven(crate::attempt::plain(&why)))
            }
            _ => Err(self.unverified(image, &narrowed, &looked)),
        }
    }

    async fn envelopes_judged(
        &mut self,
        image: Digest,
        trust: &Verification,
        looked: &mut Looked,
    ) -> Result<Option<Reply>, OciError> {
        let manifest_bytes = self.request.limits.manifest_bytes;
        let pages = self.wire.referrers_of_kind(image, KIND).await?;
        if pages.is_empty() {
            return Ok(None);
        }
        self.desk.answers.extend(pages);
        let manifests = self.listed(image, Step::NotationReferrers, manifest_bytes, looked).await?;
        let mut answers = Vec::new();
        for manifest in &manifests {
            let digest = self.digest_of(manifest)?;
            let received = self.wire.manifest(&digest.to_string(), Some(digest)).await;
            answers.extend(passable(received.map(|(_, answer)| answer), looked)?);
        }
        if answers.is_empty() {
            return Ok(None);
        }
        self.replace(answers);
        let envelopes = self.listed(image, Step::NotationManifests, manifest_bytes, looked).await?;
        let mut answers = Vec::new();
        for envelope in envelopes.iter().filter(|envelope| envelope.size <= referrers::MOST_BUNDLE) {
            let received = self.wire.blob(self.digest_of(envelope)?, envelope.size).await;
            answers.extend(passable(received, looked)?);
        }
        if answers.is_empty() {
            return Ok(None);
        }
        self.replace(answers);
        self.stop.enter("verifying signatures");
        // The image's manifest is among what is read, to be compared with what was signed.
        let mut told = Vec::new();
        loop {
            let order = Order {
                step: Step::Envelopes,
                answers: self.desk.answers.len(),
                most: manifest_bytes,
                image: image.to_string(),
                trust: Some(trust.clone()),
                told: told.clone(),
            };
            match self.read_signatures(image, order).await? {
                Reply::Unverified { why } => {
                    looked.why.extend(why);
                    return Ok(None);
                }
                Reply::Open { inquiries } => self.inquire(inquiries, &mut told).await?,
                Reply::Listed { .. } => return Err(self.internal("the reader answers another question")),
                reply => return Ok(Some(reply)),
            }
        }
    }

    /// Asks who issued certificates, and has the answers behind all others.
    async fn inquire(&mut self, inquiries: Vec<Inquiry>, told: &mut Told) -> Result<(), OciError> {
        self.stop.enter("asking whether certificates are revoked");
        let before = told.len();
        for inquiry in inquiries {
            if told.iter().any(|(asked, _)| *asked == inquiry) {
                continue;
            }
            let answer = if told.len() < MOST_INQUIRIES {
                self.wire.authority(&inquiry).await?
            } else {
                Err(format!("not asked, since {MOST_INQUIRIES} others were"))
            };
            let number = self.desk.answers.len();
            let answer = answer.map(|answer| {
                self.desk.answers.push(answer);
                number
            });
            told.push((inquiry, answer));
        }
        // A reader that asks the same again would never come to an end.
        if told.len() == before || told.len() > MOST_INQUIRIES * 2 {
            return Err(self.internal("the reader asks the same again"));
        }
        Ok(())
    }
}
