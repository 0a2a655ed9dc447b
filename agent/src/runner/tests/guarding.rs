//! Dispatches under a guard.

use roadstead_model::guard::digest_of;
use roadstead_model::{Guard, GuardMode};

use super::*;

fn guarded(guard: Guard, steps: Vec<StepKind>) -> Dispatch {
    let inventory = (0..4).map(|number| config_map(&format!("old-{number}"))).collect();
    let spec = DispatchSpec { guard: Some(guard), ..spec(steps) };
    Dispatch { spec, inventory, ..dispatch(1) }
}

fn all() -> Vec<StepKind> {
    let wait = StepKind::Wait { objects: vec![], groups: vec![0] };
    vec![StepKind::Apply { group: 0 }, StepKind::Prune, wait]
}

async fn carried_out(fake: &Fake, dispatch: Dispatch) -> Finished {
    let runner = runner(fake);
    runner.dispatch(dispatch).expect("taken");
    to_the_end(&runner).await
}

#[tokio::test]
async fn deletions_beyond_the_bounds_wait_and_all_else_is_done() {
    let fake = Fake::default();
    let dispatch = guarded(Guard::default(), all());
    let old = dispatch.inventory.clone();
    let finished = carried_out(&fake, dispatch).await;
    assert_eq!(finished.failure, None);
    assert_eq!(fake.log(), ["prepare 1", "apply", "wait 1"], "something was deleted");
    let [held] = finished.held.as_slice() else { panic!("{:?}", finished.held) };
    assert_eq!((held.objects.as_slice(), held.total), (old.as_slice(), 4));
    assert_eq!(held.why, "everything that it owns would be deleted (4 objects)");
    let still: Vec<_> = finished.inventory.iter().filter(|object| old.contains(object)).collect();
    assert_eq!(still.len(), 4, "what was not deleted is owned");

    // The word is for these, and for no others.
    let fake = Fake::default();
    let confirmed = Guard { confirmed: vec![held.digest], ..Guard::default() };
    let finished = carried_out(&fake, guarded(confirmed.clone(), all())).await;
    assert_eq!(finished.held, []);
    assert_eq!(fake.count("wait 1"), 1);
    assert!(fake.log().iter().any(|line| line.starts_with("delete ")), "{:?}", fake.log());
    let mut others = guarded(confirmed, all());
    others.inventory.push(config_map("another"));
    let fake = Fake::default();
    assert_eq!(carried_out(&fake, others).await.held.len(), 1);
}

#[tokio::test]
async fn with_stop_nothing_is_applied_either() {
    let fake = Fake::default();
    let stop = Guard { mode: GuardMode::Stop, ..Guard::default() };
    let finished = carried_out(&fake, guarded(stop.clone(), all())).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.position, Position { step: Some(0), stage: Stage::Prune });
    assert_eq!(fake.log(), ["prepare 1"], "something was written");
    assert_eq!(finished.held.len(), 1);
    // Within the bounds all is done.
    let fake = Fake::default();
    let within = Dispatch { inventory: vec![config_map("a")], ..guarded(stop, all()) };
    assert_eq!(carried_out(&fake, within).await.failure, None);
    assert_eq!(fake.count("apply"), 1);
}

#[tokio::test]
async fn with_stop_a_volume_that_would_be_recreated_holds_everything() {
    let risk = Some("is bound to a volume".to_owned());
    let volume = |name: &str| {
        let object = ObjectRef { kind: "PersistentVolumeClaim".to_owned(), ..config_map(name) };
        PendingDeletion { object, uid: "u".to_owned(), risk: risk.clone() }
    };
    let fake = Fake { volumes: vec![volume("data"), volume("more")], ..Fake::default() };
    let within = |mode| {
        let guard = Guard { mode, ..Guard::default() };
        Dispatch { inventory: vec![config_map("a")], ..guarded(guard, all()) }
    };
    let finished = carried_out(&fake, within(GuardMode::Stop)).await;
    let failure = finished.failure.expect("a failure");
    assert!(failure.message.starts_with("nothing was applied: PersistentVolumeClaim/"), "{failure:?}");
    assert!(failure.message.ends_with(", and 1 more like it"), "{failure:?}");
    assert_eq!((fake.log(), finished.held.len()), (vec!["prepare 1".to_owned()], 2));
    // Else they alone wait, which the engine sees to.
    let finished = carried_out(&fake, within(GuardMode::Deletions)).await;
    assert_eq!((finished.failure, fake.count("apply")), (None, 1));
}

#[tokio::test]
async fn leaving_a_cluster_waits_too_where_nobody_asked_for_it() {
    let fake = Fake::default();
    let finished = carried_out(&fake, guarded(Guard::default(), vec![StepKind::Delete])).await;
    assert_eq!((finished.failure, finished.held.len(), finished.inventory.len()), (None, 1, 4));
    assert_eq!(fake.log(), [] as [&str; 0]);
    // The digest is one of the objects, whoever counts them.
    let deletions =
        |object: &ObjectRef| PendingDeletion { object: object.clone(), uid: "u".to_owned(), risk: None };
    let all: Vec<PendingDeletion> = finished.inventory.iter().map(deletions).collect();
    assert_eq!(finished.held[0].digest, digest_of(&all));
}
