//! Which fields the transformers touch: kustomize's own table, and what `configurations` and `crds` add to it.

mod builtin;
mod crd;
mod file;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::fieldspec::{FieldSpec, Step};
use crate::order::rank;
use crate::value::Str;

pub(crate) use crd::read as read_crd;
pub(crate) use file::{field as read_field, read as read_file};

/// Field specifications, as far as a kustomization has gathered them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    pub(crate) name_prefix: Vec<FieldSpec>,
    pub(crate) name_suffix: Vec<FieldSpec>,
    pub(crate) namespace: Vec<FieldSpec>,
    pub(crate) common_labels: Vec<FieldSpec>,
    /// For entries of `labels`, besides those that they name.
    pub(crate) labels: Vec<FieldSpec>,
    pub(crate) template_labels: Vec<FieldSpec>,
    pub(crate) annotations: Vec<FieldSpec>,
    pub(crate) images: Vec<FieldSpec>,
    pub(crate) replicas: Vec<FieldSpec>,
    /// Where `$(NAME)` of `vars` is resolved.
    pub(crate) var_reference: Vec<FieldSpec>,
    pub(crate) references: Vec<BackReference>,
}

/// A kind of object, and the fields of others that hold its name.
#[derive(Debug, Clone)]
pub(crate) struct BackReference {
    pub(crate) group: Str,
    pub(crate) version: Str,
    pub(crate) kind: Str,
    pub(crate) referrers: Vec<FieldSpec>,
}

/// The default table; it never changes.
pub(crate) static SPECS: LazyLock<Arc<Specs>> = LazyLock::new(|| Arc::new(Specs::builtin()));

impl Specs {
    /// Adds what another layer gathered. What is known stays; where the two differ in `create`, that is an error.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), String> {
        let lists = [
            ("namePrefix", &mut self.name_prefix, &other.name_prefix),
            ("nameSuffix", &mut self.name_suffix, &other.name_suffix),
            ("namespace", &mut self.namespace, &other.namespace),
            ("commonLabels", &mut self.common_labels, &other.common_labels),
            ("labels", &mut self.labels, &other.labels),
            ("templateLabels", &mut self.template_labels, &other.template_labels),
            ("commonAnnotations", &mut self.annotations, &other.annotations),
            ("images", &mut self.images, &other.images),
            ("replicas", &mut self.replicas, &other.replicas),
            ("varReference", &mut self.var_reference, &other.var_reference),
        ];
        for (field, own, incoming) in lists {
            merge_fields(own, incoming).map_err(|message| format!("{field}: {message}"))?;
        }
        for reference in &other.references {
            self.add_reference(reference).map_err(|message| format!("nameReference: {message}"))?;
        }
        self.sort();
        Ok(())
    }

    /// Adds one kind of object with the fields that hold its name.
    fn add_reference(&mut self, reference: &BackReference) -> Result<(), String> {
        let id = |r: &BackReference| (r.group.clone(), r.version.clone(), r.kind.clone());
        let wanted = id(reference);
        match self.references.iter_mut().find(|known| id(known) == wanted) {
            Some(known) => merge_fields(&mut known.referrers, &reference.referrers),
            None => {
                self.references.push(reference.clone());
                Ok(())
            }
        }
    }

    /// Puts all lists in kustomize's order of kinds.
    fn sort(&mut self) {
        for list in [
            &mut self.name_prefix,
            &mut self.name_suffix,
            &mut self.namespace,
            &mut self.common_labels,
            &mut self.labels,
            &mut self.template_labels,
            &mut self.annotations,
            &mut self.images,
            &mut self.replicas,
            &mut self.var_reference,
        ] {
            list.sort_by_cached_key(|field| place(&field.group, &field.version, &field.kind));
        }
        self.references.sort_by_cached_key(|target| place(&target.group, &target.version, &target.kind));
    }
}

/// What the order goes by: the rank of the kind, then the text of group, version and kind.
fn place(group: &str, version: &str, kind: &str) -> (i64, String) {
    let or = |text, none| if str::is_empty(text) { none } else { text };
    (rank(kind), [or(group, "~G"), or(version, "~V"), or(kind, "~K")].join("_"))
}

/// Adds specifications that are not there yet. One is there if the path is, for the same objects or for some of them.
pub(crate) fn merge_fields(own: &mut Vec<FieldSpec>, incoming: &[FieldSpec]) -> Result<(), String> {
    let mut by_path: HashMap<Vec<Step>, Vec<usize>> = HashMap::with_capacity(own.len());
    for (at, spec) in own.iter().enumerate() {
        by_path.entry(spec.path.clone()).or_default().push(at);
    }
    for spec in incoming {
        let known = by_path.entry(spec.path.clone()).or_default();
        match known.iter().find(|at| own[**at].is_selected_by(spec)) {
            Some(at) if own[*at].create != spec.create => {
                return Err(format!(
                    "the specifications for {} contradict each other in create",
                    spec.path_text()
                ));
            }
            Some(_) => {}
            None => {
                known.push(own.len());
                own.push(spec.clone());
            }
        }
    }
    Ok(())
}
