//! Events in the cluster of what was changed.

use super::*;

#[tokio::test]
async fn what_was_changed_is_told_once_in_the_accounts_namespace_before_the_hub_knows() {
    for (account, namespace) in [(None, "default"), (Some(("team", "deployer")), "team")] {
        let fake = Fake::default();
        let runner = runner(&fake);
        let mut asked = dispatch(1);
        asked.spec.cluster_events = true;
        asked.spec.service_account = account.map(|(namespace, name)| ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        runner.dispatch(asked).expect("taken");
        let finished = to_the_end(&runner).await;
        assert_eq!(finished.failure, None);
        let told: Vec<String> = fake.log().into_iter().filter(|line| line.starts_with("tell ")).collect();
        let [told] = told.as_slice() else { panic!("{told:?}") };
        assert!(told.starts_with(&format!("tell {namespace}: ConfigMap/dev/a ")), "{told}");
        assert!(told.ends_with("ConfigMap/dev/old deleted"), "{told}");
    }
}

#[tokio::test]
async fn nothing_is_told_where_nobody_asks() {
    let fake = Fake::default();
    let runner = runner(&fake);
    runner.dispatch(dispatch(1)).expect("taken");
    to_the_end(&runner).await;
    assert!(!fake.log().iter().any(|line| line.starts_with("tell ")), "{:?}", fake.log());
}
