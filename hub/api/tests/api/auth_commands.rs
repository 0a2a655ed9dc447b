//! `kubectl auth` as people use it: roles from a file, and what one is told of one's own rights.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::eventually;
use serde_json::json;

use crate::support::{Replica, Site};

const PATIENCE: Duration = Duration::from_secs(10);

/// Roles and bindings of a team, as a file has them.
fn file(verbs: &str, user: &str) -> String {
    let group = "rbac.authorization.k8s.io";
    format!(
        "apiVersion: {group}/v1\nkind: ClusterRole\nmetadata: {{name: reader}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [{verbs}]}}]\n---\n\
         apiVersion: {group}/v1\nkind: ClusterRoleBinding\nmetadata: {{name: readers}}\n\
         roleRef: {{apiGroup: {group}, kind: ClusterRole, name: reader}}\n\
         subjects: [{{apiGroup: {group}, kind: User, name: {user}}}]\n---\n\
         apiVersion: {group}/v1\nkind: Role\nmetadata: {{name: writer, namespace: apps}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [update]}}]\n---\n\
         apiVersion: {group}/v1\nkind: RoleBinding\nmetadata: {{name: writers, namespace: apps}}\n\
         roleRef: {{apiGroup: {group}, kind: Role, name: writer}}\n\
         subjects: [{{apiGroup: {group}, kind: User, name: {user}}}]\n"
    )
}

async fn reconcile(replica: &Replica, more: &[&str], text: &str) -> Result<String> {
    replica.kubectl.run_with(&[&["auth", "reconcile", "-f", "-"], more].concat(), text).await
}

async fn may(replica: &Replica, user: &str, verb: &str, namespace: &str) -> Result<bool> {
    let user = format!("--as={user}");
    let args = ["auth", "can-i", verb, "configmaps", "-n", namespace, &user];
    let answer = replica.kubectl.command(&args).output().await?;
    match String::from_utf8_lossy(&answer.stdout).trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => anyhow::bail!("{}", String::from_utf8_lossy(&answer.stderr)),
    }
}

async fn until(replica: &Replica, user: &str, verb: &str, namespace: &str, want: bool) -> Result<()> {
    eventually("it is known", PATIENCE, || async {
        let found = may(replica, user, verb, namespace).await?;
        ensure!(found == want, "{user} {verb} in {namespace}: {found}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn roles_and_bindings_of_a_file_are_reconciled() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    // The namespace is made where it is not there.
    let said = reconcile(&replica, &[], &file("get, list", "jane")).await?;
    for what in ["clusterrole", "clusterrolebinding", "role", "rolebinding"] {
        assert!(said.contains(&format!("{what}.rbac.authorization.k8s.io/")), "{said}");
    }
    assert_eq!(said.lines().filter(|line| line.ends_with(" reconciled")).count(), 4, "{said}");
    replica.kubectl.run(&["get", "namespace", "apps"]).await?;
    until(&replica, "jane", "update", "apps", true).await?;
    assert!(
        may(&replica, "jane", "list", "elsewhere").await? && !may(&replica, "jane", "watch", "apps").await?
    );
    // What is lacking is added, and what is there stays: a right that somebody added, and a subject.
    reconcile(&replica, &[], &file("watch", "joe")).await?;
    until(&replica, "joe", "update", "apps", true).await?;
    for (user, verb) in [("jane", "get"), ("jane", "watch"), ("joe", "get"), ("joe", "watch")] {
        assert!(may(&replica, user, verb, "elsewhere").await?, "{user} {verb}");
    }
    // Unless it is said that the rest is to go.
    let all = ["--remove-extra-permissions", "--remove-extra-subjects"];
    reconcile(&replica, &all, &file("watch", "joe")).await?;
    until(&replica, "jane", "update", "apps", false).await?;
    assert!(!may(&replica, "joe", "get", "apps").await? && may(&replica, "joe", "watch", "apps").await?);
    // A binding to another role is deleted and made again, since its role cannot be changed.
    let other = file("watch", "joe").replace("kind: Role, name: writer", "kind: ClusterRole, name: view");
    reconcile(&replica, &[], &other).await?;
    let bound = replica.kubectl.get(&["rolebinding", "writers", "-n", "apps"]).await?;
    assert_eq!(bound["roleRef"]["name"], json!("view"));
    Ok(())
}

#[tokio::test]
async fn nobody_reconciles_more_than_they_hold() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.run(&["create", "namespace", "apps"]).await?;
    let admin = ["create", "rolebinding", "ada", "--clusterrole=admin", "--user=ada", "-n", "apps"];
    replica.kubectl.run(&admin).await?;
    until(&replica, "ada", "update", "apps", true).await?;
    let role = |resource: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: own, namespace: apps}}\n\
             rules: [{{apiGroups: [''], resources: [{resource}], verbs: [get]}}]\n"
        )
    };
    reconcile(&replica, &["--as=ada"], &role("secrets")).await?;
    let error = reconcile(&replica, &["--as=ada"], &role("nodes")).await.err().context("it is refused")?;
    assert!(
        error.to_string().contains("is attempting to grant RBAC permissions not currently held"),
        "{error}"
    );
    let rules = replica.kubectl.run(&["get", "role", "own", "-n", "apps", "-o", "jsonpath={.rules}"]).await?;
    assert!(rules.contains("secrets") && !rules.contains("nodes"), "{rules}");
    Ok(())
}

/// The verbs that `kubectl auth can-i --list` tells of a resource; none where it does not tell of it.
fn verbs(list: &str, resource: &str) -> Option<String> {
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(resource))?;
    let (_, verbs) = line.rsplit_once('[')?;
    let mut verbs: Vec<&str> = verbs.trim_end().trim_end_matches(']').split_whitespace().collect();
    verbs.sort_unstable();
    Some(verbs.join(" "))
}

#[tokio::test]
async fn everybody_is_told_the_truth_about_their_rights() -> Result<()> {
    const KS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";
    const CLUSTERS: &str = "clusters.fleet.roadstead.dev";
    const ROLES: &str = "roles.rbac.authorization.k8s.io";
    const READ: &str = "get list watch";
    const ALL: &str = "create delete deletecollection get list patch update watch";
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    for namespace in ["apps", "elsewhere"] {
        kubectl.run(&["create", "namespace", namespace]).await?;
    }
    for role in ["view", "edit", "admin"] {
        let (bound, user) = (format!("--clusterrole={role}"), format!("--user={role}"));
        kubectl.run(&["create", "rolebinding", role, &bound, &user, "-n", "apps"]).await?;
    }
    for role in ["cluster-operator", "fleet-admin"] {
        let (bound, user) = (format!("--clusterrole={role}"), format!("--user={role}"));
        kubectl.run(&["create", "clusterrolebinding", role, &bound, &user]).await?;
    }
    until(&replica, "fleet-admin", "update", "apps", true).await?;
    for (user, namespace, want) in [
        ("view", "apps", [("configmaps", READ), (KS, READ), ("secrets", ""), (CLUSTERS, ""), (ROLES, "")]),
        ("view", "elsewhere", [("configmaps", ""), (KS, ""), ("secrets", ""), (CLUSTERS, ""), (ROLES, "")]),
        ("edit", "apps", [("configmaps", ALL), (KS, ALL), ("secrets", ALL), (CLUSTERS, ""), (ROLES, "")]),
        ("admin", "apps", [("configmaps", ALL), (KS, ALL), ("secrets", ALL), (CLUSTERS, ""), (ROLES, ALL)]),
        ("admin", "elsewhere", [("configmaps", ""), (KS, ""), ("secrets", ""), (CLUSTERS, ""), (ROLES, "")]),
        (
            "cluster-operator",
            "apps",
            [("configmaps", ""), (KS, READ), ("secrets", ""), (CLUSTERS, ALL), (ROLES, "")],
        ),
        (
            "fleet-admin",
            "elsewhere",
            [("configmaps", ALL), (KS, ALL), ("secrets", ALL), (CLUSTERS, ALL), (ROLES, ALL)],
        ),
    ] {
        let list =
            kubectl.run(&["auth", "can-i", "--list", "-n", namespace, &format!("--as={user}")]).await?;
        for (resource, want) in want {
            let found = verbs(&list, resource).unwrap_or_default();
            let without: Vec<&str> =
                found.split(' ').filter(|verb| !matches!(*verb, "use" | "delegate")).collect();
            assert_eq!(without.join(" "), want, "{user} {resource} in {namespace}:\n{list}");
        }
        // Each says of itself what the list says of it.
        assert!(list.contains("selfsubjectaccessreviews.authorization.k8s.io"), "{list}");
    }
    Ok(())
}
