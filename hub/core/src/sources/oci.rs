//! OCIRepository: what its spec asks for, as a source.

use roadstead_api::OciRepository;
use roadstead_api::source::{OciLayerOperation, OciVerification, OciVerificationProvider, OidcIdentity};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Reason, Revision};
use roadstead_outbound::Purpose;
use roadstead_sources::oci::{
    CosignKeys, Identity, Keyless, LayerOperation, NotationTrust, RegistryLogins, TrustedRoot, Verification,
};
use roadstead_sources::{Fetched, Learned, OciReference, OciRequest, Source};
use serde_json::Value;

use crate::sources::secrets::{SourceSecret, SourceSecrets};
use crate::sources::{Asked, SourceKind, fetch, notes};

/// What of the status says by whose keys the artifact was verified.
pub(super) const KEYS: &str = "observedVerificationKeys";

/// The kind.
pub(super) struct Oci;

impl SourceKind for Oci {
    fn failed(&self) -> Reason {
        Reason::OCIArtifactPullFailed
    }

    fn unsupported(&self, _: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(None)
    }

    fn stored_message(&self, revision: &Revision) -> String {
        format!("stored artifact for digest '{revision}'")
    }

    fn newer(&self, stored: &Stored, learned: &Learned, _: Option<&Fetched>) -> (Reason, String) {
        let url = stored.object["spec"]["url"].as_str().unwrap_or_default();
        (Reason::NewRevision, newer(url, &learned.revision))
    }

    fn told(&self, stored: &Stored, fetched: &Fetched) -> Option<String> {
        let url = stored.object["spec"]["url"].as_str().unwrap_or_default();
        let mut told = format!("stored artifact with revision '{}' from '{url}'", fetched.revision);
        for what in ["source", "revision"] {
            if let Some(origin) = fetched.metadata.get(&format!("org.opencontainers.image.{what}")) {
                told.push_str(&format!(", origin {what} '{origin}'"));
            }
        }
        Some(told)
    }

    fn observed(&self, stored: &Stored) -> Result<Vec<(&'static str, Value)>, StoreError> {
        let spec = &stored.object["spec"];
        Ok(vec![
            ("observedIgnore", spec["ignore"].clone()),
            ("observedLayerSelector", spec["layerSelector"].clone()),
            (KEYS, Value::Null),
        ])
    }

    fn verdict(
        &self,
        stored: &Stored,
        secrets: &SourceSecrets,
    ) -> Result<Vec<(&'static str, Value)>, StoreError> {
        let spec = stored.decode::<OciRepository>()?.spec;
        Ok(verdict(spec.verify.as_ref(), &spec.url, secrets))
    }

    fn unverifiable(&self, stored: &Stored, secrets: &SourceSecrets) -> Result<Option<String>, StoreError> {
        let spec = stored.decode::<OciRepository>()?.spec;
        Ok(verification(spec.verify.as_ref(), &spec.url, secrets).and_then(Result::err))
    }

    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError> {
        let spec = asked.stored.decode::<OciRepository>()?.spec;
        let options = asked.options;
        let mut request = OciRequest::new(spec.url.clone());
        let reference = spec.reference.clone().unwrap_or_default();
        let pinned = asked.pinned.and_then(Revision::content).map(|hex| format!("sha256:{hex}"));
        request.reference = OciReference::from_spec(
            pinned.as_deref().or(reference.digest.as_deref()),
            reference.semver.as_deref(),
            reference.semver_filter.as_deref(),
            reference.tag.as_deref(),
        );
        let selector = spec.layer_selector.clone().unwrap_or_default();
        request.media_type = selector.media_type.filter(|text| !text.is_empty());
        request.operation = match selector.operation {
            Some(OciLayerOperation::Copy) => LayerOperation::Copy,
            Some(OciLayerOperation::Extract) | None => LayerOperation::Extract,
        };
        if let Some(workers) = &options.workers {
            request.limits = fetch::oci_limits(workers, request.limits);
            request.disk = Some(workers.disk.clone());
        }
        request.limits.tree.total_bytes = request.limits.tree.total_bytes.min(asked.most_bytes);
        request.guard = options.outbound.guard(Purpose::Oci);
        if let Some(authority) = asked.tolerated {
            request.guard = request.guard.lenient_towards(authority);
        }
        request.plain_http_credentials = options.outbound.plain_http_credentials;
        request.insecure = spec.insecure;
        request.timeout = notes::timeout(asked.spec);
        // It is refused before; without anybody who is trusted nothing is fetched in any case.
        request.verify = match verification(spec.verify.as_ref(), &spec.url, asked.secrets).transpose() {
            Ok(trust) => trust,
            Err(why) => return Ok(Err(why)),
        };
        request.ignore = spec.ignore;
        request.known_registry = asked.known.registry;
        Ok(match use_secrets(&mut request, asked.secrets) {
            Ok(()) => Ok(Box::new(request)),
            Err(why) => Err(why),
        })
    }
}

/// What the status notes of whom is trusted.
pub(super) fn verdict(
    verify: Option<&OciVerification>,
    what: &str,
    secrets: &SourceSecrets,
) -> Vec<(&'static str, Value)> {
    let verification = verification(verify, what, secrets).and_then(Result::ok);
    verification.map_or_else(Vec::new, |trust| vec![(KEYS, trust.digest().to_string().into())])
}

/// Who is to have signed `what`, or why nobody can have: without a way to know, nothing is fetched.
pub(super) fn verification(
    verify: Option<&OciVerification>,
    what: &str,
    secrets: &SourceSecrets,
) -> Option<Result<Verification, String>> {
    let verify = verify?;
    let failed = |provider: &str, why: String| {
        format!("failed to verify the signature using provider '{provider}': {why}")
    };
    if verify.provider == OciVerificationProvider::Notation {
        let trust = notation(verify, what, secrets).transpose()?;
        return Some(trust.map_err(|why| failed("notation", why)));
    }
    if verify.secret_ref.is_none() {
        let trust = keyless(verify, secrets).map(Verification::Keyless);
        return Some(trust.map_err(|why| failed("cosign keyless", why)));
    }
    let mut keys = CosignKeys::default();
    for (key, text) in secrets.signers.iter().flat_map(SourceSecret::texts) {
        keys.add(key, &text);
    }
    if keys.is_empty() {
        let named = secrets.signers.as_ref().map(SourceSecret::named).unwrap_or_default();
        let why = "has no public keys: want entries *.pub, as `cosign generate-key-pair` makes them";
        let why = format!("no matching signatures were found for '{what}': {named} {why}");
        return Some(Err(failed("cosign", why)));
    }
    Some(Ok(Verification::Cosign(keys)))
}

/// Whose signatures of notation count; none where the policy asks for no signature of `what`.
fn notation(
    verify: &OciVerification,
    what: &str,
    secrets: &SourceSecrets,
) -> Result<Option<Verification>, String> {
    let named = verify.secret_ref.as_ref().and(secrets.signers.as_ref());
    let secret = named.ok_or(
        "spec.verify.secretRef is not set: name a Secret with trustpolicy.json and the certificates that are trusted",
    )?;
    let trust = NotationTrust::of_entries(&secret.entries()).map_err(|why| secret.wrong(&why))?;
    Ok((!trust.skips(what)).then_some(Verification::Notation(trust)))
}

/// Which identities are to have signed, and who vouches for them, or why that cannot be said.
fn keyless(verify: &OciVerification, secrets: &SourceSecrets) -> Result<Keyless, String> {
    const KEY: &str = "trusted_root.json";
    let Some(secret) = &secrets.trusted_root else {
        let why = "the root of the public Sigstore instance is not supported by this version of Roadstead; name a Secret with \
                   a trusted_root.json in spec.verify.trustedRootSecretRef, or one with public keys in spec.verify.secretRef";
        return Err(why.to_owned());
    };
    let text = secret.text(KEY).and_then(|text| text.ok_or_else(|| format!("has no key {KEY}")));
    let root = text.and_then(|text| TrustedRoot::parse(&text).map_err(|why| format!("key {KEY}: {why}")));
    let root = root.map_err(|why| format!("unable to parse trusted root: {}", secret.wrong(&why)))?;
    let identity = |one: &OidcIdentity| Identity { issuer: one.issuer.clone(), subject: one.subject.clone() };
    Keyless::new(root, verify.match_oidc_identity.iter().map(identity).collect())
}

fn use_secrets(request: &mut OciRequest, secrets: &SourceSecrets) -> Result<(), String> {
    if let Some(secret) = &secrets.login {
        request.logins = logins(secret).map_err(|why| secret.wrong(&why))?;
    }
    for secret in &secrets.pull {
        request.logins.extend(logins(secret).map_err(|why| secret.wrong(&why))?);
    }
    request.cloud = secrets.cloud();
    (request.ca, request.identity) = secrets.of_tls()?;
    request.guard = secrets.way(request.guard.clone())?;
    Ok(())
}

pub(super) fn logins(secret: &SourceSecret) -> Result<RegistryLogins, String> {
    for (key, bare) in [(".dockerconfigjson", false), (".dockercfg", true)] {
        if let Some(text) = secret.text(key)? {
            return RegistryLogins::parse(&text, bare).map_err(|why| format!("key {key}: {why}"));
        }
    }
    Err("has no key .dockerconfigjson: want a Secret of type kubernetes.io/dockerconfigjson".to_owned())
}

/// In which words it is told that a repository holds another revision: with the tag by which it was found, or by its digest.
fn newer(url: &str, revision: &Revision) -> String {
    let repository = url.strip_prefix("oci://").unwrap_or(url);
    let text = revision.to_string();
    let reference = match text.split_once('@') {
        Some((tag, _)) => format!("{repository}:{tag}"),
        None => format!("{repository}@{text}"),
    };
    format!("new revision '{revision}' for '{reference}'")
}

#[cfg(test)]
mod tests {
    use super::newer;

    #[test]
    fn another_revision_is_told_as_flux_tells_it() {
        let digest = format!("sha256:{}", "5".repeat(64));
        let told = |revision: &str| newer("oci://registry.test/apps/web", &revision.parse().unwrap());
        let tagged = format!("v1@{digest}");
        assert_eq!(told(&tagged), format!("new revision '{tagged}' for 'registry.test/apps/web:v1'"));
        assert_eq!(told(&digest), format!("new revision '{digest}' for 'registry.test/apps/web@{digest}'"));
    }
}
