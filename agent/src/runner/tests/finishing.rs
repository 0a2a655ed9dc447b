//! Variables, and the end of deletions.

use roadstead_apply::Manifest;
use roadstead_model::{GivenVariables, Group, StepKind, Substitute, VariablesFrom, VariablesKind};
use serde_json::json;

use super::*;

/// A dispatch whose only group has variables.
fn with_variables(from: Vec<VariablesFrom>, given: Vec<GivenVariables>) -> Dispatch {
    let substitute = Substitute { namespace: "dev".to_owned(), from, ..Substitute::default() };
    let objects = Digest::of(WITH_VARIABLE);
    let groups = vec![Group { substitute: Some(substitute), ..Group::of(objects) }];
    let spec = DispatchSpec { groups, ..spec(vec![StepKind::Apply { group: 0 }]) };
    Dispatch { spec, given, ..dispatch(1) }
}

fn from(kind: VariablesKind, name: &str, on_hub: bool) -> VariablesFrom {
    let on_hub = on_hub.then(|| "uid@1".to_owned());
    VariablesFrom { kind, name: name.to_owned(), optional: false, on_hub }
}

fn given(kind: VariablesKind, name: &str, value: &str) -> GivenVariables {
    GivenVariables {
        kind,
        name: name.to_owned(),
        values: [("word".to_owned(), value.to_owned().into())].into(),
    }
}

fn applied(word: &str) -> Manifest {
    let metadata = json!({ "name": "a", "namespace": "dev" });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "word": word } }).into()
}

#[tokio::test]
async fn variables_of_the_hub_and_of_the_cluster_are_substituted_and_secrets_marked() {
    for (from, given, word, secret, found) in [
        (
            vec![from(VariablesKind::ConfigMap, "vars", true)],
            vec![given(VariablesKind::ConfigMap, "vars", "hub")],
            "hub",
            false,
            0,
        ),
        (
            vec![from(VariablesKind::ConfigMap, "vars", true), from(VariablesKind::Secret, "vars", true)],
            vec![
                given(VariablesKind::ConfigMap, "vars", "hub"),
                given(VariablesKind::Secret, "vars", "hush"),
            ],
            "hush",
            true,
            0,
        ),
        // The cluster's own: of a Secret its data is base64.
        (vec![from(VariablesKind::ConfigMap, "vars", false)], Vec::new(), "c2hl", false, 1),
        (vec![from(VariablesKind::Secret, "vars", false)], Vec::new(), "she", true, 1),
    ] {
        let fake = Fake::default();
        let runner = runner(&fake);
        runner.dispatch(with_variables(from, given)).expect("taken");
        let finished = to_the_end(&runner).await;
        assert_eq!(finished.failure, None);
        let manifest = if secret { applied(word).sensitive() } else { applied(word) };
        assert_eq!(*fake.manifests.lock().expect("no panic"), [manifest]);
        assert_eq!(finished.found.len(), found);
    }
}

#[tokio::test]
async fn without_its_variables_nothing_is_applied() {
    let on_hub = from(VariablesKind::Secret, "vars", true);
    let missing = from(VariablesKind::ConfigMap, "missing", false);
    let mut own = with_variables(vec![from(VariablesKind::Secret, "keys", false)], Vec::new());
    own.spec.groups[0].substitute.as_mut().expect("variables").namespace = "roadstead-system".to_owned();
    for (dispatch, part) in [
        (with_variables(vec![on_hub], Vec::new()), "it no longer exists on the hub"),
        (
            with_variables(vec![missing], Vec::new()),
            "not found on the hub, nor in namespace 'dev' of the cluster",
        ),
        (own, "read Secret/roadstead-system/keys"),
        (with_variables(Vec::new(), Vec::new()), ""),
    ] {
        let fake = Fake::default();
        let runner = runner(&fake);
        runner.dispatch(dispatch).expect("taken");
        let finished = to_the_end(&runner).await;
        let Some(failure) = finished.failure else {
            // No variables at all: the text stays as it is.
            assert!(part.is_empty());
            assert_eq!(*fake.manifests.lock().expect("no panic"), [applied("${word}")]);
            continue;
        };
        assert_eq!(failure.position.stage, Stage::Finish);
        assert!(!part.is_empty() && failure.message.contains(part), "{}", failure.message);
        assert_eq!(fake.count("apply"), 0);
    }
    let mut optional = from(VariablesKind::ConfigMap, "missing", false);
    optional.optional = true;
    let mut dispatch = with_variables(vec![optional], Vec::new());
    dispatch.spec.groups[0].substitute.as_mut().expect("variables").always = true;
    let runner = runner(&Fake::default());
    runner.dispatch(dispatch).expect("taken");
    let message = to_the_end(&runner).await.failure.expect("it is not set").message;
    assert!(
        message.starts_with("post build failed: variable is not set (strict mode): \"word\""),
        "{message}"
    );
}

#[tokio::test]
async fn what_is_not_gone_in_time_stays_owned() {
    for late in [false, true] {
        let fake = Fake { never_gone: late, ..Fake::default() };
        let runner = runner(&fake);
        let spec = spec(vec![StepKind::Delete, StepKind::Terminate]);
        runner.dispatch(Dispatch { spec, ..dispatch(1) }).expect("taken");
        let finished = to_the_end(&runner).await;
        assert_eq!(fake.log(), ["delete ConfigMap/dev/old", "wait 1 Gone"]);
        assert_eq!(finished.failure.is_some(), late);
        assert_eq!(finished.inventory, if late { vec![config_map("old")] } else { Vec::new() });
    }
}
