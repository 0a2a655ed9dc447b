use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use roadstead_apply::{Scope, Sight};
use roadstead_kstatus::{Health, Status};
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, Dispatch, DispatchKey, DispatchSpec, Generation, HealthExpr, HubEpoch,
    ObjectRef, Purpose, ServiceAccount, StepKind,
};
use roadstead_proto::HealthState;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::course::{Course, News, Next};
use super::{Awaited, Healths};
use crate::tend::Watch;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
const APPLIER: ApplierUid = ApplierUid(uuid::Uuid::nil());

fn object(group: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "dev".to_owned(),
        name: name.to_owned(),
    }
}

fn web() -> ObjectRef {
    object("apps", "Deployment", "web")
}

/// What had been waited for, and is looked at.
fn after(objects: &[ObjectRef], now: Instant) -> Course {
    let mut course = Course::after(objects.iter().cloned(), TIMEOUT, None, now);
    objects.iter().for_each(|object| course.seen(object, now));
    course
}

fn told(course: &mut Course, now: Instant) -> Option<News> {
    match course.next(now) {
        Next::Tell(news) => Some(news),
        Next::At(_) | Next::Nothing => None,
    }
}

/// What is told from `from` on, within `span`, where nothing more is seen; and when.
fn first_told(course: &mut Course, from: Instant, span: Duration) -> Option<(Duration, News)> {
    let mut now = from;
    while now <= from + span {
        match course.next(now) {
            Next::Tell(news) => return Some((now - from, news)),
            Next::At(at) => now = at,
            Next::Nothing => return None,
        }
    }
    None
}

fn failed() -> Health {
    Health::failed("progress deadline exceeded")
}

fn rolling() -> Health {
    Health::in_progress("Updated: 2/3")
}

fn current() -> Health {
    Health::current("Deployment is available")
}

#[test]
fn what_failed_is_told_within_seconds_and_that_it_is_well_again_too() {
    let now = Instant::now();
    let mut course = after(&[web()], now);
    assert!(course.is_fine());
    assert_eq!(told(&mut course, now), None);
    course.see(&web(), failed(), None, now);
    assert!(!course.is_fine());
    let (took, news) = first_told(&mut course, now, TIMEOUT).unwrap();
    assert!(took <= 2 * SECOND, "{took:?}");
    assert_eq!(news.verdict.state, HealthState::Failing);
    assert_eq!(news.verdict.message, "Deployment web has failed: progress deadline exceeded");
    assert_eq!((news.objects.len(), news.recovered), (1, false));
    assert_eq!(told(&mut course, now + 2 * SECOND), None, "once");
    // It recovers at once: that is told, and not before ten seconds are over.
    let later = now + 2 * SECOND;
    course.see(&web(), current(), None, later);
    let (took, news) = first_told(&mut course, later, TIMEOUT).unwrap();
    assert!((later + took) - now >= 10 * SECOND && took <= 11 * SECOND, "{took:?}");
    assert_eq!((news.verdict.state, news.recovered), (HealthState::Healthy, true));
    assert_eq!(news.objects[0].status, Status::Current);
    assert!(course.is_fine());
}

#[test]
fn a_rollout_is_progress_until_it_takes_longer_than_it_may() {
    let now = Instant::now();
    let mut course = after(&[web(), object("apps", "Deployment", "other")], now);
    course.see(&web(), rolling(), None, now);
    let (_, news) = first_told(&mut course, now, TIMEOUT / 2).unwrap();
    assert_eq!(news.verdict.state, HealthState::Progressing);
    assert_eq!(news.verdict.message, "Deployment web: 2 of 3 updated");
    // That it goes on slowly gives it no more time.
    course.see(&web(), Health::in_progress("Available: 2/3"), None, now + TIMEOUT / 2);
    let (_, news) = first_told(&mut course, now + TIMEOUT / 2, TIMEOUT / 4).unwrap();
    assert_eq!(news.verdict.message, "Deployment web: 2 of 3 available");
    let (_, news) = first_told(&mut course, now + TIMEOUT / 2, TIMEOUT).unwrap();
    assert_eq!(news.verdict.state, HealthState::Failing);
    assert_eq!(news.verdict.message, "Deployment web has not become healthy within 1m0s: 2 of 3 available");
    assert_eq!(first_told(&mut course, now + 2 * TIMEOUT, TIMEOUT), None);
    course.see(&web(), current(), None, now + 3 * TIMEOUT);
    let (_, news) = first_told(&mut course, now + 3 * TIMEOUT, TIMEOUT).unwrap();
    assert_eq!((news.verdict.state, news.recovered), (HealthState::Healthy, true));
    // The next one has all its time again, and had not failed before.
    let again = now + 4 * TIMEOUT;
    course.see(&web(), rolling(), None, again);
    assert_eq!(
        first_told(&mut course, again, TIMEOUT / 2).unwrap().1.verdict.state,
        HealthState::Progressing
    );
    course.see(&web(), current(), None, again + TIMEOUT / 2);
    let (_, news) = first_told(&mut course, again + TIMEOUT / 2, TIMEOUT).unwrap();
    assert_eq!((news.verdict.state, news.recovered), (HealthState::Healthy, false));
}

#[test]
fn what_passes_at_once_is_not_told_and_what_flaps_is_told_once_in_ten_seconds() {
    let now = Instant::now();
    let mut course = after(&[web()], now);
    course.see(&web(), rolling(), None, now);
    assert_eq!(told(&mut course, now), None);
    course.see(&web(), current(), None, now + SECOND / 5);
    assert_eq!(first_told(&mut course, now + SECOND / 5, TIMEOUT), None);

    // Fifty times a second, for a minute.
    let (mut at, mut tells) = (now + TIMEOUT, Vec::new());
    for step in 0..3_000 {
        course.see(&web(), if step % 2 == 0 { failed() } else { current() }, None, at);
        if told(&mut course, at).is_some() {
            tells.push(at);
        }
        at += Duration::from_millis(20);
    }
    assert!((2..=7).contains(&tells.len()), "{} times", tells.len());
    assert!(tells.windows(2).all(|pair| pair[1] - pair[0] >= 10 * SECOND), "{tells:?}");
    assert!(tells[0] - (now + TIMEOUT) <= 3 * SECOND, "the first one comes quickly");
    // What it settles at is told in the end.
    course.see(&web(), failed(), None, at);
    let last = first_told(&mut course, at, TIMEOUT);
    assert!(last.is_none_or(|(_, news)| news.verdict.state == HealthState::Failing));
    course.see(&web(), current(), None, at + TIMEOUT);
    let (_, news) = first_told(&mut course, at + TIMEOUT, TIMEOUT).unwrap();
    assert_eq!((news.verdict.state, news.recovered), (HealthState::Healthy, true));
}

#[test]
fn a_job_that_has_ended_stays_what_it_was_when_it_is_removed() {
    let now = Instant::now();
    let job = object("batch", "Job", "once");
    let terminating = || Health { status: Status::Terminating, message: "scheduled for deletion".to_owned() };
    let mut course = after(std::slice::from_ref(&job), now);
    course.see(&job, terminating(), None, now);
    course.gone(&job, now);
    assert_eq!(first_told(&mut course, now, 2 * TIMEOUT), None, "its time to live was over");
    // Created again, it runs; removed before its end it is missing.
    course.see(&job, Health::in_progress("Job in progress"), None, now);
    course.gone(&job, now);
    let (_, news) = first_told(&mut course, now, 2 * SECOND).unwrap();
    assert_eq!(news.verdict.message, "Job once: it is not there");
    assert_eq!(news.verdict.state, HealthState::Progressing);
    // One that has failed is not well when it is gone.
    course.see(&job, failed(), None, now + TIMEOUT);
    assert_eq!(
        first_told(&mut course, now + TIMEOUT, TIMEOUT).unwrap().1.verdict.state,
        HealthState::Failing
    );
    course.see(&job, terminating(), None, now + 2 * TIMEOUT);
    course.gone(&job, now + 2 * TIMEOUT);
    assert_eq!(first_told(&mut course, now + 2 * TIMEOUT, TIMEOUT), None);
    assert!(!course.is_fine());
}

#[test]
fn what_is_replaced_in_time_is_progress_and_what_stays_away_has_failed() {
    let now = Instant::now();
    let mut course = after(&[web()], now);
    course.gone(&web(), now);
    course.see(&web(), current(), None, now + SECOND / 2);
    assert_eq!(first_told(&mut course, now + SECOND / 2, TIMEOUT), None, "it was replaced");
    let terminating = Health { status: Status::Terminating, message: String::new() };
    let away = now + TIMEOUT;
    course.see(&web(), terminating, None, away);
    let (_, news) = first_told(&mut course, away, TIMEOUT / 2).unwrap();
    assert_eq!(news.verdict.message, "Deployment web: it is being deleted");
    course.gone(&web(), away + TIMEOUT / 2);
    let (took, news) = (TIMEOUT / 2, first_told(&mut course, away + TIMEOUT / 2, SECOND * 20).unwrap().1);
    assert_eq!(news.verdict.message, "Deployment web: it is not there", "after {took:?}");
    let (_, news) = first_told(&mut course, away + TIMEOUT / 2, 2 * TIMEOUT).unwrap();
    assert_eq!(news.verdict.state, HealthState::Failing, "it counts from when it began to go");
}

#[test]
fn time_in_which_nobody_looks_does_not_count() {
    let now = Instant::now();
    let mut course = after(&[web()], now);
    course.see(&web(), rolling(), None, now);
    assert!(first_told(&mut course, now, TIMEOUT / 2).is_some());
    course.unseen(&web(), now + TIMEOUT / 2);
    assert!(!course.is_fine());
    assert_eq!(first_told(&mut course, now + TIMEOUT / 2, 10 * TIMEOUT), None);
    let again = now + 5 * TIMEOUT;
    course.seen(&web(), again);
    assert_eq!(told(&mut course, again + TIMEOUT / 3), None);
    let (took, news) = first_told(&mut course, again, TIMEOUT).unwrap();
    assert_eq!(news.verdict.state, HealthState::Failing);
    assert!(took >= TIMEOUT / 2, "{took:?}");
}

#[test]
fn what_will_be_so_without_an_event_is_told_in_time() {
    let now = Instant::now();
    let pod = object("", "Pod", "one");
    let mut course = after(std::slice::from_ref(&pod), now);
    let later = (now + 20 * SECOND, Health::failed("Pod could not be scheduled"));
    course.see(&pod, Health::in_progress("Pod has not been scheduled"), Some(later), now);
    assert_eq!(first_told(&mut course, now, TIMEOUT).unwrap().1.verdict.state, HealthState::Progressing);
    let (took, news) = first_told(&mut course, now, TIMEOUT).unwrap();
    assert_eq!(news.verdict.state, HealthState::Failing);
    assert!(took >= 20 * SECOND && took <= 22 * SECOND, "{took:?}");
}

#[test]
fn of_many_the_worst_are_named_and_all_are_told() {
    let now = Instant::now();
    let names: Vec<ObjectRef> = (0..9).map(|n| object("apps", "Deployment", &format!("d{n}"))).collect();
    let mut course = after(&names, now);
    let other = ObjectRef { namespace: "prod".to_owned(), ..object("apps", "Deployment", "far") };
    course.add([other.clone()], now);
    course.seen(&other, now);
    names.iter().for_each(|object| course.see(object, rolling(), None, now));
    course.see(&other, failed(), None, now);
    let (_, news) = first_told(&mut course, now, TIMEOUT).unwrap();
    let message = &news.verdict.message;
    assert!(message.starts_with("Deployment prod/far has failed: "), "{message}");
    assert!(
        message.contains("; Deployment dev/d0: 2 of 3 updated; ") && message.ends_with("; and 5 more"),
        "{message}"
    );
    assert_eq!(news.objects.len(), 10);
}

#[test]
fn while_it_is_waited_progress_is_told_in_words_and_no_end() {
    let now = Instant::now();
    let mut course = Course::waiting(None);
    course.see(&web(), rolling(), None, now);
    let (took, news) = first_told(&mut course, now, TIMEOUT).unwrap();
    assert!(took >= 3 * SECOND, "what comes at once is not told: {took:?}");
    assert_eq!(news.verdict.state, HealthState::Waiting);
    assert_eq!(news.verdict.message, "Deployment web: 2 of 3 updated");
    assert!(news.objects.is_empty(), "the dispatch tells those itself");
    course.see(&web(), failed(), None, now + 5 * SECOND);
    let (took, news) = first_told(&mut course, now + 5 * SECOND, TIMEOUT).unwrap();
    assert_eq!(news.verdict.state, HealthState::Waiting);
    assert!(took >= 8 * SECOND, "{took:?}");
}

fn dispatch(attempt: i64, account: Option<ServiceAccount>, health: Vec<HealthExpr>) -> Dispatch {
    let key = DispatchKey {
        epoch: HubEpoch(1),
        applier: APPLIER,
        generation: Generation(1),
        attempt: Attempt(attempt),
        digest: None,
    };
    let spec = DispatchSpec {
        applier: ApplierRef::kustomization("apps", "app"),
        purpose: Purpose::Reconcile,
        full: false,
        drift: roadstead_model::DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: roadstead_model::Offline::default(),
        guard: None,
        default_namespace: None,
        service_account: account,
        timeout: TIMEOUT,
        health,
        groups: Vec::new(),
        steps: Vec::new(),
    };
    Dispatch { key, spec, inventory: Vec::new(), given: Vec::new(), data_keys: Vec::new(), trace: None }
}

fn deployment(updated: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "dev", "generation": 1},
        "spec": {"replicas": 3},
        "status": {
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": updated, "readyReplicas": 3,
            "availableReplicas": 3, "conditions": [{"type": "Available", "status": "True"}],
        },
    })
}

/// Waits for objects; their kinds are known.
fn awaits(healths: &Healths, dispatch: &Dispatch, own: &[ObjectRef], foreign: &[ObjectRef], now: Instant) {
    let (own, foreign) = (own.iter().cloned().collect(), foreign.iter().cloned().collect());
    healths.awaits(Awaited { dispatch, is_asked: true, own, foreign }, now);
    for object in healths.unknown_kinds(now) {
        let plural = format!("{}s", object.kind.to_lowercase());
        healths.know_kind(&object, Ok(Some(Scope::named(&object, &plural))), now);
    }
}

fn watch(object: &ObjectRef) -> Watch {
    let plural = format!("{}s", object.kind.to_lowercase());
    Watch { account: None, scope: Arc::new(Scope::named(object, &plural).everywhere()) }
}

/// What is to be watched.
fn wanted(healths: &Healths, now: Instant) -> Vec<Watch> {
    healths.wanted_watches(now).into_keys().collect()
}

fn report(healths: &Healths, now: Instant) -> Option<(HealthState, String)> {
    let mut at = now;
    while at < now + 15 * SECOND {
        match healths.due(at) {
            Ok(report) => return Some((report.state, report.message)),
            Err(Some(wake)) => at = wake,
            Err(None) => return None,
        }
    }
    None
}

fn live(healths: &Healths, watch: &Watch, objects: &[(ObjectRef, Value)], now: Instant) {
    for (object, value) in objects {
        healths.take(watch, Sight::Listed(object.clone(), value.clone()), now);
    }
    let seen: HashSet<ObjectRef> = objects.iter().map(|(object, _)| object.clone()).collect();
    healths.take(watch, Sight::Complete { all: seen, went_back: false }, now);
}

fn is_fine(healths: &Healths) -> bool {
    healths.fine_among([APPLIER].into(), |_| true).contains(&APPLIER)
}

#[test]
fn objects_are_watched_from_the_wait_on_and_told_of_once_it_ended_well() {
    let (healths, now) = (Healths::default(), Instant::now());
    let first = dispatch(1, None, Vec::new());
    healths.begin(APPLIER);
    awaits(&healths, &first, &[web(), object("", "ConfigMap", "map")], &[], now);
    assert_eq!(wanted(&healths, now), Vec::<Watch>::new(), "a hub that cannot be told");
    healths.allow(true);
    awaits(&healths, &first, &[web(), object("", "ConfigMap", "map")], &[], now);
    assert_eq!(wanted(&healths, now), [watch(&web())], "a ConfigMap has no health of its own");
    // Seen after the wait has, while others are still waited for.
    live(&healths, &watch(&web()), &[(web(), deployment(2))], now);
    assert_eq!(report(&healths, now), None, "the wait itself tells");
    assert!(!is_fine(&healths));
    healths.end(&first.key, true);
    let told = report(&healths, now).unwrap();
    assert_eq!(told, (HealthState::Progressing, "Deployment web: 2 of 3 updated".to_owned()));
    healths.take(&watch(&web()), Sight::Seen(web(), deployment(3)), now + 20 * SECOND);
    assert_eq!(report(&healths, now + 20 * SECOND).unwrap().0, HealthState::Healthy);
    assert!(is_fine(&healths));
    // An event that another watch tells late is nobody's.
    let other = Watch { account: None, scope: Arc::new(Scope::named(&web(), "others")) };
    healths.take(&other, Sight::Seen(web(), deployment(0)), now + 30 * SECOND);
    assert_eq!(report(&healths, now + 30 * SECOND), None);

    // The next dispatch: what was is kept, and nothing told; where it fails, nothing is followed any more.
    healths.begin(APPLIER);
    healths.take(&watch(&web()), Sight::Seen(web(), deployment(1)), now + 40 * SECOND);
    assert_eq!(report(&healths, now + 40 * SECOND), None);
    assert!(is_fine(&healths), "as before");
    healths.end(&dispatch(2, None, Vec::new()).key, false);
    assert!(!is_fine(&healths) && healths.wanted_watches(now).is_empty());
}

#[test]
fn what_an_agent_before_this_one_has_waited_for_is_followed_without_a_hub() {
    let now = Instant::now();
    let map = object("", "ConfigMap", "map");
    let know = |healths: &Healths, kinds: &[(ObjectRef, &str)]| {
        for (kind, plural) in kinds {
            healths.know_kind(kind, Ok(Some(Scope::named(kind, plural))), now);
        }
    };
    let kinds = [(web(), "deployments")];
    for (groups, objects, is_followed) in
        [(vec![0], vec![], true), (vec![], vec![web()], true), (vec![], vec![], false)]
    {
        let healths = Healths::default();
        let mut before = dispatch(1, None, Vec::new());
        before.spec.steps = vec![StepKind::Wait { objects, groups }.into()];
        healths.resume(&before, &[web(), map.clone()], now);
        healths.allow_without_hub();
        know(&healths, &kinds);
        assert_eq!(!wanted(&healths, now).is_empty(), is_followed);
        if is_followed {
            live(&healths, &watch(&web()), &[(web(), deployment(2))], now);
            let told = report(&healths, now).unwrap();
            assert_eq!(told, (HealthState::Progressing, "Deployment web: 2 of 3 updated".to_owned()));
        }
    }
    // A hub that cannot be told has said so before, and what is only planned has no health.
    let healths = Healths::default();
    healths.allow(false);
    healths.allow_without_hub();
    let mut before = dispatch(1, None, Vec::new());
    healths.resume(&before, &[web()], now);
    know(&healths, &kinds);
    assert!(wanted(&healths, now).is_empty());
    healths.allow(true);
    assert!(!wanted(&healths, now).is_empty(), "what nobody waits for is shown in views");
    before.spec.purpose = Purpose::Plan;
    let healths = Healths::default();
    healths.allow(true);
    healths.resume(&before, &[web()], now);
    assert!(healths.unknown_kinds(now).is_empty());
}

#[test]
fn a_wait_is_told_in_words_while_it_lasts() {
    let (healths, now) = (Healths::default(), Instant::now());
    healths.allow(true);
    let first = dispatch(1, None, Vec::new());
    healths.begin(APPLIER);
    awaits(&healths, &first, &[web()], &[], now);
    healths.waits_for(&first.key, &web(), &rolling(), now);
    let told = report(&healths, now).unwrap();
    assert_eq!(told, (HealthState::Waiting, "Deployment web: 2 of 3 updated".to_owned()));
    healths.waits_for(&dispatch(9, None, Vec::new()).key, &web(), &failed(), now + 20 * SECOND);
    assert_eq!(report(&healths, now + 20 * SECOND), None, "that is another dispatch");
    // It ends, and at once something fails: that is told when ten seconds are over since the last.
    assert_eq!(wanted(&healths, now), [watch(&web())]);
    live(&healths, &watch(&web()), &[(web(), deployment(3))], now);
    healths.waits_for(&first.key, &web(), &Health::in_progress("Available: 1/3"), now + 30 * SECOND);
    let at = now + 33 * SECOND;
    assert!(healths.due(now + 30 * SECOND).is_err() && healths.due(at).is_ok());
    healths.end(&first.key, true);
    healths.take(&watch(&web()), Sight::Seen(web(), deployment(0)), at);
    assert!(healths.due(at).is_err() && healths.due(at + 9 * SECOND).is_err());
    assert!(healths.due(at + 10 * SECOND).is_ok());
}

#[test]
fn who_may_not_watch_a_kind_watches_its_namespace_and_others_are_watched_by_name() {
    let (healths, now) = (Healths::default(), Instant::now());
    healths.allow(true);
    let foreign = object("apps", "Deployment", "database");
    let first = dispatch(1, None, Vec::new());
    healths.begin(APPLIER);
    awaits(&healths, &first, &[web()], std::slice::from_ref(&foreign), now);
    let named =
        Watch { account: None, scope: Arc::new(Scope::named(&foreign, "deployments").only("database")) };
    assert_eq!(wanted(&healths, now), [watch(&web()), named.clone()]);
    healths.end(&first.key, true);
    healths.forbidden(&watch(&web()), now);
    let narrow = Watch { account: None, scope: Arc::new(Scope::named(&web(), "deployments")) };
    assert_eq!(wanted(&healths, now), [narrow.clone(), named.clone()]);
    live(&healths, &narrow, &[(web(), deployment(3))], now);
    assert!(!is_fine(&healths), "one is not seen yet");
    // It is not there.
    live(&healths, &named, &[], now);
    let told = report(&healths, now).unwrap();
    assert_eq!(told, (HealthState::Progressing, "Deployment database: it is not there".to_owned()));
    healths.forbidden(&narrow, now);
    assert_eq!(wanted(&healths, now), [named]);
    assert!(!is_fine(&healths), "what is not watched is not known to be healthy");
}

#[test]
fn an_account_watches_its_namespaces_and_expressions_judge() {
    let (healths, now) = (Healths::default(), Instant::now());
    healths.allow(true);
    let account = ServiceAccount { namespace: "dev".to_owned(), name: "deployer".to_owned() };
    let expression = HealthExpr {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        in_progress: None,
        failed: Some("data.word == 'bad'".to_owned()),
        current: "data.word == 'ok'".to_owned(),
    };
    let first = dispatch(1, Some(account.clone()), vec![expression]);
    let map = object("", "ConfigMap", "map");
    healths.begin(APPLIER);
    awaits(&healths, &first, std::slice::from_ref(&map), &[], now);
    let watch = Watch { account: Some(account), scope: Arc::new(Scope::named(&map, "configmaps")) };
    assert_eq!(wanted(&healths, now), std::slice::from_ref(&watch));
    healths.end(&first.key, true);
    let with = |word: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"word": word}});
    live(&healths, &watch, &[(map.clone(), with("ok"))], now);
    assert_eq!(report(&healths, now), None);
    assert!(is_fine(&healths));
    healths.take(&watch, Sight::Seen(map.clone(), with("bad")), now);
    assert_eq!(report(&healths, now).unwrap().0, HealthState::Failing);
    // Suspended, it goes on; gone, it does not.
    healths.rest(APPLIER);
    assert!(healths.wanted_watches(now).is_empty());
}

#[test]
fn what_rests_while_a_dispatch_is_under_way_is_not_told_of_after_it() {
    let (healths, now) = (Healths::default(), Instant::now());
    healths.allow(true);
    let first = dispatch(1, None, Vec::new());
    healths.begin(APPLIER);
    awaits(&healths, &first, &[web()], &[], now);
    healths.rest(APPLIER);
    healths.end(&first.key, true);
    assert!(healths.wanted_watches(now).is_empty());
}

#[test]
fn what_nobody_waits_for_is_told_once_it_is_seen_and_holds_up_no_rest() {
    let (healths, now) = (Healths::default(), Instant::now());
    healths.allow(true);
    let follow = |attempt: i64, now: Instant| {
        let dispatch = dispatch(attempt, None, Vec::new());
        healths.begin(APPLIER);
        let awaited =
            Awaited { dispatch: &dispatch, is_asked: false, own: [web()].into(), foreign: BTreeSet::new() };
        healths.awaits(awaited, now);
        for object in healths.unknown_kinds(now) {
            healths.know_kind(&object, Ok(Some(Scope::named(&object, "deployments"))), now);
        }
        healths.wanted_watches(now);
        healths.end(&dispatch.key, true);
    };
    let objects = |now: Instant| match healths.due(now) {
        Ok(report) => report.objects,
        Err(Some(at)) => healths.due(at).map(|report| report.objects).unwrap_or_default(),
        Err(None) => Vec::new(),
    };
    follow(1, now);
    assert_eq!(healths.wanted_watches(now), [(watch(&web()), false)].into());
    assert!(objects(now).is_empty(), "nothing is known yet");
    assert!(is_fine(&healths));
    live(&healths, &watch(&web()), &[(web(), deployment(2))], now);
    assert_eq!(objects(now)[0].message, "Updated: 2/3");
    assert!(is_fine(&healths), "nobody asks");
    // The next dispatch tells only what is news.
    let later = now + 60 * SECOND;
    follow(2, later);
    healths.take(&watch(&web()), Sight::Seen(web(), deployment(2)), later);
    assert!(objects(later).is_empty());
    healths.take(&watch(&web()), Sight::Seen(web(), deployment(3)), later);
    assert_eq!(objects(later)[0].status, Status::Current);
}
