//! How many dispatches are worked on at once, and what the others wait for.

use super::*;
use crate::keys::KeyServices;
use crate::memory::BuildMemory;

/// Of the Kustomization with this number.
fn of_number(number: u128, dispatch: Dispatch) -> Dispatch {
    let applier = ApplierUid(uuid::Uuid::from_u128(number));
    Dispatch { key: DispatchKey { applier, ..dispatch.key }, ..dispatch }
}

/// A runner with so many places, which are kept for so long at least.
fn runner_with(fake: &Fake, places: usize, patience: Duration) -> Runner<Fake> {
    let limits = Limits { total: places, per_group: places, patience, patience_over_share: patience };
    let runner = Runner::with_limits(
        fake.clone(),
        Arc::new(Outbox::default()),
        limits,
        KeyServices::default(),
        Arc::default(),
        BuildMemory::default(),
    );
    runner.outbox().begin_session();
    runner
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Dispatches of so many Kustomizations.
fn dispatch_all(runner: &Runner<Fake>, count: u128) -> Vec<DispatchKey> {
    let begin = |number| {
        let dispatch = of_number(number, dispatch(1));
        let key = dispatch.key.clone();
        runner.dispatch(dispatch).expect("taken");
        key
    };
    (1..=count).map(begin).collect()
}

/// Until so many have begun with what `line` says.
async fn until_begun(fake: &Fake, line: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fake.count(line) < count {
        assert!(Instant::now() < deadline, "{:?}", fake.log());
        sleep(Duration::from_millis(1)).await;
    }
}

fn backlog(told: Outgoing) -> Option<Backlog> {
    if let Outgoing::Backlog(backlog) = told { Some(backlog) } else { None }
}

#[tokio::test]
async fn so_many_dispatches_are_worked_on_at_once_and_the_others_are_told_of() {
    let gate = Arc::new(Semaphore::new(0));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    // A namespace that is alone leaves a quarter of the places to whoever comes.
    let runner = runner_with(&fake, 3, LONG);
    let keys = dispatch_all(&runner, 4);
    let Backlog { waiting, started } = play(&runner, backlog).await;
    let [waits] = waiting.as_slice() else { panic!("one waits: {waiting:?}") };
    assert!(keys.contains(waits) && started.is_empty(), "{started:?}");
    tokio::select! {
        () = until_begun(&fake, "apply", 3) => {}
        end = to_the_end(&runner) => panic!("{end:?}"),
    }
    assert_eq!(fake.count("prepare 1"), 3, "one that waits was worked on");
    // One ends; what waited begins, and that is told before its own end.
    gate.add_permits(1);
    let mut ended = Vec::new();
    let begun = play(&runner, |told| match told {
        Outgoing::Finished(finished) => {
            ended.push(finished.key);
            None
        }
        told => backlog(told),
    })
    .await;
    assert!(!ended.contains(waits), "{ended:?}");
    let started: Vec<_> = begun.started.iter().map(|started| &started.key).collect();
    assert_eq!((begun.waiting.as_slice(), started.as_slice()), ([].as_slice(), [waits].as_slice()));
    gate.add_permits(3);
    while ended.len() < 4 {
        ended.push(to_the_end(&runner).await.key);
    }
}

#[tokio::test]
async fn what_waits_for_health_holds_no_place() {
    let fake = Fake { waits_long: true, ..Fake::default() };
    let runner = runner_with(&fake, 1, LONG);
    dispatch_all(&runner, 3);
    tokio::select! {
        () = until_begun(&fake, "wait 1", 3) => {}
        end = to_the_end(&runner) => panic!("{end:?}"),
    }
}

#[tokio::test]
async fn what_takes_long_goes_on_beside_the_others() {
    let gate = Arc::new(Semaphore::new(0));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    let runner = runner_with(&fake, 1, Duration::from_millis(20));
    let mut keys = dispatch_all(&runner, 3);
    // Nothing ends, and yet all of them begin.
    tokio::select! {
        () = until_begun(&fake, "apply", 3) => {}
        end = to_the_end(&runner) => panic!("{end:?}"),
    }
    gate.add_permits(3);
    for _ in 0..3 {
        let end = to_the_end(&runner).await;
        assert_eq!(end.failure, None);
        keys.retain(|key| *key != end.key);
    }
    assert_eq!(keys, []);
}

#[tokio::test]
async fn what_waits_for_a_place_can_be_cancelled() {
    let gate = Arc::new(Semaphore::new(0));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    let runner = runner_with(&fake, 1, LONG);
    dispatch_all(&runner, 2);
    let waiting = play(&runner, backlog).await.waiting;
    let [waits] = waiting.as_slice() else { panic!("one waits: {waiting:?}") };
    runner.cancel(waits);
    let end = to_the_end(&runner).await;
    assert_eq!(end.key, *waits);
    assert!(end.failure.expect("a failure").cancelled);
    assert!(fake.count("prepare 1") <= 1, "it was worked on: {:?}", fake.log());
}
