//! Fetching with tokens of a GitHub App.

use std::time::{Duration, Instant};

use roadstead_github_app::{App, Tokens};
use roadstead_model::Reason;
use roadstead_sources::git::AppLogin;
use roadstead_sources::{Credentials, GitError, GitRequest};
use roadstead_test_gitserver::{APP_KEY, Commit, GitHubApi, Mood};

use crate::kit::{Kit, by, error, quiet_files, way_to};

/// A repository that wants the last token that the API gave out.
struct Site {
    kit: Kit,
    api: GitHubApi,
    tokens: Tokens,
}

impl Site {
    async fn start() -> Self {
        let kit = Kit::start(true, Some(("x-access-token", "none yet"))).await;
        kit.repository.commit("main", "First", &Commit::new().file("a.yaml", "a: 1\n")).unwrap();
        let api = GitHubApi::start(kit.server.gate()).await.unwrap();
        Self { kit, api, tokens: Tokens::default() }
    }

    fn app(&self, changes: &[(&str, &str)]) -> App {
        let url = self.api.url();
        let own = [
            ("githubAppID", "7"),
            ("githubAppInstallationID", "42"),
            ("githubAppPrivateKey", APP_KEY),
            ("githubAppBaseURL", &url),
        ];
        let find = |key: &str| {
            let found = changes.iter().chain(&own).find(|(name, _)| *name == key);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        };
        App::read(find).unwrap()
    }

    fn request(&self, changes: &[(&str, &str)]) -> GitRequest {
        let login = AppLogin {
            app: self.app(changes),
            tokens: self.tokens.clone(),
            guard: way_to(&[self.api.address()]),
            way: Vec::new(),
        };
        let ca = format!("{}{}", self.kit.server.ca_pem().unwrap(), self.api.ca_pem());
        GitRequest {
            credentials: Some(Credentials::App(Box::new(login))),
            ca: Some(ca.into_bytes()),
            timeout: Duration::from_secs(20),
            ..self.kit.request("main")
        }
    }

    async fn fails(&self, mood: Mood) -> GitError {
        self.api.mood(mood);
        let error = error(self.request(&[])).await;
        let told = format!("{error:?} {}", roadstead_model::chain(&error));
        assert!(!told.contains("CANARY") && !told.contains("PRIVATE"), "{told}");
        error
    }
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_again_before_it_expires() {
    let site = Site::start().await;
    for _ in 0..2 {
        assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    }
    assert_eq!(site.api.given(), 1);
    // Of another installation's owner, who is the same.
    site.api.tokens_last(Duration::from_secs(4));
    let owned = [("githubAppInstallationID", ""), ("githubAppInstallationOwner", "fleet")];
    assert_eq!(quiet_files(site.request(&owned)).await, ["a.yaml"]);
    assert_eq!(site.api.given(), 2);
    let asked: Vec<String> = site.api.asked().into_iter().map(|(line, _)| line).collect();
    assert_eq!(asked[1..3], ["GET /orgs/fleet/installation", "GET /users/fleet/installation"]);
    // It lasts four seconds, of which it is kept for three.
    let began = Instant::now();
    while site.api.given() == 2 {
        assert!(began.elapsed() < Duration::from_secs(20));
        assert_eq!(quiet_files(site.request(&owned)).await, ["a.yaml"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_forgotten() {
    let site = Site::start().await;
    assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    let revoke = || (site.kit.server.gate())("x-access-token", "revoked");
    revoke();
    // Another one is asked for at once.
    assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    assert_eq!(site.api.given(), 2);

    // Once only: one that is not taken either ends the fetch, and is not kept.
    revoke();
    let asked = site.api.asked().len();
    let until = jiff::Timestamp::now() + Duration::from_secs(3_600);
    let other = format!(r#"{{"token":"ghs_CANARY","expires_at":"{until}"}}"#);
    let error = site.fails(Mood::Says(201, String::new(), other)).await;
    assert!(matches!(error, GitError::Auth { status: 401, .. }), "{error:?}");
    assert_eq!(site.api.asked().len(), asked + 1);
    site.api.mood(Mood::Well);
    assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    assert_eq!(site.api.given(), 3);
}

#[tokio::test]
async fn why_there_is_no_token() {
    let site = Site::start().await;
    let says = |status, headers: &str, body: &str| Mood::Says(status, headers.to_owned(), body.to_owned());
    for (mood, told) in [
        (says(404, "", "{}"), "App 7 has no installation 42"),
        (says(401, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "CANARY"), "s ahead of the API's"),
        (says(403, "", r#"{"message":"This installation has been suspended"}"#), "is suspended"),
        (says(302, "location: https://127.0.0.1:1/\r\n", ""), "redirect, which is not followed"),
        (says(500, "", "CANARY"), "HTTP 500"),
        (says(201, "", r#"{"token":"CANARY"}"#), "documented"),
        (Mood::Floods, "longer than 65536 bytes"),
    ] {
        let error = site.fails(mood.clone()).await;
        let text = roadstead_model::chain(&error);
        assert!(text.contains(told), "{mood:?}: {text}");
        assert_eq!(error.reason(), Reason::AuthenticationFailed, "{mood:?}");
    }
    site.api.mood(Mood::Hangs);
    let (began, patient) =
        (Instant::now(), GitRequest { timeout: Duration::from_secs(2), ..site.request(&[]) });
    let late = error(patient).await;
    assert!(late.to_string().contains("asking for a token of the GitHub App"), "{late}");
    assert!(began.elapsed() < Duration::from_secs(8));
    assert_eq!(site.api.given(), 0);
}

#[tokio::test]
async fn an_api_that_takes_no_requests_is_not_asked_and_holds_up_nobody_who_has_a_token() {
    let site = Site::start().await;
    assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    site.api.mood(Mood::Says(429, "retry-after: 60\r\n".to_owned(), String::new()));
    let other = [("githubAppInstallationID", "43")];
    let asked = || site.api.asked().len();
    let before = asked();
    for _ in 0..2 {
        let limited = error(site.request(&other)).await;
        let wait = limited.rate_limited_until().unwrap().as_second() - jiff::Timestamp::now().as_second();
        assert!((50..=60).contains(&wait) && limited.is_of_the_api(), "{limited}");
        let told = roadstead_model::chain(&limited);
        assert!(told.contains(&site.api.url()) && told.contains("takes no more requests before"), "{told}");
        // Once: the second time it is known.
        assert_eq!(asked(), before + 1);
    }
    // Git of the same App goes on by the token that there is.
    assert_eq!(quiet_files(site.request(&[])).await, ["a.yaml"]);
    // Another App has a limit of its own.
    error(site.request(&[("githubAppID", "8")])).await;
    assert_eq!(asked(), before + 2);
    // What the repository's server says is not the API's limit.
    site.kit.server.fault(roadstead_test_gitserver::Fault::RetryAfter(429, "60".to_owned()));
    let limited = error(site.request(&[])).await;
    assert!(limited.rate_limited_until().is_some() && !limited.is_of_the_api(), "{limited}");
    assert_eq!(asked(), before + 2);
}

#[tokio::test]
async fn the_api_is_connected_to_by_the_policy_and_the_token_goes_to_the_repository_only() {
    let site = Site::start().await;
    let mut request = site.request(&[]);
    if let Some(Credentials::App(login)) = &mut request.credentials {
        login.guard = by(&["10.0.0.0/8"]);
    }
    let refused = error(request).await;
    assert_eq!(refused.reason(), Reason::URLInvalid, "{refused}");
    assert!(refused.to_string().contains("127.0.0.1") && site.api.asked().is_empty(), "{refused}");
    // To another host than its own a redirect leads without it.
    let elsewhere = Kit::start(true, None).await;
    elsewhere.repository.commit("main", "First", &Commit::new().file("b.yaml", "b: 1\n")).unwrap();
    let mut request = site.request(&[]);
    let ca = [request.ca.clone().unwrap(), elsewhere.server.ca_pem().unwrap().as_bytes().to_vec()].concat();
    request.ca = Some(ca);
    request.guard = way_to(&[site.kit.server.address(), elsewhere.server.address()]);
    let base = elsewhere.url().trim_end_matches("/app.git").to_owned();
    site.kit.server.fault(roadstead_test_gitserver::Fault::Redirect(base));
    assert_eq!(quiet_files(request).await, ["b.yaml"]);
    let seen = elsewhere.server.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| !seen.had_credentials), "{seen:?}");
}
