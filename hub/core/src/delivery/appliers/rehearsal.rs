//! Rehearsals, a kind for tests: two sources, three groups of which one is a hook, a value from a Secret of the hub, a read of the
//! cluster, what that leads to in a further round, and children.

use std::time::Duration;

use roadstead_api::rehearsal::{Rehearsal, RehearsalFault, RehearsalSpec};
use roadstead_api::{KindId, Reference, SourceReference};
use roadstead_hub_store::{BuiltGroup, StoreError, Stored};
use roadstead_kustomize::{FileTree, Options, TreePath};
use roadstead_model::{Group, HookPolicy, ObjectRef, Reason, Step, StepKind, chain};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::delivery::applier::{Applier, Inputs, Need, Objects, Render, Work};

/// The kind `Rehearsal`.
pub(super) struct Rehearsals;

impl Applier for Rehearsals {
    fn kind(&self) -> KindId {
        KindId::Rehearsal
    }

    fn engine(&self) -> &'static str {
        "rehearsal/1"
    }

    fn unsupported(&self, _: &Stored) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    fn sources(&self, stored: &Stored) -> Result<Vec<Reference>, StoreError> {
        let spec = stored.decode::<Rehearsal>()?.spec;
        let reference = |source: SourceReference| {
            let namespace = source.namespace.unwrap_or_else(|| stored.namespace.clone());
            source.kind.served().map(|kind| Reference { kind, namespace, name: source.name })
        };
        Ok([spec.first_source_ref, spec.second_source_ref].into_iter().filter_map(reference).collect())
    }

    fn longest_render(&self) -> Duration {
        // A test of one that never ends is not to take a minute.
        Duration::from_secs(5)
    }

    fn recipe(&self, stored: &Stored) -> Result<Value, StoreError> {
        Ok(stored.object["spec"].clone())
    }

    fn render(&self, recipe: &Value, inputs: &Inputs<'_>) -> Result<Render, String> {
        let spec = RehearsalSpec::deserialize(recipe).map_err(|error| error.to_string())?;
        if let Some(render) = fault(&spec, inputs) {
            return render;
        }
        let mut data = json!({});
        let mut needs = Vec::new();
        if let Some(secret) = &spec.secret_ref {
            let need = Need::Object { kind: KindId::Secret, name: secret.name.clone() };
            match inputs.find(&need) {
                None => needs.push(need),
                Some(None) => return Err(format!("Secret '{}' of spec.secretRef not found", secret.name)),
                Some(Some(found)) => data["secret"] = found["data"]["value"].clone(),
            }
        }
        if let Some(read) = &spec.read {
            let need = Need::Read(config_map(&read.namespace, &read.name));
            match inputs.find(&need) {
                None => needs.push(need),
                Some(found) => {
                    let (name, namespace) = (&read.name, &read.namespace);
                    let named = found.and_then(|found| found["data"]["configMap"].as_str());
                    let named = named.ok_or_else(|| {
                        format!("ConfigMap {namespace}/{name} of the cluster names no ConfigMap of the hub")
                    })?;
                    // Only now it is known what else is needed.
                    let second = Need::Object { kind: KindId::ConfigMap, name: named.to_owned() };
                    match inputs.find(&second) {
                        None => needs.push(second),
                        Some(None) => return Err(format!("ConfigMap '{named}' of the hub not found")),
                        Some(Some(settings)) => data["settings"] = settings["data"]["setting"].clone(),
                    }
                }
            }
        }
        if !needs.is_empty() {
            return Ok(Render::Needs(needs));
        }
        let [first, second] = inputs.trees else { return Err("a Rehearsal has two sources".to_owned()) };
        let made = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "rehearsed", "namespace": spec.target_namespace }, "data": data,
        });
        let mut last = build(*second, "")?;
        last.push(made);
        let twice = spec.fault == Some(RehearsalFault::Twice);
        let groups = vec![
            Objects { label: "first".to_owned(), objects: build(*first, "first")? },
            Objects { label: "check".to_owned(), objects: build(*first, "hook")? },
            Objects {
                label: "second".to_owned(),
                objects: if twice { build(*first, "first")? } else { last },
            },
        ];
        Ok(Render::Rendered { groups, warnings: Vec::new() })
    }

    fn steps(
        &self,
        stored: &Stored,
        _: &str,
        built: &[BuiltGroup],
    ) -> Result<Result<Work, (Reason, String)>, StoreError> {
        let spec = stored.decode::<Rehearsal>()?.spec;
        let group = |group: &BuiltGroup| Group {
            label: group.label.clone(),
            sealed: group.sealed,
            ..Group::of(group.objects)
        };
        let step = |label: &str, kind| Step { label: label.to_owned(), kind };
        let mut steps = vec![
            step("first", StepKind::Apply { group: 0 }),
            step("first is healthy", StepKind::Wait { objects: Vec::new(), groups: vec![0] }),
            step("check", StepKind::Hook { group: 1, policy: HookPolicy::Succeeded }),
            step("second", StepKind::Apply { group: 2 }),
        ];
        if spec.prune {
            steps.push(StepKind::Prune.into());
        }
        if spec.wait {
            steps.push(StepKind::Wait { objects: Vec::new(), groups: vec![0, 2] }.into());
        }
        Ok(Ok(Work { health: Vec::new(), groups: built.iter().map(group).collect(), steps }))
    }
}

/// A render that goes wrong, where the spec asks for one.
fn fault(spec: &RehearsalSpec, inputs: &Inputs<'_>) -> Option<Result<Render, String>> {
    let need = |name: String| Need::Object { kind: KindId::ConfigMap, name };
    match spec.fault? {
        RehearsalFault::Fail => Some(Err("it was told to fail".to_owned())),
        RehearsalFault::Panic => panic!("it was told to panic"),
        RehearsalFault::Nothing => Some(Ok(Render::Rendered { groups: Vec::new(), warnings: Vec::new() })),
        RehearsalFault::Endless => {
            Some(Ok(Render::Needs(vec![need(format!("round-{}", inputs.given.len()))])))
        }
        RehearsalFault::Repeat => Some(Ok(Render::Needs(vec![need("same".to_owned())]))),
        RehearsalFault::Hang => loop {
            std::hint::spin_loop();
        },
        RehearsalFault::Twice => None,
    }
}

fn build(tree: &dyn FileTree, path: &str) -> Result<Vec<Value>, String> {
    let path = TreePath::new(path).ok_or_else(|| format!("'{path}' leaves the source's root"))?;
    let build =
        roadstead_kustomize::build(tree, &path, &Options::default()).map_err(|error| chain(&error))?;
    Ok(build.objects.iter().map(roadstead_kustomize::Object::to_json).collect())
}

fn config_map(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
