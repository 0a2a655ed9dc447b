//! A kubelet for the agent's pods: the development clusters run no containers.
//!
//! Deployment, ReplicaSets and pods are the real controllers'. For each pod this runs, as the pod's spec says (arguments,
//! environment, volumes, probe), the program that stands for its image, starts it again when it ends, ends it when the pod
//! goes, and tells all that in the pod's status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{TestCluster, TestNamespace};
use crate::given::binary;
use crate::kubectl::Kubectl;
use crate::process::Process;

/// Keeps the cluster's own scheduler, and so its simulated nodes, off the pods.
const SCHEDULER: &str = "by-hand";

const TICK: Duration = Duration::from_millis(300);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The agent.
    Agent,
    /// The agent, on a way to its hub that leads nowhere.
    CutOff,
    /// A program that ends at once.
    Broken,
    /// None of that name is in the registry.
    Missing,
}

/// Runs the agent's pods in one namespace, until it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<Node>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Node {
    kubectl: Kubectl,
    namespace: String,
    folder: PathBuf,
    kubeconfig: PathBuf,
    images: Mutex<BTreeMap<String, Program>>,
    containers: Mutex<BTreeMap<String, Container>>,
}

/// The agent's container in one pod.
#[derive(Debug)]
struct Container {
    image: String,
    process: Option<Process>,
    exit_code: Option<i32>,
    restarts: u32,
    restart_at: Instant,
    started: Timestamp,
    is_ready: bool,
    since: Timestamp,
    told: Value,
}

impl Kubelet {
    /// Takes the pods of Deployment `roadstead-agent` over. `images` says what each image is; another is missing.
    ///
    /// # Errors
    /// When there is no such Deployment or ServiceAccount.
    pub async fn run(
        cluster: &TestCluster,
        namespace: &TestNamespace,
        folder: &Path,
        images: &[(&str, Program)],
    ) -> Result<Self> {
        let kubectl = cluster.kubectl().clone();
        let name = namespace.name();
        let token = kubectl.run(&["create", "token", "roadstead-agent", "-n", name, "--duration=2h"]).await?;
        let text = kubectl.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let mut config: Value = serde_json::from_str(&text).context("read a kubeconfig")?;
        config["users"][0]["user"] = json!({ "token": token.trim() });
        // By name, so that a proxy on the way to the hub, which is an address, is none on the way here.
        let cluster = &mut config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().context("a server")?.replace("127.0.0.1", "localhost");
        cluster["server"] = server.into();
        cluster["tls-server-name"] = "127.0.0.1".into();
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).context("write a kubeconfig")?;
        let node = Arc::new(Node {
            kubectl,
            namespace: name.to_owned(),
            folder: folder.to_owned(),
            kubeconfig,
            images: Mutex::new(
                images.iter().map(|(image, program)| ((*image).to_owned(), *program)).collect(),
            ),
            containers: Mutex::default(),
        });
        let patch = json!({ "spec": { "template": { "spec": { "schedulerName": SCHEDULER } } } }).to_string();
        let args = ["patch", "deployment", "roadstead-agent", "-n", name, "--type=strategic", "-p", &patch];
        node.kubectl.run(&args).await?;
        let running = Arc::clone(&node);
        let task = tokio::spawn(async move {
            loop {
                // An apiserver that is away for a moment is away for a kubelet too; its programs go on.
                if let Err(error) = running.tick().await {
                    eprintln!("the kubelet of {}: {error:#}", running.namespace);
                }
                tokio::time::sleep(TICK).await;
            }
        });
        Ok(Self { node, task })
    }

    /// What an image is from now on, for programs that are started.
    pub fn set(&self, image: &str, program: Program) {
        lock(&self.node.images).insert(image.to_owned(), program);
    }

    /// The images of which programs run.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        let containers = lock(&self.node.containers);
        let alive = containers.values().filter(|container| container.process.is_some());
        alive.map(|container| container.image.clone()).collect()
    }

    /// What all programs have printed.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut logs = String::new();
        for entry in std::fs::read_dir(&self.node.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&self.node.prefix()) && name.ends_with(".log") {
                let text = std::fs::read(entry.path()).unwrap_or_default();
                logs.push_str(&format!("--- {name}:\n{}", String::from_utf8_lossy(&text)));
            }
        }
        logs
    }

    /// kill -9 of the program of an image; it is started again as a kubelet does.
    ///
    /// # Errors
    /// When none runs.
    pub fn kill9(&self, image: &str) -> Result<()> {
        let containers = lock(&self.node.containers);
        let victim = containers.values().find(|container| container.image == image);
        let process = victim.and_then(|container| container.process.as_ref());
        let process = process.with_context(|| format!("no program of {image} runs"))?;
        rustix::process::kill_process(process.pid(), rustix::process::Signal::KILL).context("kill an agent")
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        lock(&self.node.containers).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    fn prefix(&self) -> String {
        format!("pod-{}-", self.namespace)
    }

    async fn tick(&self) -> Result<()> {
        let pods = self.kubectl.get(&["pods", "-n", &self.namespace]).await?;
        let mine: Vec<&Value> = pods["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|pod| {
                pod["spec"]["schedulerName"] == SCHEDULER && pod["metadata"]["deletionTimestamp"].is_null()
            })
            .collect();
        let names: Vec<&str> = mine.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        let gone: Vec<Container> = {
            let mut containers = lock(&self.containers);
            let gone: Vec<String> =
                containers.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
            gone.into_iter().filter_map(|name| containers.remove(&name)).collect()
        };
        for container in gone {
            if let Some(mut process) = container.process
                && process.ended()?.is_none()
            {
                process.sigterm(Duration::from_secs(15)).await?;
            }
        }
        for pod in mine {
            let name = pod["metadata"]["name"].as_str().context("a pod's name")?;
            if let Some(status) = self.look_after(name, pod)? {
                let patch = json!({ "status": status }).to_string();
                let args = [
                    "patch",
                    "pod",
                    name,
                    "-n",
                    &self.namespace,
                    "--subresource=status",
                    "--type=merge",
                    "-p",
                    &patch,
                ];
                match self.kubectl.run(&args).await {
                    Err(error) if error.to_string().contains("NotFound") => {}
                    told => drop(told?),
                }
            }
        }
        Ok(())
    }

    /// Runs a pod's program; gives its status, where that is news.
    fn look_after(&self, name: &str, pod: &Value) -> Result<Option<Value>> {
        let spec = &pod["spec"]["containers"][0];
        let image = spec["image"].as_str().context("an image")?;
        let program = lock(&self.images).get(image).copied().unwrap_or(Program::Missing);
        let mut containers = lock(&self.containers);
        let now = Timestamp::now();
        let container = containers.entry(name.to_owned()).or_insert_with(|| Container {
            image: image.to_owned(),
            process: None,
            exit_code: None,
            restarts: 0,
            restart_at: Instant::now(),
            started: now,
            is_ready: false,
            since: now,
            told: Value::Null,
        });
        if let Some(process) = &mut container.process
            && let Some(status) = process.ended()?
        {
            container.exit_code = Some(status.code().unwrap_or(137));
            container.process = None;
            container.restarts += 1;
            let backoff = Duration::from_secs(1 << container.restarts.min(10)).min(LONGEST_BACKOFF);
            container.restart_at = Instant::now() + backoff;
        }
        if container.process.is_none()
            && program != Program::Missing
            && Instant::now() >= container.restart_at
        {
            container.process = Some(self.start(name, pod, program)?);
            container.started = now;
        }
        let is_ready = container.process.is_some() && self.probes_well(name, pod)?;
        if is_ready != container.is_ready {
            (container.is_ready, container.since) = (is_ready, now);
        }
        let status = container.status(program);
        Ok((status != container.told).then(|| {
            container.told = status.clone();
            status
        }))
    }

    /// Where a path of the container is on this machine: within the folder of a volume, as a mount has it.
    fn place(&self, name: &str, pod: &Value, text: &str) -> Result<String> {
        for mount in pod["spec"]["containers"][0]["volumeMounts"].as_array().into_iter().flatten() {
            let Some(path) = mount["mountPath"].as_str() else { continue };
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let is_empty = |volume: &&Value| volume["name"] == mount["name"] && !volume["emptyDir"].is_null();
            if text.contains(path) && volumes.into_iter().any(|volume| is_empty(&volume)) {
                let folder = self.folder.join(format!("{}{name}", self.prefix()));
                std::fs::create_dir_all(&folder).context("make a volume")?;
                return Ok(text.replace(path, &folder.display().to_string()));
            }
        }
        Ok(text.to_owned())
    }

    fn start(&self, name: &str, pod: &Value, program: Program) -> Result<Process> {
        let spec = &pod["spec"]["containers"][0];
        let mut command = match program {
            Program::Broken => Command::new("/bin/false"),
            _ => Command::new(binary("roadstead-agent")?),
        };
        for arg in spec["args"].as_array().into_iter().flatten() {
            command.arg(self.place(name, pod, arg.as_str().context("an argument")?)?);
        }
        for variable in spec["env"].as_array().into_iter().flatten() {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => name,
                Some(other) => bail!("a variable from {other}"),
                None => variable["value"].as_str().unwrap_or_default(),
            };
            command.env(variable["name"].as_str().context("a variable")?, value);
        }
        // In place of what a pod finds in /var/run/secrets.
        command.arg("--kubeconfig").arg(&self.kubeconfig).env("HOSTNAME", name);
        if program == Program::CutOff {
            command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("NO_PROXY", "localhost");
        }
        let log = self.folder.join(format!("{}{name}.log", self.prefix()));
        Process::start(&format!("the agent in pod {name}"), &mut command, &log)
    }

    fn probes_well(&self, name: &str, pod: &Value) -> Result<bool> {
        let probe = &pod["spec"]["containers"][0]["readinessProbe"]["exec"]["command"];
        let mut words = Vec::new();
        for word in probe.as_array().context("a probe that runs a program")? {
            words.push(self.place(name, pod, word.as_str().context("a word")?)?);
        }
        let (program, args) = words.split_first().context("a probe's program")?;
        ensure!(program == "/roadstead-agent", "the probe runs {program}");
        let mut command = Command::new(binary("roadstead-agent")?);
        let status =
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(status.context("probe an agent")?.success())
    }
}

impl Container {
    fn status(&self, program: Program) -> Value {
        let ready = if self.is_ready { "True" } else { "False" };
        let ended = self.exit_code.map(|code| {
            json!({ "terminated": { "exitCode": code, "reason": "Error", "startedAt": second(self.started), "finishedAt": second(self.started) } })
        });
        let state = match (&self.process, program) {
            (Some(_), _) => json!({ "running": { "startedAt": second(self.started) } }),
            (None, Program::Missing) => {
                json!({ "waiting": { "reason": "ImagePullBackOff", "message": format!("no such image: {}", self.image) } })
            }
            (None, _) => {
                json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off restarting" } })
            }
        };
        let condition =
            |kind: &str| json!({ "type": kind, "status": ready, "lastTransitionTime": second(self.since) });
        json!({
            "phase": if self.process.is_some() { "Running" } else { "Pending" },
            "conditions": [condition("ContainersReady"), condition("Ready")],
            "containerStatuses": [{
                "name": "agent", "image": self.image, "imageID": "", "ready": self.is_ready,
                "started": self.process.is_some(), "restartCount": self.restarts, "state": state,
                "lastState": ended.unwrap_or_else(|| json!({})),
            }],
        })
    }
}

/// As Kubernetes writes a time.
fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
