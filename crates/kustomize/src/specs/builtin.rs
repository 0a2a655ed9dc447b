//! Which fields kustomize's transformers touch by default, as a table of our own.

use crate::fieldspec::FieldSpec;

use super::{BackReference, Specs};

/// Workloads by group, version and kind, with the path to their pod.
const WORKLOADS: [(&str, &str); 9] = [
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
];

const RBAC: &str = "rbac.authorization.k8s.io";

impl Specs {
    pub(super) fn builtin() -> Self {
        let template_labels = vec![
            FieldSpec::new("", "", "", "metadata/labels", true),
            FieldSpec::new("", "v1", "ReplicationController", "spec/template/metadata/labels", true),
            FieldSpec::new("", "", "Deployment", "spec/template/metadata/labels", true),
            FieldSpec::new("", "", "ReplicaSet", "spec/template/metadata/labels", true),
            FieldSpec::new("", "", "DaemonSet", "spec/template/metadata/labels", true),
            FieldSpec::new("apps", "", "StatefulSet", "spec/template/metadata/labels", true),
            FieldSpec::new("apps", "", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels", true),
            FieldSpec::new("batch", "", "Job", "spec/template/metadata/labels", true),
            FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/metadata/labels", true),
            FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/labels", true),
        ];
        let name = FieldSpec::new("", "", "", "metadata/name", false);
        let replicas = ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"];
        let images = [
            "spec/containers[]/image",
            "spec/initContainers[]/image",
            "spec/volumes[]/image/reference",
            "spec/template/spec/containers[]/image",
            "spec/template/spec/initContainers[]/image",
            "spec/template/spec/volumes[]/image/reference",
        ];
        let mut specs = Self {
            name_prefix: vec![name.clone()],
            name_suffix: vec![name],
            common_labels: common_labels(),
            labels: Vec::new(),
            template_labels,
            annotations: annotations(),
            namespace: vec![
                FieldSpec::new("", "", "Namespace", "metadata/name", true),
                FieldSpec::new("apiregistration.k8s.io", "", "APIService", "spec/service/namespace", true),
                FieldSpec::new(
                    "apiextensions.k8s.io",
                    "",
                    "CustomResourceDefinition",
                    "spec/conversion/webhook/clientConfig/service/namespace",
                    false,
                ),
            ],
            images: images.map(|path| FieldSpec::new("", "", "", path, true)).to_vec(),
            replicas: replicas.map(|kind| FieldSpec::new("", "", kind, "spec/replicas", true)).to_vec(),
            references: references(),
            var_reference: var_reference(),
        };
        specs.sort();
        specs
    }
}

/// In the order in which kustomize's sort leaves those of a kind: the last one says how a label is written.
fn common_labels() -> Vec<FieldSpec> {
    const TEMPLATE: &str = "spec/template/metadata/labels";
    const SELECTOR: &str = "spec/selector/matchLabels";
    let mut specs = vec![
        FieldSpec::new("", "v1", "Service", "spec/selector", true),
        FieldSpec::new("", "", "Deployment", TEMPLATE, true),
        FieldSpec::new("", "", "Deployment", SELECTOR, true),
        FieldSpec::new("apps", "", "StatefulSet", SELECTOR, true),
        FieldSpec::new("apps", "", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels", true),
    ];
    for kind in ["Deployment", "StatefulSet"] {
        for affinity in ["podAffinity", "podAntiAffinity"] {
            let base = format!("spec/template/spec/affinity/{affinity}");
            let preferred = "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm";
            for when in [preferred, "requiredDuringSchedulingIgnoredDuringExecution"] {
                let path = format!("{base}/{when}/labelSelector/matchLabels");
                specs.push(FieldSpec::new("apps", "", kind, &path, false));
            }
        }
        let spread = "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels";
        specs.push(FieldSpec::new("apps", "", kind, spread, false));
    }
    specs.extend([
        FieldSpec::new("apps", "", "StatefulSet", TEMPLATE, true),
        FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/metadata/labels", true),
        FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/labels", true),
        FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/spec/selector/matchLabels", false),
        FieldSpec::new("policy", "", "PodDisruptionBudget", SELECTOR, false),
        FieldSpec::new("batch", "", "Job", SELECTOR, false),
        FieldSpec::new("batch", "", "Job", TEMPLATE, true),
    ]);
    for path in ["spec/egress/to", "spec/ingress/from", "spec"] {
        let path = format!("{path}/podSelector/matchLabels");
        specs.push(FieldSpec::new("networking.k8s.io", "", "NetworkPolicy", &path, false));
    }
    specs.push(FieldSpec::new("", "v1", "ReplicationController", TEMPLATE, true));
    specs.push(FieldSpec::new("", "v1", "ReplicationController", "spec/selector", true));
    for kind in ["DaemonSet", "ReplicaSet"] {
        specs.push(FieldSpec::new("", "", kind, TEMPLATE, true));
        specs.push(FieldSpec::new("", "", kind, SELECTOR, true));
    }
    specs.push(FieldSpec::new("", "", "", "metadata/labels", true));
    specs
}

fn annotations() -> Vec<FieldSpec> {
    let template = "spec/template/metadata/annotations";
    vec![
        FieldSpec::new("", "", "", "metadata/annotations", true),
        FieldSpec::new("", "v1", "ReplicationController", template, true),
        FieldSpec::new("", "", "Deployment", template, true),
        FieldSpec::new("", "", "ReplicaSet", template, true),
        FieldSpec::new("", "", "DaemonSet", template, true),
        FieldSpec::new("", "", "StatefulSet", template, true),
        FieldSpec::new("batch", "", "Job", template, true),
        FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/metadata/annotations", true),
        FieldSpec::new("batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/annotations", true),
    ]
}

/// Collects references; `(group, version, kind)` of a referrer come with the path of the field.
struct Builder {
    references: Vec<BackReference>,
}

type Target = (&'static str, &'static str, &'static str);

impl Builder {
    fn add(&mut self, target: Target, group: &str, version: &str, kind: &str, path: &str) {
        let field = FieldSpec::new(group, version, kind, path, false);
        let (group, version, kind) = target;
        let same = |known: &&mut BackReference| {
            (&*known.group, &*known.version, &*known.kind) == (group, version, kind)
        };
        match self.references.iter_mut().find(same) {
            Some(known) => known.referrers.push(field),
            None => self.references.push(BackReference {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                referrers: vec![field],
            }),
        }
    }

    /// The same field of the pod of several kinds of workload.
    fn pods(&mut self, target: Target, path: &str, kinds: &[&str]) {
        for (kind, pod) in WORKLOADS.iter().filter(|(kind, _)| kinds.contains(kind)) {
            // ConfigMaps and Secrets are found in the Pods of v1 only.
            let config = matches!(target.2, "ConfigMap" | "Secret");
            let version = if config && *kind == "Pod" { "v1" } else { "" };
            self.add(target, "", version, kind, &format!("{pod}/{path}"));
        }
    }
}

fn references() -> Vec<BackReference> {
    const WITH_CONFIG: [&str; 8] =
        ["Pod", "PodTemplate", "Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob"];
    const WITH_ACCOUNT: [&str; 7] =
        ["Pod", "StatefulSet", "Deployment", "ReplicationController", "CronJob", "Job", "DaemonSet"];
    let mut all = Builder { references: Vec::new() };
    for target in [
        ("", "", "Deployment"),
        ("", "", "ReplicationController"),
        ("", "", "ReplicaSet"),
        ("", "", "StatefulSet"),
    ] {
        all.add(target, "", "", "HorizontalPodAutoscaler", "spec/scaleTargetRef/name");
    }
    let config_map = ("", "v1", "ConfigMap");
    let secret = ("", "v1", "Secret");
    for (target, volume, reference, projected) in [
        (config_map, "volumes/configMap/name", "configMap", "volumes/projected/sources/configMap/name"),
        (secret, "volumes/secret/secretName", "secret", "volumes/projected/sources/secret/name"),
    ] {
        all.pods(target, volume, &WITH_CONFIG);
        all.pods(target, projected, &WITH_CONFIG);
        for containers in ["containers", "initContainers"] {
            all.pods(target, &format!("{containers}/env/valueFrom/{reference}KeyRef/name"), &WITH_CONFIG);
            all.pods(target, &format!("{containers}/envFrom/{reference}Ref/name"), &WITH_CONFIG);
        }
        all.add(target, "", "", "Role", "rules/resourceNames");
        all.add(target, "", "", "ClusterRole", "rules/resourceNames");
    }
    all.pods(secret, "imagePullSecrets/name", &WITH_CONFIG);
    all.add(config_map, "", "", "Node", "spec/configSource/configMap");
    let annotation = |name: &str| format!("metadata/annotations/{name}");
    all.add(
        config_map,
        "",
        "",
        "Ingress",
        &annotation(r"nginx.ingress.kubernetes.io\/fastcgi-params-configmap"),
    );
    for name in [
        r"ingress.kubernetes.io\/auth-secret",
        r"nginx.ingress.kubernetes.io\/auth-secret",
        r"nginx.ingress.kubernetes.io\/auth-tls-secret",
    ] {
        all.add(secret, "", "", "Ingress", &annotation(name));
    }
    all.add(secret, "", "", "Ingress", "spec/tls/secretName");
    all.add(secret, "", "", "ServiceAccount", "imagePullSecrets/name");
    for name in ["secretName", "adminSecretName", "userSecretName", "secretRef"] {
        all.add(secret, "", "", "StorageClass", &format!("parameters/{name}"));
    }
    let knative = "spec/template/spec/containers/env/valueFrom/secretKeyRef/name";
    all.add(secret, "serving.knative.dev", "v1", "Service", knative);
    all.add(secret, "", "", "PersistentVolume", "spec/azureFile/secretName");
    services(&mut all);
    all.add((RBAC, "", "Role"), RBAC, "", "RoleBinding", "roleRef/name");
    all.add((RBAC, "", "ClusterRole"), RBAC, "", "RoleBinding", "roleRef/name");
    all.add((RBAC, "", "ClusterRole"), RBAC, "", "ClusterRoleBinding", "roleRef/name");
    let account = ("", "v1", "ServiceAccount");
    all.add(account, RBAC, "", "RoleBinding", "subjects");
    all.add(account, RBAC, "", "ClusterRoleBinding", "subjects");
    all.pods(account, "serviceAccountName", &WITH_ACCOUNT);
    all.pods(("", "v1", "PersistentVolumeClaim"), "volumes/persistentVolumeClaim/claimName", &WITH_ACCOUNT);
    all.pods(("scheduling.k8s.io", "v1", "PriorityClass"), "priorityClassName", &WITH_ACCOUNT);
    let volume = ("", "v1", "PersistentVolume");
    all.add(volume, "", "", "PersistentVolumeClaim", "spec/volumeName");
    all.add(volume, "", "", "ClusterRole", "rules/resourceNames");
    let class = ("storage.k8s.io", "v1", "StorageClass");
    all.add(class, "", "", "PersistentVolume", "spec/storageClassName");
    all.add(class, "", "", "PersistentVolumeClaim", "spec/storageClassName");
    all.add(class, "", "", "StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName");
    // kustomize has the version in the group here, so that nothing ever matches; kept for the day that it is repaired.
    all.add(("networking.k8s.io/v1", "v1", "IngressClass"), "", "", "Ingress", "spec/ingressClassName");
    let policy = ("admissionregistration.k8s.io", "", "ValidatingAdmissionPolicy");
    all.add(policy, "", "", "ValidatingAdmissionPolicyBinding", "spec/policyName");
    all.references
}

fn services(all: &mut Builder) {
    let service = ("", "v1", "Service");
    all.add(service, "apps", "", "StatefulSet", "spec/serviceName");
    for path in [
        "spec/rules/http/paths/backend/serviceName",
        "spec/backend/serviceName",
        "spec/rules/http/paths/backend/service/name",
        "spec/defaultBackend/service/name",
    ] {
        all.add(service, "", "", "Ingress", path);
    }
    all.add(service, "apiregistration.k8s.io", "", "APIService", "spec/service/name");
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        all.add(service, "admissionregistration.k8s.io", "", kind, "webhooks/clientConfig/service");
    }
}

/// Fields in which `$(NAME)` of `vars` is resolved.
fn var_reference() -> Vec<FieldSpec> {
    const WITH_VARS: [&str; 7] =
        ["CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"];
    let mut specs = Vec::new();
    let mut add = |kind: &str, path: &str| specs.push(FieldSpec::new("", "", kind, path, false));
    for (kind, pod) in WORKLOADS.iter().filter(|(kind, _)| WITH_VARS.contains(kind)) {
        for containers in ["containers", "initContainers"] {
            for field in ["args", "command", "env/value", "volumeMounts/mountPath"] {
                add(kind, &format!("{pod}/{containers}/{field}"));
            }
        }
        match *kind {
            // Two paths of kustomize lead nowhere in a real object; they are what it looks at all the same.
            "CronJob" => add(kind, "spec/jobTemplate/spec/template/volumes/nfs/server"),
            "StatefulSet" => add(kind, "spec/volumeClaimTemplates/spec/nfs/server"),
            _ => add(kind, &format!("{pod}/volumes/nfs/server")),
        }
    }
    add("Deployment", "spec/template/metadata/annotations");
    for path in ["spec/rules/host", "spec/tls/hosts", "spec/tls/secretName"] {
        add("Ingress", path);
    }
    add("Service", "spec/ports/port");
    add("Service", "spec/ports/targetPort");
    add("PersistentVolume", "spec/nfs/server");
    add("", "metadata/labels");
    add("", "metadata/annotations");
    specs
}
