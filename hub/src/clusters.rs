//! What the kubeconfigs of clusters may make the hub do, and what is installed by them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use roadstead_hub_core::clusters::ImageSignature;
use roadstead_hub_core::{Pace, Tolerance};
use roadstead_kubeconfig::Allowed;
use serde::Deserialize;

/// A kubeconfig comes from whoever may write Secrets: nothing of this is allowed unless it is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters by kubeconfig")]
pub(crate) struct ClusterArgs {
    /// Let kubeconfigs name a server with plain HTTP
    #[arg(long = "allow-plain-http-clusters")]
    plain_http: bool,

    /// Let kubeconfigs skip the verification of the server's certificate
    #[arg(long = "allow-unverified-clusters")]
    unverified: bool,

    /// Let kubeconfigs name a proxy (http:// or https://). Names are then resolved by the proxy, and lead where it lets them
    #[arg(long = "allow-cluster-proxies")]
    proxies: bool,

    /// The image of the agent that is installed [default: roadstead-agent:VERSION], and that agents which run another one
    /// put in its place. Without it none is told to
    #[arg(long, value_name = "IMAGE", env = "ROADSTEAD_AGENT_IMAGE")]
    pub(crate) agent_image: Option<String>,

    /// Signatures of agents' images, as `cosign download signature IMAGE` prints them, one JSON object a line: agents whose
    /// cluster's policy has a public key take an image only with its signature
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_AGENT_IMAGE_SIGNATURES")]
    agent_image_signatures: Option<PathBuf>,

    /// How many agents may fail to run a new image before no further one is told to: a number, or a share of those that are
    /// to run it (10%), rounded down
    #[arg(long, value_name = "N|N%", default_value = "10%", env = "ROADSTEAD_AGENT_UPGRADE_MAX_FAILURES",
          value_parser = tolerance)]
    agent_upgrade_max_failures: Tolerance,

    /// Seconds for which the agents of a stage of a roll-out (one, a tenth, half, all) are to have been connected with the
    /// new image before the next stage begins
    #[arg(long, value_name = "SECONDS", default_value_t = 60, env = "ROADSTEAD_AGENT_UPGRADE_SOAK",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    agent_upgrade_soak: u32,

    /// Seconds within which a new agent has to connect; after that the old one puts its own image back
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ROADSTEAD_AGENT_UPGRADE_TIMEOUT",
          value_parser = clap::value_parser!(u32).range(10..=86_400))]
    agent_upgrade_timeout: u32,
}

impl ClusterArgs {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            soak: Duration::from_secs(self.agent_upgrade_soak.into()),
            timeout: Duration::from_secs(self.agent_upgrade_timeout.into()),
            tolerance: self.agent_upgrade_max_failures,
        }
    }

    /// The signatures that agents are passed on.
    pub(crate) fn signatures(&self) -> Result<Vec<ImageSignature>> {
        let Some(path) = &self.agent_image_signatures else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read --agent-image-signatures {}", path.display()))?;
        signatures(path, &text)
    }

    /// Says so where what agents are told to run can be changed in the registry.
    pub(crate) fn warn_of_tags(&self) {
        if let Some(image) = self.agent_image.as_deref().filter(|image| !image.contains("@sha256:")) {
            tracing::warn!(
                image,
                "--agent-image has no digest: its tag can be moved in the registry, and agents whose policy requires \
                 digests refuse it. Give it as REPOSITORY:TAG@sha256:DIGEST"
            );
        }
    }

    pub(crate) fn allowed(&self) -> Allowed {
        Allowed { plain_http: self.plain_http, skip_verification: self.unverified, proxies: self.proxies }
    }
}

/// What `cosign download signature` prints.
#[derive(Deserialize)]
struct Downloaded {
    #[serde(rename = "Base64Signature")]
    signature: String,
    #[serde(rename = "Payload")]
    payload: String,
}

fn signatures(path: &Path, text: &str) -> Result<Vec<ImageSignature>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            signature(line)
                .with_context(|| format!("--agent-image-signatures {}, line {}", path.display(), at + 1))
        })
        .collect()
}

fn signature(line: &str) -> Result<ImageSignature> {
    let read: Downloaded =
        serde_json::from_str(line).context("is not what `cosign download signature` prints")?;
    let payload = STANDARD.decode(read.payload).context("its Payload is not base64")?;
    let signature = STANDARD.decode(read.signature).context("its Base64Signature is not base64")?;
    let claim: serde_json::Value = serde_json::from_slice(&payload).context("its Payload is not JSON")?;
    match claim["critical"]["image"]["docker-manifest-digest"].as_str() {
        Some(digest) => Ok(ImageSignature { digest: digest.to_owned(), payload, signature }),
        None => bail!("its Payload names no image's digest"),
    }
}

fn tolerance(text: &str) -> Result<Tolerance, String> {
    let malformed = || format!("`{text}` is neither a non-negative integer nor a percentage from 0% to 100%");
    match text.strip_suffix('%') {
        None => text.parse().map(Tolerance::Count).map_err(|_| malformed()),
        Some(share) => {
            let share = share.parse().ok().filter(|share| *share <= 100);
            share.map(Tolerance::Percent).ok_or_else(malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use roadstead_hub_core::Tolerance;

    use super::{signatures, tolerance};

    #[test]
    fn a_tolerance_is_a_number_or_a_share() {
        assert_eq!(tolerance("3"), Ok(Tolerance::Count(3)));
        assert_eq!(tolerance("10%"), Ok(Tolerance::Percent(10)));
        for text in ["", "-1", "101%", "%", "1.5%", "ten"] {
            assert!(tolerance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn signatures_are_read_as_cosign_prints_them() {
        // {"critical":{"image":{"docker-manifest-digest":"sha256:aa"}}}
        let payload = "eyJjcml0aWNhbCI6eyJpbWFnZSI6eyJkb2NrZXItbWFuaWZlc3QtZGlnZXN0Ijoic2hhMjU2OmFhIn19fQ==";
        let line = format!(r#"{{"Base64Signature":"MAA=","Payload":"{payload}","Cert":null,"Bundle":null}}"#);
        let read = signatures(Path::new("f"), &format!("{line}\n\n{line}\n")).expect("read");
        assert_eq!((read.len(), read[1].digest.as_str()), (2, "sha256:aa"));
        for bad in ["{}", "none", r#"{"Base64Signature":"MAA=","Payload":"e30="}"#] {
            let error = signatures(Path::new("f"), &format!("{line}\n{bad}")).expect_err(bad);
            assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        }
    }
}
