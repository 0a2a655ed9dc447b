//! Dispatches that have to do with a Flux in the cluster.

use roadstead_model::{Guard, GuardMode};

use super::*;

fn adopting(name: &str) -> Vec<StepKind> {
    let of = vec![FluxKustomization { namespace: "flux-system".to_owned(), name: name.to_owned() }];
    vec![StepKind::Apply { group: 0 }, StepKind::AdoptInventory { of }, StepKind::Prune]
}

fn adopts(name: &str) -> Dispatch {
    Dispatch { spec: spec(adopting(name)), ..dispatch(1) }
}

#[tokio::test]
async fn an_inventory_is_announced_before_it_is_claimed_and_then_pruned() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(adopts("suspended")).expect("taken");
    let mut intended = Vec::new();
    let finished = loop {
        match told(&runner).await {
            Outgoing::Build(_) => give_build(&runner),
            Outgoing::Intent(intent) => {
                let names: Vec<String> = intent.objects.iter().map(|object| object.name.clone()).collect();
                intended.push((names, fake.log().iter().any(|line| line.starts_with("claim"))));
                let ack = InventoryAck { key: intent.key.clone(), owned_by_another: vec![] };
                runner.outbox().answer_intent(&intent.key, Ok(ack));
            }
            Outgoing::Finished(finished) => break finished,
            other => panic!("{other:?}"),
        }
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(intended, [(names(&["a"]), false), (names(&["a", "dropped"]), false)]);
    let log = [
        "prepare 1",
        "apply",
        "read suspended",
        // What is built and what is owned already is none of it.
        "look for 1 of flux-system/suspended",
        "claim ConfigMap/dev/dropped of flux-system/suspended",
        "delete ConfigMap/dev/dropped ConfigMap/dev/old",
    ];
    assert_eq!(fake.log(), log);
    assert_eq!((finished.failure, finished.inventory), (None, vec![config_map("a")]));
}

#[tokio::test]
async fn a_flux_that_goes_on_is_not_pruned_from_and_one_that_is_gone_has_nothing() {
    let fake = Fake::default();
    let going_on = runner(&fake);
    going_on.dispatch(adopts("running")).expect("taken");
    let finished = to_the_end(&going_on).await;
    let failure = finished.failure.expect("a failure");
    assert_eq!(failure.position, Position { step: Some(1), stage: Stage::Prune });
    assert!(failure.message.contains("flux suspend kustomization running -n flux-system"), "{failure:?}");
    assert!(!fake.log().iter().any(|line| line.starts_with("claim") || line.starts_with("delete")));

    let fake = Fake::default();
    let gone = runner(&fake);
    gone.dispatch(adopts("missing")).expect("taken");
    assert_eq!(to_the_end(&gone).await.failure, None);
    assert_eq!(fake.count("delete ConfigMap/dev/old"), 1);
}

#[tokio::test]
async fn what_comes_from_flux_is_counted_by_the_guard() {
    for (mode, log) in [
        (
            GuardMode::Deletions,
            vec!["claim ConfigMap/dev/old ConfigMap/dev/dropped of flux-system/suspended"],
        ),
        (GuardMode::Stop, vec![]),
    ] {
        let fake = Fake::default();
        let runner = runner(&fake);
        let guard = Guard { mode, max_deletions: Some(0), ..Guard::default() };
        let spec = DispatchSpec { guard: Some(guard), ..spec(adopting("suspended")) };
        runner.dispatch(Dispatch { spec, inventory: Vec::new(), ..dispatch(1) }).expect("taken");
        let finished = to_the_end(&runner).await;
        let [held] = finished.held.as_slice() else { panic!("{:?}", finished.held) };
        // It owned nothing before, so both come from there.
        assert_eq!(held.objects, [config_map("dropped"), config_map("old")]);
        let written: Vec<String> =
            fake.log().into_iter().filter(|line| !line.starts_with(['p', 'r', 'l'])).collect();
        let written: Vec<&str> = written.iter().map(String::as_str).filter(|line| *line != "apply").collect();
        assert_eq!(written, log);
        assert_eq!(fake.count("apply"), usize::from(mode == GuardMode::Deletions));
        let is_owned = finished.inventory.contains(&config_map("dropped"));
        assert_eq!(is_owned, mode == GuardMode::Deletions, "it is ours until it is confirmed");
    }
}

#[tokio::test]
async fn what_is_given_back_is_owned_no_more_and_nothing_is_deleted() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(Dispatch { spec: spec(vec![StepKind::GiveBack]), ..dispatch(1) }).expect("taken");
    let finished = to_the_end(&runner).await;
    assert_eq!(fake.log(), ["give back ConfigMap/dev/old"]);
    assert_eq!((finished.failure, finished.inventory), (None, vec![]));
}
