//! Steps of which only some appliers have any: hooks, and reads for the hub.

use super::*;

/// A dispatch that runs a hook `a`, and then applies `b`.
fn with_hook(policy: HookPolicy, inventory: Vec<ObjectRef>) -> Dispatch {
    let Dispatch { spec, .. } = two_groups();
    let steps = [StepKind::Hook { group: 0, policy }, StepKind::Apply { group: 1 }, StepKind::Prune];
    let steps = steps.map(Step::from).into();
    Dispatch { spec: DispatchSpec { steps, ..spec }, inventory, ..dispatch(1) }
}

#[tokio::test]
async fn a_hook_runs_to_its_end_before_the_next_step_and_is_removed_by_its_policy() {
    let (a, b) = (config_map("a"), config_map("b"));
    let applied = ["prepare 1", "apply", "delete "];
    for (policy, log, owned) in [
        // What the run before left goes first.
        (
            HookPolicy::BeforeCreation,
            vec!["prepare 1", "delete ConfigMap/dev/a", "wait 1 Gone", "apply", "wait 1 Done"],
            vec![a.clone(), b.clone()],
        ),
        (
            HookPolicy::Succeeded,
            vec![
                "prepare 1",
                "delete ConfigMap/dev/a",
                "wait 1 Gone",
                "apply",
                "wait 1 Done",
                "delete ConfigMap/dev/a",
            ],
            vec![b.clone()],
        ),
    ] {
        let fake = Fake { names: vec!["a", "b"], ..Fake::default() };
        let runner = runner(&fake);
        runner.dispatch(with_hook(policy, vec![a.clone()])).expect("taken");
        let finished = to_the_end(&runner).await;
        assert_eq!(finished.failure, None);
        assert_eq!(fake.log(), [log.as_slice(), &applied].concat(), "{policy:?}");
        assert_eq!(finished.inventory, owned, "{policy:?}");
    }
}

#[tokio::test]
async fn a_hook_that_fails_ends_the_dispatch_and_stays_unless_its_policy_removes_it() {
    for (policy, removed) in [(HookPolicy::Succeeded, false), (HookPolicy::Failed, true)] {
        let fake = Fake { names: vec!["a"], never_done: true, ..Fake::default() };
        let runner = runner(&fake);
        runner.dispatch(with_hook(policy, Vec::new())).expect("taken");
        let finished = to_the_end(&runner).await;
        let failure = finished.failure.expect("a failure");
        assert_eq!(failure.position, Position { step: Some(0), stage: Stage::Wait });
        assert_eq!(fake.count("delete ConfigMap/dev/a"), usize::from(removed), "{policy:?}");
        assert_eq!(finished.inventory.is_empty(), removed, "what stays is owned");
    }
}

/// A dispatch that reads these ConfigMaps.
fn reads(attempt: i64, names: &[&str]) -> Dispatch {
    let objects = names.iter().map(|name| config_map(name)).collect();
    let spec = DispatchSpec { groups: Vec::new(), ..spec(vec![StepKind::Read { objects }]) };
    Dispatch { spec, ..dispatch(attempt) }
}

#[tokio::test]
async fn reads_are_told_and_not_kept() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(reads(1, &["a", "missing"])).expect("taken");
    let finished = to_the_end(&runner).await;
    assert_eq!((finished.failure.clone(), finished.inventory.clone()), (None, vec![config_map("old")]));
    let json = |name: &str| serde_json::json!({ "metadata": { "name": name, "uid": "u" } }).to_string();
    let read = |name: &str, json: Option<String>| ReadObject {
        object: config_map(name),
        json: json.map(String::into_bytes),
    };
    assert_eq!(finished.reads, [read("a", Some(json("a"))), read("missing", None)]);
    // Asked for again it is read again.
    runner.outbox().confirm_finished(&finished.key);
    assert_eq!(runner.dispatch(reads(1, &["a", "missing"])), Ok(Verdict::Start));
    assert_eq!(to_the_end(&runner).await.reads, finished.reads);
    assert_eq!(fake.count("read a"), 2);
}

#[tokio::test]
async fn neither_secrets_nor_the_agents_own_objects_are_read_for_the_hub() {
    type Spoil = fn(&mut ObjectRef);
    let spoil: [(Spoil, &str); 2] = [
        (|object| object.namespace = "roadstead-system".to_owned(), "read ConfigMap/roadstead-system/keys"),
        (|object| object.kind = "Secret".to_owned(), "Secret/dev/keys is not read for the hub"),
    ];
    for (spoil, part) in spoil {
        let fake = Fake::default();
        let runner = runner(&fake);
        let mut own = reads(1, &["a", "keys"]);
        let StepKind::Read { objects } = &mut own.spec.steps[0].kind else { panic!("it reads") };
        spoil(&mut objects[1]);
        runner.dispatch(own).expect("taken");
        let finished = to_the_end(&runner).await;
        let failure = finished.failure.expect("a refusal");
        assert!(failure.message.contains(part), "{}", failure.message);
        assert_eq!(failure.object.map(|object| object.name).as_deref(), Some("keys"));
        assert_eq!(fake.count("read keys"), 0);
    }
}
