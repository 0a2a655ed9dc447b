//! What follows from how far rollouts have come, and from what was told of them.

use serde_json::json;

use super::*;

const ONE: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn counts(total: u64, ready: u64, failed: u64) -> Counts {
    Counts { of_clusters: true, total, ready, failed }
}

fn told(verdict: Verdict, counts: Counts, messages: u64) -> ToldRollout {
    ToldRollout { revision: "main".to_owned(), verdict, counts, told_at: at(0), messages }
}

fn applied(revision: &str, environment: &str, cluster: Option<&str>, counts: [u64; 3]) -> Applied {
    let [total, ready, failed] = counts;
    Applied {
        revision: revision.to_owned(),
        origin: None,
        environment: environment.to_owned(),
        cluster: cluster.map(str::to_owned),
        total,
        ready,
        failed,
    }
}

fn key(commit: &str, environment: &str) -> RolloutKey {
    RolloutKey { commit: commit.to_owned(), environment: environment.to_owned() }
}

#[test]
fn a_cluster_is_ready_where_all_on_it_is() {
    let main = format!("main@sha1:{ONE}");
    let rollouts = gather([
        applied(&main, "prod", Some("a"), [2, 2, 0]),
        applied(&main, "prod", Some("b"), [2, 1, 0]),
        applied(&main, "prod", Some("c"), [2, 1, 1]),
        // Another source at the same commit.
        applied(&format!("v1@sha1:{ONE}"), "prod", Some("a"), [1, 1, 0]),
        applied(&format!("v1@sha1:{ONE}"), "prod", Some("b"), [1, 1, 0]),
        applied(&main, "test", Some("d"), [1, 0, 0]),
        // What is on no cluster that has a name is counted one by one.
        applied(&main, "none", None, [3, 1, 1]),
        applied(&main, "none", Some("e"), [2, 2, 0]),
        // What names a version or a digest is at no commit.
        applied("latest@sha256:12", "prod", Some("a"), [1, 1, 0]),
        applied("1.2.3", "prod", Some("a"), [1, 1, 0]),
        Applied {
            origin: Some(format!("main@sha1:{OTHER}")),
            ..applied("latest@sha256:12", "test", Some("a"), [1, 1, 0])
        },
    ]);
    let of = |commit: &str, environment: &str| rollouts.of[&key(commit, environment)].counts;
    assert_eq!(rollouts.of.len(), 4);
    assert_eq!(of(ONE, "prod"), counts(3, 1, 1));
    assert_eq!(of(ONE, "test"), counts(1, 0, 0));
    assert_eq!(of(ONE, "none"), Counts { of_clusters: false, total: 5, ready: 3, failed: 1 });
    assert_eq!(of(OTHER, "test"), counts(1, 1, 0));
    assert_eq!(rollouts.of[&key(ONE, "prod")].revision, main);
    assert_eq!(successor(&key(OTHER, "prod"), &rollouts), Some(ONE));
    assert_eq!(successor(&key(ONE, "prod"), &rollouts), None);
    assert_eq!(successor(&key("0", "test"), &rollouts), None);
}

#[test]
fn there_is_an_end_to_environments_and_statuses() {
    let main = format!("main@sha1:{ONE}");
    let many = (0..60).map(|n| applied(&main, &format!("e{n:02}"), Some("a"), [1, 1, 0]));
    let rollouts = gather(many);
    assert_eq!((rollouts.of.len(), rollouts.left_out), (MOST_ENVIRONMENTS, 10));
    let many = (0..600).map(|n| applied(&format!("main@sha1:{n:040x}"), "", Some("a"), [1, 1, 0]));
    let rollouts = gather(many);
    assert_eq!((rollouts.of.len(), rollouts.left_out), (MOST_ROLLOUTS, 100));
}

#[test]
fn a_status_grows_and_comes_to_an_end() {
    use RolloutStep as S;
    use Verdict as V;
    let pending = |ready, failed| told(V::Pending, counts(100, ready, failed), 1);
    for (is, before, second, expected) in [
        // What is new is told at once, whatever it is.
        (counts(100, 0, 0), None, 0, S::Tell(V::Pending, counts(100, 0, 0))),
        (counts(100, 100, 0), None, 0, S::Tell(V::Success, counts(100, 100, 0))),
        // It grows, but not too often.
        (counts(100, 9, 0), Some(pending(0, 0)), 3, S::Wait(at(10))),
        (counts(100, 9, 0), Some(pending(0, 0)), 10, S::Tell(V::Pending, counts(100, 9, 0))),
        (counts(100, 9, 0), Some(pending(9, 0)), 500, S::Keep),
        (counts(100, 87, 2), Some(pending(9, 0)), 10, S::Tell(V::Pending, counts(100, 87, 2))),
        // The end is told at once.
        (counts(100, 100, 0), Some(pending(9, 0)), 1, S::Tell(V::Success, counts(100, 100, 0))),
        (counts(100, 98, 2), Some(pending(9, 0)), 1, S::Tell(V::Failure, counts(100, 98, 2))),
        // The clock was set back.
        (counts(100, 9, 0), Some(pending(0, 0)), -60, S::Tell(V::Pending, counts(100, 9, 0))),
    ] {
        assert_eq!(next(Some(is), before.as_ref(), at(second)), expected, "{is:?} {before:?} {second}");
    }
}

#[test]
fn what_has_ended_changes_with_its_verdict() {
    use RolloutStep as S;
    use Verdict as V;
    let well = || Some(told(V::Success, counts(100, 100, 0), 5));
    let failed = || Some(told(V::Failure, counts(100, 98, 2), 5));
    let gone = || Some(told(V::Superseded, counts(100, 98, 0), 5));
    for (is, before, second, expected) in [
        // Another cluster is told of where it is not well.
        (counts(101, 101, 0), well(), 60, S::Keep),
        (counts(101, 100, 0), well(), 3, S::Wait(at(10))),
        (counts(101, 100, 0), well(), 60, S::Tell(V::Pending, counts(101, 100, 0))),
        (counts(100, 99, 1), well(), 60, S::Tell(V::Failure, counts(100, 99, 1))),
        // What failed is tried again.
        (counts(100, 98, 0), failed(), 60, S::Keep),
        (counts(100, 98, 1), failed(), 60, S::Keep),
        (counts(100, 99, 0), failed(), 60, S::Tell(V::Failure, counts(100, 99, 1))),
        (counts(100, 100, 0), failed(), 1, S::Tell(V::Success, counts(100, 100, 0))),
        (counts(100, 90, 2), failed(), 60, S::Tell(V::Pending, counts(100, 90, 2))),
        (counts(100, 97, 3), failed(), 3, S::Wait(at(10))),
        // Back to an earlier revision.
        (counts(100, 0, 0), gone(), 60, S::Tell(V::Pending, counts(100, 0, 0))),
    ] {
        assert_eq!(next(Some(is), before.as_ref(), at(second)), expected, "{is:?} {before:?} {second}");
    }
}

#[test]
fn what_never_ends_is_told_to_be_superseded() {
    use Verdict as V;
    let was = counts(100, 37, 2);
    for counts in [None, Some(counts(0, 0, 0))] {
        let pending = told(V::Pending, was, 1);
        assert_eq!(next(counts, Some(&pending), at(1)), RolloutStep::Tell(V::Superseded, was));
        for ended in [V::Success, V::Failure, V::Superseded] {
            assert_eq!(next(counts, Some(&told(ended, was, 1)), at(1)), RolloutStep::Keep, "{ended:?}");
        }
        assert_eq!(next(counts, None, at(1)), RolloutStep::Keep);
    }
}

#[test]
fn a_long_rollout_is_told_less_often_and_its_end_at_once() {
    for (messages, gap) in [(1, 10), (59, 10), (60, 60), (299, 60), (300, 600), (100_000, 600)] {
        let before = told(Verdict::Pending, counts(100, 1, 0), messages);
        let step = next(Some(counts(100, 2, 0)), Some(&before), at(gap - 1));
        assert_eq!(step, RolloutStep::Wait(at(gap)), "{messages}");
        let step = next(Some(counts(100, 2, 0)), Some(&before), at(gap));
        assert!(matches!(step, RolloutStep::Tell(..)), "{messages}");
        let step = next(Some(counts(100, 100, 0)), Some(&before), at(1));
        assert!(matches!(step, RolloutStep::Tell(Verdict::Success, _)), "{messages}");
    }
}

#[test]
fn the_event_says_how_far_it_is() {
    let spec: AlertSpec = serde_json::from_value(json!({
        "providerRef": { "name": "p" }, "eventSources": [],
        "eventMetadata": { "team": "blue", "commit": "of the alert" },
    }))
    .unwrap();
    let key = key(ONE, "prod");
    let news = |verdict, counts, successor| RolloutNews {
        key: &key,
        revision: "main@sha1:x",
        verdict,
        counts,
        successor,
    };
    let told = |news: RolloutNews<'_>| news.event(["apps", "all", "u"], &spec, at(0));
    for (news, message) in [
        (news(Verdict::Pending, counts(100, 87, 2), None), "87 of 100 clusters ready, 2 failed"),
        (news(Verdict::Success, counts(1, 1, 0), None), "1 of 1 cluster ready"),
        (
            news(Verdict::Failure, Counts { of_clusters: false, ..counts(3, 2, 1) }, None),
            "2 of 3 Kustomizations ready, 1 failed",
        ),
        (
            news(Verdict::Superseded, counts(100, 37, 0), Some(OTHER)),
            "superseded by fedcba9876; 37 of 100 clusters were ready",
        ),
        (
            news(Verdict::Superseded, counts(100, 37, 1), None),
            "not counted any more; 37 of 100 clusters were ready, 1 failed",
        ),
    ] {
        let verdict = news.verdict;
        let event = told(news);
        assert_eq!(event.message, message);
        assert_eq!(event.is_error(), verdict == Verdict::Failure);
        let expected =
            json!({ "commit": ONE, "revision": "main@sha1:x", "environment": "prod", "team": "blue" });
        assert_eq!(json!(event.metadata), expected);
        // As it is stored and read again.
        assert_eq!(serde_json::from_value::<Event>(json!(event)).unwrap(), event);
        assert_eq!(Verdict::parse(verdict.as_str()), Some(verdict));
    }
}
