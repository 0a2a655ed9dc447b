//! `kustomize build`, native and pure, over a file-tree trait.
//!
//! [`build`] reads a kustomization (or the manifests of a plain directory) from a [`FileTree`] and gives the objects that
//! `kustomize build` would print. Nothing here touches a disk, a network, a clock or the environment, and everything that
//! a tree can make it do is bounded by [`Limits`].
//!
//! ```
//! use roadstead_kustomize::{MemoryTree, Options, TreePath, build};
//!
//! let mut tree = MemoryTree::new();
//! let path = |text| TreePath::new(text).ok_or("leaves the root");
//! tree.insert_file(path("app/kustomization.yaml")?, "namePrefix: prod-\nresources: [cm.yaml]\n");
//! tree.insert_file(path("app/cm.yaml")?, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n");
//! let build = build(&tree, &path("app")?, &Options::default())?;
//! assert_eq!(build.to_yaml(), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: prod-settings\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The example of the README is tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod budget;
mod error;
mod fields;
mod fieldspec;
mod generate;
mod json;
mod kustomization;
mod limits;
mod load;
mod notes;
mod order;
mod origin;
mod overlay;
mod pattern;
mod plain;
mod plugin;
mod reads;
mod remote;
mod replacement;
mod resource;
mod resources;
mod run;
mod schema;
mod selector;
mod specs;
mod target;
mod transform;
pub mod tree;
pub mod value;
mod vars;
pub mod yaml;

pub use error::{Error, Quoted};
pub use kustomization::{Image, Patch, Selector};
pub use limits::Limits;
pub use load::LoadRestrictor;
pub use overlay::Overlay;
pub use reads::{ContentDigest, Reads, Recorder, TreeIndex, content_digest};
pub use remote::{Fetched, Remote, RemoteRepository, RemoteUrl};
pub use selector::LabelSelector;
pub use tree::{Entry, EntryKind, FileTree, MemoryTree, Node, TreeError, TreePath, resolve};

use load::Loader;
use target::{Chain, Gathered};
use value::{Map, Value};

/// What to do with a directory that has no kustomization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generate {
    /// Make one, as Flux does: of all files in it and below whose name ends in `.yaml` or `.yml` and that hold Kubernetes
    /// objects. A directory below that has a kustomization of its own is one resource, and nothing else in it is looked
    /// at. Files without any object (values, workflows) are left out.
    ///
    /// `.sourceignore` is not read here: it says what is part of a source, so the tree has it applied already.
    #[default]
    PlainDirectories,
    /// Refuse it, as kustomize does.
    Never,
}

/// The order of the objects where `sortOptions` of the root kustomization do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reorder {
    /// Kustomize's: namespaces, definitions and what others need first, webhooks last.
    #[default]
    Legacy,
    /// As they were read.
    None,
}

/// How to build.
///
/// ```
/// use roadstead_kustomize::{Generate, LoadRestrictor, Options};
///
/// // What `kustomize build --load-restrictor LoadRestrictionsNone` does.
/// let options =
///     Options { generate: Generate::Never, load_restrictor: LoadRestrictor::None, ..Options::default() };
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Bounds.
    pub limits: Limits,
    /// Edits laid over the root kustomization.
    pub overlay: Overlay,
    /// What to do with a directory that has no kustomization.
    pub generate: Generate,
    /// Where files may lie.
    pub load_restrictor: LoadRestrictor,
    /// Fetches what kustomizations name by URL; without it, a URL is an error.
    pub remote: Option<std::sync::Arc<dyn Remote>>,
    /// Label every object as managed by kustomize, whatever `buildMetadata` says.
    pub managed_by_label: bool,
    /// The order of the objects.
    pub reorder: Reorder,
}

/// The objects of a build, in the order in which kustomize prints them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Build {
    /// The objects.
    pub objects: Vec<Object>,
}

/// One object of a build.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    value: Map,
    source: String,
    cluster_scoped: bool,
}

impl Object {
    /// The object as a value.
    pub fn value(&self) -> &Map {
        &self.value
    }

    /// Where it was read, as `apps/web.yaml:3`; for a generated object, the kustomization.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The object as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let entries = self.value.iter().map(|(key, value)| (key.to_string(), value.to_json()));
        serde_json::Value::Object(entries.collect())
    }

    /// The object as YAML, as `kustomize build` prints it.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        yaml::write_map(&mut out, &self.value);
        out
    }

    /// Whether kustomize knows that objects of its kind have no namespace. Kinds that it does not know count as
    /// namespaced.
    pub fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped
    }

    fn text(&self, path: &[&str]) -> &str {
        let (first, rest) = path.split_first().unwrap_or((&"", &[]));
        self.value.get(first).and_then(|value| value.at(rest)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its `apiVersion`.
    pub fn api_version(&self) -> &str {
        self.text(&["apiVersion"])
    }

    /// Its `kind`.
    pub fn kind(&self) -> &str {
        self.text(&["kind"])
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text(&["metadata", "name"])
    }

    /// Its namespace; empty for none.
    pub fn namespace(&self) -> &str {
        self.text(&["metadata", "namespace"])
    }
}

impl Build {
    /// The objects as one YAML stream, as `kustomize build` prints it.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        for (i, object) in self.objects.iter().enumerate() {
            if i > 0 {
                out.push_str("---\n");
            }
            yaml::write_map(&mut out, &object.value);
        }
        out
    }
}

/// Builds the directory at `path`.
///
/// ```
/// use roadstead_kustomize::{Error, MemoryTree, Options, TreePath, build};
///
/// let mut tree = MemoryTree::new();
/// tree.insert_file(TreePath::new("kustomization.yaml").ok_or("no path")?, "resources:\n- nope.yaml\n");
/// let error = build(&tree, &TreePath::root(), &Options::default()).unwrap_err();
/// assert!(matches!(error, Error::Field { .. }));
/// let text = "kustomization.yaml:2 in \".\": resources[0]: no file or directory \"nope.yaml\"";
/// assert_eq!(error.to_string(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn build(tree: &dyn FileTree, path: &TreePath, options: &Options) -> Result<Build, Error> {
    run(tree, path, options).map_err(|error| error.locate(tree, options.limits.file_bytes).shorten())
}

fn run(tree: &dyn FileTree, path: &TreePath, options: &Options) -> Result<Build, Error> {
    let loader = Loader::new(tree, options);
    let (dir, kind) = resolve(tree, path)?;
    if kind != EntryKind::Directory {
        return Err(TreeError::NotADirectory(dir).into());
    }
    let (site, mut kustomization) = match options.generate {
        Generate::PlainDirectories => target::read_or_generate(&loader, &dir)?,
        Generate::Never => target::read_kustomization(&loader, &dir)?,
    };
    options.overlay.lay_over(tree, &dir, &mut kustomization);
    target::take_schema(&loader, &site, &kustomization)?;
    let mut metadata = kustomization.build_metadata;
    metadata.managed_by |= options.managed_by_label;
    let chain = Chain::start(dir, metadata.notes);
    let gathered = target::accumulate(&loader, &chain, &site, &kustomization, Gathered::default())?;
    let specs = gathered.specs().clone();
    let mut objects = gathered.objects;
    let finish = |step| move |message| Error::Finish { step, message };
    transform::finish::hashes(&mut objects, &loader.budget).map_err(finish("hash suffixes"))?;
    transform::reference::fix(&specs, &mut objects).map_err(finish("name references"))?;
    let budget = &loader.budget;
    gathered.vars.resolve(&specs.var_reference, budget, &mut objects).map_err(finish("vars"))?;
    transform::finish::drop_local(&mut objects, budget).map_err(finish("names"))?;
    if kustomization.sort.is_some() || options.reorder == Reorder::Legacy {
        objects.check_unique().map_err(finish("order"))?;
        transform::finish::sort(kustomization.sort.as_ref(), &mut objects);
    }
    metadata.finish(&mut objects).map_err(finish("labels"))?;
    transform::finish::tidy(&mut objects, budget).map_err(finish("output"))?;
    options.overlay.mark(&mut objects);
    transform::finish::check_size(&options.limits, &objects)?;
    let object = |resource: resource::Resource| {
        let source = resource.source.to_string();
        let cluster_scoped = resource.id().gvk.cluster_scoped;
        Object { value: resource.into_value(), source, cluster_scoped }
    };
    Ok(Build { objects: objects.into_list().into_iter().map(object).collect() })
}
