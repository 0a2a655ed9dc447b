//! Client certificates, for when nobody can sign in otherwise: whom one stands for, and that all others are as none.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use reqwest::StatusCode;
use roadstead_hub_api::{ApiOptions, ClientCa};
use roadstead_hub_core::identity::Identity;
use roadstead_model::AuditFilter;
use roadstead_tests::Kubectl;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::{Replica, Site};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What a certificate says.
struct Says<'a> {
    names: &'a [&'a str],
    groups: &'a [&'a str],
    from: OffsetDateTime,
    until: OffsetDateTime,
    usage: ExtendedKeyUsagePurpose,
}

impl Default for Says<'_> {
    fn default() -> Self {
        let now = OffsetDateTime::now_utc();
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        Self { names: &["jane"], groups: &["dev"], from: now - DAY, until: now + DAY, usage }
    }
}

impl Authority {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Break-glass CA");
        let certificate = params.self_signed(&key)?;
        let pem = certificate.pem();
        Ok(Self { issuer: Issuer::from_ca_cert_pem(&pem, key)?, pem })
    }

    /// A certificate and its key, PEM.
    fn certificate(&self, says: &Says<'_>) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for name in says.names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        for group in says.groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        (params.not_before, params.not_after) = (says.from, says.until);
        params.extended_key_usages = vec![says.usage.clone()];
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// What somebody with this certificate is told to be, with a token or without.
async fn who(
    replica: &Replica,
    shown: &(String, String),
    token: Option<&str>,
) -> Result<(StatusCode, Value)> {
    who_by(replica, shown, token, &[]).await
}

/// The same with headers besides.
async fn who_by(
    replica: &Replica,
    (certificate, key): &(String, String),
    token: Option<&str>,
    page: &[(&str, &str)],
) -> Result<(StatusCode, Value)> {
    // Another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let identity = reqwest::Identity::from_pem(format!("{key}{certificate}").as_bytes())?;
    let roots = reqwest::Certificate::from_pem_bundle(replica.hub.pki().server_ca_pem().as_bytes())?;
    let client = reqwest::Client::builder().tls_certs_only(roots).no_proxy().identity(identity).build()?;
    let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", replica.url);
    let request = token.into_iter().fold(client.post(url), reqwest::RequestBuilder::bearer_auth);
    let request = page.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = request.json(&json!({})).send().await?;
    let status = answer.status();
    let mut body: Value = answer.json().await?;
    Ok((status, if status == StatusCode::CREATED { body["status"]["userInfo"].take() } else { body }))
}

async fn hub(site: &Site, authority: &Authority, masters: bool) -> Result<Replica> {
    let client_ca = Some(ClientCa { pem: authority.pem.clone(), masters });
    site.replica_with(ApiOptions { client_ca, ..ApiOptions::default() }).await
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_its_user_and_each_use_is_on_record() -> Result<()> {
    let (site, authority) = (Site::new().await?, Authority::new()?);
    let replica = hub(&site, &authority, false).await?;
    let good = authority.certificate(&Says::default())?;
    for _ in 0..3 {
        let (status, user) = who(&replica, &good, None).await?;
        ensure!(status == StatusCode::CREATED && user["username"] == "jane", "{status} {user}");
        ensure!(user["groups"] == json!(["dev", "system:authenticated"]), "{user}");
        let credential = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
        ensure!(credential.is_some_and(|id| id.starts_with("X509SHA256=")), "{user}");
    }
    // Once a minute.
    let (log, _) = replica.hub.audit.entries(&Identity::hub(), &AuditFilter::default(), 500).await?;
    let log = serde_json::to_value(&log)?;
    let uses = log.as_array().context("a log")?.iter().filter(|entry| entry["kind"] == "ClientCertificate");
    let uses: Vec<&Value> = uses.collect();
    ensure!(uses.len() == 1 && uses[0]["user"] == "jane", "{uses:?}");
    // Roles decide what it may do.
    let kubectl = &replica.kubectl;
    let text = kubectl.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
    let mut config: Value = serde_json::from_str(&text)?;
    config["users"][0]["user"] = json!({
        "client-certificate-data": STANDARD.encode(&good.0), "client-key-data": STANDARD.encode(&good.1),
    });
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, config.to_string())?;
    let error = Kubectl::new(&path)?.run(&["get", "secrets"]).await.unwrap_err().to_string();
    ensure!(error.contains(r#"User "jane" cannot list resource "secrets""#), "{error}");
    // A browser shows it by itself, whatever page asks: there a certificate counts for nothing.
    for header in
        [("origin", "https://evil.test"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]
    {
        let (status, said) = who_by(&replica, &good, None, &[header]).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{header:?}: {said}");
    }
    // A token is what counts where one is shown, and others need no certificate.
    let (_, user) = who(&replica, &good, Some(&replica.token)).await?;
    ensure!(user["username"] == "roadstead-admin", "{user}");
    ensure!(who(&replica, &good, Some("made-up")).await?.0 == StatusCode::UNAUTHORIZED);
    kubectl.run(&["get", "namespaces"]).await?;
    Ok(())
}

#[tokio::test]
async fn any_other_certificate_is_as_none() -> Result<()> {
    let (site, authority, other) = (Site::new().await?, Authority::new()?, Authority::new()?);
    let replica = hub(&site, &authority, false).await?;
    let now = OffsetDateTime::now_utc();
    ensure!(who(&replica, &authority.certificate(&Says::default())?, None).await?.0 == StatusCode::CREATED);
    // Of another authority that has the same name.
    let foreign = other.certificate(&Says::default())?;
    ensure!(who(&replica, &foreign, None).await?.0 == StatusCode::UNAUTHORIZED, "foreign");
    for (what, says) in [
        ("expired", Says { until: now - Duration::from_secs(60), ..Says::default() }),
        ("not valid yet", Says { from: now + Duration::from_secs(3600), ..Says::default() }),
        ("for servers", Says { usage: ExtendedKeyUsagePurpose::ServerAuth, ..Says::default() }),
        ("a reserved name", Says { names: &["system:admin"], ..Says::default() }),
        ("a reserved name in another case", Says { names: &["System:admin"], ..Says::default() }),
        ("no name", Says { names: &[], ..Says::default() }),
        ("an empty name", Says { names: &[""], ..Says::default() }),
        ("an invisible character", Says { names: &["ja\u{200b}ne"], ..Says::default() }),
        ("masters", Says { groups: &["system:masters"], ..Says::default() }),
        ("another group of the system", Says { groups: &["dev", "SYSTEM:nodes"], ..Says::default() }),
    ] {
        let (status, said) = who(&replica, &authority.certificate(&says)?, None).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{what}: {status} {said}");
    }
    // Whoever may do everything is let by a flag of its own.
    let masters = hub(&site, &authority, true).await?;
    let says = Says { names: &["breaker"], groups: &["system:masters"], ..Says::default() };
    let (_, user) = who(&masters, &authority.certificate(&says)?, None).await?;
    ensure!(user["groups"] == json!(["system:masters", "system:authenticated"]), "{user}");
    let says = Says { groups: &["system:nodes"], ..Says::default() };
    ensure!(who(&masters, &authority.certificate(&says)?, None).await?.0 == StatusCode::UNAUTHORIZED);
    // Without the flag no certificate is asked for.
    let plain = site.replica().await?;
    let good = authority.certificate(&Says::default())?;
    ensure!(who(&plain, &good, None).await?.0 == StatusCode::UNAUTHORIZED);
    Ok(())
}
