//! What `deploy/` has of the hub: its manifests are the ones that kustomize builds, an apiserver takes them and admits their
//! pods, and the hub runs as they say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use roadstead_tests::{
    Kubectl, PATIENCE, Process, TestCluster, TestDatabase, binary, eventually, folder, free_port,
};
use serde_json::Value;

pub(crate) fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// What `roadstead build` makes of a folder of `deploy/`.
pub(crate) async fn built(name: &str) -> Result<String> {
    let mut command = tokio::process::Command::new(binary("roadstead")?);
    let output = command.arg("build").arg(deploy(name)).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn both_kustomizations_are_what_kustomize_makes_of_them() -> Result<()> {
    let target = TestCluster::first()?;
    for (name, objects) in [("hub", 7), ("agent", 8), ("agent-locked", 7)] {
        let own = built(name).await?;
        let theirs = target.kubectl().run(&["kustomize", &deploy(name).display().to_string()]).await?;
        ensure!(own == theirs, "{name}: roadstead build and kubectl kustomize differ:\n{own}\n---\n{theirs}");
        let count = own.lines().filter(|line| line.starts_with("kind: ")).count();
        ensure!(count == objects, "{name} has {count} objects:\n{own}");
    }
    Ok(())
}

/// The hub's Deployment in a cluster, in a namespace of the test's own.
struct Place {
    target: TestCluster,
    namespace: roadstead_tests::TestNamespace,
    database: TestDatabase,
}

impl Place {
    /// Applies the manifests as README says, and waits until the cluster has admitted the pods.
    async fn new(host: &str) -> Result<Self> {
        let target = TestCluster::second()?;
        let namespace = target.later_namespace("hub");
        let database = TestDatabase::new().await?;
        let own = |text: &str| text.replace(": roadstead\n", &format!(": {}\n", namespace.name()));
        let manifests = own(&built("hub").await?)
            .replace(&format!("part-of: {}\n", namespace.name()), "part-of: roadstead\n")
            .replace("hub.example.com", host);
        let kubectl = target.kubectl();
        let url = format!("--from-literal=database-url={}", database.url());
        let key = "--from-literal=key=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        kubectl.run(&["create", "namespace", namespace.name()]).await?;
        kubectl
            .run(&["create", "secret", "generic", "roadstead-hub", "-n", namespace.name(), &url, key])
            .await?;
        kubectl.apply(&manifests).await?;
        // Pods are refused that are not as the Pod Security Standard `restricted` wants them.
        let enforced = kubectl.get(&["namespace", namespace.name()]).await?;
        ensure!(
            enforced["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted",
            "{enforced}"
        );
        let args = ["rollout", "status", "deployment/roadstead-hub", "-n", namespace.name(), "--timeout=60s"];
        kubectl.run(&args).await?;
        Ok(Self { target, namespace, database })
    }

    async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        self.target.kubectl().get(&[kind, name, "-n", self.namespace.name()]).await
    }

    async fn deployment(&self) -> Result<Value> {
        self.get("deployment", "roadstead-hub").await
    }

    /// The environment that a kubelet gives the container.
    async fn environment(&self) -> Result<BTreeMap<String, String>> {
        let deployment = self.deployment().await?;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let secret = self.get("secret", "roadstead-hub").await?;
        let config = self.get("configmap", "roadstead-hub").await?;
        let mut environment = BTreeMap::new();
        for variable in container["env"].as_array().context("an environment")? {
            let name = variable["name"].as_str().context("a name")?;
            let from = &variable["valueFrom"];
            let value = if let Some(key) = from["secretKeyRef"]["key"].as_str() {
                ensure!(from["secretKeyRef"]["name"] == "roadstead-hub", "{variable}");
                decoded(&secret, key)?
            } else if let Some(key) = from["configMapKeyRef"]["key"].as_str() {
                config["data"][key].as_str().with_context(|| format!("no {key} in {config}"))?.to_owned()
            } else {
                variable["value"].as_str().context("a value")?.to_owned()
            };
            environment.insert(name.to_owned(), value);
        }
        Ok(environment)
    }
}

fn decoded(secret: &Value, key: &str) -> Result<String> {
    use base64::Engine as _;
    let text = secret["data"][key].as_str().with_context(|| format!("no {key} in the Secret"))?;
    Ok(String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text)?)?)
}

#[test]
fn images_begin_with_what_a_digest_names() -> Result<()> {
    let dockerfile = std::fs::read_to_string(deploy("Dockerfile"))?;
    let mut stages = vec!["scratch", "${BINARIES}"];
    let mut pinned = 0;
    for line in dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let (base, stage) = line.split_once(" AS ").with_context(|| format!("{line} has a name"))?;
        if !stages.contains(&base) {
            let digest = base.split_once("@sha256:").with_context(|| format!("{base} has a digest"))?.1;
            ensure!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{base}");
            pinned += 1;
        }
        stages.push(stage);
    }
    ensure!(pinned == 2, "{pinned} images from a registry");
    Ok(())
}

#[tokio::test]
async fn the_hub_runs_as_its_deployment_says() -> Result<()> {
    let place = Place::new("127.0.0.1").await?;
    let deployment = place.deployment().await?;
    let spec = &deployment["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    ensure!(spec["automountServiceAccountToken"] == false, "{spec}");
    ensure!(container["args"].is_null() && container["command"].is_null(), "{container}");
    let account = format!("system:serviceaccount:{}:roadstead-hub", place.namespace.name());
    let asked = ["auth", "can-i", "--list", "-n", place.namespace.name(), "--as", &account];
    let rights = place.target.kubectl().run(&asked).await?;
    ensure!(!rights.contains("secrets"), "the hub's ServiceAccount has rights: {rights}");

    // As the kubelet would start it; but for the ports, of which there is one set on this machine, and the key's place.
    let mut environment = place.environment().await?;
    let folder = folder()?;
    let key = folder.path().join("key");
    std::fs::write(&key, decoded(&place.get("secret", "roadstead-hub").await?, "key")?)?;
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o400))?;
    ensure!(environment["ROADSTEAD_KEY_FILE"] == "/etc/roadstead/key", "{environment:?}");
    for (name, port) in [("ROADSTEAD_LISTEN", "0.0.0.0:7443"), ("ROADSTEAD_LINK_LISTEN", "0.0.0.0:7444")] {
        ensure!(environment[name] == port, "{environment:?}");
        environment.insert(name.to_owned(), format!("127.0.0.1:{}", free_port()?));
    }
    environment.insert("ROADSTEAD_KEY_FILE".to_owned(), key.display().to_string());
    let command = || -> Result<Command> {
        let mut command = Command::new(binary("roadstead-hub")?);
        command.env_clear().envs(&environment);
        Ok(command)
    };
    let mut hub = Process::start("the hub", &mut command()?, &folder.path().join("hub.log"))?;
    let kubectl = administrator(command()?, folder.path()).await.with_context(|| hub.logs())?;
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let asked = &container[probe]["httpGet"];
        ensure!(asked["port"] == "api" && asked["scheme"] == "HTTPS", "{asked}");
        let path = asked["path"].as_str().context("a path")?;
        eventually(&format!("{probe} goes well"), PATIENCE, || async {
            kubectl.run(&["get", "--raw", path]).await
        })
        .await?;
    }
    let clusters = kubectl.run(&["get", "clusters"]).await?;
    ensure!(clusters.is_empty(), "{clusters}");
    ensure!(!hub.logs().contains(place.database.url()), "the database's URL is in the log:\n{}", hub.logs());
    let ended = hub.sigterm(PATIENCE).await?;
    ensure!(ended.success(), "{ended}:\n{}", hub.logs());
    Ok(())
}

/// kubectl by what the hub prints, as with `kubectl exec`.
async fn administrator(hub: Command, folder: &Path) -> Result<Kubectl> {
    let mut hub = tokio::process::Command::from(hub);
    let output = hub.arg("--print-admin-kubeconfig").kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join("admin.kubeconfig");
    std::fs::write(&path, output.stdout)?;
    Kubectl::new(&path)
}
