//! The cases beside the repository (`../shared/source-cases/git-auth.json`): what a Secret gives to a URL. Where `../shared` is not there,
//! the test says so and tests nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::SecretData;
use roadstead_sources::{GitError, fetch};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

#[path = "../../../../../crates/sources/tests/common/source_cases.rs"]
mod source_cases;

use source_cases::{source_cases, tell};

/// What is different here: a URL over HTTP with a name or a password in it is refused, whatever its Secret has
/// (`docs/source-differences.md`).
const CREDENTIALS_IN_URL: [&str; 4] = [
    "http://example@example.com",
    "http://example@example.com",
    "https://user:pass@example.com",
    "https://user@example.com",
];

/// The Secret of a case; none where it has none.
fn secret(case: &Value) -> Option<SourceSecret> {
    use base64::Engine as _;
    let encoded = |text: &Value| base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap());
    let data: BTreeMap<String, String> =
        case["secret"].as_object()?.iter().map(|(key, text)| (key.clone(), encoded(text))).collect();
    let mut stored = Stored::new(KindId::Secret, "default", "login", Timestamp::UNIX_EPOCH, json!({}));
    stored.secret = Some(SecretData::new(data));
    Some(SourceSecret::of(&stored))
}

/// What a fetch would show, by the names of the cases.
fn shown(request: &GitRequest) -> BTreeMap<&'static str, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut all = BTreeMap::new();
    match &request.credentials {
        Some(Credentials::Basic { username, password }) => {
            all.insert("username", username.clone());
            all.insert("password", password.expose().to_owned());
        }
        Some(Credentials::Bearer(token)) => {
            all.insert("bearer", token.expose().to_owned());
        }
        Some(Credentials::Ssh(login)) => {
            // Of the URL alone: a Secret's `username` has no place to go to.
            let url = url::Url::parse(&request.url).unwrap();
            let user = if url.username().is_empty() { "git" } else { url.username() };
            all.insert("username", user.to_owned());
            all.insert("identity", login.identity.expose().to_owned());
            all.insert("known_hosts", login.known_hosts.clone());
            all.extend(login.passphrase.as_ref().map(|phrase| ("passphrase", phrase.expose().to_owned())));
        }
        Some(Credentials::App(_)) => panic!("a GitHub App"),
        None => {}
    }
    all.extend(request.ca.as_ref().map(|ca| ("ca", text(ca))));
    if let Some(identity) = &request.identity {
        all.insert("cert", text(&identity.certificates));
        all.insert("key", identity.key.expose().to_owned());
    }
    all
}

/// The request that a URL and its Secret make, or why there is none.
async fn asked(case: &Value) -> Result<GitRequest, String> {
    // Some name a server alone; without a repository there is nothing to fetch, whoever asks.
    let url: url::Url = case["url"].as_str().unwrap().parse().unwrap();
    let path = if matches!(url.path(), "" | "/") { "/app.git" } else { "" };
    let mut request = GitRequest::new(format!("{}{path}", url.as_str().trim_end_matches('/')));
    if let Some(secret) = secret(case) {
        credentials(&secret, &request.url).map_err(|why| secret.wrong(&why))?.give(&mut request);
    }
    if case["error"].is_string() {
        // Whatever is wrong with it is said before anyone is asked.
        let error = fetch(request, &CancellationToken::new()).await.err().ok_or("it was fetched")?;
        return Err(error.to_string());
    }
    Ok(request)
}

#[tokio::test]
async fn secrets_are_read_as_in_flux() {
    let Some(files) = source_cases("credentials for Git") else { return };
    let cases: Value = serde_json::from_slice(&files["git-auth.json"]).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    let mut refused = Vec::new();
    for case in cases {
        let url = case["url"].as_str().unwrap();
        if url.starts_with("http") && url.contains('@') {
            let told = fetch(GitRequest::new(url), &CancellationToken::new()).await.unwrap_err();
            assert!(matches!(told, GitError::UrlRefused { .. }), "{told:?}");
            assert!(told.to_string().contains("put them into the Secret"), "{told}");
            refused.push(url);
            continue;
        }
        let asked = asked(case).await;
        match (case["error"].as_str(), &asked) {
            (Some(wanted), Err(why)) => assert!(why.contains(wanted), "{case}: {why}"),
            (None, Ok(request)) => {
                let shown = shown(request);
                let wanted = case["use"].as_object().unwrap();
                // Of some cases, only what they are about is named.
                for (name, value) in wanted {
                    let found = shown.get(name.as_str()).map(String::as_str);
                    assert_eq!(found, value.as_str(), "{case}: {name}");
                }
                for name in ["username", "password", "bearer", "cert", "key"] {
                    assert!(!shown.contains_key(name) || wanted.contains_key(name), "{case}: {name}");
                }
            }
            _ => panic!("{case}: {:?}", asked.as_ref().map(|request| &request.url)),
        }
    }
    assert_eq!(refused, CREDENTIALS_IN_URL);
    let of_rule = cases.len() - refused.len();
    tell(format_args!("git-auth.json: {of_rule} of {} as expected, {} refused", cases.len(), refused.len()));
}
