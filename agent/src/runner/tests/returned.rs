//! Objects that are back with a backup of etcd.

use roadstead_apply::{Footprint, HashKey, Scope, Sight};

use super::*;
use crate::tend::Watch;

/// A list of an earlier time has these, which bear the label of the first applier.
fn went_back(runner: &Runner<Fake>, objects: &[ObjectRef]) {
    let scope = Arc::new(Scope::named(&objects[0], "configmaps"));
    let watch = Watch { account: None, scope };
    let object = serde_json::json!({"metadata": {
        "uid": "u", "resourceVersion": "5", "labels": {"fleet.roadstead.dev/owner": uuid::Uuid::nil().to_string()},
        "managedFields": [{"manager": "roadstead", "operation": "Apply", "fieldsV1": {"f:data": {}}}],
    }});
    let footprint = Footprint::of(&object, &HashKey::random());
    let tended = &runner.inner.tended;
    for object in objects {
        tended.take(&watch, Sight::Listed(object.clone(), footprint.clone()), Instant::now());
    }
    let all = objects.iter().cloned().collect();
    tended.take(&watch, Sight::Complete { all, went_back: true }, Instant::now());
}

#[tokio::test]
async fn what_is_nobodys_is_pruned_and_what_another_owns_is_not() {
    let (fake, first) = (Fake::default(), dispatch(1).key.applier);
    let runner = runner(&fake);
    let mut theirs = Dispatch { inventory: vec![config_map("theirs")], ..dispatch(1) };
    theirs.key.applier = ApplierUid(uuid::Uuid::max());
    theirs.spec.steps = vec![StepKind::Apply { group: 0 }.into()];
    runner.dispatch(theirs).expect("taken");
    assert!(to_the_end(&runner).await.inventory.contains(&config_map("theirs")));
    runner.dispatch(dispatch(1)).expect("taken");
    to_the_end(&runner).await;

    went_back(&runner, &[config_map("back"), config_map("old"), config_map("theirs")]);
    assert_eq!(runner.inner.tended.returned(first).len(), 3);
    runner.dispatch(dispatch(2)).expect("taken");
    let finished = to_the_end(&runner).await;
    let deleted = fake.log().into_iter().rfind(|line| line.starts_with("delete "));
    assert_eq!(
        deleted.as_deref(),
        Some("delete ConfigMap/dev/old ConfigMap/dev/back"),
        "what it owns, and once"
    );
    assert!(!finished.inventory.contains(&config_map("back")), "nothing comes to be owned by it");
    assert_eq!(runner.inner.tended.returned(first), []);
}

#[tokio::test]
async fn what_is_nobodys_counts_for_the_guard() {
    let (fake, first) = (Fake::default(), dispatch(1).key.applier);
    let runner = runner(&fake);
    runner.dispatch(dispatch(1)).expect("taken");
    to_the_end(&runner).await;
    went_back(&runner, &[config_map("back"), config_map("old")]);
    let guard = Guard { max_deletions: Some(1), ..Guard::default() };
    let spec = DispatchSpec { guard: Some(guard), ..dispatch(2).spec };
    runner.dispatch(Dispatch { spec, ..dispatch(2) }).expect("taken");
    let finished = to_the_end(&runner).await;
    let held: Vec<_> = finished.held.iter().flat_map(|held| &held.objects).cloned().collect();
    assert_eq!(held, [config_map("back"), config_map("old")]);
    assert_eq!(runner.inner.tended.returned(first), [config_map("back")], "it waits");
}
