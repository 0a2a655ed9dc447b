//! Signing in by the authorization code flow with PKCE: what is asked of a provider, and what its answers say. Whom an ID token stands
//! for is decided as for every other token; here is only what such a token must say besides.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use crate::{MAX_TOKEN, Token};

/// Where people are sent once they are signed in, where nothing else is known.
pub const HOME: &str = "/ui/";
/// The longest address of a page, and of a place of the provider's.
const MAX_URL: usize = 2048;
/// What is asked for where nobody says, as far as the provider knows it.
const USUAL_SCOPES: [&str; 4] = ["profile", "email", "groups", "offline_access"];
/// The longest text of a provider's error that is told.
const MAX_TOLD: usize = 300;
const MAX_REFRESH: usize = 16 * 1024;

/// What a provider says of where people sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Where people are sent.
    pub authorization: Option<String>,
    /// Where codes and refresh tokens become ID tokens.
    pub token: Option<String>,
    /// Where people are sent to sign out.
    pub end_session: Option<String>,
    /// Where a code for another device is given.
    pub device: Option<String>,
    /// Scopes that it knows, where it says so.
    scopes: Option<Vec<String>>,
    /// A client's secret goes into the body of a request, and not into its head.
    pub secret_in_body: bool,
    /// It says in its answers who it is.
    pub names_itself: bool,
}

#[derive(Deserialize)]
struct Published {
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Endpoints {
    /// Of what a provider publishes of itself. What is malformed is as if it were absent.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let Ok(published) = serde_json::from_slice::<Published>(bytes) else { return Self::default() };
        let place = |url: Option<String>| url.filter(|url| is_place(url));
        let methods = published.token_endpoint_auth_methods_supported.unwrap_or_default();
        let has = |method: &str| methods.iter().any(|known| known == method);
        let known = |scope: &&&str| {
            let known = published.scopes_supported.as_ref();
            known.is_some_and(|known| known.iter().any(|known| known == **scope))
        };
        let scopes = published
            .scopes_supported
            .is_some()
            .then(|| USUAL_SCOPES.iter().filter(known).map(|scope| (*scope).to_owned()).collect());
        Self {
            authorization: place(published.authorization_endpoint),
            token: place(published.token_endpoint),
            end_session: place(published.end_session_endpoint),
            device: place(published.device_authorization_endpoint),
            scopes,
            secret_in_body: has("client_secret_post") && !has("client_secret_basic"),
            names_itself: published.authorization_response_iss_parameter_supported,
        }
    }

    /// What is asked for where nobody says.
    #[must_use]
    pub fn usual_scopes(&self) -> Vec<String> {
        let openid = ["openid".to_owned()].into_iter();
        match &self.scopes {
            Some(scopes) => openid.chain(scopes.iter().cloned()).collect(),
            None => openid.chain(["profile".to_owned(), "email".to_owned()]).collect(),
        }
    }
}

/// Whether people or secrets may be sent there.
fn is_place(text: &str) -> bool {
    text.len() <= MAX_URL
        && Url::parse(text).is_ok_and(|url| {
            url.scheme() == "https"
                && url.host_str().is_some()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        })
}

/// A sign-in that begins.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The client.
    pub client_id: &'a str,
    /// Where the provider sends people afterwards.
    pub redirect: &'a str,
    /// What is asked for.
    pub scopes: &'a [String],
    /// What the provider asks people each time.
    pub prompt: Option<&'a str>,
    /// What the provider sends back.
    pub state: &'a str,
    /// What stands in the ID token.
    pub nonce: &'a str,
    /// What the code is redeemed with.
    pub verifier: &'a str,
}

impl Request<'_> {
    /// Where people are sent to sign in; none where the place is not a URL.
    #[must_use]
    pub fn url(&self, authorization: &str) -> Option<String> {
        let mut url = Url::parse(authorization).ok()?;
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", self.client_id)
            .append_pair("redirect_uri", self.redirect)
            .append_pair("scope", &self.scopes.join(" "))
            .append_pair("state", self.state)
            .append_pair("nonce", self.nonce)
            .append_pair("code_challenge", &challenge(self.verifier))
            .append_pair("code_challenge_method", "S256");
        if let Some(prompt) = self.prompt {
            query.append_pair("prompt", prompt);
        }
        drop(query);
        Some(url.into())
    }
}

/// What a verifier is announced by (S256).
#[must_use]
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Where people sign out of the provider; none where the place is not a URL. No token is part of it: addresses are written down.
#[must_use]
pub fn sign_out_url(end_session: &str, client_id: &str, back: &str) -> Option<String> {
    let mut url = Url::parse(end_session).ok()?;
    url.query_pairs_mut().append_pair("client_id", client_id).append_pair("post_logout_redirect_uri", back);
    Some(url.into())
}

/// The body of a request for tokens.
#[must_use]
pub fn form(fields: &[(&str, &str)]) -> Zeroizing<String> {
    let length = fields.iter().map(|(name, value)| name.len() + 3 * value.len() + 2).sum();
    let mut form = url::form_urlencoded::Serializer::new(String::with_capacity(length));
    form.extend_pairs(fields);
    Zeroizing::new(form.finish())
}

/// What a provider gave for a code or a refresh token. Does not print.
pub struct Tokens {
    /// The ID token, where there is one.
    pub id: Option<Zeroizing<String>>,
    /// What another one is got with.
    pub refresh: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

/// Why a provider gave no tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTokens {
    /// What it was shown is worth nothing, or not any more.
    #[error("the provider rejected it: {0}")]
    Refused(String),
    /// Nobody has signed in on the other device yet.
    #[error("nobody has signed in yet")]
    Pending,
    /// The same, and it is asked too often.
    #[error("nobody has signed in yet, and the provider is asked too often")]
    SlowDown,
    /// It says something else.
    #[error("the provider says: {0}")]
    Failed(String),
    /// It says nothing that can be understood.
    #[error("the provider's answer cannot be read")]
    Malformed,
}

#[derive(Deserialize)]
struct Given {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    error_description: Option<String>,
}

impl Tokens {
    /// Reads an answer for a request for tokens.
    ///
    /// # Errors
    /// [`NoTokens`].
    pub fn parse(is_success: bool, bytes: &[u8]) -> Result<Self, NoTokens> {
        if !is_success {
            let refused: Refused = serde_json::from_slice(bytes).map_err(|_| NoTokens::Malformed)?;
            let why = told(&refused.error, refused.error_description.as_deref());
            return Err(match refused.error.as_str() {
                "invalid_grant" => NoTokens::Refused(why),
                "authorization_pending" => NoTokens::Pending,
                "slow_down" => NoTokens::SlowDown,
                _ => NoTokens::Failed(why),
            });
        }
        let given: Given = serde_json::from_slice(bytes).map_err(|_| NoTokens::Malformed)?;
        let id = given.id_token.map(Zeroizing::new);
        let refresh = given.refresh_token.map(Zeroizing::new);
        let is_long = |text: &Option<Zeroizing<String>>, most: usize| {
            text.as_ref().is_some_and(|text| text.len() > most)
        };
        if is_long(&id, MAX_TOKEN) || is_long(&refresh, MAX_REFRESH) {
            return Err(NoTokens::Malformed);
        }
        Ok(Self { id, refresh })
    }
}

/// What a provider says of an error, as one line of plain characters.
#[must_use]
pub fn told(error: &str, description: Option<&str>) -> String {
    let plain = |text: &str| -> String {
        let seen = |c: char| c == ' ' || c.is_ascii_graphic();
        text.chars().take(MAX_TOLD).map(|c| if seen(c) { c } else { '?' }).collect()
    };
    match description.filter(|text| !text.is_empty()) {
        Some(description) => format!("{} ({})", plain(description), plain(error)),
        None => plain(error),
    }
}

/// Why an ID token that is good is not the answer to a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTheAnswer {
    /// It is not a token.
    #[error("the ID token is not a token")]
    Form,
    /// It is of another issuer.
    #[error("the ID token is from another issuer")]
    Issuer,
    /// It is for another client.
    #[error("the ID token is for another client")]
    Client,
    /// It was made for another sign-in.
    #[error("the ID token is from another sign-in")]
    Nonce,
    /// It is of somebody else than before.
    #[error("the ID token is for another user than before")]
    Subject,
    /// It says of nobody.
    #[error("the ID token has no subject")]
    NoSubject,
}

/// What an ID token must say besides what every token of its issuer must.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The client that asked for it.
    pub client_id: &'a str,
    /// What was to stand in it; none where it is one of a renewal, which may have none.
    pub nonce: Option<&'a str>,
    /// Of whom it must be; none where that is to be learnt.
    pub subject: Option<&'a str>,
}

/// What is kept of an ID token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdToken {
    /// From whom.
    pub issuer: String,
    /// Of whom.
    pub subject: String,
    /// Until when, in seconds since 1970.
    pub expires: i64,
}

impl Answer<'_> {
    /// Checks that, of a token which has been verified.
    ///
    /// # Errors
    /// [`NotTheAnswer`].
    pub fn check(&self, token: &Token<'_>) -> Result<IdToken, NotTheAnswer> {
        let claims = token.unverified_claims().ok_or(NotTheAnswer::Form)?;
        let (is_for, several) = match &claims["aud"] {
            Value::Array(many) => (many.iter().any(|one| one == self.client_id), many.len() > 1),
            one => (one == self.client_id, false),
        };
        let party = &claims["azp"];
        let is_by = if party.is_null() { !several } else { party == self.client_id };
        if !is_for || !is_by {
            return Err(NotTheAnswer::Client);
        }
        if self.nonce.is_some_and(|nonce| claims["nonce"] != nonce) {
            return Err(NotTheAnswer::Nonce);
        }
        let subject =
            claims["sub"].as_str().filter(|subject| !subject.is_empty()).ok_or(NotTheAnswer::NoSubject)?;
        if self.subject.is_some_and(|before| before != subject) {
            return Err(NotTheAnswer::Subject);
        }
        let expires = claims["exp"].as_f64().unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what does not fit becomes the nearest that does"
        )]
        let expires = expires as i64;
        Ok(IdToken { issuer: token.issuer().to_owned(), subject: subject.to_owned(), expires })
    }
}

/// The page of the dashboard that is wanted, where it is one and nothing else: a path on this very hub.
#[must_use]
pub fn page(wanted: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if wanted.len() > MAX_URL || !wanted.starts_with(HOME) || !wanted.bytes().all(plain) {
        return HOME;
    }
    // As a browser resolves it: dots, also encoded ones, may lead elsewhere.
    let base = Url::parse("https://hub.invalid/").ok();
    let is_page = base.and_then(|base| base.join(wanted).ok()).is_some_and(|url| {
        url.host_str() == Some("hub.invalid") && url.path().starts_with(HOME) && !url.path().contains("//")
    });
    if is_page { wanted } else { HOME }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_verifier_is_announced_as_the_rfc_says() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn pages_of_this_hub_only() {
        for good in ["/ui/", "/ui/clusters/edge-1", "/ui/search?q=a%20b&kind=Secret", "/ui/audit#x"] {
            assert_eq!(page(good), good);
        }
        for bad in [
            "",
            "/",
            "/ui",
            "//evil.test",
            "/\\evil.test",
            "https://evil.test/ui/",
            "/ui/../fleet/v1/audit",
            "/ui/%2e%2e/x",
            "/ui/.%2E/x",
            "/ui/\\..\\..\\x",
            "/ui//evil.test",
            "/ui/..//evil.test",
            "/ui/\r\nSet-Cookie: a=b",
            "/ui/\tx",
            "/ui/\u{e4}",
            "/fleet/v1/sign-in/start",
            "/UI/",
            "javascript:alert(1)",
            "/ui/../../\\evil.test",
            &format!("/ui/{}", "a".repeat(3000)),
        ] {
            assert_eq!(page(bad), HOME, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_leads_off_this_hub(wanted in "(/ui/)?[/\\\\.%25eEfF:@?#a\t]{0,12}(evil.test)?[/.]{0,3}") {
            let base = Url::parse("https://hub.test/fleet/v1/sign-in/callback").unwrap();
            let url = base.join(page(&wanted)).unwrap();
            prop_assert_eq!(url.origin().ascii_serialization(), "https://hub.test");
            prop_assert!(url.path().starts_with("/ui/"));
        }

        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), is_success: bool) {
            let _ = Tokens::parse(is_success, &bytes);
            let _ = Endpoints::parse(&bytes);
        }
    }

    #[test]
    fn places_that_are_malformed_are_as_if_they_were_absent() {
        let parse = |value: Value| Endpoints::parse(value.to_string().as_bytes());
        let whole = parse(json!({
            "authorization_endpoint": "https://login.test/auth?tenant=1", "token_endpoint": "https://login.test/token",
            "end_session_endpoint": "https://login.test/end", "scopes_supported": ["openid", "email", "offline_access", "x"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }));
        assert!(whole.secret_in_body && whole.end_session.is_some());
        assert_eq!(whole.usual_scopes(), ["openid", "email", "offline_access"]);
        for bad in [
            "http://login.test/auth",
            "javascript:alert(1)",
            "https://a:b@login.test/",
            "/auth",
            "https://x/#y",
        ] {
            assert_eq!(parse(json!({ "authorization_endpoint": bad })).authorization, None, "{bad}");
        }
        assert_eq!(parse(json!({})).usual_scopes(), ["openid", "profile", "email"]);
        assert_eq!(parse(json!([])), Endpoints::default());
    }

    #[test]
    fn a_request_has_all_that_ties_the_answer_to_it() {
        let scopes = ["openid".to_owned(), "a&b".to_owned()];
        let request = Request {
            client_id: "hub",
            redirect: "https://hub.test/back",
            scopes: &scopes,
            prompt: Some("consent"),
            state: "s",
            nonce: "n",
            verifier: "v",
        };
        let url = Url::parse(&request.url("https://login.test/auth?tenant=1").unwrap()).unwrap();
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let get = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!(get("tenant"), Some("1"));
        assert_eq!(get("scope"), Some("openid a&b"));
        assert_eq!(get("code_challenge"), Some(challenge("v").as_str()));
        assert_eq!((get("state"), get("nonce"), get("prompt")), (Some("s"), Some("n"), Some("consent")));
        assert!(!url.as_str().contains("code_verifier"));
    }

    fn token(claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.AA", part(&json!({ "alg": "ES256" })), part(claims))
    }

    #[test]
    fn an_id_token_answers_one_sign_in_of_one_client() {
        let claims =
            json!({ "iss": "https://login.test", "aud": "hub", "sub": "7", "nonce": "n", "exp": 9.5 });
        let answer = Answer { client_id: "hub", nonce: Some("n"), subject: None };
        let check = |answer: &Answer<'_>, field: &str, value: Value| {
            let mut claims = claims.clone();
            claims[field] = value;
            answer.check(&Token::parse(&token(&claims)).unwrap())
        };
        let found = check(&answer, "x", json!(1)).unwrap();
        assert_eq!((found.subject.as_str(), found.expires), ("7", 9));
        for (field, value, want) in [
            ("aud", json!("other"), NotTheAnswer::Client),
            ("aud", json!(["hub", "other"]), NotTheAnswer::Client),
            ("azp", json!("other"), NotTheAnswer::Client),
            ("nonce", json!("m"), NotTheAnswer::Nonce),
            ("nonce", Value::Null, NotTheAnswer::Nonce),
            ("sub", json!(""), NotTheAnswer::NoSubject),
            ("sub", json!(7), NotTheAnswer::NoSubject),
        ] {
            assert_eq!(check(&answer, field, value), Err(want), "{field}");
        }
        let renewal = Answer { client_id: "hub", nonce: None, subject: Some("7") };
        assert!(check(&renewal, "nonce", Value::Null).is_ok());
        assert_eq!(check(&renewal, "sub", json!("8")), Err(NotTheAnswer::Subject));
    }

    #[test]
    fn what_a_provider_says_of_an_error_is_plain_and_short() {
        let body =
            json!({ "error": "invalid_grant", "error_description": "<b>\u{202e}gone\r\n" }).to_string();
        let error = Tokens::parse(false, body.as_bytes()).unwrap_err();
        assert_eq!(error, NoTokens::Refused("<b>?gone?? (invalid_grant)".to_owned()));
        let long = "x".repeat(10_000);
        assert!(told(&long, Some(&long)).len() < 700);
        for (error, want) in [
            ("authorization_pending", NoTokens::Pending),
            ("slow_down", NoTokens::SlowDown),
            ("access_denied", NoTokens::Failed("access_denied".to_owned())),
        ] {
            let body = json!({ "error": error }).to_string();
            assert_eq!(Tokens::parse(false, body.as_bytes()).unwrap_err(), want);
        }
        assert_eq!(Tokens::parse(false, b"<html>").unwrap_err(), NoTokens::Malformed);
        let large = json!({ "id_token": "x".repeat(MAX_TOKEN + 1) }).to_string();
        assert_eq!(Tokens::parse(true, large.as_bytes()).unwrap_err(), NoTokens::Malformed);
    }
}
