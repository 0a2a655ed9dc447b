//! A provider, as somebody at a command line signs in there: with a browser on this machine, or with a code on another device.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqwest::blocking::{Client, Response};
use roadstead_oidc::Token;
use roadstead_oidc::code::{self, Answer, Endpoints, NoTokens, Tokens};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::loopback::Loopback;
use super::{TIMEOUT, print};

/// Bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;
/// So long somebody may take to sign in.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two questions whether somebody has done so on another device, where the provider does not say.
const PAUSE: u64 = 5;
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A provider.
pub(super) struct Provider {
    http: Client,
    issuer: String,
    pub(super) endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Named {
    issuer: String,
}

#[derive(Deserialize)]
struct Device {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: Option<u64>,
    interval: Option<u64>,
}

/// A client that trusts this authority alone, or those of this machine. It follows no redirect: none of these answers is one.
pub(super) fn client(ca: Option<&str>) -> Result<Client> {
    let mut http =
        Client::builder().timeout(TIMEOUT).https_only(true).redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = ca {
        let roots =
            reqwest::Certificate::from_pem_bundle(pem.as_bytes()).context("read an authority (PEM)")?;
        http = http.tls_certs_only(roots);
    }
    http.build().context("set up HTTPS")
}

/// An answer's status and bytes, as far as they are taken.
pub(super) fn body(answer: Response) -> Result<(reqwest::StatusCode, Zeroizing<Vec<u8>>)> {
    let status = answer.status();
    let mut bytes = Zeroizing::new(Vec::new());
    answer.take(MAX_ANSWER + 1).read_to_end(&mut bytes).context("read an answer")?;
    if bytes.len() as u64 > MAX_ANSWER {
        bail!("an answer is longer than {MAX_ANSWER} bytes");
    }
    Ok((status, bytes))
}

/// Where a provider is found.
pub(super) struct Place<'a> {
    pub(super) issuer: &'a str,
    /// The only authorities that may vouch for its servers, as PEM.
    pub(super) ca: Option<&'a str>,
    /// Where it says what it is, where that is not beneath its URL.
    pub(super) discovery_url: Option<&'a str>,
}

impl Provider {
    /// Asks the issuer where people sign in.
    pub(super) fn find(&Place { issuer, ca, discovery_url }: &Place<'_>) -> Result<Self> {
        let http = client(ca)?;
        let usual = || format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let place = discovery_url.map_or_else(usual, str::to_owned);
        let what = || format!("ask {place}");
        let (status, bytes) = body(http.get(&place).send().with_context(what)?)?;
        if !status.is_success() {
            bail!("{place} answers {status}");
        }
        let named: Named = serde_json::from_slice(&bytes).with_context(what)?;
        if named.issuer != issuer {
            bail!("{place} names another issuer");
        }
        Ok(Self { http, issuer: issuer.to_owned(), endpoints: Endpoints::parse(&bytes) })
    }

    /// Signs somebody in with a browser of this machine.
    pub(super) fn by_browser(&self, client_id: &str, scopes: &[String], open: bool) -> Result<Tokens> {
        let authorization = self
            .endpoints
            .authorization
            .as_deref()
            .context("the provider publishes no authorization endpoint")?;
        let (state, nonce, verifier) = (random()?, random()?, random()?);
        let loopback = Loopback::listen()?;
        let redirect = loopback.url();
        let offline = scopes.iter().any(|scope| scope == "offline_access");
        let request = code::Request {
            client_id,
            redirect: &redirect,
            scopes,
            // Without it a provider may give nothing to renew with.
            prompt: offline.then_some("consent"),
            state: &state,
            nonce: &nonce,
            verifier: &verifier,
        };
        let url = request.url(authorization).context("the provider's authorization endpoint is not a URL")?;
        print(&format!("Sign in with your browser:\n  {url}\n"))?;
        if open {
            // Who has no browser here opens the address elsewhere on this machine.
            let _ = browser(&url);
        }
        let code = loopback.wait(&state, &self.issuer, Instant::now() + PATIENCE)?;
        let shown = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", verifier.as_str()),
            ("client_id", client_id),
        ];
        self.checked(self.tokens(&shown)?, client_id, Some(&nonce))
    }

    /// Signs somebody in with a browser of another device.
    pub(super) fn by_device(&self, client_id: &str, scopes: &[String]) -> Result<Tokens> {
        let place = self
            .endpoints
            .device
            .as_deref()
            .context("the provider does not support signing in with a code (device flow)")?;
        let scope = scopes.join(" ");
        let (status, bytes) = self.post(place, &[("client_id", client_id), ("scope", &scope)])?;
        if !status.is_success() {
            // As a refusal of tokens is told.
            Tokens::parse(false, &bytes).context("ask for a code")?;
        }
        let device: Device = serde_json::from_slice(&bytes).context("ask for a code")?;
        let url = device.verification_uri_complete.as_deref().unwrap_or(&device.verification_uri);
        let plain = |text: &str| text.chars().filter(char::is_ascii_graphic).take(2048).collect::<String>();
        print(&format!(
            "On any device open\n  {}\nand enter the code {}\n",
            plain(url),
            plain(&device.user_code)
        ))?;
        let lasts = device.expires_in.map_or(PATIENCE, Duration::from_secs).min(PATIENCE);
        let (end, mut pause) = (Instant::now() + lasts, device.interval.unwrap_or(PAUSE).clamp(1, 60));
        let shown =
            [("grant_type", DEVICE), ("device_code", device.device_code.as_str()), ("client_id", client_id)];
        while Instant::now() < end {
            std::thread::sleep(Duration::from_secs(pause));
            match self.redeemed(&shown)? {
                Ok(tokens) => return self.checked(tokens, client_id, None),
                Err(NoTokens::Pending) => {}
                Err(NoTokens::SlowDown) => pause += 5,
                Err(error) => return Err(error.into()),
            }
        }
        bail!("timed out: the code was not entered")
    }

    /// Another ID token for what one is renewed with; inner none where that is worth nothing any more.
    pub(super) fn renewed(&self, client_id: &str, refresh: &str) -> Result<Result<Tokens, NoTokens>> {
        self.redeemed(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh),
            ("client_id", client_id),
        ])
    }

    fn tokens(&self, shown: &[(&str, &str)]) -> Result<Tokens> {
        Ok(self.redeemed(shown)??)
    }

    fn redeemed(&self, shown: &[(&str, &str)]) -> Result<Result<Tokens, NoTokens>> {
        let place = self.endpoints.token.as_deref().context("the provider publishes no token endpoint")?;
        let (status, bytes) = self.post(place, shown)?;
        Ok(Tokens::parse(status.is_success(), &bytes))
    }

    fn post(
        &self,
        place: &str,
        fields: &[(&str, &str)],
    ) -> Result<(reqwest::StatusCode, Zeroizing<Vec<u8>>)> {
        let form = code::form(fields);
        let request = self
            .http
            .post(place)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(form.to_string());
        body(request.send().with_context(|| format!("ask {}", self.issuer))?)
    }

    /// That it is the answer to this sign-in. Whether it is signed as it must be is the hub's to say.
    fn checked(&self, tokens: Tokens, client_id: &str, nonce: Option<&str>) -> Result<Tokens> {
        let id = tokens.id.as_deref().context("the provider gave no ID token")?;
        let token = Token::parse(id).context("read the ID token")?;
        if token.issuer() != self.issuer {
            bail!("the ID token is from another issuer");
        }
        Answer { client_id, nonce, subject: None }.check(&token)?;
        Ok(tokens)
    }
}

/// 32 random bytes, as text.
fn random() -> Result<Zeroizing<String>> {
    use base64::Engine as _;
    let mut bytes = Zeroizing::new([0_u8; 32]);
    aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| anyhow::anyhow!("there is no randomness"))?;
    Ok(Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes.as_ref())))
}

fn browser(url: &str) -> Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let nothing = std::process::Stdio::null;
    std::process::Command::new(program)
        .arg(url)
        .stdin(nothing())
        .stdout(nothing())
        .stderr(nothing())
        .spawn()
        .with_context(|| format!("run {program}"))?;
    Ok(())
}
