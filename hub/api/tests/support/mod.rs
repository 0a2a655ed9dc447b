//! A hub's API on a real listener over a fresh database.
#![expect(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_budget::MemoryBudget;
use roadstead_hub_api::ApiOptions;
use roadstead_hub_core::{Clock, Hub, HubOptions, SystemClock};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_tests::{Kubectl, TestDatabase};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use sqlx::Row as _;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A replica of a hub.
pub(crate) struct Replica {
    pub(crate) hub: Hub,
    pub(crate) kubectl: Kubectl,
    pub(crate) url: String,
    pub(crate) token: String,
    _folder: TempDir,
    _stop: DropGuard,
}

/// A database and the key that its secrets are sealed with.
pub(crate) struct Site {
    pub(crate) database: TestDatabase,
    key: [u8; 32],
}

impl Site {
    pub(crate) async fn new() -> Result<Self> {
        Ok(Self { database: TestDatabase::new().await?, key: *Key::generate()?.expose() })
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.key)
    }

    /// The database, without a hub.
    pub(crate) async fn store(&self) -> Result<Store> {
        Ok(Store::open(self.database.url(), Sealer::new(&self.key())?, 4).await?)
    }

    pub(crate) async fn replica(&self) -> Result<Replica> {
        self.replica_with(ApiOptions::default()).await
    }

    pub(crate) async fn replica_with(&self, api: ApiOptions) -> Result<Replica> {
        replica(self.database.url(), Key::new(self.key), api, HubOptions::default()).await
    }

    /// A replica that is set up so, and by this clock.
    pub(crate) async fn replica_by(&self, clock: Arc<dyn Clock>, options: HubOptions) -> Result<Replica> {
        replica_by(clock, self.database.url(), Key::new(self.key), ApiOptions::default(), options).await
    }

    /// A replica whose API and whose rest are set up so.
    pub(crate) async fn replica_of(&self, api: ApiOptions, options: HubOptions) -> Result<Replica> {
        replica(self.database.url(), Key::new(self.key), api, options).await
    }

    /// A replica that has so many bytes of memory.
    pub(crate) async fn replica_within(&self, bytes: u64, api: ApiOptions) -> Result<Replica> {
        let options = HubOptions { budget: Arc::new(MemoryBudget::new(bytes)), ..HubOptions::default() };
        replica(self.database.url(), Key::new(self.key), api, options).await
    }
}

/// A replica over this database, with a key of its own.
pub(crate) async fn replica_over(url: &str, api: ApiOptions) -> Result<Replica> {
    replica(url, Key::generate()?, api, HubOptions::default()).await
}

async fn replica(database: &str, key: Key, api: ApiOptions, options: HubOptions) -> Result<Replica> {
    replica_by(Arc::new(SystemClock), database, key, api, options).await
}

async fn replica_by(
    clock: Arc<dyn Clock>,
    database: &str,
    key: Key,
    api: ApiOptions,
    options: HubOptions,
) -> Result<Replica> {
    let store = Store::open(database, Sealer::new(&key)?, 20).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
    let address = listener.local_addr()?;
    let url = format!("https://{address}");
    let options = HubOptions { api_url: url.clone(), ..options };
    let hub = Hub::open(store, clock, options).await?;
    hub.objects.bootstrap().await?;
    let identity = hub.pki().serving_identity(&["127.0.0.1".to_owned()], hub.now())?;
    let token = hub.identity.create_admin_token("for a test").await?.0.to_string();
    let stop = CancellationToken::new();
    let (served, stopped) = (hub.clone(), stop.clone());
    tokio::spawn(async move { roadstead_hub_api::serve(served, listener, &identity, api, stopped).await });
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(&url, hub.pki().server_ca_pem(), &token).to_string())?;
    let kubectl = Kubectl::new(&kubeconfig)?;
    Ok(Replica { hub, kubectl, url, token, _folder: folder, _stop: stop.drop_guard() })
}

/// A client that trusts the replica's certificate.
pub(crate) fn client(replica: &Replica) -> Result<reqwest::Client> {
    // Another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let roots = reqwest::Certificate::from_pem_bundle(replica.hub.pki().server_ca_pem().as_bytes())?;
    Ok(reqwest::Client::builder().tls_certs_only(roots).no_proxy().build()?)
}

pub(crate) async fn tcp(replica: &Replica) -> Result<TcpStream> {
    let address = replica.url.strip_prefix("https://").context("an address")?;
    TcpStream::connect(address).await.context("connect")
}

/// A connection on which HTTP/1.1 is written by hand.
pub(crate) async fn tls(
    replica: &Replica,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<TlsStream<TcpStream>> {
    tls_for(replica, versions, &[]).await
}

/// A connection for one of these protocols.
pub(crate) async fn tls_for(
    replica: &Replica,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(replica.hub.pki().server_ca_pem().as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("127.0.0.1")?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp(replica).await?).await?)
}

fn kubeconfig_of(server: &str, ca_pem: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{ "name": "hub", "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem) } }],
        "users": [{ "name": "admin", "user": { "token": token } }],
        "contexts": [{ "name": "hub", "context": { "cluster": "hub", "user": "admin", "namespace": "default" } }],
    })
}

/// Seals the authorities' keys as versions before tokens were signed did: the next replica takes what is there for theirs.
pub(crate) async fn make_older(site: &Site) -> Result<()> {
    let sealer = Sealer::new(&site.key())?;
    let mut connection = site.database.connect().await?;
    let rows = sqlx::query(
        "SELECT name, key_sealed, convert_to('authority', 'UTF8') || '\\x00' || convert_to(name, 'UTF8') || '\\x00' \
         || sha256(convert_to(certificate_pem, 'UTF8')) AS place FROM authority",
    )
    .fetch_all(&mut connection)
    .await?;
    for row in rows {
        let (name, sealed, place): (String, Vec<u8>, Vec<u8>) =
            (row.try_get("name")?, row.try_get("key_sealed")?, row.try_get("place")?);
        let key = sealer.open("test", &place, &sealed)?;
        sqlx::query("UPDATE authority SET key_sealed = $2 WHERE name = $1")
            .bind(&name)
            .bind(sealer.seal("test", name.as_bytes(), &key)?)
            .execute(&mut connection)
            .await?;
    }
    Ok(())
}
