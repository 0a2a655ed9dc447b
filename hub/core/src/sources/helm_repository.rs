//! HelmRepository: what its spec asks for, as a source.

use std::time::Duration;

use roadstead_api::source::HelmRepositorySpec;
use roadstead_api::{HelmRepository, SourceSpec};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{GoDuration, Reason, Revision};
use roadstead_outbound::{Authority, Guard, Purpose, Secret};
use roadstead_sources::helm::{HelmBounds, HelmLogin, HelmServer};
use roadstead_sources::{Facts, Fetched, HelmIndexRequest, Learned, Source};

use crate::HubOptions;
use crate::sources::charts::is_registry;
use crate::sources::secrets::{SourceSecret, SourceSecrets};
use crate::sources::{Asked, SourceKind, fetch, notes};

/// The kind.
pub(super) struct HelmRepositories;

impl SourceKind for HelmRepositories {
    fn failed(&self) -> Reason {
        Reason::Failed
    }

    fn unsupported(&self, _: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(None)
    }

    fn is_static(&self, stored: &Stored) -> Result<bool, StoreError> {
        Ok(is_registry(&stored.decode()?))
    }

    fn stored_message(&self, revision: &Revision) -> String {
        format!("stored artifact: revision '{revision}'")
    }

    fn newer(&self, _: &Stored, learned: &Learned, _: Option<&Fetched>) -> (Reason, String) {
        (Reason::NewRevision, format!("new index revision '{}'", learned.revision))
    }

    fn told(&self, stored: &Stored, fetched: &Fetched) -> Option<String> {
        let Facts::Index(bytes) = fetched.facts else { return None };
        let url = stored.object["spec"]["url"].as_str().unwrap_or_default();
        Some(format!("stored fetched index of size {} from '{url}'", size(bytes)))
    }

    fn default_interval(&self) -> Option<GoDuration> {
        Some(GoDuration(Duration::from_secs(60)))
    }

    fn extension(&self) -> &'static str {
        // It is JSON, and so YAML.
        "yaml"
    }

    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError> {
        let spec = asked.stored.decode::<HelmRepository>()?.spec;
        let server = server(&spec, asked.secrets, asked.options, asked.tolerated);
        Ok(server.map(|server| {
            let bounds = bounds(asked.options, asked.spec, asked.most_bytes);
            let known_index = asked.known.index;
            let indexes = asked.indexes;
            let request = HelmIndexRequest { server, bounds, known_index, indexes };
            Box::new(request) as Box<dyn Source>
        }))
    }
}

/// A number of bytes as Flux writes it: four significant digits of a decimal unit.
fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "four digits of it are shown")]
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB"] {
        if value < 1_000.0 {
            break;
        }
        value /= 1_000.0;
        unit = larger;
    }
    let decimals = match value {
        ..10.0 => 3,
        ..100.0 => 2,
        _ => 1,
    };
    let shown = format!("{value:.decimals$}");
    format!("{}{unit}", shown.trim_end_matches('0').trim_end_matches('.'))
}

/// A repository over HTTP, as it is asked for its index and for charts.
pub(super) fn server(
    spec: &HelmRepositorySpec,
    secrets: &SourceSecrets,
    options: &HubOptions,
    tolerated: Option<Authority>,
) -> Result<HelmServer, String> {
    let mut server = HelmServer::new(spec.url.clone());
    server.guard = way(options, Purpose::Helm, tolerated);
    server.plain_http_credentials = options.outbound.plain_http_credentials;
    server.pass_credentials = spec.pass_credentials;
    if let Some(secret) = &secrets.login {
        server.login = login(secret).map_err(|why| secret.wrong(&why))?;
        if secrets.certificates.is_none() && secret.has_certificates() {
            // As older versions of Flux have it.
            (server.ca, server.identity) = secret.certificates().map_err(|why| secret.wrong(&why))?;
        }
    }
    if secrets.certificates.is_some() {
        (server.ca, server.identity) = secrets.of_tls()?;
    }
    Ok(server)
}

/// The way out.
pub(super) fn way(options: &HubOptions, purpose: Purpose, tolerated: Option<Authority>) -> Guard {
    let guard = options.outbound.guard(purpose);
    match tolerated {
        Some(authority) => guard.lenient_towards(authority),
        None => guard,
    }
}

/// A name and a password; none in a Secret that has certificates only.
pub(super) fn login(secret: &SourceSecret) -> Result<Option<HelmLogin>, String> {
    match (secret.text("username")?, secret.text("password")?) {
        (Some(username), Some(password)) => Ok(Some(HelmLogin { username, password: Secret::new(password) })),
        (None, None) if secret.has_certificates() => Ok(None),
        _ => Err("required fields 'username' and 'password'".to_owned()),
    }
}

/// What a fetch may have of time, memory and disk.
pub(super) fn bounds(options: &HubOptions, spec: &SourceSpec, most_bytes: u64) -> HelmBounds {
    let mut bounds = HelmBounds { timeout: notes::timeout(spec), ..HelmBounds::default() };
    if let Some(workers) = &options.workers {
        bounds.limits = fetch::helm_limits(workers, bounds.limits);
        bounds.disk = Some(workers.disk.clone());
    }
    bounds.limits.source.total_bytes = bounds.limits.source.total_bytes.min(most_bytes);
    bounds
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_written_as_flux_writes_them() {
        for (bytes, shown) in [
            (0, "0B"),
            (999, "999B"),
            (1_000, "1kB"),
            (1_234, "1.234kB"),
            (12_340, "12.34kB"),
            (123_456, "123.5kB"),
            (1_200_000, "1.2MB"),
            (50 << 20, "52.43MB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
