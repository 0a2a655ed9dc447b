//! Decisions, one situation after the other.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{ApplierUid, AttemptKind, ClusterUid, Digest, Generation, Reason, Revision, Trigger};
use uuid::Uuid;

use crate::{
    AgentLink, AttemptState, Attempted, Decision, Denial, Dependency, DependencyState, Owned, Situation,
    Source, Target, Tended, decide, jittered,
};

const EDGE: ClusterUid = ClusterUid(Uuid::from_u128(1));
const OTHER: ClusterUid = ClusterUid(Uuid::from_u128(2));
/// Its last bytes are zero: no jitter.
const UID: ApplierUid = ApplierUid(Uuid::from_u128(7 << 32));

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn revision(digit: char) -> Revision {
    Revision::git("main", &digit.to_string().repeat(40)).expect("a commit")
}

fn artifact() -> Digest {
    Digest::of(b"artifact")
}

fn fresh() -> Situation {
    Situation {
        uid: UID,
        generation: Generation(1),
        deleting: false,
        suspended: false,
        prune: true,
        interval: Duration::from_secs(300),
        full_interval: Duration::from_secs(24 * 3600),
        confirmed: false,
        retry_interval: Duration::from_secs(60),
        request: None,
        unsupported: None,
        denials: Vec::new(),
        dependencies: Vec::new(),
        cycle: None,
        target: Target::Cluster { uid: EDGE, name: "edge-1".to_owned(), agent: AgentLink::Connected },
        source: Source::Artifact { revision: revision('a'), digest: artifact() },
        last: None,
        held: false,
        tended: Tended::Unknown,
        late: None,
        asked_for: Vec::new(),
        handed: false,
        older_than_applied: None,
        owns_on: Vec::new(),
    }
}

fn applied(succeeded: bool) -> Situation {
    Situation {
        last: Some(Attempted {
            generation: Generation(1),
            cluster: Some(EDGE),
            revision: Some(revision('a')),
            artifact: Some(artifact()),
            request: None,
            kind: AttemptKind::Apply,
            outdated: false,
            is_past: false,
            dispatch: None,
            state: AttemptState::Finished { at: at(0), succeeded },
        }),
        owns_on: vec![Owned { cluster: EDGE, exists: true }],
        ..fresh()
    }
}

fn open(situation: Situation, deletes: bool) -> Situation {
    let kind = if deletes { AttemptKind::Delete } else { AttemptKind::Apply };
    let last = situation.last.clone().unwrap();
    Situation {
        last: Some(Attempted { kind, state: AttemptState::Open { deadline: at(100) }, ..last }),
        ..situation
    }
}

fn reconcile(news: bool) -> Decision {
    Decision::Reconcile { cluster: EDGE, revision: revision('a'), artifact: artifact(), news }
}

fn held(decision: Decision) -> (Reason, String) {
    match decision {
        Decision::Hold { reason, message, .. } => (reason, message),
        other => panic!("not held: {other:?}"),
    }
}

#[test]
fn what_comes_by_itself_is_waited_for_and_all_else_is_an_error() {
    let waits = |situation: Situation| match decide(&situation, at(0)) {
        Decision::Hold { waits, .. } => waits,
        other => panic!("not held: {other:?}"),
    };
    let away = |agent| Target::Cluster { uid: EDGE, name: "edge".to_owned(), agent };
    assert!(waits(Situation { source: Source::NoArtifact("GitRepository apps/web".to_owned()), ..fresh() }));
    assert!(!waits(Situation { source: Source::Unusable("GitRepository apps/web".to_owned()), ..fresh() }));
    assert!(waits(Situation { target: away(AgentLink::Never), ..fresh() }));
    assert!(!waits(Situation { target: Target::NotFound("none".to_owned()), ..fresh() }));
    assert!(!waits(Situation { cycle: Some(vec!["a".to_owned(), "a".to_owned()]), ..fresh() }));
}

#[test]
fn a_new_one_is_reconciled_at_once() {
    assert_eq!(decide(&fresh(), at(0)), reconcile(true));
}

#[test]
fn intervals_are_kept() {
    assert_eq!(decide(&applied(true), at(299)), Decision::Idle { until: at(300) });
    assert_eq!(decide(&applied(true), at(300)), reconcile(false));
    assert_eq!(decide(&applied(false), at(59)), Decision::Idle { until: at(60) });
    assert_eq!(decide(&applied(false), at(60)), reconcile(true));
    // What did not become Ready on the hub in time is a failure too, from when that was seen.
    let late = Situation { late: Some(at(100)), ..applied(true) };
    assert_eq!(decide(&late, at(159)), Decision::Idle { until: at(160) });
    assert_eq!(decide(&late, at(160)), reconcile(true));
}

#[test]
fn what_is_new_does_not_wait() {
    let newer_spec = Situation { generation: Generation(2), ..applied(true) };
    let asked = Situation { request: Some("now".to_owned()), ..applied(true) };
    for situation in [newer_spec, asked] {
        assert_eq!(decide(&situation, at(1)), reconcile(true));
    }
    let source = Source::Artifact { revision: revision('b'), digest: artifact() };
    let newer_commit = Situation { source, ..applied(true) };
    let source = Source::Artifact { revision: revision('a'), digest: Digest::of(b"with less left out") };
    let other_artifact = Situation { source, ..applied(true) };
    for situation in [newer_commit, other_artifact] {
        assert!(matches!(decide(&situation, at(1)), Decision::Reconcile { news: true, .. }));
    }
}

#[test]
fn an_open_attempt_is_waited_for_given_up_or_superseded() {
    let situation = open(applied(true), false);
    assert_eq!(decide(&situation, at(99)), Decision::Idle { until: at(100) });
    assert!(matches!(decide(&situation, at(100)), Decision::GiveUp { .. }));
    let newer = Situation { generation: Generation(2), ..situation };
    assert_eq!(decide(&newer, at(99)), reconcile(true));
}

#[test]
fn suspended_does_nothing_but_say_so() {
    assert_eq!(decide(&Situation { suspended: true, ..fresh() }, at(0)), Decision::Suspend);
}

#[test]
fn holds_name_their_cause() {
    let dependency = |state| Situation {
        dependencies: vec![Dependency { name: "apps/common".to_owned(), state }],
        ..fresh()
    };
    for (situation, reason, part) in [
        (dependency(DependencyState::Missing), Reason::DependencyNotReady, "apps/common"),
        (dependency(DependencyState::NotReady), Reason::DependencyNotReady, "apps/common"),
        (
            dependency(DependencyState::ReadyAt(Some(revision('b')))),
            Reason::DependencyNotReady,
            "main@sha1:aaaa",
        ),
        (
            Situation { cycle: Some(vec!["a/x".to_owned(), "a/y".to_owned(), "a/x".to_owned()]), ..fresh() },
            Reason::DependencyNotReady,
            "a/x -> a/y -> a/x",
        ),
        (
            Situation { target: Target::NotFound("no cluster edge-9".to_owned()), ..fresh() },
            Reason::ClusterNotFound,
            "edge-9",
        ),
        (
            Situation { source: Source::NoArtifact("GitRepository apps/web".to_owned()), ..fresh() },
            Reason::ArtifactFailed,
            "apps/web",
        ),
        (
            Situation {
                target: Target::Cluster { uid: EDGE, name: "edge-1".to_owned(), agent: AgentLink::Never },
                ..fresh()
            },
            Reason::ClusterUnreachable,
            "edge-1",
        ),
    ] {
        let (held_for, message) = held(decide(&situation, at(0)));
        assert_eq!(held_for, reason);
        assert!(message.contains(part), "{message}");
    }
    for state in [DependencyState::Ready, DependencyState::ReadyAt(Some(revision('a')))] {
        assert_eq!(decide(&dependency(state), at(0)), reconcile(true));
    }
}

#[test]
fn between_reconciliations_nothing_is_held_and_what_was_held_goes_on_at_once() {
    let dependency = |state| vec![Dependency { name: "apps/common".to_owned(), state }];
    let away = Target::Cluster { uid: EDGE, name: "edge-1".to_owned(), agent: AgentLink::Never };
    for disturbed in [
        Situation { dependencies: dependency(DependencyState::NotReady), ..applied(true) },
        Situation { target: away, ..applied(true) },
    ] {
        assert_eq!(decide(&disturbed, at(1)), Decision::Idle { until: at(300) });
        held(decide(&disturbed, at(300)));
        // What was held is processed again, and stays held until the cause is gone.
        held(decide(&Situation { held: true, ..disturbed }, at(1)));
    }
    assert_eq!(decide(&Situation { held: true, ..applied(true) }, at(1)), reconcile(true));
}

#[test]
fn an_agent_that_was_just_cut_off_is_given_a_moment() {
    let target = Target::Cluster { uid: EDGE, name: "edge-1".to_owned(), agent: AgentLink::Lost(at(0)) };
    let situation = Situation { target, ..fresh() };
    assert_eq!(decide(&situation, at(14)), Decision::Idle { until: at(15) });
    assert_eq!(held(decide(&situation, at(15))).0, Reason::ClusterUnreachable);
}

#[test]
fn a_moved_one_leaves_the_old_cluster_first() {
    let moved = Situation {
        generation: Generation(2),
        target: Target::Cluster { uid: OTHER, name: "edge-2".to_owned(), agent: AgentLink::Connected },
        ..applied(true)
    };
    assert_eq!(decide(&moved, at(1)), Decision::Delete { cluster: EDGE });
    let under_way = open(moved.clone(), true);
    assert_eq!(decide(&under_way, at(1)), Decision::Idle { until: at(100) });
    let gone = Situation { owns_on: vec![Owned { cluster: EDGE, exists: false }], ..moved.clone() };
    assert!(matches!(decide(&gone, at(1)), Decision::Reconcile { cluster: OTHER, .. }));
    let keeps = Situation { prune: false, ..moved };
    assert!(matches!(decide(&keeps, at(1)), Decision::Reconcile { cluster: OTHER, .. }));
}

#[test]
fn a_cluster_that_leaves_is_left_empty() {
    let target = Target::Leaving { uid: EDGE, name: "edge-1".to_owned() };
    let leaving = Situation { target, ..applied(true) };
    assert_eq!(decide(&leaving, at(1)), Decision::Delete { cluster: EDGE });
    assert_eq!(decide(&open(leaving.clone(), true), at(1)), Decision::Idle { until: at(100) });
    // An apply that was under way is superseded, and a source or a dependency that fails holds nothing up.
    assert_eq!(decide(&open(leaving.clone(), false), at(1)), Decision::Delete { cluster: EDGE });
    let broken = Situation { source: Source::NoArtifact("none".to_owned()), ..leaving.clone() };
    assert_eq!(decide(&broken, at(1)), Decision::Delete { cluster: EDGE });
    for done in [
        Situation { owns_on: Vec::new(), ..leaving.clone() },
        Situation { prune: false, ..leaving.clone() },
        Situation { owns_on: vec![Owned { cluster: EDGE, exists: false }], ..leaving.clone() },
    ] {
        assert_eq!(held(decide(&done, at(1))).0, Reason::ClusterNotFound);
    }
    let suspended = Situation { suspended: true, ..leaving };
    assert_eq!(decide(&suspended, at(1)), Decision::Suspend, "what is suspended stays");
}

#[test]
fn deletion_prunes_then_lets_go() {
    let deleting = Situation { deleting: true, ..applied(true) };
    assert_eq!(decide(&deleting, at(1)), Decision::Delete { cluster: EDGE });
    assert_eq!(decide(&open(deleting.clone(), true), at(1)), Decision::Idle { until: at(100) });
    let clean = Situation { owns_on: Vec::new(), ..deleting.clone() };
    assert_eq!(decide(&clean, at(1)), Decision::Release { orphaned: None });
    for orphans in [
        Situation { suspended: true, ..deleting.clone() },
        Situation { prune: false, ..deleting.clone() },
        Situation { owns_on: vec![Owned { cluster: EDGE, exists: false }], ..deleting.clone() },
    ] {
        assert!(matches!(decide(&orphans, at(1)), Decision::Release { orphaned: Some(_) }));
    }
    // An apply that was under way does not hold the deletion up: the deletion supersedes it.
    assert_eq!(decide(&open(deleting, false), at(1)), Decision::Delete { cluster: EDGE });
}

#[test]
fn a_failed_deletion_is_tried_again_later() {
    let situation = Situation { deleting: true, ..applied(false) };
    let last = Attempted { kind: AttemptKind::Delete, ..situation.last.clone().unwrap() };
    let failed = Situation { last: Some(last), ..situation };
    assert_eq!(decide(&failed, at(29)), Decision::Idle { until: at(30) });
    assert_eq!(decide(&failed, at(30)), Decision::Delete { cluster: EDGE });
}

#[test]
fn what_was_handed_over_is_applied_at_once_by_an_attempt_that_knows_of_it() {
    for succeeded in [true, false] {
        let handed = Situation { handed: true, ..applied(succeeded) };
        assert!(matches!(decide(&handed, at(1)), Decision::Reconcile { news: true, .. }));
    }
    // One that is under way announces what it applies; it is waited for.
    let mut open = Situation { handed: true, ..applied(true) };
    open.last.as_mut().unwrap().state = AttemptState::Open { deadline: at(90) };
    assert_eq!(decide(&open, at(1)), Decision::Idle { until: at(90) });
}

#[test]
fn each_attempt_has_what_led_to_it() {
    let trigger = |situation: Situation| situation.trigger(AttemptKind::Apply, Some(EDGE));
    assert_eq!(trigger(fresh()), Trigger::Spec);
    assert_eq!(trigger(applied(true)), Trigger::Interval);
    assert_eq!(trigger(applied(false)), Trigger::Retry);
    assert_eq!(trigger(Situation { held: true, ..applied(true) }), Trigger::Release);
    assert_eq!(trigger(Situation { confirmed: true, ..applied(false) }), Trigger::Confirmation);
    assert_eq!(trigger(Situation { handed: true, ..applied(false) }), Trigger::Handover);
    assert_eq!(trigger(Situation { generation: Generation(2), ..applied(true) }), Trigger::Spec);
    assert_eq!(trigger(Situation { request: Some("now".to_owned()), ..applied(true) }), Trigger::Request);
    let moved = Source::Artifact { revision: revision('b'), digest: artifact() };
    assert_eq!(trigger(Situation { source: moved, ..applied(false) }), Trigger::Revision);
    let with_last = |change: fn(&mut Attempted)| {
        let mut situation = applied(true);
        change(situation.last.as_mut().unwrap());
        trigger(situation)
    };
    assert_eq!(with_last(|last| last.outdated = true), Trigger::Inputs);
    assert_eq!(with_last(|last| last.cluster = Some(OTHER)), Trigger::Cluster);
    let leaves = |deleting| Situation { deleting, ..applied(true) }.trigger(AttemptKind::Delete, Some(EDGE));
    assert_eq!((leaves(true), leaves(false)), (Trigger::Deletion, Trigger::Cluster));
}

#[test]
fn what_a_person_confirms_is_done_at_once() {
    let is_due = |situation: &Situation| !matches!(decide(situation, at(1)), Decision::Idle { .. });
    assert!(!is_due(&applied(false)));
    assert!(is_due(&Situation { confirmed: true, ..applied(false) }));
    assert!(!is_due(&Situation { confirmed: true, ..applied(true) }), "what went well needs no word");
    let moved = Owned { cluster: OTHER, exists: true };
    let last =
        applied(false).last.map(|last| Attempted { kind: AttemptKind::Delete, cluster: Some(OTHER), ..last });
    let leaves = Situation { owns_on: vec![moved], last, ..applied(false) };
    assert!(!is_due(&leaves));
    assert_eq!(decide(&Situation { confirmed: true, ..leaves }, at(1)), Decision::Delete { cluster: OTHER });
}

#[test]
fn jitter_is_a_tenth_at_most() {
    let interval = Duration::from_secs(100);
    let spread: Vec<Duration> =
        (0..200_u128).map(|n| jittered(interval, ApplierUid(Uuid::from_u128(n * 331)))).collect();
    assert!(spread.iter().all(|period| *period >= interval && *period <= interval + Duration::from_secs(10)));
    assert!(spread.iter().any(|period| *period > interval + Duration::from_secs(5)));
}

#[test]
fn what_an_agent_tends_is_looked_at_once_a_day() {
    let idle_until = |tended, now: i64| {
        let decision = decide(&Situation { tended, ..applied(true) }, at(now));
        if let Decision::Idle { until } = decision { Some(until) } else { None }
    };
    // It ended at 0, and its interval is 300 s.
    assert_eq!(idle_until(Tended::Unknown, 10), Some(at(300)));
    // Passes go on: what may not be deployed any more is to be told.
    assert_eq!(idle_until(Tended::Now, 299), Some(at(599)));
    assert_eq!(idle_until(Tended::Now, 24 * 3600 - 10), Some(at(24 * 3600)));
    assert_eq!(idle_until(Tended::Now, 24 * 3600), None);
    let denied = Denial { reason: Reason::AccessDenied, message: "no".to_owned() };
    let denied = Situation { tended: Tended::Now, denials: vec![denied], ..applied(true) };
    assert!(matches!(decide(&denied, at(599)), Decision::Hold { reason: Reason::AccessDenied, .. }));
    // From when something does not stand any more, the interval counts.
    assert_eq!(idle_until(Tended::Until(at(5_000)), 5_000), Some(at(5_300)));
    assert_eq!(idle_until(Tended::Until(at(-5)), 10), Some(at(300)));
    // Of an agent that came back without saying anything about it, soon; unless it was applied since.
    assert_eq!(idle_until(Tended::Unclaimed(at(5_000)), 5_000), Some(at(5_030)));
    assert_eq!(idle_until(Tended::Unclaimed(at(5_000)), 5_031), None);
    assert_eq!(idle_until(Tended::Unclaimed(at(-5)), 10), Some(at(300)));
    // A failure is tried again whatever is tended.
    let failed = Situation { tended: Tended::Now, ..applied(false) };
    assert!(matches!(decide(&failed, at(60)), Decision::Reconcile { .. }));
}

#[test]
fn a_clock_that_is_put_back_holds_nothing_up() {
    const HOUR: i64 = 3_600;
    let late = Situation { late: Some(at(0)), ..applied(true) };
    for (situation, news) in [(applied(true), false), (applied(false), true), (late, true)] {
        // It ended in what is the future now; some seconds do not count.
        assert_eq!(decide(&situation, at(-HOUR)), reconcile(news));
        assert!(matches!(decide(&situation, at(-59)), Decision::Idle { .. }), "{situation:?}");
    }
    for tended in [Tended::Now, Tended::Until(at(0)), Tended::Unclaimed(at(0))] {
        assert_eq!(decide(&Situation { tended, ..applied(true) }, at(-HOUR)), reconcile(false), "{tended:?}");
    }
    // What is noted of an agent in the future says nothing.
    for tended in [Tended::Until(at(HOUR)), Tended::Unclaimed(at(HOUR))] {
        let situation = Situation { tended, ..applied(true) };
        assert_eq!(decide(&situation, at(10)), Decision::Idle { until: at(300) }, "{tended:?}");
    }
    let target = Target::Cluster { uid: EDGE, name: "edge-1".to_owned(), agent: AgentLink::Lost(at(0)) };
    let lost = Situation { target, ..fresh() };
    assert_eq!(held(decide(&lost, at(-HOUR))).0, Reason::ClusterUnreachable);
    let asked = Situation { generation: Generation(2), asked_for: vec![at(0); 4], ..applied(true) };
    assert!(matches!(decide(&asked, at(1)), Decision::Pace { .. }));
    assert_eq!(decide(&asked, at(-HOUR)), reconcile(true));
    let deleting = Situation { deleting: true, ..applied(false) };
    let last = deleting.last.clone().map(|last| Attempted { kind: AttemptKind::Delete, ..last });
    let failed = Situation { last, ..deleting };
    assert_eq!(decide(&failed, at(-HOUR)), Decision::Delete { cluster: EDGE });
}

#[test]
fn what_was_applied_before_the_database_was_restored_is_applied_again() {
    let past = |situation: Situation| Situation {
        last: situation.last.map(|last| Attempted { is_past: true, ..last }),
        ..situation
    };
    assert_eq!(decide(&past(applied(true)), at(1)), reconcile(true));
    assert_eq!(decide(&past(applied(false)), at(1)), reconcile(true));
    let why = "an older spec".to_owned();
    let held = Situation { older_than_applied: Some(why.clone()), ..past(applied(true)) };
    let Decision::Hold { reason, message, .. } = decide(&held, at(1)) else { panic!("it is held") };
    assert_eq!((reason, message), (Reason::DatabaseRestored, why));
}
