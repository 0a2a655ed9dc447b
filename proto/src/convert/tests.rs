//! What is sound comes back as it was, whatever bytes come instead are refused by name and never panic.

use std::time::Duration;

use proptest::prelude::*;
use prost::Message as _;

use roadstead_kstatus::Status;
use roadstead_model::{
    Action, Attempt, Digest, Dispatch, DispatchKey, DispatchSpec, Generation, HubEpoch, KustomizationUid,
    ObjectRef, ObjectResult, Stage, StageTiming, Step,
};

use crate::limits::MAX_OBJECTS;
use crate::message::{Failure, Finished, InventoryAck, InventoryIntent, ObjectHealth, Progress};
use crate::v1;

fn key() -> DispatchKey {
    DispatchKey {
        epoch: HubEpoch(1),
        kustomization: KustomizationUid::random(),
        generation: Generation(3),
        attempt: Attempt(7),
        build: Some(Digest::of(b"[]")),
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

fn dispatch() -> Dispatch {
    Dispatch {
        key: key(),
        spec: DispatchSpec {
            namespace: "team".to_owned(),
            name: "web".to_owned(),
            default_namespace: Some("apps".to_owned()),
            service_account: Some(super::ServiceAccount {
                namespace: "dev".to_owned(),
                name: "deployer".to_owned(),
            }),
            timeout: Duration::from_millis(1500),
            steps: vec![
                Step::Apply { force: true },
                Step::Prune,
                Step::Wait { objects: vec![backend()], all: true },
                Step::Delete,
            ],
        },
        inventory: vec![backend()],
    }
}

#[test]
fn a_dispatch_comes_back_as_it_was() {
    let sent = dispatch();
    assert_eq!(Dispatch::try_from(v1::Dispatch::from(sent.clone())), Ok(sent));
}

#[test]
fn what_an_agent_says_comes_back_as_it_was() {
    let result = ObjectResult { object: backend(), action: Action::Configured };
    let finished = Finished {
        key: key(),
        failure: Some(Failure {
            stage: Stage::Wait,
            message: "Deployment/dev/backend: Replicas: 1/3".to_owned(),
            object: Some(backend()),
            cancelled: true,
        }),
        change_set: vec![result.clone()],
        inventory: vec![backend()],
        timings: vec![StageTiming { stage: Stage::Validate, micros: 12 }],
    };
    assert_eq!(Finished::try_from(v1::Finished::from(finished.clone())), Ok(finished));
    let health =
        ObjectHealth { object: backend(), status: Status::InProgress, message: "Replicas: 1/3".to_owned() };
    let progress = Progress { key: key(), stage: Stage::Apply, results: vec![result], health: vec![health] };
    assert_eq!(Progress::try_from(v1::Progress::from(progress.clone())), Ok(progress));
    let intent = InventoryIntent { key: key(), objects: vec![backend()] };
    assert_eq!(InventoryIntent::try_from(v1::InventoryIntent::from(intent.clone())), Ok(intent));
    let owned = super::OwnedByAnother { object: backend(), owner: "team/other".to_owned() };
    let ack = InventoryAck { key: key(), owned_by_another: vec![owned] };
    assert_eq!(InventoryAck::try_from(v1::InventoryAck::from(ack.clone())), Ok(ack));
}

/// The refusal of `dispatch` after `spoil`.
fn refusal(spoil: impl FnOnce(&mut v1::Dispatch)) -> String {
    let mut message = v1::Dispatch::from(dispatch());
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
        refusal(|d| d.key.as_mut().expect("key").build_digest = "sha256:00".to_owned()),
        "`key.build_digest` is not a digest: want `sha256:` and 64 hexadecimal digits"
    );
    assert_eq!(
        refusal(|d| d.key.as_mut().expect("key").attempt = u64::MAX),
        "`key.attempt` is 18446744073709551615, beyond 63 bits"
    );
}

#[test]
fn a_stage_of_a_later_version_is_refused() {
    let mut progress = v1::Progress::from(Progress {
        key: key(),
        stage: Stage::Apply,
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
