//! OCIRepository: what its spec asks for, as a source.

use roadstead_api::OciRepository;
use roadstead_api::source::{
    BucketProvider, OciLayerOperation, OciRepositorySpec, OciVerification, OciVerificationProvider,
};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Reason, Revision};
use roadstead_outbound::Purpose;
use roadstead_sources::oci::{CosignKeys, LayerOperation, RegistryLogins, Verification};
use roadstead_sources::{OciReference, OciRequest, Source};
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

    fn unsupported(&self, stored: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(unsupported(&stored.decode::<OciRepository>()?.spec))
    }

    fn stored_message(&self, revision: &Revision) -> String {
        format!("stored artifact for digest '{revision}'")
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

/// The first field that this version cannot act on.
fn unsupported(spec: &OciRepositorySpec) -> Option<&'static str> {
    let verify = spec.verify.as_ref().and_then(unsupported_verification);
    let is_of_cloud = spec.provider.is_some_and(|provider| provider != BucketProvider::Generic);
    let account = (spec.service_account_name.is_some() && !is_of_cloud)
        .then_some("spec.serviceAccountName with spec.provider generic (its imagePullSecrets)");
    verify.or(account)
}

/// The field of `spec.verify` that this version cannot act on.
pub(super) fn unsupported_verification(verify: &OciVerification) -> Option<&'static str> {
    (verify.provider == OciVerificationProvider::Notation).then_some("spec.verify.provider notation")
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
    if verify.secret_ref.is_none() {
        let why = "signatures without keys are not supported by this version of Roadstead; name a Secret with the \
                   public keys that are trusted in spec.verify.secretRef";
        return Some(Err(failed("cosign keyless", why.to_owned())));
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

fn use_secrets(request: &mut OciRequest, secrets: &SourceSecrets) -> Result<(), String> {
    if let Some(secret) = &secrets.login {
        request.logins = logins(secret).map_err(|why| secret.wrong(&why))?;
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
