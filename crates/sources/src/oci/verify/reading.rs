//! The reading of what a registry sent about signatures: lists, manifests, payloads and bundles. It needs no network and knows
//! neither the repository's URL nor credentials.

use std::io::Read as _;

use roadstead_model::Digest;
use serde::{Deserialize, Serialize};

use super::bundle::{Bundle, Signed};
use super::keyless::{Content, Material, Verifier};
use super::keys::PublicKey;
use super::notation::NotationTrust;
use super::notation::revocation::{Inquiry, MOST_LIST};
use super::referrers::Old;
use super::{Unfit, Verification, notation, payload, referrers};
use crate::attempt::{AnswerReader, Line};
use crate::oci::manifest::Descriptor;
use crate::oci::unread::Unread;

/// Those of a list that are to be looked at, and how many there are in all.
type Listed = (Vec<Descriptor>, usize);

/// Whys of one reply.
const MOST_WHYS: usize = 8;

/// What a reader is to do. Of the answers, the first is the image's manifest, and those behind it are what this is about.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) step: Step,
    /// How many answers there are.
    pub(super) answers: usize,
    /// Bytes of a manifest, or of an index.
    pub(super) most: u64,
    /// The image's digest.
    pub(super) image: String,
    /// Where it is verified.
    pub(super) trust: Option<Verification>,
    /// What was asked of who issued certificates, and the number of the answer or why there is none. These answers are the last ones.
    pub(super) told: Vec<(Inquiry, Result<usize, String>)>,
}

/// Which of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    /// Which of the lists' referrers may be bundles.
    Referrers,
    /// Which bundles the manifests have.
    Manifests,
    /// Which payloads a manifest of the old form has.
    Payloads,
    /// Whether one of the bundles is signed as it should be.
    Bundles,
    /// Which of the lists' referrers may be signatures of notation.
    NotationReferrers,
    /// Which envelopes the manifests of such have.
    NotationManifests,
    /// Whether one of the envelopes is a signature that counts.
    Envelopes,
    /// Whether one of a manifest's signatures of the old form is one as it should be: the manifest, and its payloads.
    Old,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// These are to be looked at, of so many; the others cannot be, and why.
    Listed { found: Vec<Descriptor>, count: usize, why: Vec<String> },
    /// One is as it should be.
    Verified,
    /// One is of this image, but by nobody who is trusted, which a policy does not insist on.
    Unproven { why: Vec<String> },
    /// None is, and why.
    Unverified { why: Vec<String> },
    /// One may be: this is to be asked first.
    Open { inquiries: Vec<Inquiry> },
}

/// Does what an order says.
pub(in crate::oci) fn read(order: &Order, line: &Line) -> Result<Reply, Unread> {
    let internal = |detail: String| Unread::Internal { detail };
    let image: Digest =
        order.image.parse().map_err(|error: roadstead_model::DigestError| internal(error.to_string()))?;
    let answers = Answers { line, count: order.answers, most: order.most };
    match (order.step, &order.trust) {
        (Step::Referrers, _) => answers.referrers(referrers::bundles),
        (Step::NotationReferrers, _) => answers.referrers(notation::reading::signatures),
        (Step::Manifests, _) => answers.manifests(referrers::bundle),
        (Step::NotationManifests, _) => answers.manifests(notation::reading::envelope),
        (Step::Payloads, _) => answers.payloads(),
        (Step::Envelopes, Some(Verification::Notation(trust))) => {
            answers.verify_envelopes(&image, trust, &order.told)
        }
        (Step::Bundles, Some(trust)) => answers.verify_bundles(&image, trust),
        (Step::Old, Some(trust)) => answers.verify_old(&image, trust),
        (Step::Bundles | Step::Old | Step::Envelopes, _) => Err(internal("nobody is trusted".to_owned())),
    }
}

fn read_up_to(line: &Line, number: usize, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    AnswerReader::new(line, number, 0).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        bytes.clear();
    }
    Ok(bytes)
}

/// What was asked of who issued certificates. Each answer is read when it is looked at, since it may be large.
struct Told<'a> {
    line: &'a Line,
    told: &'a [(Inquiry, Result<usize, String>)],
}

impl notation::revocation::Answers for Told<'_> {
    fn to(&self, inquiry: &Inquiry) -> Option<Result<Vec<u8>, String>> {
        let (_, answer) = self.told.iter().find(|(asked, _)| asked == inquiry)?;
        let read = |number| read_up_to(self.line, number, MOST_LIST).map_err(|error| error.to_string());
        Some(answer.clone().and_then(read))
    }
}

struct Answers<'a> {
    line: &'a Line,
    count: usize,
    most: u64,
}

impl Answers<'_> {
    /// One of them; empty where it is larger than it may be.
    fn read(&self, number: usize) -> Result<Vec<u8>, Unread> {
        read_up_to(self.line, number, self.most)
            .map_err(|error| Unread::Internal { detail: error.to_string() })
    }

    fn referrers(&self, read: fn(&[u8]) -> Result<Listed, Unfit>) -> Result<Reply, Unread> {
        let (mut all, mut total, mut why) = (Vec::new(), 0, Whys::default());
        for number in 1..self.count {
            match read(&self.read(number)?) {
                Ok((found, count)) => {
                    all.extend(found);
                    total += count;
                }
                Err(unfit) => why.add(&unfit),
            }
        }
        all.drain(..all.len().saturating_sub(referrers::MOST_SIGNATURES));
        Ok(Reply::Listed { found: all, count: total, why: why.0 })
    }

    fn manifests(&self, read: fn(&[u8]) -> Result<Descriptor, Unfit>) -> Result<Reply, Unread> {
        let (mut found, mut why) = (Vec::new(), Whys::default());
        for number in 1..self.count {
            match read(&self.read(number)?) {
                Ok(one) => found.push(one),
                Err(unfit) => why.add(&unfit),
            }
        }
        Ok(Reply::Listed { count: self.count.saturating_sub(1), found, why: why.0 })
    }

    fn payloads(&self) -> Result<Reply, Unread> {
        let mut why = Whys::default();
        let (found, count) = match referrers::old(&self.read(1)?) {
            Ok((found, unfit, count)) => {
                unfit.iter().for_each(|unfit| why.add(unfit));
                (found.into_iter().map(|one| one.payload).collect(), count)
            }
            Err(unfit) => {
                why.add(&unfit);
                (Vec::new(), 1)
            }
        };
        Ok(Reply::Listed { found, count, why: why.0 })
    }

    fn verify_envelopes(
        &self,
        image: &Digest,
        trust: &NotationTrust,
        told: &[(Inquiry, Result<usize, String>)],
    ) -> Result<Reply, Unread> {
        let manifest = self.read(0)?;
        let answered = told.iter().filter(|(_, answer)| answer.is_ok()).count();
        let envelopes = 1..self.count.saturating_sub(answered);
        let envelopes = envelopes.map(|number| self.read(number)).collect::<Result<Vec<_>, _>>()?;
        let now = jiff::Timestamp::now().as_second();
        let told = Told { line: self.line, told };
        Ok(notation::reading::verify(envelopes.into_iter(), (&manifest, image), trust, &told, now))
    }

    fn verify_bundles(&self, image: &Digest, trust: &Verification) -> Result<Reply, Unread> {
        let manifest = self.read(0)?;
        let (trusted, mut why) = Trusted::of(trust);
        for number in 1..self.count {
            match trusted.made_bundle(&self.read(number)?, image, &manifest) {
                Ok(()) => return Ok(Reply::Verified),
                Err(unfit) => why.add(&unfit),
            }
        }
        Ok(Reply::Unverified { why: why.0 })
    }

    fn verify_old(&self, image: &Digest, trust: &Verification) -> Result<Reply, Unread> {
        let (trusted, mut why) = Trusted::of(trust);
        let (found, _, _) = match referrers::old(&self.read(1)?) {
            Ok(found) => found,
            Err(unfit) => return Ok(Reply::Unverified { why: vec![unfit.to_string()] }),
        };
        for (number, old) in (2..self.count).zip(found) {
            let payload = self.read(number)?;
            match trusted.made_old(old, payload, image) {
                Ok(()) => return Ok(Reply::Verified),
                Err(unfit) => why.add(&unfit),
            }
        }
        Ok(Reply::Unverified { why: why.0 })
    }
}

/// Who is trusted, ready to verify.
enum Trusted<'a> {
    Keys(Vec<PublicKey>),
    Keyless(Verifier<'a>),
    /// Nobody who signs with cosign.
    None,
}

impl<'a> Trusted<'a> {
    fn of(trust: &'a Verification) -> (Self, Whys) {
        let mut why = Whys::default();
        let trusted = match trust {
            Verification::Cosign(keys) => {
                let (keys, unusable) = keys.read();
                unusable.into_iter().for_each(|unusable| why.add(&Unfit::new(unusable)));
                Self::Keys(keys)
            }
            Verification::Keyless(keyless) => match Verifier::of(keyless) {
                Ok(verifier) => Self::Keyless(verifier),
                Err(unfit) => {
                    why.add(&unfit);
                    Self::None
                }
            },
            Verification::Notation(_) => Self::None,
        };
        (trusted, why)
    }

    /// Whether a bundle is a signature of the image by who is trusted.
    fn made_bundle(&self, bytes: &[u8], image: &Digest, manifest: &[u8]) -> Result<(), Unfit> {
        let bundle = Bundle::parse(bytes)?;
        let signed = bundle.signed(image, manifest)?;
        self.made(&signed, bundle.payload(), || Material::of_bundle(bytes))
    }

    /// The same of a signature of the old form.
    fn made_old(&self, old: Old, payload: Vec<u8>, image: &Digest) -> Result<(), Unfit> {
        payload::is_about(&payload, image)?;
        let Old { signature, annotations, .. } = old;
        self.made(&Signed { signature, message: payload }, None, || Material::of_annotations(&annotations))
    }

    fn made(
        &self,
        signed: &Signed,
        payload: Option<&[u8]>,
        material: impl FnOnce() -> Result<Material, Unfit>,
    ) -> Result<(), Unfit> {
        let Signed { signature, message } = signed;
        match self {
            Self::Keys(keys) if keys.iter().any(|key| key.made(signature, message)) => Ok(()),
            Self::Keys(_) | Self::None => Err(Unfit::new("it was not made by a key that is trusted")),
            Self::Keyless(verifier) => {
                verifier.verify(&Content { signature, message, payload }, &material()?)
            }
        }
    }
}

/// Whys, each once.
#[derive(Default)]
pub(super) struct Whys(pub(super) Vec<String>);

impl Whys {
    pub(super) fn add(&mut self, why: &Unfit) {
        if self.0.len() < MOST_WHYS && !self.0.contains(&why.0) {
            self.0.push(why.0.clone());
        }
    }
}
