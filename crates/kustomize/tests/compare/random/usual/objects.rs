//! Objects of the usual kinds, which refer to each other by name.

use std::fmt::Write as _;

use super::{NAMES, Random, SPACES, fill, indented};

/// Version, kind and body; of some kinds there is a part with Pods, where `@P` stands.
const OBJECTS: [(&str, &str, &str); 32] = [
    (
        "v1",
        "ConfigMap",
        "data:\n  k: v\n  url: http://@N.@S.svc:80/p\n  n: \"5\"\n  f.conf: |\n    a=$(V)\n    b: 'c'\n",
    ),
    ("v1", "ConfigMap", "data: {k: v, ref: @N}\nbinaryData: {b: aGk=}\nimmutable: true\n"),
    ("v1", "Secret", "type: Opaque\ndata: {p: cGFzcw==}\nstringData:\n  u: name\n"),
    ("v1", "ServiceAccount", "secrets: [{name: @N}]\nimagePullSecrets:\n- name: @N\n"),
    ("v1", "ServiceAccount", ""),
    ("v1", "Namespace", ""),
    (
        "v1",
        "Service",
        "spec:\n  selector:\n    app: web\n  ports:\n  - {name: http, port: 80, targetPort: http}\n  - port: 443\n",
    ),
    ("v1", "Service", "spec: {clusterIP: None, ports: [{port: 53, protocol: UDP}]}\n"),
    ("v1", "PersistentVolumeClaim", "spec:\n  storageClassName: @N\n  volumeName: @N\n"),
    (
        "v1",
        "PersistentVolume",
        "spec:\n  storageClassName: @N\n  claimRef: {kind: PersistentVolumeClaim, name: @N, namespace: @S}\n  csi:\n    nodePublishSecretRef: {name: @N, namespace: @S}\n",
    ),
    ("v1", "Pod", "spec:\n@P"),
    (
        "apps/v1",
        "Deployment",
        "spec:\n  replicas: 2\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n      annotations: {thing: @N}\n    spec:\n@P",
    ),
    ("apps/v1", "Deployment", "spec:\n  template:\n    spec:\n@P"),
    (
        "apps/v1",
        "StatefulSet",
        "spec:\n  serviceName: @N\n  selector:\n    matchLabels: {app: web}\n  volumeClaimTemplates:\n  - metadata: {name: v}\n    spec: {storageClassName: @N}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n@P",
    ),
    ("apps/v1", "DaemonSet", "spec:\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n@P"),
    ("batch/v1", "Job", "spec:\n  template:\n    spec:\n@P"),
    (
        "batch/v1",
        "CronJob",
        "spec:\n  schedule: \"0 * * * *\"\n  jobTemplate:\n    spec:\n      template:\n        metadata: {labels: {app: web}}\n        spec:\n@P",
    ),
    (
        "networking.k8s.io/v1",
        "Ingress",
        "metadata:\n  annotations:\n    nginx.ingress.kubernetes.io/auth-secret: @N\n    nginx.ingress.kubernetes.io/fastcgi-params-configmap: @N\nspec:\n  ingressClassName: @N\n  tls: [{hosts: [a.b], secretName: @N}]\n  defaultBackend: {service: {name: @N, port: {number: 80}}}\n  rules:\n  - host: $(V).b\n    http:\n      paths:\n      - path: /\n        backend: {service: {name: @N, port: {name: http}}}\n",
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "spec:\n  podSelector: {matchLabels: {app: web}}\n  ingress:\n  - from:\n    - podSelector: {matchLabels: {app: web}}\n",
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "spec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: @N}\n",
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "spec:\n  scaleTargetRef:\n    kind: StatefulSet\n    name: @N\n",
    ),
    ("policy/v1", "PodDisruptionBudget", "spec:\n  selector:\n    matchLabels:\n      app: web\n"),
    (
        "rbac.authorization.k8s.io/v1",
        "Role",
        "rules:\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  resourceNames: [@N, @N]\n  verbs: [get]\n- resources: [secrets]\n  resourceNames: [@N]\n",
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: @N}\nsubjects:\n- kind: ServiceAccount\n  name: @N\n- {kind: ServiceAccount, name: @N, namespace: @S}\n- kind: User\n  name: @N\n",
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "aggregationRule: {clusterRoleSelectors: [{matchLabels: {app: web}}]}\nrules: []\n",
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: @N\nsubjects:\n- kind: ServiceAccount\n  name: @N\n  namespace: @S\n- {kind: ServiceAccount, name: default}\n",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "webhooks:\n- name: a.b.c\n  clientConfig:\n    service: {name: @N, namespace: @S, path: /x}\n- name: b.b.c\n  clientConfig: {url: x}\n",
    ),
    (
        "apiregistration.k8s.io/v1",
        "APIService",
        "spec:\n  service: {name: @N, namespace: @S}\n  group: x.io\n",
    ),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "spec:\n  group: x.io\n  names: {kind: Thing, plural: things}\n  conversion:\n    webhook: {clientConfig: {service: {name: @N, namespace: @S}}}\n",
    ),
    ("storage.k8s.io/v1", "StorageClass", "provisioner: a\nparameters: {x: @N}\n"),
    (
        "x.io/v1",
        "Thing",
        "spec:\n  configRef: {name: @N}\n  refs:\n  - name: @N\n    kind: Secret\n  - name: @N\n  text: see $(V) and $(W)\n  image: @I\n  size: 1\n  selector: {matchLabels: {app: web}}\n",
    ),
    (
        "x.io/v1beta1",
        "Thing",
        "spec:\n  text: a-b-c\n  list: [a, b]\n  containers: [{name: main, image: @I}]\n  namespace: @S\n",
    ),
];

const CLUSTER_WIDE: [&str; 8] = [
    "Namespace",
    "PersistentVolume",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingWebhookConfiguration",
    "APIService",
    "CustomResourceDefinition",
    "StorageClass",
];

/// What is known of an object.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) space: &'static str,
}

impl Made {
    pub(super) fn group(&self) -> &'static str {
        self.version.split_once('/').map_or("", |(group, _)| group)
    }

    pub(super) fn has_pods(&self) -> bool {
        matches!(self.kind, "Deployment" | "StatefulSet" | "DaemonSet" | "Job")
    }
}

fn pod(random: &mut Random) -> String {
    const OF_CONTAINER: [&str; 7] = [
        "  env:\n  - name: A\n    value: \"1\"\n  - name: URL\n    value: http://$(V)/x\n  - name: C\n    valueFrom: {configMapKeyRef: {name: @N, key: k}}\n  - name: S\n    valueFrom:\n      secretKeyRef:\n        name: @N\n        key: p\n",
        "  envFrom:\n  - configMapRef: {name: @N}\n  - secretRef:\n      name: @N\n    prefix: X_\n",
        "  args: [a, $(V), --n=@N]\n  command: [\"/bin/sh\", -c]\n",
        "  ports:\n  - containerPort: 80\n    name: http\n  - {containerPort: 53, protocol: UDP}\n",
        "  volumeMounts:\n  - {name: v, mountPath: /a}\n  - name: w\n    mountPath: /b\n    subPath: x\n",
        "  resources: {limits: {cpu: 100m, memory: 1Gi}, requests: {cpu: 1}}\n",
        "  livenessProbe: {httpGet: {path: /, port: http}}\n",
    ];
    const OF_POD: [&str; 11] = [
        "- name: side\n  image: @I\n  env: []\n",
        "initContainers:\n- name: init\n  image: @I\n  envFrom: [{configMapRef: {name: @N}}]\n",
        "volumes:\n- name: v\n  configMap: {name: @N, items: [{key: k, path: k}]}\n- name: w\n  secret: {secretName: @N}\n- name: x\n  projected:\n    sources:\n    - configMap: {name: @N}\n    - secret: {name: @N}\n- name: y\n  persistentVolumeClaim: {claimName: @N}\n- name: z\n  csi: {nodePublishSecretRef: {name: @N}}\n",
        "serviceAccountName: @N\n",
        "serviceAccount: @N\n",
        "imagePullSecrets:\n- name: @N\n",
        "priorityClassName: @N\n",
        "affinity:\n  podAntiAffinity:\n    preferredDuringSchedulingIgnoredDuringExecution:\n    - podAffinityTerm:\n        labelSelector:\n          matchLabels: {app: web}\n        topologyKey: z\n      weight: 1\n",
        "topologySpreadConstraints:\n- labelSelector: {matchLabels: {app: web}}\n  maxSkew: 1\n",
        "tolerations:\n- {key: a, operator: Exists}\n",
        "ephemeralContainers:\n- {name: e, image: @I}\n",
    ];
    let mut out = String::from("containers:\n- name: main\n  image: @I\n");
    for part in OF_CONTAINER {
        if random.one_in(3) {
            out += part;
        }
    }
    for part in OF_POD {
        if random.one_in(4) {
            out += part;
        }
    }
    out
}

/// What stands below `metadata`, but for the name.
fn meta(random: &mut Random, space: &str) -> String {
    let mut out = String::new();
    if !space.is_empty() {
        let _ = writeln!(out, "  namespace: {space}");
    }
    if random.one_in(3) {
        out += random.pick(&[
            "  labels: {app: web, tier: \"1\"}\n",
            "  labels:\n    app: web\n",
            "  labels:\n    app.kubernetes.io/name: web\n    x: \"true\"\n",
            "  labels: {}\n",
        ]);
    }
    out
}

fn annotations(random: &mut Random) -> &'static str {
    if random.one_in(4) {
        return random.pick(&[
            "a: b",
            "a: $(V)",
            "x.y/z: a-b-c",
            "config.kubernetes.io/local-config: \"true\"",
            "config.kubernetes.io/local-config: \"false\"",
            "kustomize.config.k8s.io/needs-hash: \"true\"",
            "kustomize.config.k8s.io/behavior: merge",
            "config.kubernetes.io/origin: x",
        ]);
    }
    ""
}

fn object(random: &mut Random, made: &Made, body: &str) -> String {
    let mut out = format!("apiVersion: {}\nkind: {}\n", made.version, made.kind);
    let annotation = annotations(random);
    let meta = meta(random, made.space);
    let (own, rest) = match body.strip_prefix("metadata:\n") {
        Some(rest) => rest.split_at(rest.find("spec:").unwrap_or(0)),
        None => ("", body),
    };
    let _ = writeln!(out, "metadata:\n  name: {}", made.name);
    out += &meta;
    if !own.is_empty() {
        out += own;
    } else if !annotation.is_empty() {
        let _ = writeln!(out, "  annotations:\n    {annotation}");
    }
    match rest.split_once("@P") {
        Some((before, _)) => {
            out += before;
            // Below the last line, which says `spec:`.
            let last = before.lines().last().unwrap_or_default();
            let by = last.len() - last.trim_start().len() + 2;
            out += &indented(&pod(random), by);
        }
        None => out += rest,
    }
    fill(random, &out)
}

/// Objects, and what is known of each.
pub(super) fn objects(random: &mut Random, most: usize, known: &mut Vec<Made>) -> Vec<String> {
    let mut out = Vec::new();
    for _ in 0..1 + random.below(most) {
        let (version, kind, body) = OBJECTS[random.below(OBJECTS.len())];
        let is_wide = CLUSTER_WIDE.contains(&kind);
        let space = if !is_wide && random.one_in(4) { random.pick(&SPACES) } else { "" };
        let made = Made { version, kind, name: random.pick(&NAMES), space };
        let is_there =
            |other: &Made| (other.kind, other.name, other.space) == (made.kind, made.name, made.space);
        if known.iter().any(is_there) && !random.one_in(40) {
            continue;
        }
        out.push(object(random, &made, body));
        known.push(made);
    }
    out
}
