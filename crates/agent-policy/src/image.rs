//! Which image may take the agent's place.

use semver::Version;

use crate::policy::Policy;
use crate::refused::{Refused, Rule};
use crate::signature::{Claim, Signature};

/// The longest reference that is taken, in bytes.
const MAX_IMAGE: usize = 1024;

/// A reference to an image: `repository[:tag][@sha256:digest]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'a> {
    /// The registry and the path there.
    pub repository: &'a str,
    /// The tag.
    pub tag: Option<&'a str>,
    /// The digest, as `sha256:` and 64 hexadecimal digits.
    pub digest: Option<&'a str>,
}

/// What runs now.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// The image of the agent's pod.
    pub image: &'a str,
    /// The version that the agent was built as.
    pub version: &'a str,
}

impl<'a> Image<'a> {
    /// Reads a reference; none where it is none.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        if text.is_empty()
            || text.len() > MAX_IMAGE
            || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return None;
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest).filter(|digest| is_digest(digest))),
            None => (text, None),
        };
        // A digest of another form is nothing that an image could be held against.
        if digest.is_none() && text.contains('@') {
            return None;
        }
        let (repository, tag) = match named.rsplit_once(':') {
            // A colon before a slash is a port's.
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (named, None),
        };
        (!repository.is_empty() && tag != Some("")).then_some(Self { repository, tag, digest })
    }
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

fn version(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

impl Policy {
    /// Whether the agent, as `running`, may put the image `wanted` in its place, for which the hub has passed on these
    /// signatures.
    ///
    /// # Errors
    /// [`Refused`], by the first rule that forbids it.
    pub fn check_upgrade(
        &self,
        running: &Running<'_>,
        wanted: &str,
        signatures: &[Signature],
    ) -> Result<(), Refused> {
        let Some(image) = Image::parse(wanted) else {
            let why = "the hub's image is not valid, or has no digest of the form @sha256:…";
            return Err(self.refuse(Rule::Upgrades, why.to_owned(), None));
        };
        let line = format!("upgrade {wanted}");
        if self.confirmed.has(&line) {
            return Ok(());
        }
        self.judge(running, &image, signatures)
            .map_err(|(rule, why)| self.refuse(rule, format!("run the image {wanted}: {why}"), Some(line)))
    }

    fn judge(
        &self,
        running: &Running<'_>,
        image: &Image<'_>,
        signatures: &[Signature],
    ) -> Result<(), (Rule, String)> {
        let upgrades = &self.upgrades;
        if !upgrades.allowed {
            return Err((Rule::Upgrades, "the hub may not choose the agent's image".to_owned()));
        }
        let own = Image::parse(running.image).map(|image| image.repository);
        if let Some(pinned) = &upgrades.repository {
            if image.repository != pinned {
                return Err((Rule::UpgradeRepository, format!("its repository is not {pinned}")));
            }
        } else if own != Some(image.repository) {
            let why = format!(
                "this agent runs {} and accepts only other versions of it, no image from another repository: change its \
                 Deployment by hand, or set upgrades.repository",
                running.image
            );
            return Err((Rule::UpgradeRepository, why));
        }
        if upgrades.digest && image.digest.is_none() {
            let why = "it has no digest, and a tag can be moved in the registry: give it as REPOSITORY:TAG@sha256:DIGEST";
            return Err((Rule::UpgradeDigest, why.to_owned()));
        }
        // A tag beside a digest is not looked up by anyone: what a signature says counts where there is a key.
        let version = match &upgrades.key {
            None => image.tag.and_then(version),
            Some(_) => self.verified(image, signatures)?.version.as_deref().and_then(version),
        };
        self.judge_version(running, version.as_ref())
    }

    /// What the signer of the image says of it.
    fn verified(&self, image: &Image<'_>, signatures: &[Signature]) -> Result<Claim, (Rule, String)> {
        let refused = |why: String| (Rule::UpgradeKey, why);
        let Some(key) = &self.upgrades.key else { return Err(refused("the key is missing".to_owned())) };
        let mut why = "the hub sent no signature for it (--agent-image-signatures)".to_owned();
        let expected = self.upgrades.signed_repository.as_deref().unwrap_or(image.repository);
        for signature in signatures {
            let claim = match key.verify(signature) {
                Ok(claim) => claim,
                Err(error) => {
                    error.clone_into(&mut why);
                    continue;
                }
            };
            if Some(claim.digest.as_str()) != image.digest {
                why = "the signature is for another digest".to_owned();
            } else if claim.repository() != expected {
                why = format!("it is signed as {}, not as {expected}", claim.repository());
            } else {
                return Ok(claim);
            }
        }
        Err(refused(why))
    }

    fn judge_version(&self, running: &Running<'_>, wanted: Option<&Version>) -> Result<(), (Rule, String)> {
        let upgrades = &self.upgrades;
        let Some(wanted) = wanted else {
            if upgrades.minimum.is_none() && upgrades.downgrade {
                return Ok(());
            }
            let rule = if upgrades.minimum.is_some() { Rule::UpgradeMinimum } else { Rule::UpgradeDowngrade };
            let where_ =
                if upgrades.key.is_some() { "its signature (cosign sign -a version=…)" } else { "its tag" };
            return Err((rule, format!("{where_} has no version")));
        };
        if let Some(minimum) = &upgrades.minimum
            && wanted < minimum
        {
            return Err((Rule::UpgradeMinimum, format!("its version {wanted} is older than {minimum}")));
        }
        let is_older = version(running.version).is_none_or(|running| *wanted < running);
        if !upgrades.downgrade && is_older {
            let why = format!("its version {wanted} is older than {}, which runs", running.version);
            return Err((Rule::UpgradeDowngrade, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn references_are_read() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let full = format!("registry.example:5000/team/agent:1@{digest}");
        let image = Image::parse(&full).expect("a reference");
        assert_eq!(image.repository, "registry.example:5000/team/agent");
        assert_eq!((image.tag, image.digest), (Some("1"), Some(digest.as_str())));
        for (text, repository, tag) in [
            ("agent", "agent", None),
            ("agent:0.1.0", "agent", Some("0.1.0")),
            ("registry.example:5000/team/agent", "registry.example:5000/team/agent", None),
        ] {
            let image = Image::parse(text).expect("a reference");
            assert_eq!((image.repository, image.tag, image.digest), (repository, tag, None), "{text}");
        }
        let short = format!("agent@sha256:{}", "a".repeat(63));
        for text in
            ["", "agent:", ":1", "agent:1 x", "agent@sha256:abc", short.as_str(), "agent@", "@sha256:abc"]
        {
            assert_eq!(Image::parse(text), None, "{text}");
        }
    }
}
