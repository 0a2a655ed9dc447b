//! What each type of Provider is sent, beside what a hostile event makes of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;

use roadstead_api::ProviderType;
use roadstead_model::Secret;
use roadstead_notify::{
    Event, Next, Question, Request, Takes, Target, Unsendable, begin, heard, refused, takes, thread,
};
use serde_json::{Value, json};

fn event(severity: &str) -> Event {
    serde_json::from_value(json!({
        "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "web",
            "namespace": "apps", "uid": "7a8f1d3e-0000-4000-8000-000000000001" },
        "severity": severity, "timestamp": "2026-08-07T10:00:00Z",
        "message": "Deployment/apps/web: timed out <waiting> for *rollout*\nsecond line", "reason": "HealthCheckFailed",
        "reportingController": "roadstead-hub",
        "metadata": { "revision": "main@sha1:abcdef", "summary": "prod is down", "cluster": "edge-1" },
    }))
    .unwrap()
}

/// What nobody should be able to do harm with.
fn hostile() -> Event {
    let long = "@here <!channel> *_`[x](y)` \u{202e}\u{0}\u{1b}[31m𝒳".repeat(4_000);
    let mut event = event("error");
    event.metadata = (0..200)
        .map(|n| (format!("key-{n}"), long.chars().take(3_000).collect()))
        .collect::<BTreeMap<_, _>>();
    event.message = long;
    event
}

const EVENT_HUB: &str = "Endpoint=sb://space.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=CANARY;EntityPath=fleet";

fn target(address: &str) -> Target {
    Target { address: address.into(), channel: "room".to_owned(), uid: "u".to_owned(), ..Target::default() }
}

fn with_token(address: &str) -> Target {
    Target { token: Some("CANARY".into()), ..target(address) }
}

/// What a type is sent that needs to ask nothing.
fn requests(type_: ProviderType, target: &Target, event: &Event) -> Result<Vec<Request>, Unsendable> {
    match begin(type_, target, event)? {
        Next::Tell(requests) => Ok(requests),
        other => panic!("it does something else: {other:?}"),
    }
}

/// Each type that is built and tells at once, with an address that it takes and the most that it takes, in bytes.
fn all() -> Vec<(ProviderType, Target, usize)> {
    use ProviderType as T;
    let basic = Target {
        username: "bot@chat.test".to_owned(),
        password: Some("CANARY".into()),
        channel: "alerts/flux".to_owned(),
        ..target("https://chat.test")
    };
    let headers = vec![("X-Own".to_owned(), Secret::from("CANARY"))];
    vec![
        (T::Generic, Target { headers, ..target("https://hook.test/a?b=c") }, 2 << 20),
        (T::GenericHmac, with_token("https://hook.test/a"), 2 << 20),
        (T::Slack, with_token("https://slack.com/api/chat.postMessage"), 256 << 10),
        (T::Discord, target("https://discord.test/api/webhooks/1/CANARY"), 64 << 10),
        (T::Rocket, target("https://rocket.test/hooks/1"), 256 << 10),
        (T::Msteams, target("https://x.webhook.office.com/1"), 28_000),
        (T::Msteams, target("https://prod.logic.test/workflows/1"), 28_000),
        (T::Googlechat, target("https://chat.test/v1/spaces/A/messages?key=k"), 40_000),
        (T::Webex, with_token("https://webexapis.com/v1/messages"), 10_000),
        (T::Telegram, with_token(""), 20_000),
        (T::Matrix, with_token("https://matrix.test"), 64_000),
        (T::Lark, target("https://open.larksuite.com/hook/1"), 40_000),
        (T::Zulip, basic, 64_000),
        (T::Pagerduty, with_token("https://events.pagerduty.com/v2/enqueue"), 4 << 20),
        (T::Opsgenie, with_token("https://api.opsgenie.com/v2/alerts"), 128 << 10),
        (T::Alertmanager, with_token("https://am.test/api/v2/alerts/"), 4 << 20),
        (T::Grafana, with_token("https://grafana.test/api/annotations"), 64 << 10),
        (T::Datadog, with_token("https://api.datadoghq.com"), 64 << 10),
        (T::Sentry, target("https://KEY@sentry.test/42"), 4 << 20),
        (
            T::Otel,
            Target {
                alert_uid: "a1".to_owned(),
                alert: "apps/all".to_owned(),
                ..with_token("https://otel.test")
            },
            96 << 10,
        ),
        (T::Zoom, with_token("https://inbots.zoom.us/incoming/hook/a"), 64_000),
        (T::Zoom, with_token("https://inbots.zoom.us/incoming/hook/a?format=full&x=y"), 64_000),
        (T::IncidentIo, with_token("https://api.incident.io/v2/alert_events/http/1"), 4 << 20),
        (T::Githubdispatch, with_token("https://github.com/o/r"), 4 << 20),
        (T::Azureeventhub, target(EVENT_HUB), 2 << 20),
        (T::Azureeventhub, Target { channel: "space".to_owned(), ..with_token("fleet") }, 2 << 20),
        (
            T::Googlepubsub,
            Target {
                channel: "flux-events".to_owned(),
                headers: vec![("env".to_owned(), Secret::from("production"))],
                is_identity: true,
                ..with_token("my-project")
            },
            2 << 20,
        ),
    ]
}

fn shown(request: &Request) -> Value {
    let text = String::from_utf8(request.body.clone()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned())))
        .collect();
    json!({
        "line": format!("{} {}", request.method.as_str(), request.url.expose()),
        "headers": request.headers.iter().map(|(name, value)| format!("{name}: {}", value.expose())).collect::<Vec<_>>(),
        "body": lines,
    })
}

#[test]
fn each_type_is_sent_its_form() {
    let mut told = BTreeMap::new();
    for (index, (type_, target, _)) in all().into_iter().enumerate() {
        for severity in ["error", "info"] {
            let requests = requests(type_, &target, &event(severity)).unwrap();
            let shown: Vec<Value> = requests.iter().map(shown).collect();
            told.insert(format!("{index:02} {type_:?} {severity}"), shown);
        }
    }
    insta::assert_yaml_snapshot!(told);
}

#[test]
fn services_that_know_incidents_are_told_that_one_opens_and_closes() {
    use ProviderType as T;
    let mut shown_all = BTreeMap::new();
    for (index, (type_, target, _)) in all().into_iter().enumerate() {
        if !matches!(
            type_,
            T::Generic
                | T::Pagerduty
                | T::Opsgenie
                | T::IncidentIo
                | T::Alertmanager
                | T::Datadog
                | T::Sentry
        ) {
            continue;
        }
        for (severity, stage) in [("error", "opened"), ("info", "resolved")] {
            let mut event = event(severity);
            event.involved_object.uid = "1n".to_owned();
            event.incident = serde_json::from_value(json!({
                "id": "1n", "stage": stage, "openedAt": "2026-08-07T09:59:00Z", "failing": 3, "failed": 4, "clusters": 3,
                "ofClusters": 100, "expiresAt": "2026-08-07T15:00:00Z",
            }))
            .unwrap();
            let requests = requests(type_, &target, &event).unwrap();
            shown_all.insert(
                format!("{index:02} {type_:?} {stage}"),
                requests.iter().map(shown).collect::<Vec<_>>(),
            );
        }
    }
    insta::assert_yaml_snapshot!(shown_all);
}

#[test]
fn what_slack_is_told_of_an_incident_is_one_thread() {
    let api = with_token("https://slack.com/api/chat.postMessage");
    let hook = target("https://hooks.slack.com/services/1");
    let body = |target: &Target| {
        shown(&requests(ProviderType::Slack, target, &event("error")).unwrap()[0])["body"][0].clone()
    };
    let answer = br#"{ "ok": true, "ts": "1503435956.000247" }"#;
    let begun = thread(ProviderType::Slack, &api, answer);
    assert_eq!(begun.as_deref(), Some("1503435956.000247"));
    assert_eq!(body(&api)["thread_ts"], Value::Null);
    let goes_on = body(&Target { thread: begun.clone(), ..api.clone() });
    assert_eq!(
        (&goes_on["thread_ts"], &goes_on["reply_broadcast"]),
        (&json!("1503435956.000247"), &json!(true))
    );
    // A webhook neither says what it calls a message nor takes it.
    assert_eq!(thread(ProviderType::Slack, &hook, answer), None);
    assert_eq!(body(&Target { thread: begun, ..hook })["thread_ts"], Value::Null);
    for odd in
        ["", "ok", r#"{ "ts": 5 }"#, r#"{ "ts": "@here" }"#, &format!(r#"{{ "ts": "{}" }}"#, "1".repeat(33))]
    {
        assert_eq!(thread(ProviderType::Slack, &api, odd.as_bytes()), None, "{odd}");
    }
    assert_eq!(thread(ProviderType::Rocket, &api, answer), None);
}

#[test]
fn what_is_hostile_is_escaped_and_cut() {
    for (type_, target, most) in all() {
        for request in requests(type_, &target, &hostile()).unwrap() {
            // Services that store what they get escape it where they show it.
            assert!(request.body.len() <= most, "{type_:?}: {} bytes", request.body.len());
            let text = String::from_utf8(request.body.clone()).unwrap();
            use ProviderType as T;
            if matches!(
                type_,
                T::Slack
                    | T::Discord
                    | T::Rocket
                    | T::Msteams
                    | T::Googlechat
                    | T::Webex
                    | T::Telegram
                    | T::Lark
                    | T::Zulip
                    | T::Zoom
            ) {
                for harm in ["@here", "<!channel>", "\u{202e}", "\\u001b", "\\u0000"] {
                    assert!(!text.contains(harm), "{type_:?} has {harm:?}");
                }
            }
            if type_ == T::Telegram {
                let said: Value = serde_json::from_slice(&request.body).unwrap();
                assert!(said["text"].as_str().unwrap().chars().count() <= 4_096);
            }
        }
    }
}

#[test]
fn nothing_secret_prints() {
    for (type_, target, _) in all() {
        let requests = requests(type_, &target, &event("error")).unwrap();
        let printed = format!("{target:?} {requests:?}");
        assert!(!printed.contains("CANARY") && !printed.contains("https://"), "{type_:?}: {printed}");
        for request in &requests {
            assert!(!String::from_utf8_lossy(&request.body).contains("CANARY"), "{type_:?}");
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    use ProviderType as T;
    let empty = Target::default();
    for (type_, _, _) in all() {
        let why = requests(type_, &empty, &event("error")).unwrap_err().to_string();
        assert!(!why.is_empty(), "{type_:?}");
    }
    for address in ["ftp://x.test", "/path", "https://", "file:///etc/passwd", "http:"] {
        let why = requests(T::Generic, &target(address), &event("error")).unwrap_err();
        assert!(matches!(why, Unsendable::Address(_)), "{address}: {why}");
    }
    let mut empty_token = with_token("https://x.test");
    empty_token.token = Some("".into());
    assert!(requests(T::GenericHmac, &empty_token, &event("error")).is_err());
    let mut path = with_token("");
    path.token = Some("1:a/../../x".into());
    assert!(requests(T::Telegram, &path, &event("error")).is_err());
}

#[test]
fn a_bus_is_told_what_is_published_and_which_repeat_it_is() {
    let nats = Target { channel: "fleet.events".to_owned(), ..with_token("nats://bus.test") };
    let published = |target: &Target| match begin(ProviderType::Nats, target, &event("error")) {
        Ok(Next::Publish(publication)) => publication,
        other => panic!("{other:?}"),
    };
    let first = published(&Target { delivery: "u-7".to_owned(), ..nats.clone() });
    assert_eq!((first.subject.as_str(), first.headers.len()), ("fleet.events", 1));
    assert_eq!(serde_json::from_slice::<Value>(&first.body).unwrap(), json!(event("error")));
    let again = published(&Target { delivery: "u-7".to_owned(), is_repeat: true, ..nats.clone() });
    assert_eq!(again.headers[0], first.headers[0]);
    assert_eq!(again.headers[1], ("X-Roadstead-Repeat", "true".to_owned()));
    for wrong in [
        Target { channel: String::new(), ..nats.clone() },
        Target { address: Secret::from(" "), ..nats.clone() },
    ] {
        assert!(matches!(begin(ProviderType::Nats, &wrong, &event("error")), Err(Unsendable::Missing(_))));
    }
}

#[test]
fn an_identity_shows_a_token_of_its_cloud() {
    use ProviderType as T;
    let identity = |address: &str| Target { is_identity: true, ..target(address) };
    for (type_, target) in [
        (T::Azureeventhub, identity("fleet")),
        (T::Azuredevops, identity("https://dev.azure.com/org/project/_git/r")),
        (T::Googlepubsub, identity("my-project")),
    ] {
        let authorization = |target: &Target| {
            let requests = begin(type_, target, &of_commit("error")).unwrap().requests();
            let (_, value) = requests[0].headers.iter().find(|(name, _)| name == "Authorization").unwrap();
            value.expose().to_owned()
        };
        // Before there is one, to see where it would go.
        assert_eq!(authorization(&target), "Bearer ", "{type_:?}");
        let given = Target { token: Some("CANARY".into()), ..target };
        assert_eq!(authorization(&given), "Bearer CANARY", "{type_:?}");
    }
}

#[test]
fn an_answer_of_200_may_say_no() {
    use ProviderType as T;
    let api = with_token("https://slack.com/api/chat.postMessage");
    let hook = target("https://hooks.slack.com/services/1");
    assert_eq!(
        refused(T::Slack, &api, br#"{"ok":false,"error":"channel_not_found"}"#).unwrap(),
        "channel_not_found"
    );
    assert!(refused(T::Slack, &api, b"<html>").is_some());
    assert_eq!(refused(T::Slack, &api, br#"{"ok":true}"#), None);
    assert_eq!(refused(T::Slack, &hook, b"ok"), None);
    assert_eq!(refused(T::Lark, &hook, br#"{"code":19021,"msg":"sign match fail"}"#).unwrap(), "code 19021");
    assert_eq!(refused(T::Lark, &hook, br#"{"code":0}"#), None);
    assert!(refused(T::Telegram, &hook, br#"{"ok":false,"description":"no"}"#).is_some());
    assert!(refused(T::Zulip, &hook, br#"{"result":"error","msg":"no"}"#).is_some());
    assert_eq!(refused(T::Generic, &hook, br#"{"ok":false}"#), None);
}

#[test]
fn what_a_cluster_tells_opens_and_closes_nothing_of_another() {
    use ProviderType as T;
    let of = |cluster: &str| Event { relayed_from: Some(cluster.to_owned()), ..event("error") };
    for (index, key) in
        [(T::Pagerduty, "/dedup_key"), (T::IncidentIo, "/deduplication_key"), (T::Opsgenie, "/alias")]
    {
        let key = |event: &Event| {
            let requests = requests(index, &with_token("https://alerts.test/v2"), event).unwrap();
            serde_json::from_slice::<Value>(&requests[0].body).unwrap().pointer(key).unwrap().clone()
        };
        let keys = [key(&event("error")), key(&of("edge-1")), key(&of("edge-2"))];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{index:?} {keys:?}");
    }
    for type_ in [T::Github, T::Gitea, T::Azuredevops, T::Giteapullrequestcomment] {
        let mut event = of_commit("error");
        event.metadata.insert("change_request".to_owned(), "7".to_owned());
        assert_eq!(takes(type_, &event), Takes::Always, "{type_:?}");
        event.relayed_from = Some("edge-1".to_owned());
        assert_eq!(takes(type_, &event), Takes::Never, "{type_:?}");
        event.statuses_and_comments = true;
        assert_eq!(takes(type_, &event), Takes::Always, "{type_:?}");
    }
}

#[test]
fn the_closing_event_is_for_commit_statuses() {
    use ProviderType as T;
    let mut closing = event("info");
    closing.metadata.insert("commit_status".to_owned(), "update".to_owned());
    let (error, info) = (event("error"), event("info"));
    let progressing = Event { reason: "Progressing".to_owned(), ..closing.clone() };
    let mut requested = info.clone();
    requested.metadata.insert("change_request".to_owned(), "7".to_owned());
    let mut of_commit = info.clone();
    of_commit.metadata.insert("commit".to_owned(), COMMIT.to_owned());
    for (type_, event, expected) in [
        (T::Generic, &closing, Takes::Always),
        (T::Slack, &closing, Takes::Recovery),
        (T::Slack, &info, Takes::Always),
        (T::Pagerduty, &progressing, Takes::Never),
        (T::IncidentIo, &progressing, Takes::Never),
        (T::Github, &closing, Takes::Always),
        (T::Github, &error, Takes::Always),
        (T::Github, &info, Takes::Never),
        (T::Github, &of_commit, Takes::Always),
        (T::Gitlab, &progressing, Takes::Never),
        (T::Gitea, &progressing, Takes::Always),
        (T::Githubpullrequestcomment, &error, Takes::Never),
        (T::Githubpullrequestcomment, &requested, Takes::Always),
    ] {
        assert_eq!(takes(type_, event), expected, "{type_:?} {event:?}");
    }
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Of each type that asks first, an address and what the service has already.
fn asking() -> Vec<(ProviderType, Target, Value)> {
    use ProviderType as T;
    let of = |address: &str, token: &str| Target {
        token: Some(token.into()),
        namespace: "apps".to_owned(),
        uid: "c0ffee00-0000-4000-8000-000000000002".to_owned(),
        ..target(address)
    };
    let id = "kustomization/web/c0ffee00";
    let words = "health check failed";
    vec![
        (
            T::Github,
            of("https://github.com/o/r.git", "CANARY"),
            json!([{ "context": "another", "state": "success", "description": "x" },
                   { "context": id, "state": "failure", "description": words },
                   { "context": id, "state": "success", "description": "reconciliation succeeded" }]),
        ),
        (
            T::Gitlab,
            of("https://gitlab.test/group/sub/p", "CANARY"),
            json!([{ "name": id, "status": "failed", "description": words }]),
        ),
        (
            T::Gitea,
            of("ssh://git@gitea.test/o/r", "CANARY"),
            json!([{ "id": 1, "context": id, "status": "success", "description": "x" },
                   { "id": 2, "context": id, "status": "failure", "description": words }]),
        ),
        (
            T::Bitbucket,
            of("https://bitbucket.org/o/r", "someone:CANARY"),
            json!({ "state": "FAILED", "description": words }),
        ),
        (
            T::Bitbucketserver,
            of("https://code.test/context/scm/P/r.git", "CANARY"),
            json!({ "state": "FAILED", "description": words }),
        ),
        (
            T::Azuredevops,
            of("https://dev.azure.com/org/my%20project/_git/r", "CANARY"),
            json!({ "value": [{ "id": 4, "state": "error", "description": words,
                                "context": { "genre": "fluxcd:prod is down", "name": id } }] }),
        ),
    ]
}

fn of_commit(severity: &str) -> Event {
    let mut event = event(severity);
    event.metadata.insert("revision".to_owned(), format!("main@sha1:{COMMIT}"));
    event.metadata.insert("change_request".to_owned(), "7".to_owned());
    event
}

fn told(next: Next) -> Vec<Request> {
    let Next::Tell(requests) = next else { panic!("it asks: {next:?}") };
    requests
}

#[test]
fn a_commit_has_the_status_once() {
    let mut shown_all = BTreeMap::new();
    for (index, (type_, target, known)) in asking().into_iter().enumerate() {
        for severity in ["error", "info"] {
            let event = of_commit(severity);
            let Next::Ask(asks, question) = begin(type_, &target, &event).unwrap() else {
                panic!("{type_:?}")
            };
            // Nothing is there, or what cannot be read.
            for answer in ["", "[]", "<html>"] {
                let requests = told(heard(type_, &target, &event, question, answer.as_bytes()).unwrap());
                assert_eq!(requests.len(), 1, "{type_:?} {answer}");
                let all = vec![shown(&asks), shown(&requests[0])];
                assert!(!all[1]["body"].to_string().contains("CANARY"));
                shown_all.insert(format!("{index} {type_:?} {severity}"), all);
            }
            let again = told(heard(type_, &target, &event, question, known.to_string().as_bytes()).unwrap());
            assert_eq!(again.len(), usize::from(severity == "info"), "{type_:?} {severity}: {again:?}");
        }
    }
    insta::assert_yaml_snapshot!(shown_all);
}

#[test]
fn a_status_is_of_a_commit_and_tells_objects_apart() {
    use ProviderType as T;
    let (_, target, _) = asking().remove(0);
    for revision in
        ["latest@sha256:1", "1.2.3", "main@sha1:xyz", "main@sha1:0123456789abcdef0123456789abcdef0123456g"]
    {
        let mut event = of_commit("error");
        event.metadata.insert("revision".to_owned(), revision.to_owned());
        let why = begin(T::Github, &target, &event).unwrap_err();
        assert!(matches!(why, Unsendable::Event(_)), "{revision}: {why}");
    }
    let context = |target: &Target, event: &Event| {
        let told = told(heard(T::Github, target, event, Question::Statuses, b"[]").unwrap());
        shown(&told[0])["body"][0]["context"].as_str().unwrap().to_owned()
    };
    let mut elsewhere = of_commit("error");
    elsewhere.involved_object.namespace = "Other".to_owned();
    assert_eq!(context(&target, &of_commit("error")), "kustomization/web/c0ffee00");
    assert_eq!(context(&target, &elsewhere), "kustomization/other/web/c0ffee00");
    let own = Target { status_id: Some("deploy/prod".to_owned()), ..target.clone() };
    assert_eq!(context(&own, &elsewhere), "deploy/prod");
    // Of what a cluster tells, the cluster is always a part of it.
    let mut relayed = Event { relayed_from: Some("edge-1".to_owned()), ..of_commit("error") };
    assert_eq!(context(&target, &relayed), "edge-1/kustomization/apps/web/c0ffee00");
    assert_eq!(context(&own, &relayed), "deploy/prod/edge-1");
    relayed.relayed_from = Some("edge-2".repeat(40));
    let long = context(&target, &relayed);
    relayed.relayed_from = Some("edge-3".repeat(40));
    assert!(long.len() == 40 + "/c0ffee00".len() && context(&target, &relayed) != long, "{long}");
    let long = Target { status_id: Some("x".repeat(256)), ..target };
    assert!(matches!(begin(T::Github, &long, &elsewhere), Err(Unsendable::Event(_))));
}

#[test]
fn a_request_has_one_comment_of_each_object() {
    use ProviderType as T;
    let mut shown_all = BTreeMap::new();
    for (type_, address, author) in [
        (T::Githubpullrequestcomment, "https://git.test/o/r", "user"),
        (T::Gitlabmergerequestcomment, "https://gitlab.test/group/sub/p", "author"),
        (T::Giteapullrequestcomment, "https://gitea.test/o/r", "user"),
    ] {
        let (target, event) = (with_token(address), of_commit("error"));
        let Next::Ask(who, Question::Author) = begin(type_, &target, &event).unwrap() else { panic!() };
        let next = heard(type_, &target, &event, Question::Author, br#"{"id":5,"login":"bot"}"#).unwrap();
        let Next::Ask(page, question) = next else { panic!("{next:?}") };
        let hear = |comments: &Value, question: Question| {
            heard(type_, &target, &event, question, comments.to_string().as_bytes()).unwrap()
        };
        let created = told(hear(&json!([]), question)).remove(0);
        let body = shown(&created)["body"][0]["body"].as_str().unwrap().to_owned();
        // Somebody else may have copied it.
        let copied = json!({ "id": 70, "body": body, author: { "id": 6 } });
        assert_eq!(shown(&told(hear(&json!([copied]), question)).remove(0)), shown(&created), "{type_:?}");
        let other = json!({ "id": 71, "body": body.replace("/web -->", "/web2 -->"), author: { "id": 5 } });
        let older = json!({ "id": 72, "body": body.replace("rollout", "sth"), author: { "id": 5 } });
        let edited = told(hear(&json!([copied, other, older]), question)).remove(0);
        let same = json!({ "id": 72, "body": body.trim_end().replace('\n', "\r\n"), author: { "id": 5 } });
        assert!(told(hear(&json!([copied, other, same]), question)).is_empty(), "{type_:?}");
        if type_ != T::Giteapullrequestcomment {
            let full = Value::from(vec![other; 10]);
            let Next::Ask(_, Question::Comments { page: 2, .. }) = hear(&full, question) else { panic!() };
            let last = Question::Comments { author: 5, page: 50 };
            let why = heard(type_, &target, &event, last, full.to_string().as_bytes()).unwrap_err();
            assert!(matches!(why, Unsendable::Event(_)), "{why}");
        }
        shown_all.insert(format!("{type_:?}"), [who, page, created, edited].map(|request| shown(&request)));
        for wrong in ["", "{}", "<html>"] {
            let why = heard(type_, &target, &event, question, wrong.as_bytes()).unwrap_err();
            assert!(matches!(why, Unsendable::Answer(_)), "{why}");
        }
        let mut number = event.clone();
        number.metadata.insert("change_request".to_owned(), "7/../../user".to_owned());
        assert!(matches!(begin(type_, &target, &number), Err(Unsendable::Event(_))));
    }
    insta::assert_yaml_snapshot!(shown_all);
}

#[test]
fn a_comment_calls_nobody() {
    let told = told(
        heard(
            ProviderType::Giteapullrequestcomment,
            &with_token("https://gitea.test/o/r"),
            &Event { message: "@someone <img src=x> #1 [x](y)".to_owned(), ..of_commit("error") },
            Question::Comments { author: 5, page: 1 },
            b"[]",
        )
        .unwrap(),
    );
    let body = shown(&told[0])["body"][0]["body"].as_str().unwrap().to_owned();
    assert!(body.contains("@\u{2060}someone \\<img src=x\\> \\#1 \\[x\\](y)"), "{body}");
}
