use super::{Next, Outbox, Outgoing};
use roadstead_kstatus::Status;
use roadstead_model::{
    Action, ApplierUid, Attempt, DispatchKey, Generation, HubEpoch, ObjectRef, ObjectResult, Position, Stage,
};
use roadstead_proto::{
    Corrected, Correction, Finished, HealthReport, HealthState, InventoryAck, InventoryIntent, ObjectHealth,
    Tended,
};
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
    ObjectResult::new(object, Action::Created)
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
        warnings: vec![],
        decrypted_with: vec![],
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
        warnings: vec![],
        decrypted_with: vec![],
    };
    outbox.finish(ended);
    outbox.begin_session();
    assert_eq!(backlog(outbox.next(later + Duration::from_millis(250))), (vec![of(2)], vec![]));
}

fn correction(objects: usize) -> Correction {
    let corrected = |number: usize| Corrected {
        object: created(&number.to_string()).object,
        action: Action::Configured,
        managers: vec![],
        fields: vec![],
    };
    let objects = (0..objects).map(corrected).collect();
    Correction { key: key(1), ago: Duration::ZERO, took: Duration::ZERO, objects, forgotten: 0 }
}

#[test]
fn what_was_corrected_is_told_once_it_is_known_how_the_dispatch_ended() {
    let outbox = Outbox::default();
    let now = Instant::now();
    // Both happened while the hub was away.
    outbox.finish(finished(1));
    outbox.correct(correction(1), now);
    outbox.begin_session();
    assert_eq!(message(outbox.next(now)), Outgoing::Finished(finished(1)));
    assert_eq!(outbox.next(now), Next::Nothing);
    outbox.confirm_finished(&key(1));
    assert!(matches!(message(outbox.next(now)), Outgoing::Correction(..)));
}

#[test]
fn corrections_are_told_until_they_are_confirmed() {
    let outbox = Outbox::default();
    let now = Instant::now();
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

fn report(attempt: i64, state: HealthState, objects: &[&str]) -> HealthReport {
    let health = |name: &&str| ObjectHealth {
        object: created(name).object,
        status: Status::Failed,
        message: format!("by attempt {attempt}"),
    };
    let objects = objects.iter().map(health).collect();
    HealthReport { key: key(attempt), state, message: String::new(), recovered: false, objects }
}

fn reported(next: Next) -> (u64, HealthReport) {
    match message(next) {
        Outgoing::Health(number, report) => (number, report),
        other => panic!("{other:?} where a report was expected"),
    }
}

#[test]
fn of_health_the_newest_is_told_one_at_a_time_and_again_in_the_next_session() {
    let (outbox, now) = (Outbox::default(), Instant::now());
    outbox.begin_session();
    outbox.report(report(1, HealthState::Failing, &["a"]));
    let (first, sent) = reported(outbox.next(now));
    assert_eq!(sent.state, HealthState::Failing);
    outbox.report(report(1, HealthState::Progressing, &["b"]));
    outbox.report(report(1, HealthState::Healthy, &["c"]));
    assert_eq!(outbox.next(now), Next::Nothing, "the hub may handle two at once in any order");
    outbox.confirm_report(first);
    let (second, sent) = reported(outbox.next(now));
    assert_eq!(sent.state, HealthState::Healthy, "only the newest");
    assert_eq!(sent.objects.len(), 2, "with what the one before had told: {sent:?}");
    // Cut off before it was heard; and meanwhile it has changed once more.
    outbox.report(report(1, HealthState::Failing, &["d"]));
    outbox.begin_session();
    let (third, sent) = reported(outbox.next(now));
    assert_eq!((sent.state, sent.objects.len()), (HealthState::Failing, 3));
    outbox.confirm_report(second);
    assert_eq!(outbox.next(now), Next::Nothing);
    outbox.begin_session();
    assert_eq!(
        reported(outbox.next(now)).1.state,
        HealthState::Failing,
        "a late word is of the session before"
    );
    assert_ne!(third, second);
}

#[test]
fn health_after_a_dispatch_is_told_once_its_end_is_known_and_that_it_waits_before_it() {
    let (outbox, now) = (Outbox::default(), Instant::now());
    outbox.begin_session();
    outbox.report(report(1, HealthState::Waiting, &[]));
    assert_eq!(reported(outbox.next(now)).1.state, HealthState::Waiting);
    outbox.report(report(1, HealthState::Waiting, &[]));
    outbox.finish(finished(1));
    outbox.report(report(1, HealthState::Failing, &["a"]));
    assert!(matches!(message(outbox.next(now)), Outgoing::Finished(_)));
    outbox.confirm_report(0);
    assert_eq!(outbox.next(now), Next::Nothing, "its end is not confirmed");
    outbox.confirm_finished(&key(1));
    let (_, sent) = reported(outbox.next(now));
    assert_eq!(sent.state, HealthState::Failing, "how it waited is of no interest any more");
}
