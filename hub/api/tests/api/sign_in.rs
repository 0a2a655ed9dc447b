//! Signing in to the dashboard: what ties a provider's answer to a browser, what a session's cookie counts for, and when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::SignedDuration;
use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use roadstead_hub_core::identity::SignInOptions;
use roadstead_hub_core::{Clock as _, HubOptions};
use roadstead_model::AuditFilter;
use roadstead_oidc::{Configuration, SignInConfiguration};
use roadstead_outbound::Secret;
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::issuer::{Given, Issuer, Mode, SigningKey};
use crate::oidc::Ahead;
use crate::support::{Replica, Site};

const SESSION: &str = "__Host-roadstead-session";
const SIGN_IN: &str = "__Host-roadstead-sign-in";
const PATIENCE: Duration = Duration::from_secs(20);
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A hub at which people sign in, its provider, and a browser.
struct Dashboard {
    replica: Replica,
    issuer: Issuer,
    key: SigningKey,
    clock: Arc<Ahead>,
    client: reqwest::Client,
}

/// What a browser has once it was sent to the provider.
struct Sent {
    to: Url,
    query: BTreeMap<String, String>,
    cookie: String,
}

async fn hub(
    site: &Site,
    issuer: &Issuer,
    clock: &Arc<Ahead>,
    secret: &str,
    any_token: bool,
) -> Result<Replica> {
    let authentication = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": issuer.url, "audiences": ["hub", "cli"], "audienceMatchPolicy": "MatchAny",
                "certificateAuthority": issuer.ca_pem,
            },
            "claimMappings": { "username": { "claim": "sub", "prefix": "oidc:" }, "groups": { "claim": "groups", "prefix": "" } },
        }],
    });
    let authentication = Arc::new(Configuration::parse(authentication.to_string().as_bytes())?);
    let file = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "SignInConfiguration",
        "providers": [{ "issuer": issuer.url, "name": "Company", "clientID": "hub", "commandLine": { "clientID": "cli" } }],
    });
    let configuration = SignInConfiguration::parse(file.to_string().as_bytes(), &authentication)?;
    let secrets = vec![Secret::from(secret)];
    let sign_in = SignInOptions { configuration, secrets, any_token, ..SignInOptions::default() };
    site.replica_by(clock.clone(), HubOptions { authentication, sign_in, ..HubOptions::default() }).await
}

impl Dashboard {
    async fn new(site: &Site) -> Result<Self> {
        Self::with(site, "", false).await
    }

    async fn with_secret(site: &Site, secret: &str) -> Result<Self> {
        Self::with(site, secret, false).await
    }

    async fn with(site: &Site, secret: &str, any_token: bool) -> Result<Self> {
        let key = SigningKey::new("one")?;
        let (issuer, clock) = (Issuer::start(&[&key]).await?, Arc::<Ahead>::default());
        let replica = hub(site, &issuer, &clock, secret, any_token).await?;
        Ok(Self { client: client(&replica)?, replica, issuer, key, clock })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.replica.url)
    }

    async fn begin(&self, page: &str) -> Result<Sent> {
        let mut url = Url::parse(&self.url("/fleet/v1/sign-in/start?provider=0"))?;
        url.query_pairs_mut().append_pair("to", page);
        let answer = self.client.get(url).send().await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{}", answer.status());
        let cookie = cookie(answer.headers(), SIGN_IN)?;
        let to = Url::parse(location(&answer)?)?;
        let query = to.query_pairs().into_owned().collect();
        Ok(Sent { to, query, cookie })
    }

    /// What the provider says of jane to whoever has this nonce.
    fn claims(&self, nonce: &str, lasts: i64) -> Value {
        let end = self.clock.now().as_second() + lasts;
        json!({ "iss": self.issuer.url, "aud": "hub", "sub": "jane", "groups": ["dev"], "exp": end, "nonce": nonce })
    }

    /// From now on the provider gives this for a code or a refresh token.
    fn gives(&self, claims: &Value, refresh: Option<&str>) -> Result<String> {
        let token = self.key.sign(claims)?;
        let given = json!({ "id_token": token, "refresh_token": refresh, "access_token": "a", "token_type": "Bearer" });
        self.issuer.give(Given::Answer(200, given.to_string()));
        Ok(token)
    }

    async fn back(&self, cookie: Option<&str>, query: &[(&str, &str)]) -> Result<Response> {
        let mut url = Url::parse(&self.url("/fleet/v1/sign-in/callback"))?;
        url.query_pairs_mut().extend_pairs(query);
        let mut request = self.client.get(url).header("sec-fetch-site", "cross-site");
        if let Some(cookie) = cookie {
            request = request.header("cookie", format!("{SIGN_IN}={cookie}"));
        }
        Ok(request.send().await?)
    }

    /// Has jane sign in, and gives the session's cookie.
    async fn sign_in(&self, lasts: i64, refresh: Option<&str>) -> Result<String> {
        let sent = self.begin("/ui/").await?;
        self.gives(&self.claims(&sent.query["nonce"], lasts), refresh)?;
        let answer = self.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "c")]).await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{}: {}", answer.status(), answer.text().await?);
        cookie(answer.headers(), SESSION)
    }

    /// As the dashboard asks who it is.
    async fn who(&self, session: &str) -> Result<(StatusCode, Value)> {
        let request = by_dashboard(self.client.post(self.url(WHOAMI)), session);
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let answer = request.json(&body).send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    async fn is_in(&self, session: &str) -> Result<bool> {
        match self.who(session).await? {
            (StatusCode::CREATED, answer) => {
                ensure!(answer["status"]["userInfo"]["username"] == "oidc:jane", "{answer}");
                Ok(true)
            }
            (StatusCode::UNAUTHORIZED, _) => Ok(false),
            (status, answer) => anyhow::bail!("{status}: {answer}"),
        }
    }

    /// What the log has of sessions: verb, outcome and detail.
    async fn recorded(&self) -> Result<Vec<(String, String)>> {
        self.replica.hub.audit.write_counted(true).await?;
        let filter = AuditFilter { kind: "Session".to_owned(), ..AuditFilter::default() };
        let who = roadstead_hub_core::identity::Identity::hub();
        let (items, _) = self.replica.hub.audit.entries(&who, &filter, 1000).await?;
        let items = serde_json::to_value(items)?;
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        Ok(items
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| (format!("{} {}", text(item, "verb"), text(item, "outcome")), text(item, "detail")))
            .collect())
    }
}

fn client(replica: &Replica) -> Result<reqwest::Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let roots = reqwest::Certificate::from_pem_bundle(replica.hub.pki().server_ca_pem().as_bytes())?;
    let redirects = reqwest::redirect::Policy::none();
    Ok(reqwest::Client::builder().tls_certs_only(roots).redirect(redirects).no_proxy().build()?)
}

fn by_dashboard(request: RequestBuilder, session: &str) -> RequestBuilder {
    let request = request.header("sec-fetch-site", "same-origin").header("x-roadstead-dashboard", "1");
    request.header("cookie", format!("{SESSION}={session}"))
}

/// The value of a cookie that an answer sets as it is to be set.
fn cookie(headers: &HeaderMap, name: &str) -> Result<String> {
    let same_site = if name == SESSION { "SameSite=Strict" } else { "SameSite=Lax" };
    for value in headers.get_all(SET_COOKIE) {
        let mut parts = value.to_str()?.split("; ");
        let (known, value) = parts.next().and_then(|pair| pair.split_once('=')).context("a pair")?;
        if known == name && !value.is_empty() {
            let attributes: Vec<&str> = parts.collect();
            for want in ["Path=/", "Secure", "HttpOnly", same_site] {
                ensure!(attributes.contains(&want), "{name}: no {want}: {attributes:?}");
            }
            ensure!(!attributes.iter().any(|one| one.starts_with("Domain")), "{attributes:?}");
            return Ok(value.to_owned());
        }
    }
    anyhow::bail!("{name} is not set")
}

fn location(answer: &Response) -> Result<&str> {
    Ok(answer.headers().get(LOCATION).context("a location")?.to_str()?)
}

fn fields(form: &str) -> Result<BTreeMap<String, String>> {
    Ok(Url::parse(&format!("https://x.test/?{form}"))?.query_pairs().into_owned().collect())
}

#[tokio::test]
async fn a_person_signs_in_and_out_and_the_browser_has_no_token() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::with_secret(&site, "of the client").await?;
    let offered: Value = at.client.get(at.url("/fleet/v1/sign-in")).send().await?.json().await?;
    let provider = &offered["providers"][0];
    ensure!(provider["name"] == "Company" && provider["clientID"] == "cli", "{offered}");
    ensure!(provider["start"] == at.url("/fleet/v1/sign-in/start?provider=0"), "{offered}");
    ensure!(!offered.to_string().contains("of the client") && offered["user"].is_null(), "{offered}");

    let sent = at.begin("/ui/clusters/edge-1?tab=x").await?;
    ensure!(sent.to.as_str().starts_with(&format!("{}/authorize?", at.issuer.url)), "{}", sent.to);
    let redirect = at.url("/fleet/v1/sign-in/callback");
    for (field, want) in [
        ("response_type", "code"),
        ("client_id", "hub"),
        ("redirect_uri", redirect.as_str()),
        ("scope", "openid profile email"),
        ("code_challenge_method", "S256"),
    ] {
        ensure!(sent.query[field] == want, "{field}: {}", sent.query[field]);
    }
    let token = at.gives(&at.claims(&sent.query["nonce"], 3600), Some("renews"))?;
    let answer =
        at.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "the code")]).await?;
    ensure!(answer.status() == StatusCode::SEE_OTHER);
    ensure!(location(&answer)? == "/ui/clusters/edge-1?tab=x");
    let session = cookie(answer.headers(), SESSION)?;
    let all = format!("{:?}", answer.headers());
    ensure!(all.contains(&format!("{SIGN_IN}=; ")), "the other cookie stays: {all}");
    let (head, form) = at.issuer.forms().pop().context("a form")?;
    let form = fields(&form)?;
    ensure!(form["code"] == "the code" && form["redirect_uri"] == redirect, "{form:?}");
    ensure!(roadstead_oidc::code::challenge(&form["code_verifier"]) == sent.query["code_challenge"]);
    ensure!(!sent.cookie.contains(&form["code_verifier"]), "the browser has the verifier");
    // hub:of+the+client
    ensure!(head.contains("Basic aHViOm9mK3RoZStjbGllbnQ="), "{head}");
    ensure!(!form.contains_key("client_secret"));

    let (status, user) = at.who(&session).await?;
    ensure!(status == StatusCode::CREATED && user["status"]["userInfo"]["username"] == "oidc:jane", "{user}");
    ensure!(user["status"]["userInfo"]["groups"] == json!(["dev", "system:authenticated"]), "{user}");
    let told = by_dashboard(at.client.get(at.url("/fleet/v1/sign-in")), &session).send().await?;
    let told = told.text().await?;
    ensure!(told.contains("oidc:jane"), "{told}");
    for secret in [token.as_str(), "renews"] {
        ensure!(!all.contains(secret) && !told.contains(secret), "the browser has a token");
    }
    // Nor has the database one that can be read, or the cookie.
    let mut connection = site.database.connect().await?;
    let row: String = sqlx::query_scalar("SELECT s::text || encode(sealed, 'escape') FROM sign_in_session s")
        .fetch_one(&mut connection)
        .await?;
    for secret in [token.as_str(), "renews", session.as_str()] {
        ensure!(!row.contains(secret), "{row}");
    }

    let end = by_dashboard(at.client.post(at.url("/fleet/v1/sign-in/end")), &session).send().await?;
    ensure!(end.status() == StatusCode::OK && format!("{:?}", end.headers()).contains("Max-Age=0"));
    let end: Value = end.json().await?;
    let place = Url::parse(end["location"].as_str().context("a location")?)?;
    let query: BTreeMap<String, String> = place.query_pairs().into_owned().collect();
    ensure!(place.as_str().starts_with(&format!("{}/end?", at.issuer.url)), "{place}");
    ensure!(query["client_id"] == "hub" && query["post_logout_redirect_uri"] == at.url("/ui/"), "{place}");
    ensure!(!at.is_in(&session).await?, "it goes on");
    let again = by_dashboard(at.client.post(at.url("/fleet/v1/sign-in/end")), &session).send().await?;
    ensure!(again.status() == StatusCode::OK, "who is signed out already is told the same");
    let recorded = at.recorded().await?;
    let verbs: Vec<&str> = recorded.iter().map(|(verb, _)| verb.as_str()).collect();
    ensure!(verbs == ["sign-in ok", "sign-out ok"], "{recorded:?}");
    Ok(())
}

#[tokio::test]
async fn a_session_counts_for_the_pages_of_this_hub_alone() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let session = at.sign_in(3600, None).await?;
    let host = at.replica.url.strip_prefix("https://").context("a host")?.to_owned();
    let own = format!("https://{host}");
    let ask = |post: bool, pairs: &[(&str, &str)]| {
        let request = match post {
            true => at.client.post(at.url(WHOAMI)).json(&json!({ "kind": "SelfSubjectReview" })),
            false => at.client.get(at.url("/version")),
        };
        let request = request.header("cookie", format!("x=1; {SESSION}={session}"));
        let request = pairs.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        async move { anyhow::Ok(request.send().await?.status()) }
    };
    let by = ("x-roadstead-dashboard", "1");
    for (post, pairs, counts) in [
        (false, &[("sec-fetch-site", "same-origin")][..], true),
        (false, &[], true),
        (false, &[("sec-fetch-site", "cross-site")], false),
        (false, &[("sec-fetch-site", "same-site")], false),
        (false, &[("sec-fetch-site", "cross-site"), by, ("origin", &own)], false),
        (false, &[("origin", "https://evil.test")], false),
        (true, &[by, ("sec-fetch-site", "same-origin")], true),
        (true, &[by, ("origin", &own)], true),
        (true, &[("sec-fetch-site", "same-origin")], false),
        (true, &[by], false),
        (true, &[by, ("sec-fetch-site", "cross-site")], false),
        (true, &[by, ("sec-fetch-site", "none")], false),
        (true, &[by, ("origin", "https://evil.test")], false),
        (true, &[by, ("origin", "null")], false),
    ] {
        let status = ask(post, pairs).await?;
        let want = match (counts, post) {
            (false, _) => StatusCode::UNAUTHORIZED,
            (true, true) => StatusCode::CREATED,
            (true, false) => StatusCode::OK,
        };
        ensure!(status == want, "{post} {pairs:?}: {status}");
    }
    // A bearer token wins, also one that is not taken.
    let bearer = |token: &str| by_dashboard(at.client.post(at.url(WHOAMI)), &session).bearer_auth(token);
    let body = json!({ "kind": "SelfSubjectReview" });
    let user: Value = bearer(&at.replica.token).json(&body).send().await?.json().await?;
    ensure!(user["status"]["userInfo"]["username"] == "roadstead-admin", "{user}");
    ensure!(bearer("no-token").json(&body).send().await?.status() == StatusCode::UNAUTHORIZED);
    // Two, one of which somebody else has set; and more than is looked at.
    let twice =
        at.client.get(at.url("/version")).header("cookie", format!("{SESSION}={session}; {SESSION}=x"));
    ensure!(twice.send().await?.status() == StatusCode::UNAUTHORIZED);
    let large =
        at.client.get(at.url("/version")).header("cookie", format!("{SESSION}={}", "a".repeat(100_000)));
    if let Ok(answer) = large.send().await {
        ensure!(answer.status().is_client_error(), "{}", answer.status());
    }
    // The answers of which pages elsewhere may read by --cors-origins are never ones by the cookie: no credentials are allowed.
    ensure!(at.is_in(&session).await?);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_not_of_this_browsers_sign_in_is_refused() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let (sent, other) = (at.begin("/ui/").await?, at.begin("/ui/").await?);
    at.gives(&at.claims(&sent.query["nonce"], 3600), None)?;
    let (state, foreign) = (sent.query["state"].as_str(), other.query["state"].as_str());
    let (said, mac) = sent.cookie.split_once('.').context("a MAC")?;
    let (_, mac_of_other) = other.cookie.split_once('.').context("a MAC")?;
    let tampered = format!("{}.{mac}", &said[..said.len() - 4]);
    let swapped = format!("{said}.{mac_of_other}");
    let good = sent.cookie.as_str();
    let huge = "x".repeat(5000);
    for (cookie, query) in [
        (None, &[("state", state), ("code", "c")][..]),
        (Some(""), &[("state", state), ("code", "c")]),
        (Some("a.b"), &[("state", state), ("code", "c")]),
        (Some(&tampered), &[("state", state), ("code", "c")]),
        (Some(&swapped), &[("state", state), ("code", "c")]),
        (Some(&other.cookie), &[("state", state), ("code", "c")]),
        (Some(good), &[("state", foreign), ("code", "c")]),
        (Some(good), &[("state", ""), ("code", "c")]),
        (Some(good), &[("code", "c")]),
        (Some(good), &[]),
        (Some(&huge), &[("state", state), ("code", "c")]),
        (Some(good), &[("state", &huge), ("code", "c")]),
    ] {
        let answer = at.back(cookie, query).await?;
        let (status, headers) = (answer.status(), format!("{:?}", answer.headers()));
        ensure!(status == StatusCode::BAD_REQUEST, "{cookie:?} {query:?}: {status}");
        ensure!(!headers.contains(&format!("{SESSION}=rsds_")), "{headers}");
    }
    ensure!(at.issuer.forms().is_empty(), "the provider was asked");
    // Of another provider, by what it says.
    let mixed = [("state", state), ("code", "c"), ("iss", "https://evil.test")];
    ensure!(at.back(Some(good), &mixed).await?.status() == StatusCode::BAD_REQUEST);
    // Each state is for one answer.
    let late = at.back(Some(good), &[("state", state), ("code", "c")]).await?;
    ensure!(late.status() == StatusCode::BAD_REQUEST && at.issuer.forms().is_empty());

    let sent = at.begin("/ui/").await?;
    at.gives(&at.claims(&sent.query["nonce"], 3600), None)?;
    let query = [("state", sent.query["state"].as_str()), ("code", "c"), ("iss", at.issuer.url.as_str())];
    ensure!(at.back(Some(&sent.cookie), &query).await?.status() == StatusCode::SEE_OTHER);
    ensure!(at.back(Some(&sent.cookie), &query).await?.status() == StatusCode::BAD_REQUEST, "replayed");
    // Nor at another replica, which has not seen it.
    let second = hub(&site, &at.issuer, &at.clock, "", false).await?;
    let mut url = Url::parse(&format!("{}/fleet/v1/sign-in/callback", second.url))?;
    url.query_pairs_mut().extend_pairs(query);
    let there =
        client(&second)?.get(url).header("cookie", format!("{SIGN_IN}={}", sent.cookie)).send().await?;
    ensure!(there.status() == StatusCode::BAD_REQUEST, "{}", there.status());

    // Too late.
    let sent = at.begin("/ui/").await?;
    at.clock.by(SignedDuration::from_secs(601));
    at.gives(&at.claims(&sent.query["nonce"], 3600), None)?;
    let answer = at.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "c")]).await?;
    ensure!(answer.status() == StatusCode::BAD_REQUEST, "{}", answer.status());

    // Whoever begins without end leaves nothing, and pages elsewhere are not where it ends.
    for page in ["//evil.test", "/\\evil.test", "https://evil.test", "/ui/%2e%2e/x", "/ui/../fleet/v1/audit"]
    {
        let sent = at.begin(page).await?;
        at.gives(&at.claims(&sent.query["nonce"], 3600), None)?;
        let answer = at.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "c")]).await?;
        ensure!(location(&answer)? == "/ui/", "{page}");
    }
    try_join_all((0..50).map(|_| at.begin("/ui/"))).await?;
    let mut connection = site.database.connect().await?;
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sign_in_used").fetch_one(&mut connection).await?;
    ensure!(rows == 6, "{rows}");
    for provider in ["", "1", "-1", "x", "99999999999999999999"] {
        let url = at.url(&format!("/fleet/v1/sign-in/start?provider={provider}"));
        ensure!(at.client.get(url).send().await?.status() == StatusCode::NOT_FOUND, "{provider}");
    }
    let recorded = at.recorded().await?;
    ensure!(
        recorded.iter().any(|(verb, why)| verb == "sign-in refused" && why.contains("no such sign-in")),
        "{recorded:?}"
    );
    Ok(())
}

#[tokio::test]
async fn what_a_provider_gives_is_checked_like_every_token_and_more() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let now = at.clock.now().as_second();
    let other_key = SigningKey::new("one")?;
    for (field, value) in [
        ("nonce", json!("another")),
        ("nonce", Value::Null),
        // Good for kubectl, and given to another client.
        ("aud", json!("cli")),
        ("aud", json!(["hub", "cli"])),
        ("azp", json!("cli")),
        ("aud", json!("another")),
        ("exp", json!(now - 1)),
        ("iss", json!("https://evil.test")),
        ("sub", json!("")),
        ("groups", json!({ "dev": true })),
    ] {
        let sent = at.begin("/ui/").await?;
        let mut claims = at.claims(&sent.query["nonce"], 3600);
        claims[field] = value.clone();
        at.gives(&claims, None)?;
        let answer = at.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "c")]).await?;
        ensure!(answer.status() == StatusCode::FORBIDDEN, "{field} {value}: {}", answer.status());
    }
    let sent = at.begin("/ui/").await?;
    let forged = other_key.sign(&at.claims(&sent.query["nonce"], 3600))?;
    for (given, want) in [
        (Given::Answer(200, json!({ "id_token": forged }).to_string()), StatusCode::FORBIDDEN),
        (Given::Answer(200, json!({ "access_token": "a" }).to_string()), StatusCode::FORBIDDEN),
        (Given::Answer(200, "<html>".to_owned()), StatusCode::BAD_GATEWAY),
        (Given::Answer(302, String::new()), StatusCode::BAD_GATEWAY),
        (Given::Answer(503, String::new()), StatusCode::BAD_GATEWAY),
        (Given::Answer(400, json!({ "error": "invalid_grant" }).to_string()), StatusCode::FORBIDDEN),
        (Given::Answer(401, json!({ "error": "invalid_client" }).to_string()), StatusCode::FORBIDDEN),
        (Given::Huge, StatusCode::BAD_GATEWAY),
        (Given::Hangs, StatusCode::BAD_GATEWAY),
    ] {
        let sent = at.begin("/ui/").await?;
        at.issuer.give(given.clone());
        let begin = Instant::now();
        let answer = at.back(Some(&sent.cookie), &[("state", &sent.query["state"]), ("code", "c")]).await?;
        ensure!(answer.status() == want, "{given:?}: {}", answer.status());
        ensure!(begin.elapsed() < Duration::from_secs(15), "{given:?}");
    }
    ensure!(at.issuer.sent() < 20_000_000, "{} bytes were taken", at.issuer.sent());
    // What it says itself is text.
    let sent = at.begin("/ui/").await?;
    let markup = "<script>alert(1)</script>\u{202e}";
    let query =
        [("state", sent.query["state"].as_str()), ("error", "access_denied"), ("error_description", markup)];
    let answer = at.back(Some(&sent.cookie), &query).await?;
    ensure!(answer.status() == StatusCode::FORBIDDEN);
    let policy = answer.headers()["content-security-policy"].to_str()?.to_owned();
    ensure!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
    let page = answer.text().await?;
    ensure!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;?") && !page.contains("<script"), "{page}");
    let mut connection = site.database.connect().await?;
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sign_in_session").fetch_one(&mut connection).await?;
    ensure!(rows == 0, "{rows} sessions");
    Ok(())
}

#[tokio::test]
async fn a_session_ends_in_time_and_at_the_latest() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let hour = SignedDuration::from_hours(1);
    // With its token, where nothing renews that.
    let session = at.sign_in(3600, None).await?;
    at.clock.by(SignedDuration::from_mins(59));
    ensure!(at.is_in(&session).await?);
    at.clock.by(SignedDuration::from_mins(2));
    ensure!(!at.is_in(&session).await?, "its token has ended");
    // Unused.
    let session = at.sign_in(48 * 3600, None).await?;
    at.clock.by(hour * 7);
    ensure!(at.is_in(&session).await?);
    at.clock.by(hour * 8);
    ensure!(!at.is_in(&session).await?, "it was not used");
    // Used all the time, and whatever its row says.
    let session = at.sign_in(48 * 3600, None).await?;
    for _ in 0..4 {
        at.clock.by(hour * 5);
        ensure!(at.is_in(&session).await?);
    }
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE sign_in_session SET expires_at = expires_at + interval '1 year'")
        .execute(&mut connection)
        .await?;
    at.clock.by(hour * 4);
    ensure!(!at.is_in(&session).await?, "a writer of the database lengthened it");
    // One's contents in the place of another's.
    let one = at.sign_in(48 * 3600, None).await?;
    let other = at.sign_in(48 * 3600, None).await?;
    sqlx::query("UPDATE sign_in_session SET sealed = (SELECT sealed FROM sign_in_session ORDER BY created_at DESC LIMIT 1)")
        .execute(&mut connection)
        .await?;
    at.clock.by(SignedDuration::from_secs(3));
    ensure!(at.is_in(&other).await? && !at.is_in(&one).await?, "a session stands for another one's user");
    // Of one user the oldest make room.
    for _ in 0..20 {
        at.sign_in(48 * 3600, None).await?;
    }
    at.clock.by(SignedDuration::from_secs(3));
    ensure!(!at.is_in(&other).await?, "there are more than there may be");
    at.clock.by(hour * 24);
    at.replica.hub.tidy().await?;
    let rows: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM sign_in_session) + (SELECT count(*) FROM sign_in_used)",
    )
    .fetch_one(&mut connection)
    .await?;
    ensure!(rows == 0, "{rows} rows are left");
    // Not one that the browser chose, nor of another hub.
    let another = Site::new().await?;
    let foreign = Dashboard::new(&another).await?.sign_in(3600, None).await?;
    for made_up in [foreign.as_str(), "rsds_", "", &format!("rsds_{}", "0".repeat(96))] {
        ensure!(!at.is_in(made_up).await?, "{made_up}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_is_renewed_once_and_goes_on_while_its_provider_is_down() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let second = hub(&site, &at.issuer, &at.clock, "", false).await?;
    let (there, session) = (client(&second)?, at.sign_in(300, Some("first")).await?);
    at.issuer.give(Given::Answer(503, String::new()));
    at.clock.by(SignedDuration::from_secs(270));
    // Down: the token is good for a while.
    for _ in 0..3 {
        ensure!(at.is_in(&session).await?);
    }
    eventually("it was tried", PATIENCE, || async {
        ensure!(at.issuer.forms().len() >= 2, "{:?}", at.issuer.forms());
        Ok(())
    })
    .await?;
    // The token has ended: the session has not, and says so.
    at.clock.by(SignedDuration::from_secs(60));
    let (status, said) = at.who(&session).await?;
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE, "{status}: {said}");
    ensure!(said["message"].as_str().is_some_and(|why| why.contains("provider")), "{said}");
    // Back: of many requests at two replicas one asks.
    at.clock.by(SignedDuration::from_secs(60));
    at.gives(&at.claims("", 300), Some("second"))?;
    let before = at.issuer.forms().len();
    let here = try_join_all((0..10).map(|_| at.is_in(&session)));
    let beside = try_join_all((0..10).map(|_| async {
        let request = by_dashboard(there.post(format!("{}{WHOAMI}", second.url)), &session);
        let answer = request.json(&json!({ "kind": "SelfSubjectReview" })).send().await?;
        anyhow::Ok(answer.status())
    }));
    let (here, beside) = tokio::join!(here, beside);
    ensure!(here?.iter().all(|is_in| *is_in));
    let beside = beside?;
    ensure!(beside.iter().all(|status| *status == StatusCode::CREATED), "{beside:?}");
    let forms = at.issuer.forms();
    ensure!(forms.len() == before + 1, "asked {} times", forms.len() - before);
    ensure!(fields(&forms[before].1)?["refresh_token"] == "first");
    // What it is renewed with is replaced, too.
    at.clock.by(SignedDuration::from_secs(250));
    at.gives(&at.claims("", 300), None)?;
    ensure!(at.is_in(&session).await?);
    eventually("it was tried", PATIENCE, || async {
        ensure!(at.issuer.forms().len() >= before + 2);
        Ok(())
    })
    .await?;
    let last = at.issuer.forms().pop().context("a form")?;
    ensure!(fields(&last.1)?["refresh_token"] == "second");
    ensure!(at.is_in(&session).await?);
    // Taken back at the provider.
    at.clock.by(SignedDuration::from_secs(320));
    at.issuer.give(Given::Answer(400, json!({ "error": "invalid_grant" }).to_string()));
    eventually("the session has ended", PATIENCE, || async {
        // The renewal before may have failed a moment ago only, and another one is not tried at once.
        at.clock.by(SignedDuration::from_secs(5));
        let (status, said) = at.who(&session).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{status}: {said}");
        Ok(())
    })
    .await?;
    let recorded = at.recorded().await?;
    ensure!(
        recorded.iter().any(|(verb, why)| verb == "sign-out ok" && why.contains("does not renew")),
        "{recorded:?}"
    );
    let mut connection = site.database.connect().await?;
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sign_in_session").fetch_one(&mut connection).await?;
    ensure!(rows == 0);
    // Whom the hub knows already it knows while the provider is away altogether.
    let session = at.sign_in(3600, None).await?;
    at.issuer.turn(Mode::Fails);
    ensure!(at.is_in(&session).await?);
    Ok(())
}

/// A provider may renew without an ID token, or with one that is not taken any more: the session ends with the token that it has.
#[tokio::test]
async fn a_session_that_is_renewed_with_nothing_of_use_ends_with_its_token() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let without = json!({ "refresh_token": "next", "access_token": "a", "token_type": "Bearer" }).to_string();
    let mut another = at.claims("", 3600);
    another["sub"] = json!("joe");
    for given in [Some(another), None] {
        let session = at.sign_in(300, Some("first")).await?;
        match &given {
            Some(claims) => drop(at.gives(claims, Some("next"))?),
            None => at.issuer.give(Given::Answer(200, without.clone())),
        }
        at.clock.by(SignedDuration::from_secs(270));
        let before = at.issuer.forms().len();
        ensure!(at.is_in(&session).await?, "its token is good");
        eventually("it was tried", PATIENCE, || async {
            ensure!(at.issuer.forms().len() > before);
            Ok(())
        })
        .await?;
        let tried = at.issuer.forms().len();
        at.clock.by(SignedDuration::from_secs(10));
        ensure!(at.is_in(&session).await?, "its token is still good");
        at.clock.by(SignedDuration::from_secs(120));
        let (status, said) = at.who(&session).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{status}: {said}");
        ensure!(!at.replica.hub.sign_in.goes_on(&session).await?, "its streams go on");
        ensure!(at.issuer.forms().len() == tried, "it was tried again");
    }
    Ok(())
}

#[tokio::test]
async fn a_token_becomes_a_session_that_ends_with_it() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::with(&site, "", true).await?;
    let url = at.url("/fleet/v1/sign-in/token");
    let token = at.replica.hub.identity.create_access_token("oidc:jane", &[], None).await?;
    let body = json!({ "token": token.expose() });
    let dashboard = || {
        let request = at.client.post(&url).header("sec-fetch-site", "same-origin");
        request.header("x-roadstead-dashboard", "1")
    };
    let elsewhere =
        at.client.post(&url).header("sec-fetch-site", "cross-site").header("x-roadstead-dashboard", "1");
    for refused in [at.client.post(&url), elsewhere] {
        ensure!(refused.json(&body).send().await?.status() == StatusCode::BAD_REQUEST);
    }
    for (text, want) in [
        (json!({ "token": "no-token" }).to_string(), StatusCode::UNAUTHORIZED),
        (json!({ "token": "" }).to_string(), StatusCode::UNAUTHORIZED),
        (json!({ "token": ["a"] }).to_string(), StatusCode::BAD_REQUEST),
        ("{".to_owned(), StatusCode::BAD_REQUEST),
        (json!({ "token": "a".repeat(30_000) }).to_string(), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let answer = dashboard().header("content-type", "application/json").body(text.clone()).send().await?;
        ensure!(answer.status() == want, "{text:.40}: {}", answer.status());
        ensure!(answer.headers().get(SET_COOKIE).is_none());
    }
    let plain = dashboard().header("content-type", "text/plain").body(body.to_string()).send().await?;
    ensure!(plain.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE, "{}", plain.status());
    let answer = dashboard().json(&body).send().await?;
    ensure!(answer.status() == StatusCode::CREATED, "{}", answer.status());
    let session = cookie(answer.headers(), SESSION)?;
    ensure!(!answer.text().await?.contains(token.expose()) && at.is_in(&session).await?);
    // The cookie does not serve as a token.
    let bearer = at.client.get(at.url("/version")).bearer_auth(&session).send().await?;
    ensure!(bearer.status() == StatusCode::UNAUTHORIZED);
    let id =
        at.replica.hub.identity.list_tokens(&roadstead_hub_core::identity::Identity::hub(), false).await?;
    let id = id.iter().find(|item| item.username == "oidc:jane").context("the token")?.id.clone();
    at.replica.hub.identity.revoke_token(&roadstead_hub_core::identity::Identity::hub(), &id).await?;
    at.clock.by(SignedDuration::from_secs(3));
    ensure!(!at.is_in(&session).await?, "its token was taken back");
    let recorded = at.recorded().await?;
    ensure!(recorded.contains(&("sign-in ok".to_owned(), "by a token".to_owned())), "{recorded:?}");
    ensure!(
        recorded.contains(&("sign-in refused".to_owned(), "the token is not taken".to_owned())),
        "{recorded:?}"
    );
    Ok(())
}

/// Where people sign in at a provider, a token is for when they cannot: an administrator's of the hub's own, whose use is on record as that.
#[tokio::test]
async fn where_there_are_providers_a_token_signs_in_for_emergencies_alone() -> Result<()> {
    let site = Site::new().await?;
    let at = Dashboard::new(&site).await?;
    let offered = async || -> Result<Value> {
        Ok(at.client.get(at.url("/fleet/v1/sign-in")).send().await?.error_for_status()?.json().await?)
    };
    ensure!(offered().await?["tokenIsForEmergencies"] == true);
    let sign_in = async |token: &str| -> Result<Response> {
        let request =
            at.client.post(at.url("/fleet/v1/sign-in/token")).header("sec-fetch-site", "same-origin");
        let request = request.header("x-roadstead-dashboard", "1");
        Ok(request.json(&json!({ "token": token })).send().await?)
    };
    let identity = &at.replica.hub.identity;
    let groups = ["fleet-admins".to_owned()];
    let own = identity.create_access_token("jane", &groups, None).await?;
    let issued = at.key.sign(&at.claims("", 3600))?;
    at.replica.kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let account = at.replica.kubectl.run(&["create", "token", "robot"]).await?;
    for (what, token) in
        [("the hub's", own.expose()), ("the issuer's", issued.as_str()), ("an account's", account.trim())]
    {
        // As bearer tokens, as kubectl has them, they are taken.
        let bearer = at.client.get(at.url("/version")).bearer_auth(token).send().await?;
        ensure!(bearer.status() == StatusCode::OK, "{what}: {}", bearer.status());
        let answer = sign_in(token).await?;
        ensure!(answer.status() == StatusCode::FORBIDDEN, "{what}: {}", answer.status());
        ensure!(answer.headers().get(SET_COOKIE).is_none(), "{what}");
        ensure!(
            answer
                .text()
                .await?
                .contains("sign in at a provider: this hub accepts a token here only in an emergency"),
            "{what}"
        );
    }
    let (admin, _) = identity.create_admin_token("for the test").await?;
    let answer = sign_in(&admin).await?;
    ensure!(answer.status() == StatusCode::CREATED, "{}", answer.status());
    let (status, who) = at.who(&cookie(answer.headers(), SESSION)?).await?;
    ensure!(
        status == StatusCode::CREATED && who["status"]["userInfo"]["username"] == "roadstead-admin",
        "{who}"
    );
    let recorded = at.recorded().await?;
    for said in [
        ("sign-in ok", "by a token, as break-glass"),
        ("sign-in refused", "a token that is not for emergencies"),
    ] {
        ensure!(recorded.contains(&(said.0.to_owned(), said.1.to_owned())), "{said:?}: {recorded:?}");
    }
    Ok(())
}
