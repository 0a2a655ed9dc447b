//! What of an object is a pod's spec, whose service account it runs as, and whether it can leave its container: the `baseline`
//! of Kubernetes' Pod Security Standards.
//!
//! An object that is applied may be a part of what is there: so what is looked for is what it sets, at the places where its
//! kind has a pod's spec and wherever else something looks like one.

use serde_json::{Map, Value};

/// How deep an object is looked into.
const DEPTH: usize = 64;

/// Capabilities that a container may add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Kernel parameters that a pod may set.
const SYSCTLS: [&str; 10] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
];

/// Kinds of volumes that lead to the node.
const VOLUMES: [&str; 2] = ["hostPath", "flexVolume"];

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Where kinds have a pod's spec.
fn pod_spec_pointer(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "/spec",
        "PodTemplate" => "/template/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "ReplicationController" | "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => {
            "/spec/template/spec"
        }
        _ => return None,
    })
}

/// All pod specs of an object, by their places in it.
fn pod_specs<'a>(kind: &str, content: &'a Value) -> Vec<(String, &'a Map<String, Value>)> {
    let mut found = Vec::new();
    if let Some(pointer) = pod_spec_pointer(kind)
        && let Some(spec) = content.pointer(pointer).and_then(Value::as_object)
    {
        found.push((dotted(pointer), spec));
    }
    let mut open = vec![(String::new(), content, 0)];
    while let Some((path, value, depth)) = open.pop() {
        if depth > DEPTH {
            continue;
        }
        match value {
            Value::Object(fields) => {
                if fields.get("containers").is_some_and(Value::is_array)
                    && found.iter().all(|(known, _)| *known != path)
                {
                    found.push((path.clone(), fields));
                }
                open.extend(fields.iter().map(|(key, value)| (joined(&path, key), value, depth + 1)));
            }
            Value::Array(items) => {
                open.extend(
                    items.iter().enumerate().map(|(at, item)| (format!("{path}[{at}]"), item, depth + 1)),
                );
            }
            _ => {}
        }
    }
    found
}

fn dotted(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The names of the accounts as which an object's pods run, and of those whose tokens it asks for.
pub(crate) fn accounts(kind: &str, content: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (_, spec) in pod_specs(kind, content) {
        let text = |key: &str| spec.get(key).and_then(Value::as_str).filter(|name| !name.is_empty());
        // The second is the older name of the first, and taken where the first is missing.
        let named: Vec<&str> =
            [text("serviceAccountName"), text("serviceAccount")].into_iter().flatten().collect();
        if named.is_empty() {
            names.push("default".to_owned());
        }
        names.extend(named.into_iter().map(str::to_owned));
    }
    if kind == "Secret" {
        let annotation = content.pointer("/metadata/annotations/kubernetes.io~1service-account.name");
        names.extend(annotation.and_then(Value::as_str).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    names
}

/// The first place where an object sets what leads out of a container or relaxes what keeps others in theirs.
pub(crate) fn first_privilege(kind: &str, content: &Value) -> Option<String> {
    if kind == "Namespace" {
        return relaxed_namespace(content);
    }
    pod_specs(kind, content).iter().find_map(|(path, spec)| {
        let annotations = apparmor_annotation(path, content);
        pod_privilege(spec).or(annotations).map(|what| joined(path, &what))
    })
}

/// A namespace that is to let privileged pods in.
fn relaxed_namespace(content: &Value) -> Option<String> {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let level = content.pointer("/metadata/labels")?.get(ENFORCE)?;
    let is_strict = matches!(level.as_str(), Some("baseline" | "restricted"));
    (!is_strict).then(|| format!("metadata.labels[{ENFORCE}]"))
}

/// The older way to set AppArmor profiles: annotations beside the pod's spec.
fn apparmor_annotation(path: &str, content: &Value) -> Option<String> {
    let parent = path.strip_suffix("spec")?.trim_end_matches('.');
    let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
    let annotations = content.pointer(&format!("{pointer}/metadata/annotations"))?.as_object()?;
    let bad = annotations.iter().find(|(key, value)| {
        key.starts_with("container.apparmor.security.beta.kubernetes.io/")
            && !value
                .as_str()
                .is_some_and(|profile| profile == "runtime/default" || profile.starts_with("localhost/"))
    });
    bad.map(|(key, _)| format!("annotations[{key}]"))
}

fn is_set(value: Option<&Value>) -> bool {
    !matches!(value, None | Some(Value::Null | Value::Bool(false)))
}

fn pod_privilege(spec: &Map<String, Value>) -> Option<String> {
    if let Some(key) = ["hostNetwork", "hostPID", "hostIPC"].into_iter().find(|key| is_set(spec.get(*key))) {
        return Some(key.to_owned());
    }
    for (at, volume) in items(spec, "volumes") {
        if let Some(key) =
            VOLUMES.into_iter().find(|key| volume.get(*key).is_some_and(|value| !value.is_null()))
        {
            return Some(format!("volumes[{at}].{key}"));
        }
    }
    if let Some(what) = spec.get("securityContext").and_then(security_context) {
        return Some(format!("securityContext.{what}"));
    }
    CONTAINERS.into_iter().find_map(|list| {
        items(spec, list).find_map(|(at, container)| {
            container_privilege(container).map(|what| format!("{list}[{at}].{what}"))
        })
    })
}

fn items<'a>(of: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    of.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn container_privilege(container: &Value) -> Option<String> {
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    if ports.into_iter().any(|port| port.get("hostPort").is_some_and(|port| !port.is_null() && *port != 0)) {
        return Some("ports.hostPort".to_owned());
    }
    let what = security_context(container.get("securityContext")?)?;
    Some(format!("securityContext.{what}"))
}

/// Of a pod or of a container: their fields have different names, so one look does for both.
fn security_context(context: &Value) -> Option<String> {
    let text = |pointer: &str| context.pointer(pointer).and_then(Value::as_str);
    if is_set(context.get("privileged")) {
        return Some("privileged".to_owned());
    }
    if is_set(context.pointer("/windowsOptions/hostProcess")) {
        return Some("windowsOptions.hostProcess".to_owned());
    }
    if text("/procMount").is_some_and(|mount| mount != "Default") {
        return Some("procMount".to_owned());
    }
    for profile in ["seccompProfile", "appArmorProfile"] {
        if text(&format!("/{profile}/type"))
            .is_some_and(|kind| kind != "RuntimeDefault" && kind != "Localhost")
        {
            return Some(format!("{profile}.type"));
        }
    }
    let linux = context.get("seLinuxOptions");
    let option = |key: &str| linux.and_then(|options| options.get(key)?.as_str()).unwrap_or_default();
    let types = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    if !types.contains(&option("type")) || !option("user").is_empty() || !option("role").is_empty() {
        return Some("seLinuxOptions".to_owned());
    }
    let added = context.pointer("/capabilities/add").and_then(Value::as_array).into_iter().flatten();
    let mut added = added.map(|name| name.as_str().unwrap_or_default());
    if added.any(|name| !CAPABILITIES.contains(&name)) {
        return Some("capabilities.add".to_owned());
    }
    let sysctls = context.get("sysctls").and_then(Value::as_array).into_iter().flatten();
    let mut sysctls = sysctls.map(|sysctl| sysctl.get("name").and_then(Value::as_str).unwrap_or_default());
    sysctls.any(|name| !SYSCTLS.contains(&name)).then(|| "sysctls".to_owned())
}
