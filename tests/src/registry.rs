//! A real OCI registry over HTTPS, and the `flux` command that pushes to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::given::{clients, folder, helm};
use crate::process::Process;
use crate::unique::free_port;
use crate::wait::eventually;

/// Who may push and pull: a name and a password.
pub const LOGIN: (&str, &str) = ("reader", "right");
/// The same as the registry reads it, with the password hashed by bcrypt; and who logs in by what AWS gives out.
const HTPASSWD: &str = "reader:$2y$04$abcdefghijklmnopqrstuuFmEfrkTQnczNzw475xE2VhDrK1uwJiC\n\
                        AWS:$2y$04$abcdefghijklmnopqrstuuFmEfrkTQnczNzw475xE2VhDrK1uwJiC\n";

/// A registry that wants a name and a password, with a certificate of its own authority.
pub struct Registry {
    folder: TempDir,
    port: u16,
    _process: Process,
}

impl Registry {
    /// Starts one on a free port, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start() -> Result<Self> {
        let (folder, port) = (folder()?, free_port()?);
        let at = folder.path();
        certify(at).context("make the registry's certificate")?;
        std::fs::write(at.join("htpasswd"), HTPASSWD)?;
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem: {{rootdirectory: {root}/data}}\n  delete: {{enabled: true}}\n\
             http:\n  addr: 127.0.0.1:{port}\n  secret: of-this-test\n  tls: {{certificate: {root}/server.pem, key: {root}/server.key}}\n\
             auth:\n  htpasswd: {{realm: test, path: {root}/htpasswd}}\n",
            root = at.display()
        );
        let file = at.join("config.yml");
        std::fs::write(&file, config)?;
        let mut command = Command::new(clients()?.join("bin/registry"));
        command.env_clear().env("OTEL_TRACES_EXPORTER", "none").arg("serve").arg(&file);
        let process = Process::start("registry", &mut command, &at.join("log"))?;
        eventually("the registry listens", Duration::from_secs(30), || async {
            Ok(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(|_| ())?)
        })
        .await
        .with_context(|| process.logs())?;
        Ok(Self { folder, port, _process: process })
    }

    /// Its host and port.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of a repository.
    #[must_use]
    pub fn url(&self, repository: &str) -> String {
        format!("oci://{}/{repository}", self.host())
    }

    /// The certificate of its authority, in PEM.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Pushes a folder by the real `flux push artifact`; gives the digest of what was pushed.
    ///
    /// # Errors
    /// When it fails.
    pub async fn push(&self, repository: &str, tag: &str, files: &Path) -> Result<String> {
        let (name, password) = LOGIN;
        let output = tokio::process::Command::new(clients()?.join("bin/flux"))
            .env_clear()
            .env("HOME", self.folder.path())
            .env("SSL_CERT_FILE", self.ca())
            .args(["push", "artifact", &format!("{}:{tag}", self.url(repository)), "--output=json"])
            .arg(format!("--path={}", files.display()))
            .arg(format!("--creds={name}:{password}"))
            .args([
                "--source=https://git.example/app",
                "--revision=main@sha1:1111111111111111111111111111111111111111",
            ])
            .kill_on_drop(true)
            .output()
            .await
            .context("run flux")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "flux push artifact: {error}");
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("read what flux says")?;
        told["digest"].as_str().map(str::to_owned).context("flux says no digest")
    }

    /// Pushes a packed chart, as `helm push` does it; gives the digest of what was pushed.
    ///
    /// # Errors
    /// When it fails.
    pub async fn push_chart(&self, repository: &str, tag: &str, chart: &[u8]) -> Result<String> {
        let config = b"{}";
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.cncf.helm.config.v1+json",
                "digest": self.push_blob(repository, config).await?, "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "digest": self.push_blob(repository, chart).await?, "size": chart.len(),
            }],
        });
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.push_manifest(repository, tag, kind, manifest.to_string().as_bytes()).await
    }

    /// Keeps a manifest as it is, at a tag or at its digest; gives its digest.
    ///
    /// # Errors
    /// When it fails.
    pub async fn push_manifest(
        &self,
        repository: &str,
        reference: &str,
        kind: &str,
        manifest: &[u8],
    ) -> Result<String> {
        let url = format!("https://{}/v2/{repository}/manifests/{reference}", self.host());
        let (name, password) = LOGIN;
        let put = self.client()?.put(url).basic_auth(name, Some(password)).header("content-type", kind);
        put.body(manifest.to_vec()).send().await?.error_for_status()?;
        Ok(digest(manifest))
    }

    /// Pushes a packed chart into a folder of the registry, by the real `helm push`.
    ///
    /// # Errors
    /// When it fails.
    pub async fn helm_push(&self, folder: &str, chart: &Path) -> Result<()> {
        let (name, password) = LOGIN;
        let output = tokio::process::Command::new(helm()?)
            .env_clear()
            .env("HOME", self.folder.path())
            .args(["push", "--username", name, "--password", password, "--ca-file"])
            .args([&self.ca(), chart])
            .arg(self.url(folder))
            .kill_on_drop(true)
            .output()
            .await
            .context("run helm")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "helm push: {error}");
        Ok(())
    }

    /// Lays what a fixture has of a registry into a repository: `blobs` by their digests, each with its `kind` and its `data` in base64,
    /// and `tags`. A manifest's bytes stay what was signed.
    ///
    /// # Errors
    /// When something of it is not there, or is not taken.
    pub async fn lay(&self, repository: &str, fixture: &serde_json::Value) -> Result<()> {
        let bytes_of = |blob: &serde_json::Value| {
            let data = blob["data"].as_str().context("a blob without data")?;
            anyhow::Ok(STANDARD.decode(data)?)
        };
        let kind_of = |blob: &serde_json::Value| blob["kind"].as_str().unwrap_or_default().to_owned();
        let blobs = fixture["blobs"].as_object().context("no blobs")?;
        let is_list = |kind: &str| kind.ends_with(".index.v1+json");
        let is_manifest = |kind: &str| is_list(kind) || kind.ends_with(".manifest.v1+json");
        for blob in blobs.values().filter(|blob| !is_manifest(&kind_of(blob))) {
            self.push_blob(repository, &bytes_of(blob)?).await?;
        }
        let put = async |name: &str, blob: &serde_json::Value| {
            self.push_manifest(repository, name, &kind_of(blob), &bytes_of(blob)?).await
        };
        // Lists name manifests that are there.
        for list in [false, true] {
            for (digest, blob) in blobs {
                let kind = kind_of(blob);
                if is_manifest(&kind) && is_list(&kind) == list {
                    put(digest, blob).await?;
                }
            }
        }
        for (tag, digest) in fixture["tags"].as_object().context("no tags")? {
            let digest = digest.as_str().context("a tag of nothing")?;
            put(tag, blobs.get(digest).context("a tag of what is not there")?).await?;
        }
        Ok(())
    }

    /// Keeps a blob as it is; gives its digest.
    ///
    /// # Errors
    /// When it fails.
    pub async fn push_blob(&self, repository: &str, bytes: &[u8]) -> Result<String> {
        let (client, (name, password)) = (self.client()?, LOGIN);
        let url = format!("https://{}/v2/{repository}/blobs/uploads/", self.host());
        let begun = client.post(url).basic_auth(name, Some(password)).send().await?.error_for_status()?;
        let location = begun.headers().get("location").context("no place for a blob")?.to_str()?;
        let mut place = begun.url().join(location)?;
        let digest = digest(bytes);
        place.query_pairs_mut().append_pair("digest", &digest);
        let put = client.put(place).basic_auth(name, Some(password)).body(bytes.to_vec());
        put.send().await?.error_for_status()?;
        Ok(digest)
    }

    fn client(&self) -> Result<reqwest::Client> {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(self.ca())?)?;
        Ok(reqwest::Client::builder().tls_certs_only([ca]).build()?)
    }

    /// Makes a pair of keys for cosign in a folder, `NAME.key` and `NAME.pub`; gives the public one.
    ///
    /// # Errors
    /// When it fails.
    pub async fn key_pair(&self, folder: &Path, name: &str) -> Result<String> {
        let prefix = folder.join(name);
        self.cosign(&["generate-key-pair", &format!("--output-key-prefix={}", prefix.display())]).await?;
        Ok(std::fs::read_to_string(prefix.with_extension("pub"))?)
    }

    /// Signs what has this digest, by the real `cosign sign` with a key, as a bundle or in the form of older versions.
    ///
    /// # Errors
    /// When it fails.
    pub async fn sign(&self, repository: &str, digest: &str, key: &Path, as_a_bundle: bool) -> Result<()> {
        let (name, password) = LOGIN;
        self.cosign(&[
            "sign",
            "--yes",
            &format!("--key={}", key.display()),
            &format!("--new-bundle-format={as_a_bundle}"),
            // No log that is public: nothing of this is to leave the machine.
            "--use-signing-config=false",
            "--tlog-upload=false",
            &format!("--registry-username={name}"),
            &format!("--registry-password={password}"),
            &format!("{}/{repository}@{digest}", self.host()),
        ])
        .await
    }

    async fn cosign(&self, args: &[&str]) -> Result<()> {
        let output = tokio::process::Command::new(clients()?.join("bin/cosign"))
            .env_clear()
            .env("HOME", self.folder.path())
            .env("SSL_CERT_FILE", self.ca())
            .env("COSIGN_PASSWORD", "")
            .args(args)
            .kill_on_drop(true)
            .output()
            .await
            .context("run cosign")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "cosign {}: {error}", args[0]);
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Makes an authority, `ca.pem`, and a certificate of it for this machine, `server.pem` and `server.key`.
pub(crate) fn certify(folder: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // OpenSSL takes a certificate whose issuer has its name for its own issuer.
    params.distinguished_name.push(DnType::CommonName, "authority of this test");
    std::fs::write(folder.join("ca.pem"), params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "server of this test");
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    std::fs::write(folder.join("server.pem"), certificate.pem())?;
    std::fs::write(folder.join("server.key"), key.serialize_pem())?;
    Ok(())
}
