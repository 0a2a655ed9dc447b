use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use roadstead_apply::{Applied, Footprint, Scope, Sight};
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, Generation, GivenVariables,
    HubEpoch, ObjectRef, Purpose, VariablesKind,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Due, LastApplied, Tended, Watch};

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
        default_namespace: None,
        service_account: None,
        timeout: SECOND,
        health: Vec::new(),
        guard: None,
        groups: Vec::new(),
        steps: Vec::new(),
    };
    let values = [("word".to_owned(), value.to_owned())].into();
    let given = GivenVariables { kind: VariablesKind::ConfigMap, name: "words".to_owned(), values };
    LastApplied::new(
        Dispatch { key, spec, inventory: Vec::new(), given: vec![given], data_keys: Vec::new() },
        Vec::new(),
    )
}

/// An object as a version of it says who has its fields.
fn footprint(version: u32, fields: &Value) -> Footprint {
    Footprint::of(&json!({"metadata": {
        "uid": "u", "resourceVersion": version.to_string(),
        "labels": {"fleet.roadstead.dev/owner": APPLIER.to_string()},
        "managedFields": [{"manager": "roadstead", "operation": "Apply", "fieldsV1": fields}],
    }}))
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
        fields: Vec::new(),
    }
}

fn watch(object: &ObjectRef) -> Watch {
    Watch { account: None, scope: Arc::new(Scope::named(object, "things").everywhere()) }
}

/// One applier with one object that was applied, and is watched.
fn tended(object: &ObjectRef, now: Instant) -> Tended {
    let tended = Tended::default();
    tended.allow(true);
    tended.begin(APPLIER, None, now);
    assert!(!tended.stands(APPLIER, object, &sent()));
    tended.note(APPLIER, object, applied(object, 10));
    tended.end(APPLIER, std::slice::from_ref(object), Some(last()), now);
    assert!(!tended.stands(APPLIER, object, &sent()), "nothing tells yet that it does");
    assert_eq!(tended.wanted_watches(now), BTreeSet::from([watch(object)]));
    tended.take(&watch(object), Sight::Seen(object.clone(), footprint(10, &ours())), now);
    tended.take(&watch(object), Sight::Complete(HashSet::from([object.clone()])), now);
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
    let written = BTreeSet::from([object.clone()]);
    tended.corrected(APPLIER, &written, &BTreeSet::new(), &found.cancel, now + SECOND);
    assert!(tended.stands(APPLIER, &object, &sent()));
    assert!(due(&tended, now + SECOND * 60).is_none());
    // Who changes it again at once has to wait.
    let again = now + SECOND + Duration::from_millis(10);
    tended.take(&watch(&object), Sight::Seen(object.clone(), footprint(13, &taken())), again);
    assert!(due(&tended, again + SECOND / 2).is_none());
    assert!(due(&tended, again + SECOND).is_some());
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
        missing.take(&watch(&object), Sight::Complete(HashSet::new()), now);
        assert_eq!(due(&missing, now + SECOND).is_some(), is_due, "{kind}");
    }
}

#[test]
fn a_dispatch_ends_a_correction_and_what_was_seen_meanwhile_counts_after_it() {
    let (object, now) = (object("ConfigMap", "a"), Instant::now());
    let tended = tended(&object, now);
    tended.take(&watch(&object), Sight::Gone(object.clone()), now);
    let found = due(&tended, now + SECOND).expect("it is gone");
    tended.begin(APPLIER, None, now);
    assert!(found.cancel.is_cancelled());
    tended.corrected(APPLIER, &BTreeSet::new(), &BTreeSet::from([object.clone()]), &found.cancel, now);
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
    tended.forbidden(&watch(&object), now);
    let narrow = Watch { account: None, scope: Arc::new(Scope::named(&object, "things")) };
    assert_eq!(tended.wanted_watches(now), BTreeSet::from([narrow.clone()]));
    tended.take(&narrow, Sight::Complete(HashSet::from([object.clone()])), now);
    assert!(tended.stands(APPLIER, &object, &sent()));
    tended.forbidden(&narrow, now);
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
