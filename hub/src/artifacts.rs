//! Where artifacts of sources are kept besides the database: the command line's options for it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use roadstead_hub_store::Store;
use roadstead_kms::Environment;
use roadstead_outbound::{Guard, Host, Policy, Proxies, Purpose};
use roadstead_s3::{Bucket, BucketOptions, Credential, CredentialFile, Limits};
use url::Url;

use crate::network::{AllowArgs, named, own_ways};

/// Most bytes of a file with authorities.
const MOST_CA: u64 = 1 << 20;

/// The object store, and who the hub is there.
#[derive(Debug, Args)]
#[command(next_help_heading = "Artifacts in an object store")]
pub(crate) struct ArtifactArgs {
    /// Keep the artifacts of sources in this bucket of an object store that speaks S3, encrypted, and not in Postgres. Those that Postgres has
    /// are read from there as before. Without --artifact-store-credentials the hub asks with the access key, web identity, container or
    /// machine of its environment, as AWS's tools do
    #[arg(long, value_name = "s3://BUCKET[/PREFIX]", env = "ROADSTEAD_ARTIFACT_STORE")]
    artifact_store: Option<String>,

    /// The object store's server [default: Amazon's]
    #[arg(
        long,
        value_name = "https://HOST[:PORT]",
        env = "ROADSTEAD_ARTIFACT_STORE_ENDPOINT",
        requires = "artifact_store"
    )]
    artifact_store_endpoint: Option<String>,

    /// The bucket's region [default: AWS_REGION, else what the endpoint's name says, else us-east-1]
    #[arg(long, value_name = "REGION", env = "ROADSTEAD_ARTIFACT_STORE_REGION", requires = "artifact_store")]
    artifact_store_region: Option<String>,

    /// Authorities (PEM) that the object store's certificate may be of, besides the system's; read at start
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_ARTIFACT_STORE_CA_FILE", requires = "artifact_store")]
    artifact_store_ca_file: Option<PathBuf>,

    /// A file with an access key, in lines aws_access_key_id = … and aws_secret_access_key = …; read for each request, so that it can be replaced
    #[arg(
        long,
        value_name = "FILE",
        env = "ROADSTEAD_ARTIFACT_STORE_CREDENTIALS",
        requires = "artifact_store"
    )]
    artifact_store_credentials: Option<PathBuf>,

    /// Read from the object store what is there, and store new artifacts in Postgres: the way back
    #[arg(long, env = "ROADSTEAD_ARTIFACT_STORE_READ_ONLY", requires = "artifact_store")]
    artifact_store_read_only: bool,
}

impl ArtifactArgs {
    /// A store that reads and writes artifacts where these options say.
    pub(crate) async fn open(&self, store: Store, allow: &AllowArgs) -> Result<Store> {
        // Empty is what a chart makes of a value that is not set.
        let Some(url) = self.artifact_store.as_deref().filter(|url| !url.is_empty()) else {
            return Ok(store);
        };
        let options = self.options(url, allow)?;
        // Whatever else the server leads to needs the entries that it needs for Bucket sources.
        let mut policy = Policy::new(allow.networks.clone());
        let server = options.server().context("--artifact-store")?;
        if let (Some(host), Some(port)) =
            (server.host_str().and_then(Host::parse), server.port_or_known_default())
        {
            policy.allow(named(Purpose::Bucket, host, port));
        }
        let guard = Guard::new(Arc::new(policy), Purpose::Bucket);
        let guard = guard.with_proxies(Arc::new(Proxies::from_env()));
        let bucket = Arc::new(Bucket::new(options, guard).context("--artifact-store")?);
        // Whether it answers is seen by the task that tends it: one that hangs holds up no start.
        tracing::info!(
            bucket = bucket.shown(),
            server = %server,
            new = !self.artifact_store_read_only,
            "artifacts are kept in an object store"
        );
        let opened = store.with_artifacts_in(bucket, !self.artifact_store_read_only).await;
        opened.context("use the artifact store")
    }

    fn options(&self, url: &str, allow: &AllowArgs) -> Result<BucketOptions> {
        let Some(place) = url.strip_prefix("s3://") else {
            bail!("--artifact-store {url}: want s3://BUCKET[/PREFIX]");
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let get = |name: &str| std::env::var(name).ok();
        let environment = Environment::new(&get);
        let services = environment.token_services()?;
        let file = self.artifact_store_credentials.as_ref().filter(|path| !path.as_os_str().is_empty());
        let credential = match file {
            Some(path) => {
                let file = CredentialFile::new(path.clone());
                // Told at once, and not at the first fetch.
                file.read().map_err(anyhow::Error::msg).context("--artifact-store-credentials")?;
                Credential::File(file)
            }
            None => cloud(&environment, allow)?,
        };
        let endpoint = self.artifact_store_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.map(|text| {
            Url::parse(text).map_err(|error| {
                anyhow!("--artifact-store-endpoint {text}: {error}: want https://HOST[:PORT]")
            })
        });
        let endpoint = endpoint.transpose()?;
        // An endpoint's own name, where it is Amazon's, says better than a variable where the bucket is.
        let region = self.artifact_store_region.clone();
        let region = region.or_else(|| services.aws_region.filter(|_| endpoint.is_none()));
        Ok(BucketOptions {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            endpoint,
            region: region.filter(|region| !region.is_empty()),
            ca: self.ca()?,
            credential,
            limits: Limits::default(),
        })
    }

    fn ca(&self) -> Result<Option<Vec<u8>>> {
        use std::io::Read as _;
        let Some(path) = self.artifact_store_ca_file.as_ref().filter(|path| !path.as_os_str().is_empty())
        else {
            return Ok(None);
        };
        let mut pem = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MOST_CA + 1).read_to_end(&mut pem))
            .with_context(|| format!("read {} (--artifact-store-ca-file)", path.display()))?;
        if pem.len() as u64 > MOST_CA {
            bail!("{} (--artifact-store-ca-file) is longer than 1 MiB", path.display());
        }
        Ok(Some(pem))
    }
}

/// The identity that the environment or the machine gives out.
fn cloud(environment: &Environment<'_>, allow: &AllowArgs) -> Result<Credential> {
    let credential = environment.wrapping()?.aws.context("there are no credentials for --artifact-store")?;
    let [aws, _] = environment.authorities()?;
    let [network] = own_ways(allow, Purpose::Cloud, &environment.named()?, [aws]);
    Ok(Credential::Cloud { credential, sts: environment.token_services()?.aws_sts, network })
}
