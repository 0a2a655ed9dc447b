use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use roadstead_apply::{Applied, Difference, Footprint, HashKey, Scope, Sight};
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, DriftMode, DriftState,
    FieldDrift, Generation, GivenVariables, HubEpoch, ObjectRef, Offline, OfflinePolicy, Purpose,
    VariablesKind,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CorrectionOutcome, Drift, Due, LastApplied, Tended, Watch};
use crate::inputs::Input;
use crate::keep::{Content, Record};

const APPLIER: ApplierUid = ApplierUid(uuid::Uuid::nil());
const SECOND: Duration = Duration::from_secs(1);

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: if kind == "Job" { "batch".to_owned() } else { String::new() },
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "dev".to_owned(),
        name: name.to_owned(),
    }
}

fn last() -> LastApplied {
    last_with("")
}

/// A dispatch that came with a variable of this value.
fn last_with(value: &str) -> LastApplied {
    last_of(value, DriftMode::Correct, Offline::default())
}

fn complete(all: HashSet<ObjectRef>) -> Sight {
    Sight::Complete { all, went_back: false }
}

fn last_of(value: &str, drift: DriftMode, offline: Offline) -> LastApplied {
    let key = DispatchKey {
        epoch: HubEpoch(1),
        applier: APPLIER,
        generation: Generation(1),
        attempt: Attempt(1),
        digest: None,
    };
    let spec = DispatchSpec {
        applier: ApplierRef::kustomization("apps", "app"),
        purpose: Purpose::Reconcile,
        full: false,
        drift,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline,
        default_namespace: None,
        service_account: None,
        timeout: SECOND,
        health: Vec::new(),
        guard: None,
        groups: Vec::new(),
        steps: Vec::new(),
    };
    let values = [("word".to_owned(), value.to_owned().into())].into();
    let given = GivenVariables { kind: VariablesKind::ConfigMap, name: "words".to_owned(), values };
    LastApplied::new(
        Dispatch { key, spec, inventory: Vec::new(), given: vec![given], data_keys: Vec::new(), trace: None },
        Vec::new(),
    )
}

/// An object as a version of it says who has its fields.
fn footprint(version: u32, fields: &Value) -> Footprint {
    let metadata = json!({
        "uid": "u", "resourceVersion": version.to_string(),
        "labels": {"fleet.roadstead.dev/owner": APPLIER.to_string()},
        "managedFields": [{"manager": "roadstead", "operation": "Apply", "fieldsV1": fields}],
    });
    footprint_of(&json!({ "metadata": metadata }))
}

fn footprint_of(object: &Value) -> Footprint {
    Footprint::of(object, &HashKey::of_secret(b"tests"))
}

fn ours() -> Value {
    json!({"f:data": {"f:a": {}, "f:b": {}}})
}

/// What another left of it.
fn taken() -> Value {
    json!({"f:data": {"f:a": {}}})
}

fn sent() -> Digest {
    Digest::of(b"sent")
}

fn applied(object: &ObjectRef, version: u32) -> Applied {
    Applied {
        sent: sent(),
        scope: Scope::named(object, "things"),
        footprint: footprint(version, &ours()),
        is_as_sent: true,
        is_shared: false,
    }
}

fn watch(object: &ObjectRef) -> Watch {
    Watch { account: None, scope: Arc::new(Scope::named(object, "things").everywhere()) }
}

fn wrote(object: &ObjectRef) -> CorrectionOutcome {
    let fields = vec![FieldDrift { path: "/data/b".to_owned(), values: None }];
    let drift = Drift { managers: vec!["kubectl-edit".to_owned()], fields, ..Drift::default() };
    CorrectionOutcome {
        written: vec![object.clone()],
        drift: [(object.clone(), drift)].into(),
        ..CorrectionOutcome::default()
    }
}

/// What an observation finds of an object as this version has it; none: it is missing.
fn differs(object: &ObjectRef, seen: Option<Footprint>) -> CorrectionOutcome {
    let difference = Difference {
        scope: Scope::named(object, "things"),
        missing: seen.is_none(),
        fields: vec![FieldDrift { path: "/data/b".to_owned(), values: None }],
        managers: vec!["kubectl-edit".to_owned()],
        footprint: seen,
    };
    let drift = [(object.clone(), Drift::new(difference, []))].into();
    CorrectionOutcome { reported: vec![object.clone()], drift, ..CorrectionOutcome::default() }
}

/// One applier with one object that was applied, and is watched.
fn tended(object: &ObjectRef, now: Instant) -> Tended {
    tended_by(object, last(), now)
}

fn tended_by(object: &ObjectRef, last: LastApplied, now: Instant) -> Tended {
    let tended = Tended::default();
    tended.allow(true);
    tended.begin(APPLIER, None, now);
    assert!(!tended.stands(APPLIER, object, &sent()));
    tended.note(APPLIER, object, applied(object, 10));
    tended.end(APPLIER, std::slice::from_ref(object), Some(last), now);
    assert!(!tended.stands(APPLIER, object, &sent()), "nothing tells yet that it does");
    assert_eq!(tended.wanted_watches(now), BTreeSet::from([watch(object)]));
    tended.take(&watch(object), Sight::Seen(object.clone(), footprint(10, &ours())), now);
    tended.take(&watch(object), complete(HashSet::from([object.clone()])), now);
    assert!(tended.stands(APPLIER, object, &sent()));
    assert!(!tended.stands(APPLIER, object, &Digest::of(b"other")));
    tended
}

fn due(tended: &Tended, now: Instant) -> Option<Due> {
    tended.due(now).ok()
}

#[test]
fn what_is_changed_is_due_and_what_stands_is_not() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    assert!(due(&tended, now + SECOND).is_none());
    // Its own write, told late, or again.
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(9, &taken())), now);
    assert!(due(&tended, now + SECOND).is_none());
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(11, &taken())), now);
    assert!(!tended.stands(APPLIER, &object, &sent()));
    assert!(due(&tended, now).is_none(), "what one command does comes as several events");
    let found = due(&tended, now + SECOND).expect("it was changed");
    assert!(found.objects.contains_key(&object));
    assert!(due(&tended, now + SECOND).is_none(), "a correction is under way");
    tended.note(APPLIER, &object, applied(&object, 12));
    tended.corrected(APPLIER, wrote(&object), &found.cancel, now + SECOND);
    assert!(tended.stands(APPLIER, &object, &sent()));
    assert!(due(&tended, now + SECOND * 60).is_none());
    // Who changes it again at once has to wait.
    let again = now + SECOND + Duration::from_millis(10);
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(13, &taken())), again);
    assert!(due(&tended, again + SECOND / 2).is_none());
    assert!(due(&tended, again + SECOND).is_some());
}

#[test]
fn what_another_applier_applies_is_not_put_back_by_the_one_before() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    let heir = ApplierUid(uuid::Uuid::max());
    // It was changed, and is about to be corrected, when it is handed over.
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(11, &taken())), now);
    tended.begin(heir, None, now);
    assert!(!tended.stands(heir, &object, &sent()));
    assert!(due(&tended, now + SECOND).is_none());
    tended.note(heir, &object, applied(&object, 12));
    // Nor is it when the new owner's write is seen.
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(12, &taken())), now + SECOND);
    assert!(due(&tended, now + SECOND * 60).is_none());
}

#[test]
fn after_a_restart_what_two_own_is_left_to_the_hub() {
    let (one, shared, now) = (object("ConfigMap", "a"), object("ConfigMap", "b"), Instant::now());
    let tended = Tended::default();
    tended.allow(true);
    let others = HashSet::from([shared.clone()]);
    tended.resume(last(), &[one.clone(), shared.clone()], &others, now, now + SECOND);
    let due = due(&tended, now + SECOND).expect("it is looked at");
    assert!(due.objects.contains_key(&one) && !due.objects.contains_key(&shared), "{due:?}");
}

#[test]
fn what_is_gone_is_due_but_for_jobs() {
    let now = Instant::now();
    for (kind, is_due) in [("ConfigMap", true), ("Job", false)] {
        let object = object(kind, "a");
        let gone = tended(&object, now);
        gone.take(&watch(&object), Sight::Gone(object.clone()), now);
        assert!(!gone.stands(APPLIER, &object, &sent()));
        assert_eq!(due(&gone, now + SECOND).is_some(), is_due, "{kind}");
        // It went while nobody watched.
        let missing = tended(&object, now);
        missing.take(&watch(&object), Sight::Lost, now);
        assert!(!missing.stands(APPLIER, &object, &sent()));
        missing.take(&watch(&object), complete(HashSet::new()), now);
        assert_eq!(due(&missing, now + SECOND).is_some(), is_due, "{kind}");
    }
}

#[test]
fn what_is_back_with_a_backup_of_etcd_is_pruned_once_more() {
    let (kept, now) = (object("ConfigMap", "a"), Instant::now());
    let back = object("ConfigMap", "back");
    let list = |tended: &Tended, went_back: bool| {
        tended.take(&watch(&kept), Sight::Lost, now);
        tended.take(&watch(&kept), Sight::Listed(kept.clone(), footprint(10, &ours())), now);
        tended.take(&watch(&kept), Sight::Listed(back.clone(), footprint(5, &ours())), now);
        let all = HashSet::from([kept.clone(), back.clone()]);
        tended.take(&watch(&kept), Sight::Complete { all, went_back }, now);
    };
    // A list as ever may have been begun before something was pruned; what others made bears no fields of ours.
    let tended = tended(&kept, now);
    list(&tended, false);
    assert!(tended.returned(APPLIER).is_empty());
    let copy = footprint_of(&json!({"metadata": {
        "uid": "v", "resourceVersion": "5", "labels": {"fleet.roadstead.dev/owner": APPLIER.to_string()},
        "managedFields": [{"manager": "copier", "operation": "Update", "fieldsV1": ours()}],
    }}));
    tended.take(&watch(&kept), Sight::Listed(back.clone(), copy), now);
    let all = HashSet::from([kept.clone(), back.clone()]);
    tended.take(&watch(&kept), Sight::Complete { all, went_back: true }, now);
    assert!(tended.returned(APPLIER).is_empty());
    assert!(tended.settled().contains(&APPLIER));

    list(&tended, true);
    assert_eq!(tended.returned(APPLIER), std::slice::from_ref(&back));
    assert!(!tended.settled().contains(&APPLIER), "the next reconciliation is carried out");
    tended.forget_returned(APPLIER, &HashSet::from([back.clone()]));
    assert!(tended.settled().contains(&APPLIER));

    // It goes by itself, or is owned again.
    list(&tended, true);
    tended.take(&watch(&kept), Sight::Gone(back.clone()), now);
    assert!(tended.returned(APPLIER).is_empty());
    list(&tended, true);
    tended.begin(APPLIER, None, now);
    assert!(!tended.stands(APPLIER, &back, &sent()));
    tended.end(APPLIER, &[kept.clone(), back.clone()], Some(last()), now);
    assert!(tended.returned(APPLIER).is_empty());
    // Of an owner from then on it is nobody's to prune.
    list(&tended, true);
    assert!(tended.returned(APPLIER).is_empty());
}

#[test]
fn a_dispatch_ends_a_correction_and_what_was_seen_meanwhile_counts_after_it() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    tended.take(&watch(&object), Sight::Gone(object.clone()), now);
    let found = due(&tended, now + SECOND).expect("it is gone");
    tended.begin(APPLIER, None, now);
    assert!(found.cancel.is_cancelled());
    let unsettled = CorrectionOutcome { unsettled: vec![object.clone()], ..CorrectionOutcome::default() };
    tended.corrected(APPLIER, unsettled, &found.cancel, now);
    assert!(due(&tended, now + SECOND * 60).is_none(), "the dispatch sees to it");
    tended.note(APPLIER, &object, applied(&object, 20));
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(21, &taken())), now);
    tended.end(APPLIER, std::slice::from_ref(&object), Some(last()), now);
    assert!(due(&tended, now).is_none());
    assert!(due(&tended, now + SECOND * 2).is_some());
}

#[test]
fn what_was_seen_before_the_answer_came_counts() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    tended.begin(APPLIER, None, now);
    // Another wrote after us, and that was told before our own write was answered.
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(31, &taken())), now);
    tended.note(APPLIER, &object, applied(&object, 30));
    tended.end(APPLIER, std::slice::from_ref(&object), Some(last()), now);
    assert!(due(&tended, now + SECOND * 2).is_some());
}

#[test]
fn nothing_is_due_of_what_rests_failed_or_is_not_owned_any_more() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let change = |tended: &Tended| {
        tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(50, &taken())), now);
        due(tended, now + SECOND * 60)
    };
    let resting = tended(&object, now);
    resting.rest(APPLIER);
    assert!(change(&resting).is_none());
    assert!(resting.wanted_watches(now).is_empty());
    // Said while a dispatch is under way.
    resting.begin(APPLIER, None, now);
    resting.rest(APPLIER);
    resting.end(APPLIER, std::slice::from_ref(&object), Some(last()), now);
    assert!(change(&resting).is_none());

    let failed = tended(&object, now);
    failed.begin(APPLIER, None, now);
    failed.end(APPLIER, std::slice::from_ref(&object), None, now);
    assert!(change(&failed).is_none());

    let given_up = tended(&object, now);
    given_up.begin(APPLIER, None, now);
    given_up.end(APPLIER, &[], Some(last()), now);
    assert!(change(&given_up).is_none());

    let unheard = tended(&object, now);
    unheard.allow(false);
    assert!(change(&unheard).is_none(), "this hub could not say what rests");
    unheard.allow(true);
    assert!(change(&unheard).is_some());
}

#[test]
fn where_a_kind_may_not_be_watched_everywhere_its_namespaces_are() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    tended.forbidden(&watch(&object), "forbidden".to_owned(), now);
    assert_eq!(tended.unwatched().len(), 1);
    let narrow = Watch { account: None, scope: Arc::new(Scope::named(&object, "things")) };
    assert_eq!(tended.wanted_watches(now), BTreeSet::from([narrow.clone()]));
    tended.take(&narrow, complete(HashSet::from([object.clone()])), now);
    assert!(tended.stands(APPLIER, &object, &sent()));
    assert!(tended.unwatched().is_empty(), "what is watched in one namespace is watched");
    tended.forbidden(&narrow, "forbidden".to_owned(), now);
    let unwatched: Vec<_> = tended.unwatched().into_values().collect();
    assert_eq!(unwatched, ["forbidden"]);
    assert!(tended.wanted_watches(now).is_empty());
    assert!(!tended.stands(APPLIER, &object, &sent()));
}

#[test]
fn what_a_list_has_counts_though_it_is_older() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let restored = tended(&object, now);
    // As an apiserver has it whose etcd was restored.
    restored.take(&watch(&object), Sight::Listed(object.clone(), footprint(5, &ours())), now);
    assert!(!restored.stands(APPLIER, &object, &sent()));
    // What is told late of it changes nothing about that.
    restored.take(&watch(&object), Sight::Seen(object.clone(), footprint(4, &ours())), now);
    assert!(due(&restored, now + SECOND).is_some());
    // A list that was begun before our last write, and then that write.
    let late = tended(&object, now);
    late.take(&watch(&object), Sight::Listed(object.clone(), footprint(9, &ours())), now);
    late.take(&watch(&object), Sight::Seen(object.clone(), footprint(10, &ours())), now);
    assert!(late.stands(APPLIER, &object, &sent()));
    assert!(due(&late, now + SECOND).is_none());
}

#[test]
fn what_would_take_too_much_memory_is_not_tended() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    tended.begin(APPLIER, None, now);
    let large = last_with(&"x".repeat(super::MAX_KEPT_BYTES));
    tended.end(APPLIER, std::slice::from_ref(&object), Some(large), now);
    tended.take(&watch(&object), Sight::Gone(object.clone()), now);
    assert!(due(&tended, now + SECOND).is_none());
    assert!(tended.settled().is_empty(), "the hub has it looked at by its interval");
}

#[test]
fn what_is_only_reported_is_looked_at_once_and_told_until_it_is_as_it_was() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended_by(&object, last_of("", DriftMode::Report, Offline::default()), now);
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(11, &taken())), now);
    assert!(tended.settled().is_empty());
    let found = due(&tended, now + SECOND).expect("it was changed");
    assert!(found.observes);
    tended.corrected(APPLIER, differs(&object, Some(footprint(11, &taken()))), &found.cancel, now + SECOND);
    let report = tended.drift_due(now + SECOND).expect("a report");
    assert_eq!((report.total, report.objects[0].state), (1, DriftState::Reported));
    assert_eq!(report.objects[0].managers, ["kubectl-edit"]);
    assert_eq!(tended.settled(), [APPLIER].into(), "it is watched and told: nobody has to look");
    tended.take(&watch(&object), Sight::Listed(object.clone(), footprint(11, &taken())), now + SECOND);
    assert!(due(&tended, now + SECOND * 300).is_none(), "it is as it was");
    assert!(tended.drift_due(now + SECOND * 300).is_err(), "it was told");
    // Another change, and then it is gone.
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(20, &json!({}))), now + SECOND);
    assert!(due(&tended, now + SECOND * 300).is_some_and(|due| due.observes));
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(21, &ours())), now + SECOND);
    let report = tended.drift_due(now + SECOND * 300).expect("that it is over");
    assert!(report.objects.is_empty() && report.total == 0);
}

#[test]
fn what_others_have_fields_of_is_looked_at_whenever_it_is_written() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended_by(&object, last_of("", DriftMode::Report, Offline::default()), now);
    // Somebody put back by hand what he had changed.
    let shared = Applied { is_shared: true, footprint: footprint(11, &taken()), ..applied(&object, 11) };
    tended.note(APPLIER, &object, shared);
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(11, &taken())), now);
    assert!(due(&tended, now + SECOND).is_none() && tended.stands(APPLIER, &object, &sent()));
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(12, &taken())), now);
    assert!(due(&tended, now + SECOND).is_some(), "managedFields would not tell that he did it again");
}

#[test]
fn what_is_missing_and_only_reported_is_looked_at_when_it_comes_back() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended_by(&object, last_of("", DriftMode::Report, Offline::default()), now);
    tended.take(&watch(&object), Sight::Gone(object.clone()), now);
    let found = due(&tended, now + SECOND).expect("it is gone");
    tended.corrected(APPLIER, differs(&object, None), &found.cancel, now + SECOND);
    assert!(tended.drift_due(now + SECOND).is_ok_and(|report| report.objects[0].missing));
    tended.take(&watch(&object), complete(HashSet::new()), now + SECOND);
    assert!(due(&tended, now + SECOND * 300).is_none(), "a new list tells nothing new");
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(12, &taken())), now + SECOND);
    assert!(due(&tended, now + SECOND * 300).is_some());
}

#[test]
fn a_fight_is_told_with_who_fights_and_ends_with_peace() {
    let (object, mut now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    let mut told = Vec::new();
    for version in (11..).step_by(2).take(6) {
        tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(version, &taken())), now);
        now += SECOND * 40;
        let found = due(&tended, now).expect("it was changed");
        tended.note(APPLIER, &object, applied(&object, version + 1));
        tended.corrected(APPLIER, wrote(&object), &found.cancel, now);
        told.extend(tended.drift_due(now).ok());
    }
    let last = told.last().expect("a report");
    assert_eq!(told.len(), 2, "from the fifth correction on: {told:?}");
    assert_eq!((last.objects[0].state, last.objects[0].corrected), (DriftState::Contended, 6));
    assert_eq!(last.objects[0].managers, ["kubectl-edit"]);
    let wake = tended.drift_due(now).expect_err("it was told").expect("when there will be peace");
    assert!(tended.drift_due(wake).is_ok_and(|report| report.objects.is_empty()));
}

#[test]
fn without_a_hub_the_policy_counts_from_its_time_on_until_the_hub_is_back() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    for policy in [OfflinePolicy::Correct, OfflinePolicy::Report, OfflinePolicy::Stop] {
        let offline = Offline { policy, after: SECOND * 10, keep_secrets: false };
        let tended = tended_by(&object, last_of("", DriftMode::Correct, offline), now);
        tended.hub_is_there(false, now);
        tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(11, &taken())), now);
        let early = due(&tended, now + SECOND).expect("all is as if there were a hub");
        assert!(!early.observes);
        tended.note(APPLIER, &object, applied(&object, 12));
        tended.corrected(APPLIER, wrote(&object), &early.cancel, now + SECOND);
        let late = now + SECOND * 100;
        tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(13, &taken())), late);
        let found = due(&tended, late + SECOND);
        assert_eq!(
            found.as_ref().map(|due| due.observes),
            match policy {
                OfflinePolicy::Correct => Some(false),
                OfflinePolicy::Report => Some(true),
                OfflinePolicy::Stop => None,
            }
        );
        if let Some(found) = found.filter(|due| due.observes) {
            tended.corrected(APPLIER, differs(&object, Some(footprint(13, &taken()))), &found.cancel, late);
        }
        tended.hub_is_there(true, late + SECOND);
        let back = due(&tended, late + SECOND * 100);
        assert_eq!(
            back.map(|due| due.observes),
            (policy != OfflinePolicy::Correct).then_some(false),
            "{policy:?}"
        );
    }
}

#[test]
fn what_is_only_watched_is_told_and_never_corrected() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let kept = serde_json::to_string(&tended(&object, now).watched(APPLIER)).expect("JSON");
    // Nothing of what it was made of is in it, and no digest of that.
    assert!(!kept.contains(&sent().to_string()), "{kept}");
    let tended = Tended::default();
    tended.allow(true);
    let last = LastApplied::only_watched(last().dispatch);
    let watched = serde_json::from_str(&kept).expect("what was kept");
    tended.resume_watched(last, std::slice::from_ref(&object), watched, &HashSet::new(), now);
    assert_eq!(tended.wanted_watches(now), BTreeSet::from([watch(&object)]));
    tended.take(&watch(&object), Sight::Listed(object.clone(), footprint(12, &ours())), now);
    tended.take(&watch(&object), complete(HashSet::from([object.clone()])), now);
    let later = now + SECOND;
    assert!(due(&tended, later).is_none() && tended.drift_due(later).is_err(), "it stands as it was applied");
    assert!(tended.settled().is_empty(), "the hub has to dispatch it again");
    assert!(!tended.stands(APPLIER, &object, &sent()), "what was sent is not known");

    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(13, &taken())), later);
    let later = later + SECOND;
    assert!(due(&tended, later).is_none());
    let told = tended.drift_due(later).expect("a report");
    let [drifted] = &told.objects[..] else { panic!("{told:?}") };
    assert_eq!((drifted.state, drifted.missing), (DriftState::Failed, false));
    assert!(drifted.message.contains("once the hub has dispatched it again"), "{drifted:?}");
    tended.hub_is_there(true, later);
    let later = later + SECOND * 20;
    assert!(due(&tended, later).is_none() && tended.drift_due(later).is_err(), "it was told");

    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(14, &ours())), later);
    let later = later + SECOND * 20;
    assert!(tended.drift_due(later).is_ok_and(|told| told.objects.is_empty()), "it stands again");
    tended.take(&watch(&object), Sight::Gone(object.clone()), later);
    let later = later + SECOND * 20;
    assert!(due(&tended, later).is_none());
    assert!(tended.drift_due(later).is_ok_and(|told| told.objects[0].missing));
}

#[test]
fn what_is_kept_to_watch_by_is_read_as_it_was_written() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let watched = tended(&object, now).watched(APPLIER);
    assert_eq!(watched.len(), 1);
    let Dispatch { mut key, spec, .. } = last().dispatch;
    key.digest = Some(spec.digest());
    let content = Content::Watched { watched, mark: u64::MAX };
    let inputs = vec![Input::read(&object, None, Some("7"))];
    let record = Record { key, spec, inventory: vec![object], is_well: true, inputs, content };
    let bytes = record.encode().expect("bytes");
    assert_eq!(Record::decode(&bytes), Some(record));
}

#[test]
fn what_changed_before_the_watch_began_is_told() {
    let (gone, now) = (object("ConfigMap", "gone"), Instant::now());
    let object = object("ConfigMap", "a");
    let before = Tended::default();
    before.allow(true);
    before.begin(APPLIER, None, now);
    for object in [&object, &gone] {
        assert!(!before.stands(APPLIER, object, &sent()));
        before.note(APPLIER, object, applied(object, 10));
    }
    let inventory = [object.clone(), gone.clone()];
    before.end(APPLIER, &inventory, Some(last()), now);
    let tended = Tended::default();
    tended.allow(true);
    let last = LastApplied::only_watched(last().dispatch);
    tended.resume_watched(last, &inventory, before.watched(APPLIER), &HashSet::new(), now);
    tended.take(&watch(&object), Sight::Listed(object.clone(), footprint(11, &taken())), now);
    tended.take(&watch(&object), complete(HashSet::from([object.clone()])), now);
    assert!(due(&tended, now + SECOND).is_none());
    let told = tended.drift_due(now + SECOND).expect("a report");
    let told: Vec<_> =
        told.objects.iter().map(|drifted| (drifted.object.name.as_str(), drifted.missing)).collect();
    assert_eq!(told, [("a", false), ("gone", true)]);
}
