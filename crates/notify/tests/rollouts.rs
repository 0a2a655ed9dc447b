//! The status that each Git service is told of a rollout.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;

use roadstead_api::ProviderType;
use roadstead_notify::{Event, Next, Question, Request, Takes, Target, begin, heard, takes};
use serde_json::{Value, json};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Each type that makes statuses.
fn all() -> Vec<(ProviderType, Target)> {
    use ProviderType as T;
    let of = |address: &str, token: &str| Target {
        address: address.into(),
        token: Some(token.into()),
        namespace: "apps".to_owned(),
        uid: "c0ffee00-0000-4000-8000-000000000002".to_owned(),
        ..Target::default()
    };
    vec![
        (T::Github, of("https://github.com/o/r.git", "CANARY")),
        (T::Gitlab, of("https://gitlab.test/group/sub/p", "CANARY")),
        (T::Gitea, of("ssh://git@gitea.test/o/r", "CANARY")),
        (T::Bitbucket, of("https://bitbucket.org/o/r", "someone:CANARY")),
        (T::Bitbucketserver, of("https://code.test/context/scm/P/r.git", "CANARY")),
        (T::Azuredevops, of("https://dev.azure.com/org/my%20project/_git/r", "CANARY")),
    ]
}

/// Types that make none.
const OTHERS: [ProviderType; 5] = [
    ProviderType::Generic,
    ProviderType::Slack,
    ProviderType::Pagerduty,
    ProviderType::Githubdispatch,
    ProviderType::Githubpullrequestcomment,
];

fn shown(request: &Request) -> Value {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    json!({ "line": format!("{} {}", request.method.as_str(), request.url.expose()), "body": body })
}

fn told(next: Next) -> Vec<Request> {
    let Next::Tell(requests) = next else { panic!("it asks: {next:?}") };
    requests
}

/// What is told of a rollout, with the verdict and the message that it has.
fn of_rollout(verdict: &str, message: &str) -> Event {
    serde_json::from_value(json!({
        "involvedObject": { "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert", "name": "production",
            "namespace": "apps", "uid": "7a8f1d3e-0000-4000-8000-000000000001" },
        "severity": if verdict == "failure" { "error" } else { "info" }, "timestamp": "2026-08-07T10:00:00Z",
        "message": message, "reason": "Rollout", "reportingController": "roadstead-hub",
        "metadata": { "commit": COMMIT, "revision": format!("main@sha1:{COMMIT}"), "environment": "Prod" },
        "rollout": { "verdict": verdict, "environment": "Prod", "total": 100, "ready": 87, "failed": 2 },
    }))
    .unwrap()
}

#[test]
fn a_rollout_is_one_status_with_its_counts() {
    let mut shown_all = BTreeMap::new();
    for (index, (type_, target)) in all().into_iter().enumerate() {
        for (verdict, message) in [
            ("pending", "87 of 100 clusters ready, 2 failed"),
            ("success", "100 of 100 clusters ready"),
            ("failure", "98 of 100 clusters ready, 2 failed"),
            ("superseded", "superseded by fedcba9876; 87 of 100 clusters were ready, 2 failed"),
        ] {
            let event = of_rollout(verdict, message);
            assert_eq!(takes(type_, &event), Takes::Always, "{type_:?}");
            let Next::Ask(_, question) = begin(type_, &target, &event).unwrap() else { panic!("{type_:?}") };
            let requests = told(heard(type_, &target, &event, question, b"[]").unwrap());
            shown_all.insert(format!("{index} {type_:?} {verdict}"), shown(&requests[0]));
        }
    }
    insta::assert_yaml_snapshot!(shown_all);
    for type_ in OTHERS {
        assert_eq!(takes(type_, &of_rollout("failure", "x")), Takes::Never, "{type_:?}");
    }
    // Two long names are still two, and what a message has of lines is one.
    let (_, target) = all().remove(0);
    let context = |event: &Event| {
        let told = told(heard(ProviderType::Github, &target, event, Question::Statuses, b"[]").unwrap());
        shown(&told[0])["body"].clone()
    };
    let long = |name: String| {
        let mut event = of_rollout("pending", "one\ntwo");
        event.involved_object.name = name;
        context(&event)
    };
    let (one, other) = (long(format!("{}a", "x".repeat(252))), long(format!("{}b", "x".repeat(252))));
    assert!(one["context"] != other["context"] && one["context"].to_string().len() < 60, "{one}");
    assert_eq!(one["description"], "one two");
    let own = Target { status_id: Some("deploy/prod".to_owned()), ..target.clone() };
    let told = told(
        heard(ProviderType::Github, &own, &of_rollout("pending", "x"), Question::Statuses, b"[]").unwrap(),
    );
    assert_eq!(shown(&told[0])["body"]["context"], "deploy/prod");
}

#[test]
fn gitlab_is_told_no_state_twice() {
    let (_, target) = all().remove(1);
    let id = "roadstead/production/Prod/c0ffee00";
    for (verdict, known, expected) in [
        ("pending", json!([]), Some("pending")),
        ("pending", json!([{ "id": 1, "name": "another", "status": "running" }]), Some("pending")),
        (
            "pending",
            json!([{ "id": 1, "name": id, "status": "pending", "description": "x" }]),
            Some("running"),
        ),
        ("pending", json!([{ "id": 1, "name": id, "status": "running", "description": "x" }]), None),
        (
            "pending",
            json!([{ "id": 1, "name": id, "status": "running" }, { "id": 2, "name": id, "status": "success" }]),
            Some("pending"),
        ),
        ("success", json!([{ "id": 1, "name": id, "status": "running" }]), Some("success")),
        ("failure", json!([{ "id": 1, "name": id, "status": "failed", "description": "x" }]), None),
        ("superseded", json!([{ "id": 1, "name": id, "status": "pending" }]), Some("canceled")),
    ] {
        let event = of_rollout(verdict, "87 of 100 clusters ready");
        let answer = known.to_string();
        let next = heard(ProviderType::Gitlab, &target, &event, Question::Statuses, answer.as_bytes());
        let states: Vec<String> = told(next.unwrap())
            .iter()
            .map(|request| shown(request)["body"]["state"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(states, expected.into_iter().collect::<Vec<_>>(), "{verdict} {known}");
    }
}
