use super::{Next, Outbox, Outgoing};
use roadstead_model::{
    Action, ApplierUid, Attempt, DispatchKey, Generation, HubEpoch, ObjectRef, ObjectResult, Position, Stage,
};
use roadstead_proto::{Corrected, Correction, Finished, InventoryAck, InventoryIntent, Tended};
use std::time::Duration;
use tokio::time::Instant;

const APPLYING: Position = Position { step: Some(0), stage: Stage::Apply };

fn key(attempt: i64) -> DispatchKey {
    DispatchKey {
        epoch: HubEpoch(1),
        applier: ApplierUid(uuid::Uuid::nil()),
        generation: Generation(1),
        attempt: Attempt(attempt),
        digest: None,
    }
}

fn created(name: &str) -> ObjectResult {
    let object = ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "dev".to_owned(),
        name: name.to_owned(),
    };
    ObjectResult { object, action: Action::Created }
}

fn finished(attempt: i64) -> Finished {
    Finished {
        key: key(attempt),
        failure: None,
        change_set: vec![],
        inventory: vec![],
        timings: vec![],
        reads: vec![],
        found: vec![],
        held: vec![],
    }
}

fn message(next: Next) -> Outgoing {
    match next {
        Next::Message(message) => *message,
        other => panic!("{other:?} where a message was expected"),
    }
}

#[test]
fn results_are_gathered_and_go_before_the_end() {
    let outbox = Outbox::default();
    let now = Instant::now();
    outbox.progress(&key(1), APPLYING, Some(created("lost")), None);
    outbox.begin_session();
    assert_eq!(outbox.next(now), Next::Nothing, "what happened without a session is for nobody");
    outbox.progress(&key(1), APPLYING, Some(created("a")), None);
    let Outgoing::Progress(first) = message(outbox.next(now)) else { panic!("progress") };
    assert_eq!(first.results.len(), 1);
    outbox.progress(&key(1), APPLYING, Some(created("b")), None);
    outbox.progress(&key(1), APPLYING, Some(created("c")), None);
    assert!(matches!(outbox.next(now), Next::At(due) if due > now));
    outbox.finish(finished(1));
    let Outgoing::Progress(second) = message(outbox.next(now)) else { panic!("progress") };
    assert_eq!(second.results.len(), 2);
    assert!(matches!(message(outbox.next(now)), Outgoing::Finished(_)));
    assert_eq!(outbox.next(now), Next::Nothing);
    assert_eq!(outbox.next(now + Duration::from_secs(1)), Next::Nothing);
}

#[test]
fn an_end_is_told_in_every_session_until_confirmed() {
    let outbox = Outbox::default();
    let now = Instant::now();
    outbox.finish(finished(1));
    for _ in 0..2 {
        outbox.begin_session();
        assert!(matches!(message(outbox.next(now)), Outgoing::Finished(_)));
        assert_eq!(outbox.next(now), Next::Nothing);
    }
    outbox.confirm_finished(&key(2));
    assert_eq!(outbox.unconfirmed(), [key(1)]);
    outbox.confirm_finished(&key(1));
    outbox.begin_session();
    assert_eq!(outbox.next(now), Next::Nothing);
}

#[test]
fn an_intent_is_told_in_every_session_until_answered() {
    let outbox = Outbox::default();
    let now = Instant::now();
    let mut answer = outbox.intend(InventoryIntent { key: key(1), objects: vec![] });
    for _ in 0..2 {
        outbox.begin_session();
        assert!(matches!(message(outbox.next(now)), Outgoing::Intent(_)));
    }
    let ack = |attempt| InventoryAck { key: key(attempt), owned_by_another: vec![] };
    outbox.answer_intent(&key(2), Ok(ack(2)));
    assert!(answer.try_recv().is_err(), "another dispatch's answer was taken");
    outbox.answer_intent(&key(1), Ok(ack(1)));
    assert_eq!(answer.try_recv(), Ok(Ok(ack(1))));
    outbox.begin_session();
    assert_eq!(outbox.next(now), Next::Nothing);
}

#[tokio::test]
async fn what_waits_is_told_together_and_again_in_the_next_session() {
    let outbox = Outbox::default();
    outbox.begin_session();
    let now = Instant::now();
    let of = |number| DispatchKey { applier: ApplierUid(uuid::Uuid::from_u128(number)), ..key(1) };
    let backlog = |next| match next {
        Next::Message(message) => match *message {
            Outgoing::Backlog(backlog) => {
                (backlog.waiting, backlog.started.into_iter().map(|started| started.key).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    outbox.waits(&of(1));
    outbox.waits(&of(2));
    assert_eq!(backlog(outbox.next(now)), (vec![of(1), of(2)], vec![]));
    assert_eq!(outbox.next(now), Next::Nothing);
    outbox.started(&of(1));
    // Not at once: more may begin.
    let later = now + Duration::from_millis(250);
    assert_eq!(outbox.next(now), Next::At(later));
    assert_eq!(backlog(outbox.next(later)), (vec![], vec![of(1)]));
    outbox.end_session();
    outbox.begin_session();
    let later = later + Duration::from_millis(250);
    assert_eq!(backlog(outbox.next(later)), (vec![of(2)], vec![of(1)]));
    // What has ended is not told of.
    let ended = Finished {
        key: of(1),
        failure: None,
        change_set: vec![],
        inventory: vec![],
        timings: vec![],
        reads: vec![],
        found: vec![],
        held: vec![],
    };
    outbox.finish(ended);
    outbox.begin_session();
    assert_eq!(backlog(outbox.next(later + Duration::from_millis(250))), (vec![of(2)], vec![]));
}

#[test]
fn corrections_are_told_until_they_are_confirmed() {
    let outbox = Outbox::default();
    let now = Instant::now();
    let correction = |objects| Correction {
        key: key(1),
        ago: Duration::ZERO,
        took: Duration::ZERO,
        objects: (0..objects)
            .map(|n| Corrected {
                object: created(&n.to_string()).object,
                action: Action::Configured,
                managers: vec![],
                fields: vec![],
            })
            .collect(),
    };
    outbox.correct(correction(1), now);
    outbox.begin_session();
    let later = now + Duration::from_secs(5);
    let Outgoing::Correction(number, told) = message(outbox.next(later)) else { panic!("a correction") };
    assert_eq!(told.ago, Duration::from_secs(5));
    assert_eq!(outbox.next(later), Next::Nothing);
    outbox.begin_session();
    assert!(matches!(message(outbox.next(later)), Outgoing::Correction(again, _) if again == number));
    outbox.confirm_correction(number);
    outbox.begin_session();
    assert_eq!(outbox.next(later), Next::Nothing);
    // Of too many the oldest are forgotten.
    outbox.correct(correction(1_500), now);
    outbox.correct(correction(1_500), now);
    let Outgoing::Correction(_, told) = message(outbox.next(later)) else { panic!("a correction") };
    assert_eq!(told.objects.len(), 1_500);
    assert_eq!(outbox.next(later), Next::Nothing);
}

#[test]
fn what_is_tended_is_told_once_in_each_session() {
    let outbox = Outbox::default();
    let now = Instant::now();
    let [one, two] = [1, 2].map(|number| ApplierUid(uuid::Uuid::from_u128(number)));
    outbox.tend([one].into());
    assert_eq!(outbox.next(now), Next::Nothing, "there is no session");
    for _ in 0..2 {
        outbox.begin_session();
        let told = Tended { begun: vec![one], ended: vec![] };
        assert_eq!(message(outbox.next(now)), Outgoing::Tended(told));
        assert_eq!(outbox.next(now), Next::Nothing);
    }
    outbox.tend([two].into());
    let told = Tended { begun: vec![two], ended: vec![one] };
    assert_eq!(message(outbox.next(now)), Outgoing::Tended(told));
    outbox.tend([two].into());
    assert_eq!(outbox.next(now), Next::Nothing);
}
