//! What is known of a server from one look to the next: it saves a request, and nothing else is different.

use std::time::Duration;

use roadstead_sources::{Credentials, GitRequest, Outcome, fetch};
use roadstead_test_gitserver::{Commit, Fault};
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, error_again, fetched, fetched_again, files, way_to};

/// The requests since this was asked last, as far as it matters which they are.
fn requests(kit: &Kit) -> Vec<String> {
    let seen = kit.server.take_seen();
    seen.iter().map(|seen| seen.what.rsplit(['/', ' ']).next().unwrap_or_default().to_owned()).collect()
}

const GREETING: &str = "refs?service=git-upload-pack";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_greeted_once() {
    let kit = Kit::start(true, Some(("reader", "s3cret"))).await;
    let first = kit.repository.commit("main", "First", &Commit::new().file("one", "1")).unwrap();
    let login = Credentials::Basic { username: "reader".to_owned(), password: "s3cret".into() };
    let request = GitRequest { credentials: Some(login), ..kit.request("main") };
    let found = fetched_again(request.clone()).await;
    assert_eq!(found.revision.content(), Some(first.as_str()));
    assert_eq!(requests(&kit), [GREETING, "ls-refs", "fetch"]);

    // Nothing new: one request.
    let known = GitRequest { known: Some(found.revision), ..request.clone() };
    for _ in 0..2 {
        let outcome = fetch(known.clone(), &CancellationToken::new()).await.unwrap();
        assert!(matches!(outcome, Outcome::Unchanged(_)), "{outcome:?}");
        assert_eq!(requests(&kit), ["ls-refs"]);
    }
    let second = kit.repository.commit("main", "Second", &Commit::new().file("two", "2")).unwrap();
    let found = fetched_again(known).await;
    assert_eq!((found.revision.content(), files(&found).len()), (Some(second.as_str()), 2));
    assert_eq!(requests(&kit), ["ls-refs", "fetch"]);
    // Who does not know it greets it.
    fetched(request).await;
    assert_eq!(requests(&kit), [GREETING, "ls-refs", "fetch"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_otherwise_is_greeted_anew() {
    let kit = Kit::start(true, None).await;
    let commit = kit.repository.commit("main", "First", &Commit::new().file("one", "1")).unwrap();
    let request = kit.request("main");
    fetched_again(request.clone()).await;
    for fault in [Fault::Status(400), Fault::Status(401), Fault::Status(404), Fault::WebPage] {
        requests(&kit);
        kit.server.fault(Fault::Once(Box::new(fault.clone())));
        assert_eq!(
            fetched_again(request.clone()).await.revision.content(),
            Some(commit.as_str()),
            "{fault:?}"
        );
        assert_eq!(requests(&kit), ["ls-refs", GREETING, "ls-refs", "fetch"], "{fault:?}");
        fetched_again(request.clone()).await;
        assert_eq!(requests(&kit), ["ls-refs", "fetch"], "{fault:?}");
    }
    // What stays wrong is told as ever; who has enough to do is not asked more; and afterwards it is greeted again.
    for (fault, asked) in [(Fault::Status(403), 2), (Fault::Status(429), 1), (Fault::Status(503), 1)] {
        kit.server.fault(fault.clone());
        error_again(request.clone()).await;
        assert_eq!(requests(&kit).len(), asked, "{fault:?}");
        kit.server.fault(Fault::None);
        fetched_again(request.clone()).await;
        assert_eq!(requests(&kit), [GREETING, "ls-refs", "fetch"], "{fault:?}");
    }
    // What a server says of how long it takes no requests is believed.
    kit.server.fault(Fault::RetryAfter(429, "30".to_owned()));
    let before = jiff::Timestamp::now();
    let limited = error_again(request.clone()).await;
    let until = limited.rate_limited_until().expect("a time") - Duration::from_secs(30);
    assert!((before..=jiff::Timestamp::now()).contains(&until), "{limited}");
    assert!(limited.to_string().contains("HTTP 429"), "{limited}");
    assert_eq!(requests(&kit).len(), 1);
    kit.server.fault(Fault::None);
    fetched_again(request.clone()).await;
    requests(&kit);
    // A server that does not answer any more is told in the same words by the first look that finds it so and by the next.
    kit.server.fault(Fault::HangBeforeAnswer);
    let hasty = GitRequest { timeout: Duration::from_secs(3), ..request.clone() };
    let told = error_again(hasty.clone()).await.to_string();
    assert!(told.contains("connecting"), "{told}");
    assert_eq!(told, error_again(hasty).await.to_string());
    kit.server.fault(Fault::None);
    fetched_again(request.clone()).await;
    requests(&kit);
    // So it is where the pack is wrong, which is asked for again once.
    kit.server.fault(Fault::CorruptPack);
    error_again(request.clone()).await;
    assert_eq!(requests(&kit), ["ls-refs", "fetch", GREETING, "ls-refs", "fetch"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_repository_went_is_asked_each_time() {
    let target = Kit::start(true, None).await;
    target.repository.commit("main", "First", &Commit::new().file("one", "1")).unwrap();
    let kit = Kit::start(true, None).await;
    kit.server.fault(Fault::Redirect(target.server.base_url()));
    let both = [kit.request("main").ca.unwrap(), target.request("main").ca.unwrap()].concat();
    let guard = way_to(&[&kit, &target].map(|kit| kit.server.address()));
    let request = GitRequest { ca: Some(both), guard, ..kit.request("main") };
    for _ in 0..2 {
        fetched_again(request.clone()).await;
        assert_eq!(requests(&kit), [GREETING]);
        assert_eq!(requests(&target), [GREETING, "ls-refs", "fetch"]);
    }
}
