//! Kustomizations: one source, built as `kustomize build` does, applied as one group.

mod folders;
mod inputs;
mod remotes;

use std::sync::Arc;

use roadstead_api::kustomization::{
    BuildMetadata, CommonMetadata, HealthCheckExpr, Image, KustomizationSpec, MacCheck, Patch, PostBuild,
    Selector, SourceKind, SubstituteKind, SubstituteReference, SubstituteStrategy,
};
use roadstead_api::{KindId, Kustomization, PipelineRole, Reference};
use roadstead_cel::Expression;
use roadstead_hub_store::{BuiltGroup, StoreError, Stored};
use roadstead_kustomize::{FileTree, Limits, Options, Overlay, TreeError, TreePath, resolve};
use roadstead_model::{
    Group, HealthExpr, IgnoreRule, IgnoreTarget, MAX_OBJECTS, ObjectRef, OnImmutable, Reason, Step, StepKind,
    Substitute, VariablesFrom, VariablesKind, chain,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::inputs::{Opened, encrypted_inputs};
use crate::delivery::applier::{Applier, Inputs, Objects, Render, Work};
use crate::delivery::decryption::Decryption;
use crate::delivery::placing;

/// Part of every build's key: a change of the engine that changes results changes this.
const ENGINE: &str = concat!("roadstead-kustomize/", env!("CARGO_PKG_VERSION"), "/11");
/// Steps of one build, so that a repository made to be slow does not hold a place for long: looking at 2 × 10⁸ pairs of
/// patch and object took 24 s in a release build. All of kustomize's public cases stay below half of it.
const MAX_WORK: u64 = 200_000_000;
/// Memory of one build in bytes, besides the source's tree and what is made of the objects afterwards.
const MAX_BUILD_MEMORY: usize = 200 << 20;

/// The kind `Kustomization`.
pub(super) struct Kustomizations;

impl Applier for Kustomizations {
    fn kind(&self) -> KindId {
        KindId::Kustomization
    }

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn renders_secrets(&self) -> bool {
        // It is rendered from its source alone; where that has encrypted inputs, what comes of it is not stored.
        false
    }

    fn unsupported(&self, stored: &Stored) -> Result<Option<String>, StoreError> {
        Ok(unsupported(&stored.decode::<Kustomization>()?.spec))
    }

    fn sources(&self, stored: &Stored) -> Result<Vec<Reference>, StoreError> {
        let reference = stored.decode::<Kustomization>()?.spec.source_ref;
        let namespace = reference.namespace.unwrap_or_else(|| stored.namespace.clone());
        let kind = reference.kind.served();
        Ok(kind.map(|kind| Reference { kind, namespace, name: reference.name }).into_iter().collect())
    }

    fn recipe(&self, stored: &Stored) -> Result<Value, StoreError> {
        let recipe = Recipe::of(stored.decode::<Kustomization>()?.spec);
        serde_json::to_value(recipe).map_err(|error| StoreError::Corrupt {
            what: "say what a Kustomization is built by",
            why: format!("{stored}: {error}"),
        })
    }

    fn render(&self, recipe: &Value, inputs: &Inputs<'_>) -> Result<Render, String> {
        let recipe = Recipe::deserialize(recipe).map_err(|error| error.to_string())?;
        let [tree] = inputs.trees else { return Err("a Kustomization has one source".to_owned()) };
        let path = TreePath::new(&recipe.path)
            .ok_or_else(|| format!("spec.path '{}' leaves the source's root", recipe.path))?;
        if let Err(error @ TreeError::NotFound(_)) = resolve(*tree, &path) {
            return Ok(Render::NotInSource(format!("kustomization path not found: {error}")));
        }
        let decrypts = recipe.decrypts;
        let wanted = remotes::missing(*tree, &path, &recipe.components, inputs.remotes)?;
        if !wanted.is_empty() {
            return Ok(Render::Needs(wanted));
        }
        let remotes = remotes::Given::of(inputs);
        let mut options = Options { overlay: recipe.overlay(), ..Options::default() };
        options.limits = Limits::within(MAX_BUILD_MEMORY);
        options.limits.work = MAX_WORK;
        options.limits.objects = MAX_OBJECTS;
        options.remote = Some(Arc::new(remotes.clone()));
        let build = |tree: &dyn FileTree| {
            let build = roadstead_kustomize::build(tree, &path, &options).map_err(|error| chain(&error))?;
            Ok(build.objects.iter().map(roadstead_kustomize::Object::to_json).collect::<Vec<_>>())
        };
        let encrypted = if decrypts { encrypted_inputs(*tree, &path) } else { Vec::new() };
        let mut warnings = Vec::new();
        let built = if encrypted.is_empty() {
            build(*tree)
        } else {
            let need = inputs::need(*tree, &encrypted)?;
            let Some(given) = inputs.find(&need) else { return Ok(Render::Needs(vec![need])) };
            let mut opened = Opened::new(*tree, &encrypted, given)?;
            warnings = std::mem::take(&mut opened.warnings);
            opened
                .with_tree(*tree, build)
                .and_then(|objects| opened.exposed(&objects).map_or(Ok(objects), Err))
        };
        // What it names where it was not looked for.
        let wanted = remotes.missing();
        if !wanted.is_empty() {
            return Ok(Render::Needs(wanted));
        }
        let groups = vec![Objects { label: String::new(), objects: built? }];
        Ok(Render::Rendered { groups, warnings })
    }

    fn steps(
        &self,
        stored: &Stored,
        home: &str,
        built: &[BuiltGroup],
    ) -> Result<Result<Work, (Reason, String)>, StoreError> {
        let spec = stored.decode::<Kustomization>()?.spec;
        let on_immutable = if spec.force { OnImmutable::Recreate } else { OnImmutable::Fail };
        let substitute = spec.post_build.as_ref().map(|post_build| substitute(post_build, home));
        let ignore: Vec<IgnoreRule> = spec.ignore.iter().map(ignore_rule).collect();
        let group = |group: &BuiltGroup| Group {
            sealed: group.sealed,
            on_immutable,
            substitute: substitute.clone(),
            ignore: ignore.clone(),
            ..Group::of(group.objects)
        };
        let groups = built.iter().map(group).collect();
        let health = match health(&spec) {
            Ok(health) => health,
            Err(why) => return Ok(Err((Reason::InvalidCELExpression, why))),
        };
        let steps = steps(&spec, home).map_err(|why| (Reason::BuildFailed, why));
        Ok(steps.map(|steps| Work { health, groups, steps }))
    }

    fn decryption(&self, stored: &Stored, home: &str) -> Result<Option<Decryption>, StoreError> {
        let spec = stored.decode::<Kustomization>()?.spec;
        Ok(spec.decryption.map(|decryption| Decryption {
            secret: decryption.secret_ref.map(|secret| secret.name),
            account: decryption.service_account_name.filter(|name| !name.is_empty()),
            namespace: home.to_owned(),
            location: decryption.location,
            lenient: decryption.mac.map(|mac| mac == MacCheck::Warn),
        }))
    }
}

/// What of a spec edits the kustomization at its path.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recipe {
    path: String,
    target_namespace: String,
    name_prefix: String,
    name_suffix: String,
    patches: Vec<Patch>,
    images: Vec<Image>,
    components: Vec<String>,
    ignore_missing_components: bool,
    build_metadata: Vec<BuildMetadata>,
    common_metadata: CommonMetadata,
    decrypts: bool,
}

impl Recipe {
    fn of(spec: KustomizationSpec) -> Self {
        Self {
            decrypts: spec.decryption.is_some(),
            path: spec.path.unwrap_or_default(),
            target_namespace: spec.target_namespace.unwrap_or_default(),
            name_prefix: spec.name_prefix.unwrap_or_default(),
            name_suffix: spec.name_suffix.unwrap_or_default(),
            patches: spec.patches,
            images: spec.images,
            components: spec.components,
            ignore_missing_components: spec.ignore_missing_components,
            build_metadata: spec.build_metadata,
            common_metadata: spec.common_metadata.unwrap_or_default(),
        }
    }

    fn overlay(self) -> Overlay {
        let text = Option::<String>::unwrap_or_default;
        let selector = |target: Selector| roadstead_kustomize::Selector {
            group: text(target.group),
            version: text(target.version),
            kind: text(target.kind),
            name: text(target.name),
            namespace: text(target.namespace),
            label_selector: text(target.label_selector),
            annotation_selector: text(target.annotation_selector),
        };
        let patch = |patch: Patch| roadstead_kustomize::Patch {
            patch: Some(patch.patch),
            target: patch.target.map(selector),
            ..roadstead_kustomize::Patch::default()
        };
        let image = |image: Image| roadstead_kustomize::Image {
            name: image.name,
            new_name: text(image.new_name),
            new_tag: text(image.new_tag),
            digest: text(image.digest),
            ..roadstead_kustomize::Image::default()
        };
        Overlay {
            namespace: self.target_namespace,
            name_prefix: self.name_prefix,
            name_suffix: self.name_suffix,
            patches: self.patches.into_iter().map(patch).collect(),
            images: self.images.into_iter().map(image).collect(),
            components: self.components,
            ignore_missing_components: self.ignore_missing_components,
            build_metadata: self.build_metadata.iter().map(|word| word.as_str().to_owned()).collect(),
            labels: self.common_metadata.labels.into_iter().collect(),
            annotations: self.common_metadata.annotations.into_iter().collect(),
        }
    }
}

/// `home` is the namespace of health checks that name none, as Flux has it.
fn steps(spec: &KustomizationSpec, home: &str) -> Result<Vec<Step>, String> {
    let mut steps = vec![StepKind::Apply { group: 0 }];
    if spec.prune {
        steps.push(StepKind::Prune);
    }
    let mut objects = Vec::with_capacity(spec.health_checks.len());
    for (index, check) in spec.health_checks.iter().enumerate() {
        let Some(api_version) = &check.api_version else {
            return Err(format!(
                "spec.healthChecks[{index}].apiVersion is missing: {} is not of a known kind",
                check.kind
            ));
        };
        let (group, version) = ObjectRef::split_api_version(api_version);
        if placing::is_checked_here(group, &check.kind) {
            continue;
        }
        objects.push(ObjectRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: check.kind.clone(),
            namespace: check.namespace.clone().unwrap_or_else(|| home.to_owned()),
            name: check.name.clone(),
        });
    }
    if spec.wait || !objects.is_empty() {
        let groups = if spec.wait { vec![0] } else { Vec::new() };
        steps.push(StepKind::Wait { objects, groups });
    }
    Ok(steps.into_iter().map(Step::from).collect())
}

/// How health is told by expressions; the error is for the object's condition.
fn health(spec: &KustomizationSpec) -> Result<Vec<HealthExpr>, String> {
    let mut rules = Vec::with_capacity(spec.health_check_exprs.len());
    for (index, check) in spec.health_check_exprs.iter().enumerate() {
        let HealthCheckExpr { api_version, kind, in_progress, failed, current } = check.clone();
        let texts =
            [("inProgress", in_progress.as_ref()), ("failed", failed.as_ref()), ("current", Some(&current))];
        for (field, text) in texts {
            let Some(text) = text else { continue };
            Expression::parse(text)
                .map_err(|error| format!("spec.healthCheckExprs[{index}].{field}: {error}"))?;
        }
        rules.push(HealthExpr { api_version, kind, in_progress, failed, current });
    }
    Ok(rules)
}

fn ignore_rule(rule: &roadstead_api::kustomization::IgnoreRule) -> IgnoreRule {
    let target = rule.target.clone().map(|target| IgnoreTarget {
        group: target.group,
        version: target.version,
        kind: target.kind,
        name: target.name,
        namespace: target.namespace,
        label_selector: target.label_selector,
        annotation_selector: target.annotation_selector,
    });
    IgnoreRule { paths: rule.paths.clone(), target }
}

/// Where variables come from. Which of the objects the hub has is found out later.
fn substitute(post_build: &PostBuild, home: &str) -> Substitute {
    let from = |reference: &SubstituteReference| VariablesFrom {
        kind: match reference.kind {
            SubstituteKind::ConfigMap => VariablesKind::ConfigMap,
            SubstituteKind::Secret => VariablesKind::Secret,
        },
        name: reference.name.clone(),
        optional: reference.optional,
        on_hub: None,
    };
    Substitute {
        always: post_build.substitute_strategy == Some(SubstituteStrategy::Always),
        lenient: false,
        namespace: home.to_owned(),
        variables: post_build.substitute.clone(),
        from: post_build.substitute_from.iter().map(from).collect(),
    }
}

/// The first field that this version cannot act on.
fn unsupported(spec: &KustomizationSpec) -> Option<String> {
    let fetched = KindId::of_role(PipelineRole::Source).filter(|kind| kind.get().reconciled);
    let fetched = fetched.map(|kind| kind.get().kind).collect::<Vec<_>>().join(", ");
    let of_other_sources = format!("spec.sourceRef.kind other than one of {fetched}");
    (!is_fetched(spec.source_ref.kind)).then(|| {
        format!(
            "{of_other_sources} is not supported by this version of Roadstead; nothing was applied. Remove it to go on"
        )
    })
}

fn is_fetched(kind: SourceKind) -> bool {
    kind.served().is_some_and(|kind| kind.get().reconciled)
}
