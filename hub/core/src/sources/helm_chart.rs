//! HelmChart: what its spec asks for, as a source.

use std::sync::Arc;

use roadstead_api::source::{
    HelmChartSpec, HelmChartVerification, HelmChartVerificationProvider, HelmRepositorySpec,
    ReconcileStrategy,
};
use roadstead_api::{HelmChart, HelmRepository, KindId, SourceSpec};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Reason, Revision};
use roadstead_outbound::{Authority, Purpose};
use roadstead_sources::git::TrustedKeys;
use roadstead_sources::helm::{ChartOrigin, RevisionOf, ValuesFiles, build_metadata};
use roadstead_sources::oci::{RegistryLogin, RegistryLogins};
use roadstead_sources::{ChartFacts, Fetched, HelmChartRequest, Learned, OciRequest, Source};
use serde_json::Value;

use crate::HubOptions;
use crate::sources::charts::{OBSERVED_NAME, OBSERVED_VALUES, Origin, is_registry};
use crate::sources::helm_repository::{bounds, login, server, way};
use crate::sources::secrets::{SourceSecret, SourceSecrets};
use crate::sources::{Asked, SourceKind, oci};

/// The kind.
pub(super) struct HelmCharts;

impl SourceKind for HelmCharts {
    fn failed(&self) -> Reason {
        Reason::ChartPullError
    }

    fn unsupported(&self, _: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(None)
    }

    fn succeeded(&self, _: &Revision, fetched: Option<&Fetched>) -> Option<(Reason, String)> {
        fetched?.chart().map(told)
    }

    fn newer(&self, _: &Stored, learned: &Learned, fetched: Option<&Fetched>) -> (Reason, String) {
        // One that came is told as it is where it is stored.
        let made = self.succeeded(&learned.revision, fetched).map(|(_, made)| made);
        let found = || {
            let name = learned.chart.as_deref().unwrap_or_default();
            format!("new '{name}' chart with version '{}'", learned.revision)
        };
        (Reason::NewChart, made.unwrap_or_else(found))
    }

    fn extension(&self) -> &'static str {
        "tgz"
    }

    fn observed_of(&self, fetched: &Fetched) -> Vec<(&'static str, Value)> {
        let Some(chart) = fetched.chart() else { return Vec::new() };
        let values = &chart.values_files;
        let values = if values.is_empty() { Value::Null } else { Value::from(values.clone()) };
        vec![(OBSERVED_NAME, chart.name.clone().into()), (OBSERVED_VALUES, values), (oci::KEYS, Value::Null)]
    }

    fn verdict(
        &self,
        stored: &Stored,
        secrets: &SourceSecrets,
    ) -> Result<Vec<(&'static str, Value)>, StoreError> {
        let verify = stored.decode::<HelmChart>()?.spec.verify;
        if let Some(Ok(keys)) = provenance(verify.as_ref(), secrets) {
            return Ok(vec![(oci::KEYS, keys.digest().to_string().into())]);
        }
        let verify = verify.and_then(|verify| verify.of_artifact());
        Ok(oci::verdict(verify.as_ref(), "the chart", secrets))
    }

    fn unverifiable(&self, stored: &Stored, secrets: &SourceSecrets) -> Result<Option<String>, StoreError> {
        let spec = stored.decode::<HelmChart>()?.spec;
        if let Some(keys) = provenance(spec.verify.as_ref(), secrets) {
            return Ok(keys.err());
        }
        let verify = spec.verify.and_then(|verify| verify.of_artifact());
        Ok(oci::verification(verify.as_ref(), &spec.chart, secrets).and_then(Result::err))
    }

    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError> {
        let spec = asked.stored.decode::<HelmChart>()?.spec;
        // It is looked up before.
        let Some(origin) = asked.origin else { return Ok(Err("it has no source".to_owned())) };
        let of = match origin.stored.kind {
            KindId::HelmRepository => of_repository(&spec, origin, &asked)?,
            kind => Ok(ChartOrigin::Tree {
                artifact: match &origin.artifact {
                    Some(artifact) => Arc::clone(artifact),
                    None => return Ok(Err("its source has no artifact".to_owned())),
                },
                named: format!("{kind} '{}'", origin.stored.name),
                repositories: Arc::clone(&origin.repositories),
            }),
        };
        // Without anybody who is trusted nothing is fetched.
        let provenance = match provenance(spec.verify.as_ref(), asked.secrets).transpose() {
            Ok(provenance) => provenance,
            Err(why) => return Ok(Err(why)),
        };
        Ok(of.map(|of| {
            let values = ValuesFiles {
                paths: spec.values_files.clone(),
                ignore_missing: spec.ignore_missing_values_files,
            };
            let is_in_a_tree = matches!(of, ChartOrigin::Tree { .. });
            let follows = is_in_a_tree && spec.reconcile_strategy == Some(ReconcileStrategy::Revision);
            let revision = match origin.revision.as_deref().filter(|_| follows) {
                Some(revision) => RevisionOf::Source(revision),
                None => RevisionOf::Nothing,
            };
            let request = HelmChartRequest {
                build_metadata: build_metadata(revision, values.are_any(), asked.stored.generation),
                origin: of,
                chart: spec.chart,
                version: spec.version.unwrap_or_default(),
                values,
                provenance,
                bounds: bounds(asked.options, asked.spec, asked.most_bytes),
                known_name: origin.noted.name.clone(),
                is_settled: origin.is_settled(),
            };
            Box::new(request) as Box<dyn Source>
        }))
    }
}

/// Whose keys are to have signed the chart's provenance, or why nobody's can have; none where that is not asked for.
fn provenance(
    verify: Option<&HelmChartVerification>,
    secrets: &SourceSecrets,
) -> Option<Result<TrustedKeys, String>> {
    verify.filter(|verify| verify.provider == HelmChartVerificationProvider::Provenance)?;
    let mut keys = TrustedKeys::default();
    for (key, text) in secrets.signers.iter().flat_map(SourceSecret::texts) {
        keys.add(key, &text);
    }
    let Some(secret) = &secrets.signers else {
        let why =
            "spec.verify.secretRef is not set: name a Secret with the OpenPGP public keys that are trusted";
        return Some(Err(why.to_owned()));
    };
    Some(if keys.has_open_pgp() {
        Ok(keys)
    } else {
        let why =
            "has no OpenPGP public keys: want armoured ones (*.asc), as `gpg --armor --export` writes them";
        Err(format!("public keys secret error: {}", secret.wrong(why)))
    })
}

/// What an artifact is said to be.
fn told(chart: &ChartFacts) -> (Reason, String) {
    let (reason, verb) = if chart.is_packaged {
        (Reason::ChartPackageSucceeded, "packaged")
    } else {
        (Reason::ChartPullSucceeded, "pulled")
    };
    let mut message = format!("{verb} '{}' chart with version '{}'", chart.name, chart.version);
    if !chart.values_files.is_empty() {
        message.push_str(&format!(" and merged values files [{}]", chart.values_files.join(" ")));
    }
    (reason, message)
}

fn of_repository(
    spec: &HelmChartSpec,
    origin: &Origin,
    asked: &Asked<'_>,
) -> Result<Result<ChartOrigin, String>, StoreError> {
    let repository = origin.stored.decode::<HelmRepository>()?;
    let tolerated = asked.tolerated.clone();
    let registry = registry(&repository.spec.url, asked.spec, asked.secrets, (asked.options, tolerated));
    let mut registry = match registry {
        Ok(registry) => Box::new(registry),
        Err(why) => return Ok(Err(why)),
    };
    let verify = spec.verify.as_ref().and_then(HelmChartVerification::of_artifact);
    match oci::verification(verify.as_ref(), &spec.chart, asked.secrets).transpose() {
        Ok(verify) => registry.verify = verify,
        Err(why) => return Ok(Err(why)),
    }
    if is_registry(&repository) {
        registry.url = format!("{}/{}", repository.spec.url.trim_end_matches('/'), spec.chart);
        let registry = login_to(registry, &repository.spec, asked.secrets);
        return Ok(registry.map(ChartOrigin::Registry));
    }
    let Some(index) = &origin.artifact else { return Ok(Err("its source has no artifact".to_owned())) };
    let server = server(&repository.spec, asked.secrets, asked.options, asked.tolerated.clone());
    Ok(server.map(|server| ChartOrigin::Repository {
        server: Box::new(server),
        index: Arc::clone(index),
        together: origin.together.clone(),
        registry,
    }))
}

/// How registries are asked for a chart, whatever their address is: as nobody.
pub(super) fn registry(
    url: &str,
    spec: &SourceSpec,
    secrets: &SourceSecrets,
    (options, tolerated): (&HubOptions, Option<Authority>),
) -> Result<OciRequest, String> {
    let mut request = OciRequest::new(url);
    request.guard = way(options, Purpose::Oci, tolerated);
    request.plain_http_credentials = options.outbound.plain_http_credentials;
    request.timeout = crate::sources::notes::timeout(spec);
    if let Some(workers) = &options.workers {
        request.limits = crate::sources::fetch::oci_limits(workers, request.limits);
        request.disk = Some(workers.disk.clone());
    }
    (request.ca, request.identity) = secrets.of_tls()?;
    Ok(request)
}

/// The same of the registry that a HelmRepository is: by its Secret.
pub(super) fn login_to(
    mut request: Box<OciRequest>,
    repository: &HelmRepositorySpec,
    secrets: &SourceSecrets,
) -> Result<Box<OciRequest>, String> {
    request.insecure = repository.insecure;
    request.cloud = secrets.cloud();
    if let Some(secret) = &secrets.login {
        let is_docker = secret.has(".dockerconfigjson") || secret.has(".dockercfg");
        let logins = if is_docker {
            oci::logins(secret)
        } else {
            login(secret).map(|login| {
                login.map_or_else(RegistryLogins::default, |login| {
                    // It is for this repository, and no other is asked.
                    let (username, password) = (login.username, login.password);
                    RegistryLogins::everywhere(RegistryLogin::Basic { username, password })
                })
            })
        };
        request.logins = logins.map_err(|why| secret.wrong(&why))?;
        if secrets.certificates.is_none() && secret.has_certificates() {
            (request.ca, request.identity) = secret.certificates().map_err(|why| secret.wrong(&why))?;
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_told_as_flux_tells_it() {
        let mut chart = ChartFacts {
            name: "app".to_owned(),
            version: "1.2.3".to_owned(),
            is_packaged: false,
            values_files: Vec::new(),
        };
        let message = "pulled 'app' chart with version '1.2.3'".to_owned();
        assert_eq!(told(&chart), (Reason::ChartPullSucceeded, message));
        chart.is_packaged = true;
        chart.values_files = vec!["a.yaml".to_owned(), "b.yaml".to_owned()];
        let message =
            "packaged 'app' chart with version '1.2.3' and merged values files [a.yaml b.yaml]".to_owned();
        assert_eq!(told(&chart), (Reason::ChartPackageSucceeded, message));
    }
}
