//! What the agent can do with the rights of `deploy/agent` without the cluster-admin binding: as its ServiceAccount, with
//! its token, against a real apiserver.

#![expect(clippy::expect_used, reason = "a test that cannot go on says so and fails")]

use std::time::Duration;

use http::{Request, StatusCode};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use roadstead_apply::{Desired, Engine, Error, IgnoreRules, Manifest, Options, Run};
use roadstead_deploy::Agent;
use roadstead_model::{ApplierUid, ServiceAccount};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

/// What an agent that was installed without all rights can be used for.
struct Reduced {
    admin: kube::Client,
    /// With the credentials of the agent's ServiceAccount.
    agent: kube::Client,
    /// The agent's namespace.
    home: String,
    /// A namespace with the account `deployer`, which may do everything there.
    apps: String,
}

async fn client(auth: Option<AuthInfo>) -> kube::Client {
    let path = std::env::var("ROADSTEAD_TEST_KUBECONFIG_1")
        .expect("ROADSTEAD_TEST_KUBECONFIG_1 names no cluster: run these tests through `cargo xtask test`");
    let mut read = Kubeconfig::read_from(path).expect("a kubeconfig");
    if let Some(auth) = auth {
        read.auth_infos[0].auth_info = Some(auth);
    }
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a cluster");
    config.default_retry = false;
    kube::Client::try_from(config).expect("a client")
}

/// The status of the answer.
async fn ask(client: &kube::Client, method: &str, path: &str, headers: &[(&str, &str)]) -> StatusCode {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    client.send(request).await.expect("an answer").status()
}

async fn post(client: &kube::Client, path: &str, object: &Value) -> Value {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).expect("a request");
    client.request(request).await.unwrap_or_else(|error| panic!("POST {path}: {error}"))
}

fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("a kind");
    let namespace = object["metadata"]["namespace"].as_str();
    let group = match kind {
        "Namespace" | "ServiceAccount" | "ConfigMap" => "/api/v1",
        _ => "/apis/rbac.authorization.k8s.io/v1",
    };
    let within = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    format!("{group}{within}/{}s", kind.to_lowercase())
}

impl Reduced {
    /// Installs the agent's manifests but for the cluster-admin binding, which README says to delete.
    async fn install() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let admin = client(None).await;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (home, apps) = (format!("agent-{id}"), format!("apps-{id}"));
        let manifests = Agent { namespace: home.clone(), hosted: true, ..Agent::default() }.objects();
        for object in manifests.iter().filter(|object| object["roleRef"]["name"] != "cluster-admin") {
            post(&admin, &collection(object), object).await;
        }
        let account = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": apps});
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": apps}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "deployer", "namespace": apps}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "other", "namespace": apps}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "all", "namespace": apps},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "deployer", "namespace": apps}, "subjects": [account],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}}),
        ] {
            post(&admin, &collection(&object), &object).await;
        }
        let token = format!("/api/v1/namespaces/{home}/serviceaccounts/roadstead-agent/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = post(&admin, &token, &request).await["status"]["token"].clone();
        let auth = serde_json::from_value(json!({ "token": token })).expect("credentials");
        let agent = client(Some(auth)).await;
        Self { admin, agent, home, apps }
    }

    /// As the agent acting as an account of `apps`, with this group where one is given.
    async fn status_as(&self, account: &str, group: Option<&str>, path: &str) -> StatusCode {
        let user = format!("system:serviceaccount:{}:{account}", self.apps);
        let group = group.map(|group| ("impersonate-group", group));
        let headers: Vec<_> = [("impersonate-user", user.as_str())].into_iter().chain(group).collect();
        ask(&self.agent, "GET", path, &headers).await
    }

    /// Waits until the apiserver, which goes by a binding a moment after it was written, answers so.
    async fn comes_to(&self, account: &str, path: &str, want: StatusCode) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status_as(account, None, path).await;
            if status == want {
                return;
            }
            assert!(Instant::now() < deadline, "as {account}: {path} is still answered {status}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Applies a ConfigMap in `apps` with the agent's engine.
    async fn apply_as(&self, account: &str) -> Result<(), Error> {
        let options = Options { retry_for: Duration::ZERO, ..Options::default() };
        let account = ServiceAccount { namespace: self.apps.clone(), name: account.to_owned() };
        let engine = Engine::new(self.agent.clone(), options).impersonate(account);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
        let desired = Desired {
            owner: ApplierUid::random(),
            manifests: vec![Manifest::from(object)],
            default_namespace: self.apps.clone(),
            adopt_flux: false,
            adopt_managers: Vec::new(),
            force: false,
            ignore: IgnoreRules::default(),
            tenant: String::new(),
        };
        let mut ignore = |_| ();
        let mut run = Run::new(Instant::now() + PATIENCE, CancellationToken::new(), &mut ignore);
        let prepared = engine.prepare(desired, &mut run).await?;
        engine.apply(&prepared, &[], &mut run).await.error.map_or(Ok(()), Err)
    }

    fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.apps)
    }

    async fn remove(self) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for path in [
            format!("/api/v1/namespaces/{}", self.home),
            format!("/api/v1/namespaces/{}", self.apps),
            format!("{rbac}/clusterroles/roadstead-agent-{}", self.home),
            format!("{rbac}/clusterrolebindings/roadstead-agent-{}", self.home),
        ] {
            let status = ask(&self.admin, "DELETE", &path, &[]).await;
            assert!(status.is_success(), "DELETE {path}: {status}");
        }
    }
}

#[tokio::test]
async fn the_reduced_agent_cannot_become_system_masters() {
    let reduced = Reduced::install().await;
    reduced.comes_to("deployer", &reduced.maps(), StatusCode::OK).await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    assert_eq!(ask(&reduced.agent, "GET", secrets, &[]).await, StatusCode::FORBIDDEN);
    for group in ["system:masters", "system:serviceaccounts:kube-system", "system:authenticated"] {
        let status = reduced.status_as("deployer", Some(group), secrets).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "as {group}");
    }
    let status = ask(&reduced.agent, "GET", secrets, &[("impersonate-user", "admin")]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "as a user");
    reduced.remove().await;
}

#[tokio::test]
async fn an_impersonated_account_has_its_groups_without_the_agent_naming_them() {
    let reduced = Reduced::install().await;
    // The right is the group's, not the account's.
    let group = format!("system:serviceaccounts:{}", reduced.apps);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "all-accounts", "namespace": reduced.apps}, "roleRef": role,
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    let status = reduced.status_as("other", None, &reduced.maps()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    post(&reduced.admin, &collection(&binding), &binding).await;
    reduced.comes_to("other", &reduced.maps(), StatusCode::OK).await;
    reduced.apply_as("other").await.expect("applied by the group's right");
    reduced.remove().await;
}

#[tokio::test]
async fn a_role_with_names_lets_the_agent_act_as_those_accounts_only() {
    let reduced = Reduced::install().await;
    // As deploy/agent-locked has it: no right to act as any account, and then a Role in `apps` for one.
    let cluster = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/roadstead-agent-{}", reduced.home);
    let admin = &reduced.admin;
    let request = Request::get(&cluster).body(Vec::new()).expect("a request");
    let mut role: Value = admin.request(request).await.expect("the ClusterRole");
    let rules = role["rules"].as_array_mut().expect("rules");
    rules.retain(|rule| rule["resources"][0] != "serviceaccounts");
    let request = Request::put(&cluster).header("content-type", "application/json");
    let request = request.body(role.to_string().into_bytes()).expect("a request");
    admin.request::<Value>(request).await.expect("the ClusterRole without the rule");
    reduced.comes_to("deployer", &reduced.maps(), StatusCode::FORBIDDEN).await;

    let text = include_str!("../../deploy/agent-locked/account.yaml");
    for document in text.split("\n---\n").skip(2) {
        let mut object: Value = serde_saphyr::from_str(document).expect("YAML");
        object["metadata"]["namespace"] = reduced.apps.as_str().into();
        if object["kind"] == "RoleBinding" {
            object["subjects"][0]["namespace"] = reduced.home.as_str().into();
        }
        post(admin, &collection(&object), &object).await;
    }
    reduced.comes_to("deployer", &reduced.maps(), StatusCode::OK).await;
    reduced.apply_as("deployer").await.expect("applied as the account that the Role names");
    let error = reduced.apply_as("other").await.expect_err("another account").to_string();
    assert!(error.contains("cannot impersonate resource \"serviceaccounts\""), "{error}");
    reduced.remove().await;
}
