//! An agent as `deploy/agent-locked` has it, with the policy `locked`, on a real apiserver: what it can do with the few rights
//! that it has there, and what it refuses.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, install_crypto};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, TestCluster, TestNamespace, config_map, eventually,
    unique,
};
use serde_json::Value;

use super::deploy::{built, deploy};

/// What the files of `deploy/` name, as it is named in a test: clusters are shared.
struct Names {
    /// The agent's namespace.
    home: TestNamespace,
    /// The namespace that is deployed to.
    apps: TestNamespace,
    /// Of what is in no namespace.
    cluster_wide: String,
}

impl Names {
    fn of(&self, manifests: &str) -> String {
        let documents = manifests.split("\n---\n").map(|document| {
            let own = document
                .replace("roadstead-system", self.home.name())
                .replace("namespace: apps", &format!("namespace: {}", self.apps.name()));
            if !own.contains("kind: ClusterRole") {
                return own;
            }
            // Its name, and the role's in its binding; the account keeps its own.
            let (own, subjects) = own.split_once("subjects:").unwrap_or((&own, ""));
            let renamed = own.replace("name: roadstead-agent", &format!("name: {}", self.cluster_wide));
            if subjects.is_empty() { renamed } else { format!("{renamed}subjects:{subjects}") }
        });
        documents.collect::<Vec<_>>().join("\n---\n")
    }
}

/// The cluster as its owner sets it up by `docs/agent-policy.md`, and an agent there.
async fn locked(name: &str) -> Result<(Fleet, Names)> {
    install_crypto();
    let setup = HubSetup::new(name).await?;
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let names = Names {
        home: cluster.later_namespace("locked"),
        apps: cluster.namespace("locked-apps").await?,
        cluster_wide: unique("roadstead-agent"),
    };
    let admin = cluster.kubectl();
    admin.apply(&names.of(&built("agent-locked").await?)).await?;
    let account = std::fs::read_to_string(deploy("agent-locked").join("account.yaml"))?;
    admin.apply(&names.of(&account)).await?;
    let policy = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: roadstead-agent-policy, namespace: {}}}\ndata:\n  policy.yaml: |\n    \
         preset: locked\n    serviceAccounts:\n      allowed: [{}/deployer]\n",
        names.home.name(),
        names.apps.name(),
    );
    admin.apply(&policy).await?;

    let mut join: Value = serde_json::from_str(&AgentProcess::invited(&hub, "edge").await?)?;
    join["metadata"]["namespace"] = names.home.name().into();
    admin.apply(&join.to_string()).await?;
    let home = cluster.named_namespace(names.home.name());
    let agent = AgentProcess::installed(&hub, "edge", &cluster, home).await?;
    Ok((Fleet::of(setup, hub, cluster, agent).await?, names))
}

/// A Kustomization whose service account is in the namespace that is deployed to.
fn as_account(name: &str, path: &str, account: Option<(&str, &str)>) -> String {
    let account = account.map_or_else(String::new, |(namespace, name)| {
        format!("  serviceAccount: {{name: {name}, namespace: {namespace}}}\n")
    });
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1alpha1\nkind: Kustomization\nmetadata: {{name: {name}}}\nspec:\n  interval: \
         1h\n  path: {path}\n  prune: true\n  sourceRef: {{kind: GitRepository, name: app}}\n  clusterRef: {{name: edge}}\n{account}"
    )
}

/// Waits until the apiserver says this of the account's right to write where the agent lives: it learns of a RoleBinding a
/// moment after it has stored it.
async fn may_write_at_home(fleet: &Fleet, names: &Names, wanted: &str) -> Result<()> {
    let account = format!("--as=system:serviceaccount:{}:deployer", names.apps.name());
    eventually(&format!("the apiserver says {wanted}"), PATIENCE, || async {
        let ask = ["auth", "can-i", "create", "pods", "-n", names.home.name(), &account];
        let output = fleet.cluster.kubectl().command(&ask).output().await?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(said == wanted, "it says {said}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_locked_agent_deploys_as_its_accounts_and_refuses_all_else() -> Result<()> {
    let (fleet, names) = locked("locked").await?;
    let (home, apps) = (names.home.name(), names.apps.name());
    let pod = "spec:\n      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n      containers: \
               [{name: app, image: app, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]\n";
    let workload = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {apps}}}\nspec:\n  replicas: 1\n  selector: \
         {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    {pod}"
    );
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: more, namespace: {apps}}}\nrules: []\n"
    );
    let files = Commit::new()
        .file("web/config.yaml", config_map(apps, "web", "hi"))
        .file("web/deployment.yaml", workload)
        .file("own/config.yaml", config_map(apps, "own", "hi"))
        .file("role/role.yaml", role)
        .file("role/config.yaml", config_map(apps, "role", "hi"))
        .file("home/config.yaml", config_map(home, "roadstead-agent-policy", "open"));
    let repository = fleet.repository("app", &files).await?;

    // As the account that the policy and a Role name: all of it works, the workload's own account included.
    let deployer = Some((apps, "deployer"));
    fleet.apply(&as_account("web", "./web", deployer)).await?;
    fleet.ready("kustomization/web").await?;
    fleet.cluster.has_word(apps, "web", Some("hi")).await?;
    fleet.cluster.kubectl().run(&["get", "deployment", "web", "-n", apps]).await?;

    // With the agent's own rights, as another account, what is not a plain workload, the agent's own namespace: refused, by name.
    let refused = [
        ("own", None, "serviceAccounts.required"),
        ("own", Some((apps, "default")), "serviceAccounts.allowed"),
        ("role", deployer, "kinds"),
        ("home", deployer, "manageAgentNamespace"),
    ];
    for (number, (path, account, rule)) in refused.into_iter().enumerate() {
        let name = format!("refused-{number}");
        fleet.apply(&as_account(&name, &format!("./{path}"), account)).await?;
        let message = fleet.fails(&format!("kustomization/{name}"), "", &["rule `"]).await;
        let message = message.with_context(|| format!("{path} by {rule}"))?;
        ensure!(message.contains(rule), "not refused by {rule}: {message}");
        ensure!(fleet.cluster.word(apps, path).await?.is_none(), "{path} is there, though it was refused");
    }
    ensure!(fleet.cluster.word(home, "roadstead-agent-policy").await?.is_none(), "the policy was changed");

    // An account that gets rights where the agent lives is acted as no more, until they are taken away.
    let binding = [
        "create",
        "rolebinding",
        "too-much",
        "-n",
        home,
        "--clusterrole=edit",
        &format!("--serviceaccount={apps}:deployer"),
    ];
    fleet.cluster.kubectl().run(&binding).await?;
    may_write_at_home(&fleet, &names, "yes").await?;
    let changed = Commit::new().file("web/config.yaml", config_map(apps, "web", "two"));
    let second = repository.commit("main", "Second", &changed)?;
    fleet.fetch("app").await?;
    let message = fleet.fails("kustomization/web", "", &["rights in the agent's namespace"]).await?;
    ensure!(message.contains("serviceAccounts.trusted"), "{message}");
    ensure!(fleet.cluster.word(apps, "web").await?.as_deref() == Some("hi"), "it was applied");
    fleet.cluster.kubectl().run(&["delete", "rolebinding", "too-much", "-n", home]).await?;
    may_write_at_home(&fleet, &names, "no").await?;
    fleet.run(&["annotate", "kustomization/web", "reconcile.fluxcd.io/requestedAt=again"]).await?;
    fleet.applied("web", &second).await?;
    fleet.cluster.has_word(apps, "web", Some("two")).await?;

    // What it applied as the account it deletes as the account.
    fleet.run(&["delete", "kustomization/web", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(apps, "web").await?.is_none(), "its objects stay");
    Ok(())
}
