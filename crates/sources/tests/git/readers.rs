//! What a reader is told, what it can have done, and what becomes of one that lies or ends.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use roadstead_sources::git::fetch_with;
use roadstead_sources::{AttemptError, Credentials, FetchError, GitError, GitRequest, Outcome, Source as _};
use roadstead_sources::{Desk, Ended, Engine, InProcess};
use roadstead_test_gitserver::Commit;
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, files};

/// Notes what readers are given, and runs them in this process.
#[derive(Default)]
struct Noting {
    orders: Mutex<Vec<(String, Vec<u8>)>>,
}

#[async_trait]
impl Engine for Noting {
    async fn admit(&self, _: &str) -> Result<(), Ended> {
        Ok(())
    }

    async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        self.orders.lock().unwrap().push((about.to_owned(), order.clone()));
        InProcess::default().run(about, order, desk).await
    }
}

/// Readers that reply this, one after the other, whatever they are given.
struct Lying(Mutex<Vec<String>>);

impl Lying {
    fn new(replies: &[&str]) -> Self {
        Self::raw(replies.iter().map(|reply| format!(r#"{{"reply":{reply}}}"#)).collect())
    }

    /// All that one says.
    fn raw(mut replies: Vec<String>) -> Self {
        replies.reverse();
        Self(Mutex::new(replies))
    }
}

#[async_trait]
impl Engine for Lying {
    async fn admit(&self, _: &str) -> Result<(), Ended> {
        Ok(())
    }

    async fn run(&self, _: &str, _: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        desk.begin();
        Ok(self.0.lock().unwrap().pop().unwrap_or_default().into_bytes())
    }
}

async fn kit() -> Kit {
    let kit = Kit::start(true, Some(("a-user", "hunter2"))).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    kit
}

fn request(kit: &Kit) -> GitRequest {
    GitRequest {
        credentials: Some(Credentials::Basic { username: "a-user".to_owned(), password: "hunter2".into() }),
        ..kit.request("main")
    }
}

async fn error(kit: &Kit, engine: &impl Engine) -> GitError {
    match fetch_with(request(kit), engine, &CancellationToken::new()).await {
        Err(error) => error,
        Ok(outcome) => panic!("no error, but {outcome:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_told_no_url_and_no_credentials() {
    let kit = kit().await;
    let noting = Noting::default();
    let outcome = fetch_with(request(&kit), &noting, &CancellationToken::new()).await.unwrap();
    let Outcome::Fetched(fetched) = outcome else { panic!("unchanged") };
    assert_eq!(files(&fetched), ["v"]);
    let orders = noting.orders.lock().unwrap();
    let about: Vec<&str> = orders.iter().map(|(about, _)| about.as_str()).collect();
    assert_eq!(about, ["greeting", "references", fetched.revision.content().unwrap()]);
    let port = kit.server.address().port().to_string();
    for (_, order) in orders.iter() {
        let text = String::from_utf8(order.clone()).unwrap();
        assert!(text.contains("\"main\""), "{text}");
        for secret in ["a-user", "hunter2", "app.git", &port, "127.0.0.1", "CERTIFICATE", "YS11c2Vy"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_has_nothing_asked_but_gits_own_questions() {
    let kit = kit().await;
    let commit = "1".repeat(40);
    let long = format!(
        r#"{{"Ask":{{"UploadPack":{{"what":"References","version":2,"body":[{}48]}}}}}}"#,
        "48,".repeat(20_000)
    );
    for reply in [
        // What was asked already, for ever; a body that is not a question; what is not a name of an object; other versions.
        r#"{"Ask":"Greeting"}"#.to_owned(),
        long,
        r#"{"Ask":{"UploadPack":{"what":{"Pack":"../admin"},"version":2,"body":[]}}}"#.to_owned(),
        r#"{"Ask":{"UploadPack":{"what":"References","version":200,"body":[]}}}"#.to_owned(),
        r#"{"Ask":{"Url":"https://127.0.0.1/admin"}}"#.to_owned(),
        // What it did not find, or bring.
        format!(r#"{{"Found":{{"commit":"{commit}"}}}}"#),
        format!(r#"{{"Read":{{"commit":"{commit}","files":1,"unpacked_bytes":1,"notes":[]}}}}"#),
        r#"{"Read":{"commit":"main","files":1,"unpacked_bytes":1,"notes":[]}}"#.to_owned(),
        "[]".to_owned(),
    ] {
        kit.server.take_seen();
        let error = error(&kit, &Lying::new(&[&reply])).await;
        assert!(matches!(error, GitError::Internal { .. }), "{reply}: {error:?}");
        assert_eq!(kit.server.take_seen().len(), 1, "{reply}");
    }
    // However long it goes on, three questions are asked at most.
    let ask = r#"{"Ask":{"UploadPack":{"what":"References","version":2,"body":[48,48,48,48]}}}"#;
    let error = error(&kit, &Lying::new(&[ask; 10])).await;
    assert!(matches!(error, GitError::Internal { .. } | GitError::Status { .. }), "{error:?}");
    assert!(kit.server.take_seen().len() <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reader_says_is_text() {
    let kit = kit().await;
    let reply = r#"{"Unread":{"Corrupt":{"phase":"Reading","detail":"one\u001b[31m two"}}}"#;
    let error = error(&kit, &Lying::new(&[reply])).await;
    assert!(matches!(error, GitError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("two") && !error.to_string().contains('\u{1b}'), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reader_has_learned_is_a_commit_or_nothing() {
    let kit = kit().await;
    let commit = "1".repeat(40);
    for (learned, expected) in [
        (format!(r#"{{"commit":"{commit}"}}"#), Some(format!("main@sha1:{commit}"))),
        (format!(r#"{{"commit":"{commit}","tag":"v9"}}"#), Some(format!("main@sha1:{commit}"))),
        (r#"{"commit":"main"}"#.to_owned(), None),
        (r#"{"commit":"one\u001b[31m two"}"#.to_owned(), None),
        ("null".to_owned(), None),
    ] {
        let unread = r#"{"Unread":{"Corrupt":{"phase":"Reading","detail":"no"}}}"#;
        let says = format!(r#"{{"reply":{unread},"learned":{learned}}}"#);
        let failed = request(&kit).fetch(None, &Lying::raw(vec![says]), &CancellationToken::new()).await;
        let failed = failed.unwrap_err();
        assert!(matches!(failed.error, FetchError::Git(GitError::Corrupt { .. })), "{failed:?}");
        assert_eq!(failed.learned.map(|learned| learned.revision.to_string()), expected, "{learned}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_never_has_an_answer_ends_with_the_fetch() {
    /// One that does nothing.
    struct Silent;
    #[async_trait]
    impl Engine for Silent {
        async fn admit(&self, _: &str) -> Result<(), Ended> {
            Ok(())
        }
        async fn run(&self, _: &str, _: Vec<u8>, _: &mut Desk) -> Result<Vec<u8>, Ended> {
            std::future::pending().await
        }
    }
    let kit = kit().await;
    let request = GitRequest { timeout: Duration::from_millis(800), ..request(&kit) };
    let error = fetch_with(request, &Silent, &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, GitError::Attempt(AttemptError::Timeout { .. })), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_is_not_brought() {
    /// Does not take packs.
    struct Refusing(InProcess);
    #[async_trait]
    impl Engine for Refusing {
        async fn admit(&self, about: &str) -> Result<(), Ended> {
            if about.len() == 40 {
                Err(Ended { why: "set aside".to_owned(), transient: false })
            } else {
                Ok(())
            }
        }
        async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
            self.0.run(about, order, desk).await
        }
    }
    let kit = kit().await;
    let error = error(&kit, &Refusing(InProcess::default())).await;
    assert!(matches!(&error, GitError::Ended { transient: false, .. }) && !error.is_transient(), "{error:?}");
    let seen: Vec<String> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
}
