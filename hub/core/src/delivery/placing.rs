//! Which objects of a build go to the hub, and where they come to lie there. Pure.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_api::annotated::{self, CLUSTER};
use roadstead_api::older::modernize;
use roadstead_api::{ChildRule, KindId, Reference};
use roadstead_hub_plan::Rights;
use roadstead_hub_store::{Child, MadeBy, Present, Stored};
use roadstead_model::{ApplierUid, ObjectRef, ResourceUid};
use serde_json::{Value, json};

use crate::address::Address;
use crate::identity::access::{ADOPTED_BY, ALLOWED_HOSTS, GIT_NAMESPACE};
use crate::objects::kubeconfigs::{KUBECONFIG_TYPE, SUFFIX};

/// Where an object of a build goes: `Hub`, `Cluster` or `Both`.
const TARGET: &str = "fleet.roadstead.dev/target";

/// The kind of an object, where the hub serves it.
fn kind(object: &Value) -> Option<KindId> {
    let group = object["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group);
    KindId::parse(group, object["kind"].as_str()?)
}

/// Whether a health check is of an object on the hub.
pub(crate) fn is_checked_here(group: &str, kind: &str) -> bool {
    KindId::parse(group, kind).is_some_and(KindId::is_child)
}

/// An object of an inventory as a build names it, for `stays` of [`split`]: one in the namespace that objects without one go to,
/// `default`, may be without one in the build.
pub(crate) fn inventory_keys(object: &ObjectRef, default: &str) -> impl Iterator<Item = String> {
    let bare = (object.namespace == default).then_some("");
    let names = [Some(object.namespace.as_str()), bare].into_iter().flatten();
    let of = |namespace| format!("{}/{}/{namespace}/{}", object.group, object.kind, object.name);
    names.map(of).collect::<Vec<_>>().into_iter()
}

/// Whether a reference is to an object: where either names no namespace, it may be.
fn is_referred(referred: &BTreeSet<Reference>, kind: KindId, namespace: &str, name: &str) -> bool {
    let at = |namespace: &str| Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    let is = |namespace: &str| referred.contains(&at(namespace));
    let any = || referred.iter().any(|reference| (reference.kind, reference.name.as_str()) == (kind, name));
    is(namespace) || is("") || (namespace.is_empty() && any())
}

/// Takes out what only seemed to be referred to, once it is known that `home` is the namespace of what names none. (It stays in
/// what goes to the cluster.) A build does not depend on it, and so serves Kustomizations of different namespaces.
pub(crate) fn settle(objects: Vec<Value>, home: &str) -> Vec<Value> {
    let text = |namespace: &str| if namespace.is_empty() { home.to_owned() } else { namespace.to_owned() };
    let referred: BTreeSet<Reference> = objects
        .iter()
        .flat_map(references)
        .map(|reference| Reference { namespace: text(&reference.namespace), ..reference })
        .collect();
    let comes = |object: &Value| {
        let metadata = &object["metadata"];
        let Some(kind) = kind(object).filter(|kind| kind.get().child == ChildRule::Referred) else {
            return true;
        };
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let namespace = text(metadata["namespace"].as_str().unwrap_or_default());
        metadata["annotations"][TARGET].is_string() || referred.contains(&Reference { kind, namespace, name })
    };
    objects.into_iter().filter(comes).collect()
}

/// The objects of a build that go to the hub, and those that go to the cluster. `stays` are those of kinds that the hub serves and
/// that are in the cluster's inventory: they were applied before the hub served their kind, and stay there until their annotation
/// asks for more.
pub(crate) fn split(objects: Vec<Value>, stays: &BTreeSet<String>) -> (Vec<Value>, Vec<Value>) {
    let referred: BTreeSet<Reference> = objects
        .iter()
        .filter(|object| goes(object, stays, None) != Goes::Cluster)
        .flat_map(references)
        .collect();
    let (mut hub, mut cluster) = (Vec::new(), Vec::new());
    for object in objects {
        match goes(&object, stays, Some(&referred)) {
            Goes::Hub => hub.push(object),
            Goes::Cluster => cluster.push(object),
            Goes::Both => {
                hub.push(object.clone());
                cluster.push(object);
            }
        }
    }
    (hub, cluster)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    Hub,
    Cluster,
    Both,
}

fn goes(object: &Value, stays: &BTreeSet<String>, referred: Option<&BTreeSet<Reference>>) -> Goes {
    match object["metadata"]["annotations"][TARGET].as_str() {
        Some("Cluster") => return Goes::Cluster,
        Some("Both") => return Goes::Both,
        // What may not go there, or says something else, is refused there by name.
        Some(_) => return Goes::Hub,
        None => {}
    }
    let Some(kind) = kind(object) else { return Goes::Cluster };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    match kind.get().child {
        ChildRule::Always => {
            let (group, kind) = (kind.get().group(), kind.get().kind);
            let key = format!("{group}/{kind}/{namespace}/{name}");
            if stays.contains(&key) { Goes::Cluster } else { Goes::Hub }
        }
        ChildRule::Referred
            if referred.is_some_and(|referred| is_referred(referred, kind, &namespace, &name)) =>
        {
            Goes::Both
        }
        ChildRule::Referred | ChildRule::Never => Goes::Cluster,
    }
}

/// What a child refers to, for itself to use.
fn references(child: &Value) -> Vec<Reference> {
    let Some(kind) = kind(child).filter(|kind| kind.is_child()) else { return Vec::new() };
    kind.references(child, child["metadata"]["namespace"].as_str().unwrap_or_default())
}

/// Whose build it is, and what decides where its objects lie.
pub(crate) struct Placing<'a> {
    pub(crate) parent: &'a Stored,
    /// The namespace that Git names for the parent.
    pub(crate) home: &'a str,
    /// The parent's cluster.
    pub(crate) cluster: &'a str,
    pub(crate) rights: &'a Rights,
    /// The namespaces that Git names for all that comes from the parent's root.
    pub(crate) family: BTreeSet<String>,
}

/// An object of the build that goes to the hub.
pub(crate) struct Placed {
    pub(crate) child: Child,
    pub(crate) address: Address,
    pub(crate) config: Value,
}

impl Placed {
    /// Has the object keep the namespace that it bears on the hub: its account is looked up there.
    pub(crate) fn keep_git_namespace(&mut self, present: Option<&str>) {
        let annotations = self.config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let Some(annotations) = annotations else { return };
        match present {
            Some(present) => annotations.insert(GIT_NAMESPACE.to_owned(), json!(present)),
            None => annotations.remove(GIT_NAMESPACE),
        };
    }

    pub(crate) fn named(&self) -> String {
        format!("{} {}/{}", self.child.kind, self.child.namespace, self.child.name)
    }
}

impl Placing<'_> {
    /// All of them, each with its place; or those that cannot have one, and why.
    pub(crate) fn place(mut self, objects: Vec<Value>) -> Result<Vec<Placed>, Vec<String>> {
        let named: Vec<String> = objects.iter().map(|object| self.git_namespace(object)).collect();
        self.family.extend(named);
        let (mut placed, mut refused) = (Vec::with_capacity(objects.len()), Vec::new());
        for object in objects {
            match self.place_one(object) {
                Ok(one) => placed.push(one),
                Err(why) => refused.push(why),
            }
        }
        let mut taken: BTreeMap<(KindId, &str, &str), &str> = BTreeMap::new();
        for Placed { child, .. } in &placed {
            let git = child.git_namespace.as_str();
            if let Some(other) = taken.insert((child.kind, &child.namespace, &child.name), git) {
                let (kind, name) = (child.kind, &child.name);
                refused.push(format!(
                    "{kind} {other}/{name} and {kind} {git}/{name} of the build would both become {kind} {}/{name} on the hub: \
                     map one of their namespaces to a namespace of its own in spec.delegation.namespaces of Kustomization {}/{}",
                    child.namespace, self.rights.root.0, self.rights.root.1
                ));
            }
        }
        if refused.is_empty() { Ok(placed) } else { Err(refused) }
    }

    fn git_namespace(&self, object: &Value) -> String {
        object["metadata"]["namespace"].as_str().unwrap_or(self.home).to_owned()
    }

    /// The configuration that is applied for an object, and where.
    fn place_one(&self, mut object: Value) -> Result<Placed, String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let shown = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
        let target = object["metadata"]["annotations"][TARGET].as_str();
        if let Some(target) = target.filter(|target| !matches!(*target, "Hub" | "Both")) {
            return Err(format!("{shown}: annotation {TARGET} is '{target}': want Hub, Cluster or Both"));
        }
        let Some(kind) = kind(&object).filter(|kind| kind.get().child != ChildRule::Never) else {
            return Err(format!(
                "{shown}: objects of this kind do not go from a build to the hub: remove annotation {TARGET}, or set it to Cluster"
            ));
        };
        if name.is_empty() {
            return Err(format!("an object of the build has no name: {kind}"));
        }
        // By such a name clusters come on board, whatever the type.
        if kind == KindId::Secret && (object["type"] == KUBECONFIG_TYPE || name.ends_with(SUFFIX)) {
            return Err(format!("{shown}: a kubeconfig of a cluster does not go from a build to the hub"));
        }
        let version = modernize(kind.get(), &mut object).map_err(|why| format!("{shown}: {why}"))?;
        let git_namespace = self.git_namespace(&object);
        let namespace = self.rights.place(&git_namespace).to_owned();
        self.write_metadata(&mut object, &namespace, &git_namespace)
            .ok_or_else(|| format!("{shown}: its metadata, labels or annotations are not objects"))?;
        self.follow(&mut object["spec"]);
        if kind.is_applier() && object["spec"].is_object() {
            let spec = &object["spec"];
            let is_parent = (&namespace, &name) == (&self.parent.namespace, &self.parent.name);
            if !is_parent && spec["clusterRef"].is_null() && spec["kubeConfig"].is_null() {
                let named = annotated::cluster(&object)
                    .map_err(|why| format!("{shown}: annotation {CLUSTER}: {why}"))?
                    .unwrap_or(self.cluster);
                object["spec"]["clusterRef"] = json!({ "name": named });
            }
        }
        let child = Child {
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
            wanted: true,
            git_namespace,
            kept: false,
            adopted: false,
            object: None,
        };
        Ok(Placed { child, address: Address { kind, version, namespace, name }, config: object })
    }

    fn write_metadata(&self, object: &mut Value, namespace: &str, git_namespace: &str) -> Option<()> {
        object.as_object_mut()?.remove("status");
        let metadata = object["metadata"].as_object_mut()?;
        metadata.insert("namespace".to_owned(), json!(namespace));
        let labels = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut()?;
        // As Flux's controllers label what they apply: by the group of the kind that did.
        let group = self.parent.kind.get().group();
        labels.insert(format!("{group}/name"), json!(self.parent.name));
        labels.insert(format!("{group}/namespace"), json!(self.parent.namespace));
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()?;
        // These are people's to say.
        annotations.remove(ADOPTED_BY);
        annotations.remove(ALLOWED_HOSTS);
        annotations.insert(GIT_NAMESPACE.to_owned(), json!(git_namespace));
        Some(())
    }

    /// What refers to a namespace that Git names for the family refers to where that lies on the hub.
    fn follow(&self, spec: &mut Value) {
        let mut references: Vec<&mut Value> = Vec::new();
        for (field, value) in spec.as_object_mut().into_iter().flatten() {
            match (field.as_str(), value) {
                ("sourceRef" | "chartRef", value) => references.push(value),
                ("dependsOn" | "eventSources" | "resources" | "sources", Value::Array(items)) => {
                    references.extend(items);
                }
                ("include", Value::Array(items)) => {
                    references.extend(items.iter_mut().filter_map(|item| item.get_mut("repository")));
                }
                _ => {}
            }
        }
        for reference in references {
            let Some(named) = reference["namespace"].as_str() else { continue };
            if self.family.contains(named) || self.rights.maps(named) {
                reference["namespace"] = json!(self.rights.place(named));
            }
        }
    }
}

/// How an object of a build may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The parent owns it, or keeps it up to date; it does neither for itself.
    pub(crate) recorded: bool,
    /// A person made it.
    pub(crate) kept: bool,
    /// A person had the parent take it over.
    pub(crate) adopted: bool,
    /// What of it stays as it is.
    pub(crate) fixed: Fixed,
}

/// What Git does not change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// It may change all.
    Nothing,
    /// Target, account, delegation, credentials and server.
    Rights,
    /// All but labels and annotations.
    All,
}

/// Whether a Kustomization may write an object of its build, of which this is known.
pub(crate) fn claim(
    parent: &Stored,
    sources: &[Reference],
    placed: &Placed,
    present: &Present,
) -> Result<Claim, String> {
    let child = &placed.child;
    let me = format!("{}/{}", parent.namespace, parent.name);
    let adopted = present.adopted_by.as_deref().is_some_and(|by| by == me);
    let at = (child.namespace.as_str(), child.name.as_str());
    if child.kind == parent.kind && at == (parent.namespace.as_str(), parent.name.as_str()) {
        // One that holds itself, as those of `flux bootstrap` do, is nobody's to prune.
        let fixed = if adopted { Fixed::Nothing } else { Fixed::Rights };
        return Ok(Claim { recorded: false, kept: true, adopted, fixed });
    }
    let owned = Claim { recorded: true, kept: false, adopted: false, fixed: Fixed::Nothing };
    let annotate = |why: &str| {
        let (plural, name, namespace) = (child.kind.get().plural, &child.name, &child.namespace);
        Err(format!(
            "{} {why}: to have Kustomization {me} take it over, kubectl annotate {plural} {name} -n {namespace} {ADOPTED_BY}={me}",
            placed.named()
        ))
    };
    match &present.made_by {
        Some(by) if !by.kept && by.uid == Some(ApplierUid::from(parent.uid)) => return Ok(owned),
        Some(by) if !by.kept && by.uid.is_some() => {
            return Err(format!(
                "{} is in the build, and is owned by Kustomization {}: remove it from one of them",
                placed.named(),
                by.name
            ));
        }
        // What one of this name left behind is taken up again.
        Some(by) if !by.kept && (present.uid.is_none() || adopted || by.name == me) => return Ok(owned),
        Some(by) if !by.kept => {
            return annotate(&format!("was made by Kustomization {}, which is gone", by.name));
        }
        _ if present.uid.is_none() => return Ok(owned),
        _ => {}
    }
    if adopted {
        return Ok(Claim { recorded: true, kept: true, adopted: true, fixed: Fixed::Nothing });
    }
    let kept = |fixed| Ok(Claim { recorded: true, kept: true, adopted: false, fixed });
    let is_child = |source: &Reference| source.kind == child.kind && at == (&source.namespace, &source.name);
    if sources.iter().any(is_child) {
        return kept(Fixed::Rights);
    }
    // What it kept up to date before a person's word was asked for goes on. Of another source than its own, and of what deploys
    // from one, its author could so say what others deploy.
    let mine = |by: &MadeBy| by.kept && !by.adopted && by.uid == Some(ApplierUid::from(parent.uid));
    if present.made_by.as_ref().is_some_and(mine) {
        let is_same =
            !present.sources.is_empty() && present.sources.iter().all(|source| sources.contains(source));
        return kept(if is_same { Fixed::Rights } else { Fixed::All });
    }
    annotate("was made by no Kustomization, so that a build does not change it")
}

/// The field that Git would change of what a person made, and may not.
pub(crate) fn changed_field(fixed: Fixed, before: &Stored, after: &Stored) -> Option<String> {
    let annotation = |of: &Stored| of.object["metadata"]["annotations"][GIT_NAMESPACE].clone();
    match fixed {
        Fixed::Nothing => None,
        _ if annotation(before) != annotation(after) => Some(format!("annotation {GIT_NAMESPACE}")),
        Fixed::Rights => {
            let (was, is) = (rights_of(before), rights_of(after));
            let changed = is.iter().find(|(field, value)| was.get(*field) != Some(*value));
            changed.or_else(|| was.iter().find(|(field, _)| !is.contains_key(*field))).map(|(field, _)| {
                format!("spec.{field}{}", if *field == "url" { " to another server" } else { "" })
            })
        }
        Fixed::All => {
            let parts = |of: &Stored| -> BTreeMap<String, Value> {
                let all = of.object.as_object().into_iter().flatten();
                let own = all.filter(|(part, _)| !matches!(part.as_str(), "metadata" | "status" | "spec"));
                let spec = of.object["spec"].as_object().into_iter().flatten();
                let spec = spec.map(|(field, value)| (format!("spec.{field}"), value.clone()));
                own.map(|(part, value)| (part.clone(), value.clone())).chain(spec).collect()
            };
            let (was, is) = (parts(before), parts(after));
            let changed = is.iter().find(|(part, value)| was.get(*part) != Some(*value));
            let changed = changed.or_else(|| was.iter().find(|(part, _)| !is.contains_key(*part)));
            let secret = (before.secret != after.secret).then(|| "data".to_owned());
            changed.map(|(part, _)| part.clone()).or(secret)
        }
    }
}

fn rights_of(stored: &Stored) -> BTreeMap<&'static str, Value> {
    let spec = &stored.object["spec"];
    let fields: &[&'static str] = match stored.kind {
        kind if kind.is_applier() => {
            &["clusterRef", "kubeConfig", "serviceAccount", "serviceAccountName", "delegation", "decryption"]
        }
        _ => &["secretRef", "certSecretRef", "proxySecretRef", "serviceAccountName", "provider", "verify"],
    };
    let mut found: BTreeMap<&'static str, Value> =
        fields.iter().map(|field| (*field, spec[*field].clone())).collect();
    if let Some(url) = spec["url"].as_str() {
        found.insert("url", crate::identity::access::origin(url).into());
    }
    found
}

/// What is known of an object when its write begins.
pub(crate) type Seen = Option<ResourceUid>;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, api: &str, name: &str, more: Value) -> Value {
        let mut object =
            json!({ "apiVersion": api, "kind": kind, "metadata": { "namespace": "apps", "name": name } });
        if let Value::Object(fields) = more {
            for (key, value) in fields {
                object[key] = value;
            }
        }
        object
    }

    fn names(objects: &[Value]) -> Vec<&str> {
        objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
    }

    #[test]
    fn kinds_that_give_rights_go_to_the_cluster_and_what_children_need_goes_to_both() {
        let flux = "kustomize.toolkit.fluxcd.io/v1";
        let child = of(
            "Kustomization",
            flux,
            "child",
            json!({ "spec": {
                "decryption": { "secretRef": { "name": "keys" } },
                "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }, { "kind": "Secret", "name": "sealed" }] },
                "kubeConfig": { "secretRef": { "name": "kubeconfig" } },
            } }),
        );
        let there = json!({ "metadata": { "namespace": "apps", "name": "there", "annotations": { TARGET: "Cluster" } } });
        let objects = vec![
            child,
            of("Kustomization", flux, "there", there),
            of("Cluster", "fleet.roadstead.dev/v1alpha1", "cluster", json!({})),
            of("ManagementCluster", "fleet.roadstead.dev/v1alpha1", "management", json!({})),
            of("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "binding", json!({})),
            of("Secret", "v1", "keys", json!({})),
            of("Secret", "v1", "sealed", json!({ "sops": {} })),
            of("Secret", "v1", "kubeconfig", json!({})),
            of("Secret", "v1", "other", json!({})),
            of("ConfigMap", "v1", "vars", json!({})),
            of("Namespace", "v1", "namespace", json!({})),
        ];
        let (hub, cluster) = split(objects.clone(), &BTreeSet::new());
        assert_eq!(names(&hub), ["child", "keys", "sealed", "vars"]);
        let there = [
            "there",
            "cluster",
            "management",
            "binding",
            "keys",
            "sealed",
            "kubeconfig",
            "other",
            "vars",
            "namespace",
        ];
        assert_eq!(names(&cluster), there);
        // One that stands in the cluster's inventory since before its kind was served stays there, until it is asked for.
        let stays = BTreeSet::from(["kustomize.toolkit.fluxcd.io/Kustomization/apps/child".to_owned()]);
        let (hub, cluster) = split(objects.clone(), &stays);
        assert!(hub.is_empty() && names(&cluster).contains(&"child"));
        let mut asked = objects;
        asked[0]["metadata"]["annotations"] = json!({ TARGET: "Hub" });
        assert_eq!(names(&split(asked, &stays).0), ["child", "keys", "sealed", "vars"]);
    }
}
