//! `kustomization.yaml`: its fields, read strictly.

use std::rc::Rc;

use crate::budget::Held;
use crate::error::{Error, Quoted};
use crate::fields::{Fields, Site};
use crate::fieldspec::FieldSpec;
use crate::origin::BuildMetadata;
use crate::replacement;
use crate::specs::read_field;
use crate::tree::TreePath;
use crate::value::{Map, Str, Value};
use crate::vars::Var;
use crate::yaml::Document;

/// File names that a kustomization may have.
pub(crate) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// A kustomization, as far as it is supported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kustomization {
    pub(crate) component: bool,
    pub(crate) resources: Vec<String>,
    pub(crate) components: Vec<String>,
    pub(crate) namespace: String,
    pub(crate) name_prefix: String,
    pub(crate) name_suffix: String,
    pub(crate) common_labels: Vec<(Str, Str)>,
    pub(crate) labels: Vec<Label>,
    pub(crate) common_annotations: Vec<(Str, Str)>,
    pub(crate) patches_strategic_merge: Vec<String>,
    pub(crate) patches_json6902: Vec<Patch>,
    pub(crate) patches: Vec<Patch>,
    pub(crate) images: Vec<Image>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) replacements: Vec<replacement::Entry>,
    pub(crate) config_maps: Vec<Generator>,
    pub(crate) secrets: Vec<Generator>,
    pub(crate) generators: Vec<String>,
    pub(crate) transformers: Vec<String>,
    pub(crate) validators: Vec<String>,
    pub(crate) sort: Option<SortOptions>,
    /// Files with field specifications.
    pub(crate) configurations: Vec<String>,
    /// Files with OpenAPI definitions of custom resources.
    pub(crate) crds: Vec<String>,
    /// `path` or `version` of a schema.
    pub(crate) openapi: Vec<(Str, Str)>,
    pub(crate) vars: Vec<Var>,
    pub(crate) build_metadata: BuildMetadata,
    /// What the generators say who do not say it themselves.
    pub(crate) generator_options: GeneratorOptions,
    /// The memory that it takes.
    pub(crate) held: Option<Rc<Held>>,
}

/// An entry of `labels`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Label {
    pub(crate) pairs: Vec<(Str, Str)>,
    pub(crate) include_selectors: bool,
    pub(crate) include_templates: bool,
    pub(crate) fields: Vec<FieldSpec>,
}

/// A patch of a kustomization: strategic merge or JSON 6902, inline or in a file.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::{MemoryTree, Options, Overlay, Patch, Selector, TreePath, build};
///
/// let mut tree = MemoryTree::new();
/// let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
/// tree.insert_file(TreePath::new("pod.yaml").ok_or("no path")?, pod);
/// let patch = Patch {
///     patch: Some("- {op: add, path: /spec, value: {hostNetwork: true}}".into()),
///     target: Some(Selector { kind: "Pod".into(), ..Selector::default() }),
///     ..Patch::default()
/// };
/// let overlay = Overlay { patches: vec![patch], ..Overlay::default() };
/// let build = build(&tree, &TreePath::root(), &Options { overlay, ..Options::default() })?;
/// assert!(build.to_yaml().ends_with("spec:\n  hostNetwork: true\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// File of the patch, from the kustomization's directory.
    pub path: Option<String>,
    /// The patch itself.
    pub patch: Option<String>,
    /// Which objects it changes.
    pub target: Option<Selector>,
    /// May it change the name of an object?
    pub allow_name_change: bool,
    /// May it change the kind of an object?
    pub allow_kind_change: bool,
}

/// Which objects a patch changes; empty parts match all. All but the selectors are anchored regular expressions.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::Selector;
///
/// // All workloads of the web tier whose names end in a number.
/// let selector = Selector {
///     kind: "Deployment|StatefulSet".into(),
///     name: "web-[0-9]+".into(),
///     label_selector: "tier in (web, api)".into(),
///     ..Selector::default()
/// };
/// # let _ = selector;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name, before or after changes.
    pub name: String,
    /// Namespace, before or after changes.
    pub namespace: String,
    /// Label selector, as kubectl takes it.
    pub label_selector: String,
    /// The same over annotations.
    pub annotation_selector: String,
}

/// A change of images.
///
/// # Examples
///
/// ```
/// use roadstead_kustomize::{Image, MemoryTree, Options, Overlay, TreePath, build};
///
/// let mut tree = MemoryTree::new();
/// let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: web, image: nginx:1}]}\n";
/// tree.insert_file(TreePath::new("pod.yaml").ok_or("no path")?, pod);
/// let image = Image { name: "nginx".into(), new_tag: "1.29".into(), ..Image::default() };
/// let overlay = Overlay { images: vec![image], ..Overlay::default() };
/// let build = build(&tree, &TreePath::root(), &Options { overlay, ..Options::default() })?;
/// assert!(build.to_yaml().contains("image: nginx:1.29\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Regular expression for the name without tag and digest.
    pub name: String,
    /// New name; empty keeps it.
    pub new_name: String,
    /// Text after the tag; empty adds nothing.
    pub tag_suffix: String,
    /// New tag; empty keeps it.
    pub new_tag: String,
    /// New digest; empty keeps it.
    pub digest: String,
}

/// An entry of `replicas`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) count: i64,
}

/// An entry of `configMapGenerator` or `secretGenerator`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generator {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) behavior: String,
    pub(crate) literals: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) envs: Vec<String>,
    /// Type of a Secret.
    pub(crate) kind: String,
    pub(crate) options: GeneratorOptions,
}

/// `generatorOptions`, and `options` of one generator.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratorOptions {
    pub(crate) labels: Vec<(Str, Str)>,
    pub(crate) annotations: Vec<(Str, Str)>,
    pub(crate) disable_name_suffix_hash: bool,
    pub(crate) immutable: bool,
}

/// `sortOptions`.
#[derive(Debug, Clone)]
pub(crate) enum SortOptions {
    /// As read.
    Fifo,
    /// By kind; `None` for the default order.
    Legacy(Option<(Vec<String>, Vec<String>)>),
}

const KIND: &str = "Kustomization";
const COMPONENT: &str = "Component";

/// Fields of kustomize that are refused, with what to do.
const UNSUPPORTED: [(&str, &str); 2] = [
    ("helmCharts", "use a HelmRelease, or render the chart before the commit"),
    ("helmChartInflationGenerator", "use a HelmRelease, or render the chart before the commit"),
];

impl Kustomization {
    /// Reads the documents of a kustomization file; the first one counts.
    pub(crate) fn read(dir: &TreePath, file: &str, documents: Vec<Document>) -> Result<Self, Error> {
        let site = Site { dir: dir.clone(), file: file.to_owned() };
        let Some(Document { value, .. }) = documents.into_iter().next() else {
            return Err(site.error("kustomization", "the file is empty"));
        };
        let Value::Map(map) = value else {
            return Err(
                site.error("kustomization", format!("a mapping is needed, not {}", value.type_name()))
            );
        };
        Self::from_map(&site, map)
    }

    fn from_map(site: &Site, map: Map) -> Result<Self, Error> {
        let mut f = Fields::new(site, "", map);
        let kind = f.text("kind")?;
        let component = kind == COMPONENT;
        if !kind.is_empty() && kind != KIND && !component {
            return Err(site.error("kind", format!("must be {KIND} or {COMPONENT}, not {kind:?}")));
        }
        let version =
            if component { "kustomize.config.k8s.io/v1alpha1" } else { "kustomize.config.k8s.io/v1beta1" };
        let found = f.text("apiVersion")?;
        if !found.is_empty() && found != version {
            return Err(site.error("apiVersion", format!("must be {version}, not {found:?}")));
        }
        let described = f.map("metadata", |f| {
            f.text("name")?;
            f.text("namespace")?;
            f.pairs("labels")?;
            f.pairs("annotations")
        })?;
        for (field, hint) in UNSUPPORTED {
            if f.take(field).is_some_and(|value| !is_empty(&value)) {
                return Err(Error::Unsupported {
                    file: site.file.clone(),
                    dir: Quoted(site.dir.clone()),
                    field: field.to_owned(),
                    hint,
                });
            }
        }
        if f.is_blank() && described.is_none() {
            return Err(site.error("kustomization", "the file is empty"));
        }
        let mut resources = f.texts("resources")?;
        resources.extend(f.texts("bases")?);
        let mut images = f.list("images", Image::read)?;
        images.extend(f.list("imageTags", Image::read)?);
        // Without charts it means nothing.
        f.map("helmGlobals", |f| Ok((f.text("chartHome")?, f.text("configHome")?, f.flag("debug")?)))?;
        let global = f.map("generatorOptions", |f| GeneratorOptions::read(f))?;
        let out = Self {
            component,
            resources,
            components: f.texts("components")?,
            namespace: f.text("namespace")?,
            name_prefix: f.text("namePrefix")?,
            name_suffix: f.text("nameSuffix")?,
            common_labels: f.pairs("commonLabels")?,
            labels: f.list("labels", Label::read)?,
            common_annotations: f.pairs("commonAnnotations")?,
            patches_strategic_merge: f.texts("patchesStrategicMerge")?,
            patches_json6902: f.list("patchesJson6902", Patch::read)?,
            patches: f.list("patches", Patch::read)?,
            images,
            replicas: f.list("replicas", Replica::read)?,
            replacements: f.list("replacements", replacement::Entry::read)?,
            config_maps: f.list("configMapGenerator", |f| Generator::read(f, false))?,
            secrets: f.list("secretGenerator", |f| Generator::read(f, true))?,
            generators: f.texts("generators")?,
            transformers: f.texts("transformers")?,
            validators: f.texts("validators")?,
            sort: f.map("sortOptions", SortOptions::read)?,
            configurations: f.texts("configurations")?,
            crds: f.texts("crds")?,
            openapi: f.pairs("openapi")?,
            vars: f.list("vars", Var::read)?,
            build_metadata: build_metadata(&mut f)?,
            generator_options: global.unwrap_or_default(),
            held: None,
        };
        f.finish()?;
        Ok(out)
    }
}

/// Reads `buildMetadata`; words that mean nothing are let pass, but count as asking for something.
fn build_metadata(f: &mut Fields<'_>) -> Result<BuildMetadata, Error> {
    let mut metadata = BuildMetadata::default();
    metadata.add(&f.texts("buildMetadata")?);
    Ok(metadata)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null(_) => true,
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Label {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            pairs: f.pairs("pairs")?,
            include_selectors: f.flag("includeSelectors")?,
            include_templates: f.flag("includeTemplates")?,
            fields: f.list("fields", read_field)?,
        })
    }
}

impl Patch {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let path = some(f.text("path")?);
        let patch = some(f.text("patch")?.trim().to_owned());
        let target = f.map("target", Selector::read)?;
        let options = f.map("options", |f| Ok((f.flag("allowNameChange")?, f.flag("allowKindChange")?)))?;
        let (allow_name_change, allow_kind_change) = options.unwrap_or_default();
        Ok(Self { path, patch, target, allow_name_change, allow_kind_change })
    }
}

impl Selector {
    /// Group, version, kind, name and namespace only.
    pub(crate) fn read_object(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            group: f.text("group")?,
            version: f.text("version")?,
            kind: f.text("kind")?,
            name: f.text("name")?,
            namespace: f.text("namespace")?,
            ..Self::default()
        })
    }

    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            label_selector: f.text("labelSelector")?,
            annotation_selector: f.text("annotationSelector")?,
            ..Self::read_object(f)?
        })
    }
}

impl Image {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            name: f.text("name")?,
            new_name: f.text("newName")?,
            tag_suffix: f.text("tagSuffix")?,
            new_tag: f.text("newTag")?,
            digest: f.text("digest")?,
        })
    }
}

impl Replica {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self { name: f.text("name")?, count: f.integer("count")? })
    }
}

impl Generator {
    pub(crate) fn read(f: &mut Fields<'_>, secret: bool) -> Result<Self, Error> {
        let mut envs = f.texts("envs")?;
        envs.extend(Some(f.text("env")?).filter(|env| !env.is_empty()));
        let options = f.map("options", |f| GeneratorOptions::read(f))?.unwrap_or_default();
        Ok(Self {
            name: f.text("name")?,
            namespace: f.text("namespace")?,
            behavior: f.text("behavior")?,
            literals: f.texts("literals")?,
            files: f.texts("files")?,
            envs,
            kind: if secret { f.text("type")? } else { String::new() },
            options,
        })
    }
}

impl GeneratorOptions {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(Self {
            labels: f.pairs("labels")?,
            annotations: f.pairs("annotations")?,
            disable_name_suffix_hash: f.flag("disableNameSuffixHash")?,
            immutable: f.flag("immutable")?,
        })
    }
}

impl SortOptions {
    fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let order = f.text("order")?;
        let lists = f.map("legacySortOptions", |f| Ok((f.texts("orderFirst")?, f.texts("orderLast")?)))?;
        match (order.as_str(), lists) {
            ("fifo", None) => Ok(Self::Fifo),
            ("fifo", Some(_)) => Err(f.error("legacySortOptions", "only goes with order: legacy")),
            ("legacy", lists) => Ok(Self::Legacy(lists)),
            _ => Err(f.error("order", "must be legacy or fifo")),
        }
    }
}
