//! `generators`, `transformers` and `validators`: objects that configure kustomize's builtin plugins.
//!
//! A configuration becomes the same step, or the same generator, as the field of a kustomization that does its work.
//! Whatever would run a program or a container is refused.

use std::borrow::Cow;
use std::rc::Rc;

use crate::budget::Held;
use crate::error::Error;
use crate::fields::{Fields, Site};
use crate::fieldspec::FieldSpec;
use crate::generate;
use crate::kustomization::{Generator, GeneratorOptions, Image, Patch, Replica, Selector};
use crate::limits::Limits;
use crate::load::Loader;
use crate::origin::{ORIGIN, configured, note_file, note_generated, note_transformed};
use crate::replacement;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::specs::read_field;
use crate::target::{self, Chain};
use crate::transform::{Addition, Affix, Namespace, Step, Subjects, ValueAdd};
use crate::value::{Map, Str, Value};
use crate::yaml::{Dialect, read_documents};

/// Group and version of builtin plugins.
const BUILTIN: &str = "builtin";
/// Annotations by which an object asks for a function.
const FUNCTION: [&str; 2] = ["config.kubernetes.io/function", "config.k8s.io/function"];

/// Runs the plugins that a kustomization names.
pub(crate) struct Plugins<'p> {
    pub(crate) loader: &'p Loader<'p>,
    pub(crate) chain: &'p Rc<Chain>,
    pub(crate) site: &'p Site,
}

impl<'p> Plugins<'p> {
    /// Runs those of `generators`.
    pub(crate) fn generate(&self, entries: &[String], objects: &mut Resources) -> Result<(), Error> {
        for plugin in self.configurations("generators", entries)? {
            let field = plugin.field();
            let mut generated = plugin.generate(self.loader)?;
            if let Some(note) = plugin.note() {
                note_generated(&note, &mut generated);
            }
            objects.absorb(generated).map_err(|message| self.site.error(field, message))?;
        }
        Ok(())
    }

    /// Runs those of `transformers`.
    pub(crate) fn transform(&self, entries: &[String], objects: &mut Resources) -> Result<(), Error> {
        for Steps { field, steps, note } in self.steps("transformers", entries)? {
            steps.iter().try_for_each(|step| step.run(self.loader, self.site, &field, objects))?;
            if let Some(note) = note {
                let noted = note_transformed(&note, objects, &self.loader.budget);
                noted.map_err(|message| self.loader.fail(self.site, &field, message))?;
            }
        }
        Ok(())
    }

    /// Runs those of `validators`: transformers that must change nothing but one label.
    pub(crate) fn validate(&self, entries: &[String], objects: &mut Resources) -> Result<(), Error> {
        /// What copying an object counts for.
        const COPY: usize = 64;
        let (loader, site) = (self.loader, self.site);
        for Steps { field, steps, .. } in self.steps("validators", entries)? {
            objects.sweep();
            let copies = loader.budget.work(objects.len().saturating_mul(COPY));
            copies.map_err(|message| loader.fail(site, &field, message))?;
            let before: Vec<_> =
                objects.iter().map(|resource| (resource.value().clone(), resource.times_stored())).collect();
            steps.iter().try_for_each(|step| step.run(loader, site, &field, objects))?;
            objects.sweep();
            let same = |((before, _), after): (&(Map, usize), &Resource)| *before == without_mark(after);
            if before.len() != objects.len() || !before.iter().zip(objects.iter()).all(same) {
                return Err(site.error(field, "a validator must not change objects"));
            }
            // kustomize notes in an object what it was called before, and takes the note for a change.
            if before.iter().zip(objects.iter()).any(|((_, stored), after)| *stored != after.times_stored()) {
                let message =
                    "a validator must not set names or namespaces, even to the values that they have already";
                return Err(site.error(field, message));
            }
        }
        Ok(())
    }

    fn steps(&self, list: &'p str, entries: &[String]) -> Result<Vec<Steps>, Error> {
        let steps = |plugin: Plugin<'_>| {
            Ok(Steps { field: plugin.field(), steps: plugin.steps()?, note: plugin.note() })
        };
        self.configurations(list, entries)?.into_iter().map(steps).collect()
    }

    /// The configurations that entries hold (inline ones first), lead to, or build.
    fn configurations(&self, list: &'p str, entries: &[String]) -> Result<Vec<Plugin<'p>>, Error> {
        let (loader, site) = (self.loader, self.site);
        let mut all = Resources::default();
        let mut paths = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let field = format!("{list}[{i}]");
            match inline(loader, site, &field, entry) {
                Some(objects) => {
                    for object in objects? {
                        all.append(object).map_err(|message| site.error(&field, message))?;
                    }
                    if let Some(origin) = self.chain.origin() {
                        note_file(&origin.of_file(&site.file), &mut all);
                    }
                }
                None => paths.push((field, entry)),
            }
        }
        for (field, path) in paths {
            let found = target::read_path(loader, self.chain, site, &field, path)?;
            all.append_all(found.objects).map_err(|message| site.error(field, message))?;
        }
        Ok(all.into_list().into_iter().map(|config| Plugin { site, list, config }).collect())
    }
}

/// An object without the label that a validator may leave.
fn without_mark(object: &Resource) -> Map {
    const MARK: &str = "validated-by";
    let mut object = object.value().clone();
    if let Some(Value::Map(meta)) = object.get_mut("metadata")
        && let Some(Value::Map(labels)) = meta.get_mut("labels")
        && labels.remove(MARK).is_some()
        && labels.is_empty()
    {
        meta.remove("labels");
    }
    object
}

/// What one plugin does.
struct Steps {
    field: String,
    steps: Vec<Step<'static>>,
    /// What is noted of it, where notes are taken.
    note: Option<Str>,
}

/// The configuration of one plugin.
struct Plugin<'s> {
    site: &'s Site,
    /// `generators`, `transformers` or `validators`.
    list: &'s str,
    config: Resource,
}

/// The objects of an entry that is not a path.
fn inline(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    entry: &str,
) -> Option<Result<Vec<Resource>, Error>> {
    let name = format!("{field} in {}", site.dir.display());
    match loader.parse(entry.as_bytes(), Dialect::Object) {
        Ok(documents) if documents.list.iter().all(|document| matches!(document.value, Value::Map(_))) => {
            // They are gone after the step, but count until the end: they are few.
            Some(loader.objects_of(documents, &name).map(|(objects, held)| {
                held.into_iter().for_each(Held::keep);
                objects
            }))
        }
        Err(error) if entry.contains('\n') => Some(Err(crate::load::yaml_error(&name, error))),
        _ => None,
    }
}

impl<'s> Plugin<'s> {
    /// The place for messages: `transformers: PrefixTransformer/p`.
    fn field(&self) -> String {
        let id = self.config.id();
        format!("{}: {}/{}", self.list, id.gvk.kind, id.name)
    }

    fn error(&self, message: impl std::fmt::Display) -> Error {
        self.site.error(self.field(), message)
    }

    /// What is noted of a plugin whose own origin is noted.
    fn note(&self) -> Option<Str> {
        let origin = self.config.texts("annotations")?.get(ORIGIN)?.as_str()?;
        let documents = read_documents(origin.as_bytes(), Dialect::Object, &Limits::few_lines()).ok()?;
        let path = documents.first().and_then(|document| document.value.at(&["path"])?.scalar_text());
        let text = |key: &str| self.config.value().get(key).and_then(Value::as_str).unwrap_or_default();
        let file = path.unwrap_or_else(|| "".into());
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        Some(configured(&file, api_version, kind, &self.config.id().name, self.config.namespace()))
    }

    fn fields(&self) -> Fields<'s> {
        Fields::lenient(self.site, self.field(), self.config.value().clone())
    }

    /// The kind of the plugin, if it is one that runs here.
    fn kind(&self) -> Result<&str, Error> {
        let gvk = &self.config.id().gvk;
        if gvk.group.is_empty() && &*gvk.version == BUILTIN {
            return Ok(&gvk.kind);
        }
        let api_version = if gvk.group.is_empty() {
            gvk.version.to_string()
        } else {
            format!("{}/{}", gvk.group, gvk.version)
        };
        let annotations = self.config.texts("annotations");
        let function = FUNCTION.iter().find_map(|name| Some((name, annotations?.get(name)?.as_str()?)));
        let (what, from) = match function {
            Some((name, text)) => (describe_function(text), format!("annotation {name}")),
            None => ("a program or Go plugin".to_owned(), format!("apiVersion {api_version}")),
        };
        Err(self.error(format!(
            "{from} asks for {what} ({}); a build runs no code but the builtin plugins (apiVersion {BUILTIN}); run it \
             before the commit, and keep what it makes in the source",
            self.config.source
        )))
    }

    fn generate(&self, loader: &Loader<'_>) -> Result<Resource, Error> {
        let mut f = self.fields();
        let kind = self.kind()?;
        match kind {
            "ConfigMapGenerator" | "SecretGenerator" => {
                let secret = kind == "SecretGenerator";
                let mut generator = Generator::read(&mut f, secret)?;
                let (name, namespace) = metadata(&mut f)?;
                if generator.name.is_empty() {
                    generator.name = name;
                }
                if generator.namespace.is_empty() {
                    generator.namespace = namespace;
                }
                let place = generate::Place { loader, site: self.site, field: &self.field() };
                generate::generate(place, &generator, &GeneratorOptions::default(), secret)
            }
            "IAMPolicyGenerator" => {
                let account = generate::CloudAccount::read(&mut f)?;
                account.object(self.site).map_err(|message| self.error(message))
            }
            "HelmChartInflationGenerator" => Err(self.error(
                "charts are not rendered here; use a HelmRelease, or render the chart before the commit",
            )),
            _ => Err(self.unknown("generator")),
        }
    }

    fn unknown(&self, what: &str) -> Error {
        self.error(format!("{} is not a builtin {what} of kustomize", self.config.id().gvk.kind))
    }

    fn steps(&self) -> Result<Vec<Step<'static>>, Error> {
        let f = &mut self.fields();
        let kind = self.kind()?;
        let step = match kind {
            "AnnotationsTransformer" => Step::Pairs(f.pairs("annotations")?.into(), specs(f)?.into()),
            "LabelTransformer" => Step::Pairs(f.pairs("labels")?.into(), specs(f)?.into()),
            "HashTransformer" => Step::Hash,
            "ImageTagTransformer" => {
                let image = f.map("imageTag", Image::read)?.unwrap_or_default();
                Step::Images(vec![image].into(), specs(f)?.into())
            }
            "NamespaceTransformer" => Step::Namespace(namespace(f)?),
            "PatchTransformer" => Step::Patch(Cow::Owned(Patch::read(f)?)),
            "PatchJson6902Transformer" => Step::JsonPatch(Cow::Owned(json_patch(f)?)),
            "PatchStrategicMergeTransformer" => {
                let mut entries = f.texts("paths")?;
                entries.extend(Some(f.text("patches")?).filter(|text| !text.is_empty()));
                if entries.is_empty() {
                    return Err(self.error("paths or patches is missing"));
                }
                Step::StrategicMerge(entries.into())
            }
            "PrefixTransformer" => Step::Prefix(affix(f.text("prefix")?, needed_specs(f)?)),
            "SuffixTransformer" => Step::Suffix(affix(f.text("suffix")?, needed_specs(f)?)),
            "PrefixSuffixTransformer" => {
                let fields = needed_specs(f)?;
                let prefix = Step::Prefix(affix(f.text("prefix")?, fields.clone()));
                return Ok(vec![prefix, Step::Suffix(affix(f.text("suffix")?, fields))]);
            }
            "ReplacementTransformer" => {
                Step::Replacements(f.list("replacements", replacement::Entry::read)?.into())
            }
            "ReplicaCountTransformer" => {
                let replica = f.map("replica", Replica::read)?.unwrap_or_default();
                Step::Replicas(Cow::Owned(replica), specs(f)?.into())
            }
            "ValueAddTransformer" => Step::ValueAdd(value_add(f)?),
            _ => return Err(self.unknown("transformer")),
        };
        Ok(vec![step])
    }
}

/// What a function annotation asks for.
fn describe_function(text: &str) -> String {
    let documents = read_documents(text.as_bytes(), Dialect::Object, &Limits::few_lines());
    let value =
        documents.ok().and_then(|documents| documents.into_iter().next()).map(|document| document.value);
    let at = |path: &[&str]| value.as_ref().and_then(|value| value.at(path)).and_then(Value::scalar_text);
    if let Some(image) = at(&["container", "image"]) {
        return format!("the container {image:?}");
    }
    if let Some(path) = at(&["exec", "path"]) {
        return format!("the program {path:?}");
    }
    if let Some(name) = at(&["starlark", "name"]).or_else(|| at(&["starlark", "path"])) {
        return format!("the script {name:?}");
    }
    "a function".to_owned()
}

/// `metadata.name` and `metadata.namespace`.
fn metadata(f: &mut Fields<'_>) -> Result<(String, String), Error> {
    let read = f.map("metadata", |f| Ok((f.text("name")?, f.text("namespace")?)))?;
    Ok(read.unwrap_or_default())
}

fn specs(f: &mut Fields<'_>) -> Result<Vec<FieldSpec>, Error> {
    f.list("fieldSpecs", read_field)
}

fn needed_specs(f: &mut Fields<'_>) -> Result<Vec<FieldSpec>, Error> {
    if f.has("fieldSpecs") { specs(f) } else { Err(f.error("fieldSpecs", "is missing")) }
}

fn affix(text: String, fields: Vec<FieldSpec>) -> Affix<'static> {
    Affix { text: text.into(), fields: fields.into() }
}

fn namespace(f: &mut Fields<'_>) -> Result<Namespace<'static>, Error> {
    let subjects = match f.text("setRoleBindingSubjects")?.as_str() {
        "" | "defaultOnly" => Subjects::Default,
        "allServiceAccounts" => Subjects::Accounts,
        "none" => Subjects::None,
        other => {
            let wanted = "must be defaultOnly, allServiceAccounts or none";
            return Err(f.error("setRoleBindingSubjects", format!("{wanted}, not {other:?}")));
        }
    };
    Ok(Namespace {
        namespace: metadata(f)?.1.into(),
        fields: specs(f)?.into(),
        unset_only: f.flag("unsetOnly")?,
        subjects,
    })
}

fn json_patch(f: &mut Fields<'_>) -> Result<Patch, Error> {
    let some = |text: String| (!text.is_empty()).then_some(text);
    Ok(Patch {
        path: some(f.text("path")?),
        patch: some(f.text("jsonOp")?),
        target: f.map("target", Selector::read)?,
        ..Patch::default()
    })
}

fn value_add(f: &mut Fields<'_>) -> Result<ValueAdd, Error> {
    let add = ValueAdd {
        value: f.text("value")?.trim().to_owned(),
        targets: f.list("targets", Addition::read)?,
        target_file: f.text("targetFilePath")?,
    };
    if add.targets.is_empty() && add.target_file.is_empty() {
        return Err(f.error("targets", "is missing"));
    }
    Ok(add)
}
