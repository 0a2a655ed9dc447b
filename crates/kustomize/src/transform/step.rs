//! One change of all objects. A field of a kustomization and the configuration of a builtin plugin that does the same
//! work both become the same step, so that there is one way to do each thing.

use std::borrow::Cow;

use crate::error::Error;
use crate::fields::Site;
use crate::fieldspec::FieldSpec;
use crate::kustomization::{Image, Patch, Replica};
use crate::load::Loader;
use crate::replacement;
use crate::resources::Resources;
use crate::value::Str;

use super::add::ValueAdd;
use super::{add, finish, image, label, name, patch, replace, replica};

/// One change of all objects.
#[derive(Debug)]
pub(crate) enum Step<'k> {
    /// Strategic merge patches, each in a file or inline, for the objects that they name.
    StrategicMerge(Cow<'k, [String]>),
    /// A patch of either kind.
    Patch(Cow<'k, Patch>),
    /// A JSON patch of `patchesJson6902`. It does not keep the name that it may change.
    JsonPatch(Cow<'k, Patch>),
    /// A namespace.
    Namespace(Namespace<'k>),
    /// Text before names.
    Prefix(Affix<'k>),
    /// Text after names.
    Suffix(Affix<'k>),
    /// Labels or annotations.
    Pairs(Cow<'k, [(Str, Str)]>, Cow<'k, [FieldSpec]>),
    /// A number of replicas.
    Replicas(Cow<'k, Replica>, Cow<'k, [FieldSpec]>),
    /// Changes of images, one after the other.
    Images(Cow<'k, [Image]>, Cow<'k, [FieldSpec]>),
    /// Values copied from fields to fields.
    Replacements(Cow<'k, [replacement::Entry]>),
    /// A value for fields.
    ValueAdd(ValueAdd),
    /// Hashes at the names of generated objects.
    Hash,
}

/// Text before or after a name, with the fields that hold names.
#[derive(Debug)]
pub(crate) struct Affix<'k> {
    pub(crate) text: Cow<'k, str>,
    pub(crate) fields: Cow<'k, [FieldSpec]>,
}

/// A namespace for all objects that have one.
#[derive(Debug)]
pub(crate) struct Namespace<'k> {
    pub(crate) namespace: Cow<'k, str>,
    pub(crate) fields: Cow<'k, [FieldSpec]>,
    /// Leave namespaces that are there.
    pub(crate) unset_only: bool,
    pub(crate) subjects: Subjects,
}

/// Which subjects of role bindings take the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Subjects {
    /// Those with the name `default`.
    #[default]
    Default,
    /// All service accounts.
    Accounts,
    /// None.
    None,
}

impl Step<'_> {
    /// The name of kustomize's transformer for what a field asks for.
    pub(crate) fn kind(&self, field: &str) -> &'static str {
        match self {
            Self::StrategicMerge(_) => "PatchStrategicMergeTransformer",
            Self::Patch(_) => "PatchTransformer",
            Self::JsonPatch(_) => "PatchJson6902Transformer",
            Self::Namespace(_) => "NamespaceTransformer",
            Self::Prefix(_) => "PrefixTransformer",
            Self::Suffix(_) => "SuffixTransformer",
            Self::Pairs(..) if field == "commonAnnotations" => "AnnotationsTransformer",
            Self::Pairs(..) => "LabelTransformer",
            Self::Replicas(..) => "ReplicaCountTransformer",
            Self::Images(..) => "ImageTagTransformer",
            Self::Replacements(_) => "ReplacementTransformer",
            Self::ValueAdd(_) => "ValueAddTransformer",
            Self::Hash => "HashTransformer",
        }
    }

    /// How many transformers kustomize runs for it.
    pub(crate) fn count(&self) -> usize {
        if let Self::Images(images, _) = self { images.len() } else { 1 }
    }

    /// Runs the step; `field` is where it was asked for.
    pub(crate) fn run(
        &self,
        loader: &Loader<'_>,
        site: &Site,
        field: &str,
        objects: &mut Resources,
    ) -> Result<(), Error> {
        if !matches!(self, Self::StrategicMerge(_) | Self::Patch(_) | Self::JsonPatch(_)) {
            objects.sweep();
        }
        let counted = match self {
            Self::StrategicMerge(_) | Self::Patch(_) | Self::JsonPatch(_) | Self::Replacements(_) => Ok(()),
            Self::Prefix(affix) | Self::Suffix(affix) => each(loader, objects, affix.text.len()),
            Self::Namespace(namespace) => each(loader, objects, namespace.namespace.len()),
            Self::Pairs(pairs, _) => {
                each(loader, objects, pairs.iter().map(|(key, value)| key.len() + value.len()).sum())
            }
            Self::Replicas(..) | Self::Images(..) | Self::ValueAdd(_) | Self::Hash => {
                each(loader, objects, 0)
            }
        };
        counted.map_err(|message| loader.fail(site, field, message))?;
        let done = match self {
            Self::StrategicMerge(entries) => {
                return patch::strategic_merge_files(loader, site, field, entries, objects);
            }
            Self::Patch(patch) => return patch::apply(loader, site, field, patch, false, objects),
            Self::JsonPatch(patch) => return patch::apply(loader, site, field, patch, true, objects),
            Self::Namespace(namespace) => name::namespace(namespace, &loader.budget, objects),
            Self::Prefix(prefix) => name::prefix(prefix, &loader.budget, objects),
            Self::Suffix(suffix) => name::suffix(suffix, &loader.budget, objects),
            Self::Pairs(pairs, fields) => label::set(pairs, fields, &loader.budget, objects),
            Self::Replicas(replica, fields) => replica::apply(replica, fields, objects),
            Self::Images(images, fields) => {
                return image::apply(loader, site, field, images, fields, objects);
            }
            Self::Replacements(entries) => return replace::apply(loader, site, field, entries, objects),
            Self::ValueAdd(add) => return add::apply(loader, site, field, add, objects),
            Self::Hash => finish::hashes(objects, &loader.budget),
        };
        done.map_err(|message| loader.fail(site, field, message))
    }
}

/// Counts a look at each object, and this many bytes that each takes.
fn each(loader: &Loader<'_>, objects: &Resources, bytes: usize) -> Result<(), String> {
    loader.budget.work(objects.len())?;
    loader.budget.make(objects.len().saturating_mul(bytes))
}
