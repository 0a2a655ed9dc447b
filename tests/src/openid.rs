//! A real OpenID provider over HTTPS, with people who sign in by a password.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rcgen::generate_simple_self_signed;
use reqwest::StatusCode;
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

impl OpenIdProvider {
    /// Has jane's browser go to where somebody is sent to sign in, and gives where the provider sends it back to.
    ///
    /// # Errors
    /// When the provider does not send it back.
    pub async fn sent_back_from(&self, url: &str) -> Result<String> {
        self.browser()?.sent_back_from(url).await
    }

    /// Another browser of jane's.
    ///
    /// # Errors
    /// When the provider's certificate cannot be read.
    pub fn browser(&self) -> Result<Browser<'_>> {
        Browser::new(self)
    }

    /// Has jane open the page where the code of another device is entered, and say yes to it.
    ///
    /// # Errors
    /// When the provider does not take the code.
    pub async fn enter_code(&self, url: &str) -> Result<()> {
        let mut browser = Browser::new(self)?;
        let request = browser.http.get(url);
        let Led::To(StatusCode::OK, page) = browser.follow(request).await? else {
            bail!("{url} has no page")
        };
        // Letters, digits and dashes.
        let (xsrf, code) = (field(&page, "xsrf")?, field(&page, "user_code")?);
        let body = format!("xsrf={xsrf}&user_code={code}&confirm=yes");
        let request = browser.http.post(format!("{}/device", self.url())).body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        match browser.follow(request).await? {
            Led::To(StatusCode::OK, _) => Ok(()),
            Led::To(status, page) => bail!("the provider answers {status}: {page}"),
            Led::Elsewhere(to) => bail!("the provider sends the browser to {to}"),
        }
    }
}

/// What a field of a form holds.
fn field(page: &str, name: &str) -> Result<String> {
    let after = page.split(&format!("name=\"{name}\" value=\"")).nth(1);
    let value = after.and_then(|after| after.split('"').next());
    Ok(value.with_context(|| format!("the page has no {name}: {page}"))?.to_owned())
}

/// Jane's browser, which nobody else uses.
pub struct Browser<'a> {
    provider: &'a OpenIdProvider,
    http: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

/// Where a browser came to.
enum Led {
    /// A page of the provider's.
    To(StatusCode, String),
    /// The address of another site, at which it did not look.
    Elsewhere(String),
}

impl<'a> Browser<'a> {
    fn new(provider: &'a OpenIdProvider) -> Result<Self> {
        let roots = reqwest::Certificate::from_pem(provider.ca_pem.as_bytes())?;
        let redirects = reqwest::redirect::Policy::none();
        let http =
            reqwest::Client::builder().tls_certs_only([roots]).redirect(redirects).no_proxy().build()?;
        Ok(Self { provider, http, cookies: BTreeMap::new() })
    }

    /// Where a sign-in or sign-out that begins at this address sends it back to.
    ///
    /// # Errors
    /// When the provider does not send it back.
    pub async fn sent_back_from(&mut self, url: &str) -> Result<String> {
        let request = self.http.get(url);
        self.elsewhere(request).await
    }

    /// Opens the page where jane signs out, says yes to it, and gives where she is sent then.
    ///
    /// # Errors
    /// When the provider has no such page, or does not send her back.
    pub async fn signs_out_at(&mut self, url: &str) -> Result<String> {
        let request = self.http.get(url);
        let Led::To(StatusCode::OK, page) = self.follow(request).await? else { bail!("{url} has no page") };
        let body = format!("xsrf={}&logout=yes", field(&page, "xsrf")?);
        let request = self.http.post(format!("{}/session/end/confirm", self.provider.url())).body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.elsewhere(request).await
    }

    async fn elsewhere(&mut self, request: reqwest::RequestBuilder) -> Result<String> {
        match self.follow(request).await? {
            Led::Elsewhere(to) => Ok(to),
            Led::To(status, page) => bail!("the provider answers {status}: {page}"),
        }
    }

    /// Asks for something, and goes on to where it is led, as long as that is the provider.
    async fn follow(&mut self, request: reqwest::RequestBuilder) -> Result<Led> {
        let mut request = request;
        for _ in 0..12 {
            let kept: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let answer = request.header("cookie", kept.join("; ")).send().await?;
            for set in answer.headers().get_all("set-cookie") {
                let pair = set.to_str()?.split(';').next().and_then(|pair| pair.split_once('='));
                let (name, value) = pair.context("a cookie")?;
                if value.is_empty() {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
            let (status, to) = (answer.status(), answer.headers().get("location").cloned());
            let Some(to) = to else { return Ok(Led::To(status, answer.text().await?)) };
            let to = answer.url().join(to.to_str()?)?;
            if !to.as_str().starts_with(&self.provider.url()) {
                return Ok(Led::Elsewhere(to.into()));
            }
            request = self.http.get(to);
        }
        bail!("the provider sends the browser around")
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
