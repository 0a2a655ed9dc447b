//! What is sound comes back as it was, whatever bytes come instead are refused by name and never panic.

use std::time::Duration;

use proptest::prelude::*;
use prost::Message as _;

use roadstead_kstatus::Status;
use roadstead_model::{
    Action, ApplierRef, ApplierUid, Attempt, Decrypt, Digest, Dispatch, DispatchKey, DispatchSpec,
    FluxKustomization, FoundVariables, Generation, GivenKey, GivenVariables, Group, Guard, HealthExpr, Held,
    HubEpoch, IgnoreRule, IgnoreTarget, ObjectRef, ObjectResult, OnImmutable, Position, Purpose, ReadObject,
    RelayedEvent, Stage, Step, StepKind, StepTiming, Substitute, VariablesFrom, VariablesKind,
};
use zeroize::Zeroizing;

use crate::limits::MAX_OBJECTS;
use crate::message::{
    Failure, Finished, HealthReport, HealthState, InventoryAck, InventoryIntent, ObjectHealth, Progress,
};
use crate::v1;

fn key() -> DispatchKey {
    DispatchKey {
        epoch: HubEpoch(1),
        applier: ApplierUid::random(),
        generation: Generation(3),
        attempt: Attempt(7),
        digest: Some(Digest::of(b"[]")),
    }
}

fn backend() -> ObjectRef {
    ObjectRef {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "dev".to_owned(),
        name: "backend".to_owned(),
    }
}

fn group(label: &str) -> Group {
    let objects = Digest::of(label.as_bytes());
    let substitute = (label == "first").then(substitute);
    let target = IgnoreTarget { kind: Some("Deployment".to_owned()), ..IgnoreTarget::default() };
    let rule = IgnoreRule { paths: vec!["/spec/replicas".to_owned()], target: Some(target) };
    let ignore = if label == "first" { vec![rule] } else { Vec::new() };
    let on_immutable = OnImmutable::Recreate;
    let decrypt = (label == "first").then(|| Decrypt {
        namespace: "apps".to_owned(),
        secret: "keys".to_owned(),
        on_hub: Some("uid@8".to_owned()),
        lenient: true,
    });
    let sealed = label == "first";
    Group {
        label: label.to_owned(),
        on_immutable,
        sealed,
        adopt_flux: sealed,
        adopt_managers: if sealed { vec!["helm".to_owned()] } else { Vec::new() },
        decrypt,
        substitute,
        ignore,
        ..Group::of(objects)
    }
}

fn substitute() -> Substitute {
    let from = |kind, on_hub: Option<&str>| VariablesFrom {
        kind,
        name: "vars".to_owned(),
        optional: on_hub.is_none(),
        on_hub: on_hub.map(str::to_owned),
    };
    Substitute {
        always: true,
        lenient: true,
        namespace: "apps".to_owned(),
        variables: [("region".to_owned(), "eu".to_owned())].into(),
        from: vec![from(VariablesKind::ConfigMap, None), from(VariablesKind::Secret, Some("uid@7"))],
    }
}

fn spec(groups: Vec<Group>, steps: Vec<Step>) -> DispatchSpec {
    DispatchSpec {
        applier: ApplierRef::kustomization("team", "web"),
        purpose: Purpose::Reconcile,
        full: false,
        drift: roadstead_model::DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: roadstead_model::Offline::default(),
        health: Vec::new(),
        guard: Some(Guard { max_deletions: Some(7), confirmed: vec![Digest::of(b"it")], ..Guard::default() }),
        default_namespace: Some("apps".to_owned()),
        service_account: Some(super::ServiceAccount {
            namespace: "dev".to_owned(),
            name: "deployer".to_owned(),
        }),
        timeout: Duration::from_millis(1500),
        groups,
        steps,
    }
}

/// With the key that its hub gives it.
fn of(spec: DispatchSpec) -> Dispatch {
    let key = DispatchKey { digest: Some(spec.digest()), ..key() };
    let values = [("replicas".to_owned(), "3".to_owned().into())].into();
    let given = vec![GivenVariables { kind: VariablesKind::Secret, name: "vars".to_owned(), values }];
    let key_of = |text: &str| GivenKey {
        wrapped: Digest::of(text.as_bytes()),
        key: Zeroizing::new(text.as_bytes().to_vec()),
    };
    let data_keys = vec![key_of("one"), key_of("other")];
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok();
    Dispatch { key, spec, inventory: vec![backend()], given, data_keys, trace }
}

fn dispatch() -> Dispatch {
    let steps = [
        StepKind::Apply { group: 1 },
        StepKind::Apply { group: 0 },
        StepKind::Prune,
        StepKind::Wait { objects: vec![backend()], groups: vec![0, 1] },
        StepKind::Delete,
        StepKind::Terminate,
        StepKind::AdoptInventory {
            of: vec![FluxKustomization { namespace: "flux-system".to_owned(), name: "apps".to_owned() }],
        },
        StepKind::GiveBack,
    ];
    let health = vec![HealthExpr {
        api_version: "example.com/v1".to_owned(),
        kind: "Database".to_owned(),
        in_progress: None,
        failed: Some("status.bad".to_owned()),
        current: "status.ok".to_owned(),
    }];
    of(DispatchSpec { health, ..spec(vec![group("first"), group("second")], steps.map(Step::from).into()) })
}

#[test]
fn a_dispatch_comes_back_as_it_was() {
    let sent = dispatch();
    assert_eq!(Dispatch::try_from(v1::Dispatch::from(sent.clone())), Ok(sent));
    let deletes = of(spec(Vec::new(), vec![StepKind::Delete.into()]));
    assert_eq!(Dispatch::try_from(v1::Dispatch::from(deletes.clone())), Ok(deletes));
}

/// What an agent of the first version reads of a dispatch, and what a hub of the first version sends.
fn as_in_the_first_version(dispatch: Dispatch) -> v1::Dispatch {
    let build = dispatch.spec.groups.first().map(|group| group.objects);
    let key = DispatchKey { digest: build, ..dispatch.key.clone() };
    let mut message = v1::Dispatch::from(Dispatch { key, ..dispatch });
    message.groups.clear();
    for step in &mut message.steps {
        (step.label, step.needs) = (String::new(), Vec::new());
        match &mut step.kind {
            Some(v1::step::Kind::Apply(apply)) => apply.group = 0,
            Some(v1::step::Kind::Wait(wait)) => wait.groups.clear(),
            _ => {}
        }
    }
    message
}

#[test]
fn a_dispatch_of_a_kustomization_is_read_by_the_first_version_and_of_it() {
    let apply = |force, all| {
        let on_immutable = if force { OnImmutable::Recreate } else { OnImmutable::Fail };
        let groups = vec![Group { on_immutable, ..Group::of(Digest::of(b"[]")) }];
        let waited = if all { vec![0] } else { Vec::new() };
        let wait = StepKind::Wait { objects: vec![backend()], groups: waited };
        let steps = [StepKind::Apply { group: 0 }, StepKind::Prune, wait];
        of(spec(groups, steps.map(Step::from).into()))
    };
    let delete = of(spec(Vec::new(), vec![StepKind::Delete.into()]));
    let dispatches = [apply(true, true), apply(true, false), apply(false, true), apply(false, false), delete];
    for sent in dispatches {
        let older = as_in_the_first_version(sent.clone());
        let first = sent.spec.groups.first();
        let force = first.is_some_and(|group| group.on_immutable == OnImmutable::Recreate);
        for step in &older.steps {
            if let Some(v1::step::Kind::Apply(apply)) = &step.kind {
                assert_eq!(apply.force, force);
            }
        }
        let read = Dispatch::try_from(older).expect("it is sound");
        assert_eq!(read.spec, sent.spec);
        assert_eq!(read.key.digest, first.map(|group| group.objects));
    }
}

#[test]
fn what_this_agent_dropped_or_cannot_do_is_refused() {
    // As a field would that this version does not know.
    let mut message = v1::Dispatch::from(dispatch());
    message.service_account = None;
    let refusal = Dispatch::try_from(message).expect_err("it was taken").to_string();
    assert!(refusal.starts_with("`key.digest` is not the digest of what this agent can read"), "{refusal}");

    let refused = |spoil: fn(&mut v1::Dispatch)| refusal_of(v1::Dispatch::from(dispatch()), spoil);
    assert_eq!(
        refused(|d| d.steps[2].needs.push("of-the-future".to_owned())),
        "`steps[2].kind` needs `of-the-future`, which this version cannot do; upgrade it"
    );
    assert_eq!(refused(|d| d.groups.truncate(1)), "`steps[0].apply.group` is 1, which is not below 1");
    assert_eq!(
        refused(|d| d.groups[1].order = 77),
        "`groups[1].order` is of a kind that this version does not know; update the older of hub and agent"
    );
    assert_eq!(
        refused(|d| d.groups[0].objects = String::new()),
        "`groups[0].objects` is not a digest: want `sha256:` and 64 hexadecimal digits"
    );
    // A hub that has its agent apply in Helm's order though the agent did not say that it can.
    let helm = Group { order: roadstead_model::Order::Helm, ..group("only") };
    let mut message = v1::Dispatch::from(of(spec(vec![helm], vec![StepKind::Apply { group: 0 }.into()])));
    let needs = Dispatch::try_from(message.clone()).expect_err("it was taken").to_string();
    assert_eq!(needs, "`steps[0].kind` needs `helm-order`, which this version cannot do; upgrade it");
    message.steps[0].needs.clear();
    let needs = Dispatch::try_from(message).expect_err("it was taken").to_string();
    assert_eq!(needs, "`steps[0]` needs `helm-order`, which this version cannot do; upgrade it");
}

/// On the wire, from a hub of a later version: fields, steps and groups that this version has no names for.
#[test]
fn what_only_a_later_version_knows_is_refused_wherever_it_stands() {
    /// Field 1000 of any message, with the number 1.
    const LATER: [u8; 3] = [0xc0, 0x3e, 0x01];
    const STEPS: u8 = 7 << 3 | 2;
    let read = |bytes: &[u8]| Dispatch::try_from(v1::Dispatch::decode(bytes).expect("a message"));
    let encoded = |message: &v1::Dispatch| message.encode_to_vec();
    let sent = v1::Dispatch::from(dispatch());
    assert!(read(&encoded(&sent)).is_ok());
    // What is beside the spec, and of no digest, is passed over: it says nothing of what is to be done.
    assert!(read(&[encoded(&sent), LATER.to_vec()].concat()).is_ok());
    // Of the spec it changes the digest, which is of all that the hub knew.
    let mut later = sent.clone();
    later.key.as_mut().expect("a key").digest = Digest::of(b"with what the later version knows").to_string();
    let refused = read(&[encoded(&later), LATER.to_vec()].concat()).expect_err("it was taken").to_string();
    assert!(refused.starts_with("`key.digest` is not the digest of what this agent can read"), "{refused}");
    // A step whose kind is such a field arrives without one.
    let mut steps = sent.clone();
    steps.steps.clear();
    let step = [&[STEPS, 3], &LATER[..]].concat();
    let refused = read(&[encoded(&steps), step].concat()).expect_err("it was taken").to_string();
    assert_eq!(
        refused,
        "`steps[0].kind` is of a kind that this version does not know; update the older of hub and agent"
    );
    // No group, as a hub of the first version sends it, which means one; and a group that says nothing.
    assert_eq!(refusal(|d| d.groups.clear()), "`steps[0].apply.group` is 1, which is not below 1");
    assert_eq!(
        refusal(|d| d.groups[1] = v1::Group::default()),
        "`groups[1].objects` is not a digest: want `sha256:` and 64 hexadecimal digits"
    );
}

#[test]
fn what_an_agent_says_comes_back_as_it_was() {
    let result = ObjectResult::new(backend(), Action::Configured);
    let finished = Finished {
        key: key(),
        failure: Some(Failure {
            position: Position { step: Some(2), stage: Stage::Wait },
            message: "Deployment/dev/backend: Replicas: 1/3".to_owned(),
            object: Some(backend()),
            cancelled: true,
        }),
        change_set: vec![result.clone()],
        inventory: vec![backend()],
        timings: vec![StepTiming { step: Some(0), label: None, stage: Stage::Validate, micros: 12 }],
        reads: vec![
            ReadObject { object: backend(), json: Some(b"{}".to_vec()) },
            ReadObject { object: backend(), json: None },
        ],
        found: vec![FoundVariables { kind: VariablesKind::ConfigMap, name: "vars".to_owned() }],
        held: vec![Held {
            digest: Digest::of(b"it"),
            why: "3 of 4".to_owned(),
            objects: vec![backend()],
            total: 3,
        }],
        warnings: vec!["Secret/dev/token, value 'a.json': MAC mismatch".to_owned()],
        decrypted_with: vec!["age age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg".to_owned()],
    };
    assert_eq!(Finished::try_from(v1::Finished::from(finished.clone())), Ok(finished));
    let health =
        ObjectHealth { object: backend(), status: Status::InProgress, message: "Replicas: 1/3".to_owned() };
    let progress = Progress {
        key: key(),
        position: Position { step: Some(1), stage: Stage::Apply },
        results: vec![result],
        health: vec![health.clone()],
    };
    assert_eq!(Progress::try_from(v1::Progress::from(progress.clone())), Ok(progress));
    let report = HealthReport {
        key: key(),
        state: HealthState::Failing,
        message: "Deployment backend has failed".to_owned(),
        recovered: true,
        objects: vec![health],
    };
    assert_eq!(HealthReport::try_from(v1::HealthReport::from(report.clone())), Ok(report.clone()));
    let unknown = v1::HealthReport { state: 99, ..report.into() };
    assert!(HealthReport::try_from(unknown).is_err());
    let intent = InventoryIntent { key: key(), objects: vec![backend()] };
    assert_eq!(InventoryIntent::try_from(v1::InventoryIntent::from(intent.clone())), Ok(intent));
    let another = |owner| super::OwnedByAnother { object: backend(), owner };
    let gone =
        ApplierRef { kind: "HelmRelease".to_owned(), namespace: String::new(), name: "uid".to_owned() };
    let owned_by_another = vec![another(ApplierRef::kustomization("team", "other")), another(gone)];
    let ack = InventoryAck { key: key(), owned_by_another };
    assert_eq!(InventoryAck::try_from(v1::InventoryAck::from(ack.clone())), Ok(ack));
}

/// The refusal of `dispatch` after `spoil`.
fn refusal(spoil: impl FnOnce(&mut v1::Dispatch)) -> String {
    refusal_of(v1::Dispatch::from(dispatch()), spoil)
}

fn refusal_of(mut message: v1::Dispatch, spoil: impl FnOnce(&mut v1::Dispatch)) -> String {
    spoil(&mut message);
    Dispatch::try_from(message).expect_err("it was taken").to_string()
}

#[test]
fn a_refusal_names_the_field() {
    assert_eq!(refusal(|d| d.key = None), "`key` is missing");
    assert_eq!(
        refusal(|d| d.steps[1].kind = None),
        "`steps[1].kind` is of a kind that this version does not know; update the older of hub and agent"
    );
    assert_eq!(
        refusal(|d| d.inventory[0].name = "..".to_owned()),
        "`inventory[0].name` is not a valid name of an object"
    );
    assert_eq!(
        refusal(|d| d.inventory[0].name = "a/b".to_owned()),
        "`inventory[0].name` is not a valid name of an object"
    );
    assert_eq!(
        refusal(|d| d.inventory[0].namespace = "a/../b".to_owned()),
        "`inventory[0].namespace` is `a/../b`, which is not a DNS name"
    );
    assert_eq!(refusal(|d| d.inventory[0].kind = String::new()), "`inventory[0].kind` is missing");
    assert_eq!(
        refusal(|d| d.inventory = vec![v1::ObjectRef::default(); MAX_OBJECTS + 1]),
        "`inventory` has 20001 entries, more than 20000"
    );
    assert_eq!(
        refusal(|d| d.service_account =
            Some(v1::ServiceAccount { namespace: "x".to_owned(), name: "a\r\nb".to_owned() })),
        "`service_account.name` is `a\r\nb`, which is not a DNS name"
    );
    assert_eq!(refusal(|d| d.timeout_millis = 0), "`timeout_millis` is not between 1 ms and 24 h");
    assert_eq!(refusal(|d| d.timeout_millis = u64::MAX), "`timeout_millis` is not between 1 ms and 24 h");
    assert_eq!(
        refusal(|d| d.key.as_mut().expect("key").digest = "sha256:00".to_owned()),
        "`key.digest` is not a digest: want `sha256:` and 64 hexadecimal digits"
    );
    assert_eq!(
        refusal(|d| d.key.as_mut().expect("key").attempt = u64::MAX),
        "`key.attempt` is 18446744073709551615, beyond 63 bits"
    );
}

#[test]
fn an_event_of_a_flux_comes_back_as_it_was_and_is_bounded() {
    let event = RelayedEvent {
        object: backend(),
        uid: "7".to_owned(),
        is_error: true,
        timestamp: "2026-01-01T00:00:00Z".to_owned(),
        message: "it fails".to_owned(),
        reason: "BuildFailed".to_owned(),
        reporting_controller: "kustomize-controller".to_owned(),
        reporting_instance: "kustomize-controller-1".to_owned(),
        metadata: [("apps/revision".to_owned(), "1".to_owned())].into(),
    };
    assert_eq!(RelayedEvent::try_from(v1::RelayedEvent::from(event.clone())), Ok(event.clone()));
    let refusal = |change: &dyn Fn(&mut v1::RelayedEvent)| {
        let mut message = v1::RelayedEvent::from(event.clone());
        change(&mut message);
        RelayedEvent::try_from(message).expect_err("it was taken").to_string()
    };
    let namespace = |message: &mut v1::RelayedEvent| {
        message.object.as_mut().expect("an object").namespace.clear();
    };
    assert_eq!(refusal(&namespace), "`object.namespace` is missing");
    assert_eq!(refusal(&|message| message.reason.clear()), "`reason` is missing");
    assert!(
        refusal(&|message| message.message = "x".repeat(20_000)).starts_with("`message` has 20000 bytes")
    );
    assert!(refusal(&|message| message.uid = "x".repeat(300)).starts_with("`uid` has 300 bytes"));
    let many = |message: &mut v1::RelayedEvent| {
        message.metadata = (0..51).map(|number| (number.to_string(), String::new())).collect();
    };
    assert!(refusal(&many).starts_with("`metadata` has 51 entries"));
    let large = |message: &mut v1::RelayedEvent| {
        message.metadata.insert("k".to_owned(), "x".repeat(9_000));
    };
    assert!(refusal(&large).starts_with("`metadata` has 9015 bytes"));
    let events = vec![v1::RelayedEvent::from(event); 51];
    let refused = super::relayed_events(v1::RelayedEvents { events }).expect_err("it was taken");
    assert!(refused.to_string().starts_with("`events` has 51 entries"), "{refused}");
}

#[test]
fn a_stage_of_a_later_version_is_refused() {
    let mut progress = v1::Progress::from(Progress {
        key: key(),
        position: Position { step: None, stage: Stage::Apply },
        results: Vec::new(),
        health: Vec::new(),
    });
    progress.stage = 99;
    let refusal = Progress::try_from(progress).expect_err("it was taken");
    assert!(matches!(&refusal, super::ConvertError::Unknown { field } if field == "stage"), "{refusal:?}");
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(message) = v1::Dispatch::decode(bytes.as_slice()) {
            let _ = Dispatch::try_from(message);
        }
        if let Ok(message) = v1::Finished::decode(bytes.as_slice()) {
            let _ = Finished::try_from(message);
        }
        if let Ok(message) = v1::Progress::decode(bytes.as_slice()) {
            let _ = Progress::try_from(message);
        }
        if let Ok(message) = v1::HealthReport::decode(bytes.as_slice()) {
            let _ = HealthReport::try_from(message);
        }
        if let Ok(message) = v1::RelayedEvents::decode(bytes.as_slice()) {
            let _ = super::relayed_events(message);
        }
    }

    #[test]
    fn names_that_are_taken_are_safe_in_a_path(name in ".{0,40}") {
        let object = v1::ObjectRef { name, ..v1::ObjectRef::from(backend()) };
        if let Ok(object) = ObjectRef::try_from(object) {
            prop_assert!(!object.name.is_empty() && object.name != ".." && object.name != ".");
            prop_assert!(!object.name.contains(['/', '%', '?', '#', '\\', ' ', '\n']));
        }
    }
}
