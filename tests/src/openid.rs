//! A real OpenID provider over HTTPS, with people who sign in by a password.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::generate_simple_self_signed;
use serde_json::Value;
use tempfile::TempDir;

use crate::given::{folder, oidc};
use crate::process::Process;
use crate::unique::free_port;

/// How long it may take until it serves, on a busy machine.
const READY: Duration = Duration::from_secs(60);

/// The provider: npm's oidc-provider, as `tests/oidc/provider.mjs` sets it up.
pub struct OpenIdProvider {
    folder: TempDir,
    port: u16,
    ca_pem: String,
    /// How often it was started.
    starts: usize,
    process: Process,
}

impl OpenIdProvider {
    /// Starts one on a free port, and waits until it serves.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start() -> Result<Self> {
        roadstead_test_gitserver::install_crypto();
        let (folder, port) = (folder()?, free_port()?);
        let own = generate_simple_self_signed(["127.0.0.1".to_owned()]).context("make a certificate")?;
        std::fs::write(folder.path().join("tls.crt"), own.cert.pem())?;
        std::fs::write(folder.path().join("tls.key"), own.signing_key.serialize_pem())?;
        let process = serve(folder.path(), port, 1).await?;
        Ok(Self { folder, port, ca_pem: own.cert.pem(), starts: 1, process })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The authority of its certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Starts it again where it was, once it was ended: with new keys.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self) -> Result<()> {
        self.starts += 1;
        self.process = serve(self.folder.path(), self.port, self.starts).await?;
        Ok(())
    }

    /// Has somebody sign in for a client, and gives the token.
    ///
    /// # Errors
    /// When the provider gives none.
    pub async fn sign_in(&self, client: &str, user: &str) -> Result<String> {
        let roots = reqwest::Certificate::from_pem(self.ca_pem.as_bytes())?;
        let http = reqwest::Client::builder().tls_certs_only([roots]).no_proxy().build()?;
        let body = format!("grant_type=password&scope=openid&username={user}&password=of+{user}");
        let request = http
            .post(format!("{}/token", self.url()))
            .basic_auth(client, Some("of+the+client"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let answer = request.send().await.context("ask for a token")?;
        let (status, answer) = (answer.status(), answer.json::<Value>().await?);
        ensure!(status.is_success(), "the provider answers {status}: {answer}");
        Ok(answer["id_token"].as_str().context("there is no token")?.to_owned())
    }
}

async fn serve(folder: &Path, port: u16, number: usize) -> Result<Process> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc/provider.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(oidc()?).arg(port.to_string()).arg(folder);
    // A file for each start, so that nobody takes an earlier one's word.
    let process = Process::start("the OpenID provider", &mut command, &folder.join(format!("{number}.log")))?;
    process.says("serves", READY).await?;
    Ok(process)
}
