//! The HelmRepositories of a namespace, by their URLs: they lend their credentials, and their index, to charts that depend on a chart of theirs.

use std::sync::Arc;

use async_trait::async_trait;
use roadstead_api::{AnySource, HelmRepository, KindId, SourceSpec};
use roadstead_hub_store::{Store, Stored};
use roadstead_model::{Digest, chain};
use roadstead_sources::git;
use roadstead_sources::helm::{Repositories, RepositoryAt, Why, normalised};

use crate::identity::AccessRules;
use crate::sources::clouds::Clouds;
use crate::sources::includes::Blob;
use crate::sources::secrets::{SecretReader, SourceSecrets};
use crate::sources::{Sources, helm_chart, helm_repository};
use crate::{HubError, HubOptions};

/// Those of one namespace.
pub(super) struct Lenders {
    store: Store,
    access: Arc<AccessRules>,
    clouds: Arc<Clouds>,
    options: Arc<HubOptions>,
    namespace: String,
    /// Where indexes are stored.
    blob: Blob,
}

impl std::fmt::Debug for Lenders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lenders").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Lenders {
    pub(super) fn new(sources: &Sources, namespace: &str) -> Self {
        Self {
            store: sources.store.clone(),
            access: Arc::clone(&sources.access),
            clouds: Arc::clone(&sources.clouds),
            options: Arc::clone(&sources.options),
            namespace: namespace.to_owned(),
            blob: Blob::new(sources, Digest::of(b"")),
        }
    }

    /// The HelmRepository with this URL; the first by name, where there are several.
    async fn lender(&self, url: &str) -> Result<Option<Stored>, HubError> {
        for (name, own) in self.store.helm_repositories(&self.namespace).await? {
            if normalised(&own).is_ok_and(|own| own == url) {
                return Ok(self.store.get(KindId::HelmRepository, &self.namespace, &name).await?);
            }
        }
        Ok(None)
    }

    /// How one is asked that nobody lends anything to.
    fn public(&self, url: &str) -> Result<RepositoryAt, String> {
        let repository = serde_json::json!({ "url": url });
        let spec: SourceSpec =
            serde_json::from_value(repository.clone()).map_err(|error| error.to_string())?;
        let own = serde_json::from_value(repository).map_err(|error| error.to_string())?;
        self.asked(url, (&own, &spec), &SourceSecrets::default(), None)
    }

    async fn lent(&self, url: &str, lender: &Stored) -> Result<Result<RepositoryAt, String>, HubError> {
        let AnySource { spec, status, .. } = lender.decode()?;
        // Whether it may have them sent there is asked as for its own index.
        let reader = SecretReader { store: &self.store, access: &self.access, clouds: &self.clouds };
        let secrets = match reader.of(lender, lender, &spec).await? {
            Ok(secrets) => secrets,
            Err((_, why)) => return Ok(Err(why)),
        };
        let artifact = status.and_then(|status| status.source.artifact);
        let digest: Option<Digest> = artifact.and_then(|artifact| artifact.digest.parse().ok());
        let index: Option<Arc<dyn git::Stored>> = match digest {
            Some(digest) if self.store.has_blob(digest).await? => Some(Arc::new(self.blob.of(digest))),
            _ => None,
        };
        let own = lender.decode::<HelmRepository>()?.spec;
        let lent = self.asked(url, (&own, &spec), &secrets, index);
        Ok(lent.map_err(|why| format!("HelmRepository '{}/{}': {why}", lender.namespace, lender.name)))
    }

    fn asked(
        &self,
        url: &str,
        (repository, spec): (&roadstead_api::source::HelmRepositorySpec, &SourceSpec),
        secrets: &SourceSecrets,
        index: Option<Arc<dyn git::Stored>>,
    ) -> Result<RepositoryAt, String> {
        // What is asked on behalf of a chart is asked under the hub's rules, without any grace.
        let registry = helm_chart::registry(url, spec, secrets, (&self.options, None))?;
        let registry = Box::new(registry);
        if url.starts_with("oci://") {
            return helm_chart::login_to(registry, repository, secrets).map(RepositoryAt::Registry);
        }
        let server = helm_repository::server(repository, secrets, &self.options, None)?;
        Ok(RepositoryAt::Http { server: Box::new(server), index, registry })
    }
}

#[async_trait]
impl Repositories for Lenders {
    async fn at(&self, url: &str) -> Result<RepositoryAt, Why> {
        let failed = |error: HubError| {
            tracing::error!(
                namespace = self.namespace,
                error = chain(&error),
                "could not look up HelmRepositories"
            );
            Why::Internal("the HelmRepositories of its namespace cannot be read".to_owned())
        };
        let found = match self.lender(url).await.map_err(failed)? {
            Some(lender) => self.lent(url, &lender).await.map_err(failed)?,
            None => self.public(url),
        };
        found.map_err(Why::Refused)
    }
}
