//! Which lists a strategic merge joins by key, and which kinds have no namespace: facts about Kubernetes' own types, and
//! what the `openapi` field of a kustomization says about others.

mod builtin;
mod openapi;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::value::{Map, Str};

use openapi::Definition;
pub(crate) use openapi::OpenApi;

/// The schema of a build. It belongs to the whole build, as in kustomize: the first kustomization that names one decides
/// for all that is built after it, in whatever layer.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    decided: Cell<bool>,
    /// Was the builtin schema asked for? Then it stays in use beside one that comes later.
    used: Cell<bool>,
    current: RefCell<Rc<Schema>>,
}

impl Schemas {
    /// The schema in use.
    pub(crate) fn current(&self) -> Rc<Schema> {
        self.current.borrow().clone()
    }

    /// Has a kustomization decided?
    pub(crate) fn is_decided(&self) -> bool {
        self.decided.get()
    }

    /// Takes the builtin schema for all of the build.
    pub(crate) fn keep(&self) {
        self.decided.set(true);
    }

    /// Takes another schema.
    pub(crate) fn replace(&self, own: OpenApi) {
        self.decided.set(true);
        let no_builtin = !self.used.get();
        self.current.replace(Rc::new(Schema { no_builtin, own }));
    }

    /// Tells that the merge keys of the builtin schema were needed.
    pub(crate) fn mark_used(&self) {
        self.used.set(true);
    }

    /// Tells that an object was read: of kinds that kustomize has no note of, it asks the schema for the scope.
    pub(crate) fn mark_kind(&self, api_version: &str, kind: &str) {
        if builtin::Type::of_object(api_version, kind) == builtin::Type::Plain {
            self.used.set(true);
        }
    }
}

/// Types and their scopes.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    no_builtin: bool,
    own: OpenApi,
}

impl Schema {
    /// The type of an object.
    pub(crate) fn of_object(&self, api_version: &str, kind: &str) -> Type<'_> {
        let shape = match self.own.of_object(api_version, kind) {
            Some(definition) => Shape::Own(definition),
            None if self.no_builtin => Shape::Builtin(builtin::Type::Plain),
            None => Shape::Builtin(builtin::Type::of_object(api_version, kind)),
        };
        Type { schema: self, shape }
    }

    /// Does an object of this kind have no namespace? Kinds that are not known count as namespaced.
    pub(crate) fn is_cluster_scoped(&self, group: &str, version: &str, kind: &str) -> bool {
        if builtin::is_cluster_scoped(group, version, kind) {
            return true;
        }
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        builtin::Type::of_object(&api_version, kind) == builtin::Type::Plain
            && self.own.is_cluster_scoped(&api_version, kind)
    }
}

/// How one field of a type merges.
#[derive(Debug, Clone)]
pub(crate) struct Field<'s> {
    /// Keys of a list that merges by key; empty for a list of scalars that is joined as a set; `None` for no such list.
    pub(crate) merge_keys: Option<Cow<'s, [&'s str]>>,
    /// The type of the field, or of the elements of the list.
    pub(crate) of: Type<'s>,
}

/// A type, as far as merging is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'s> {
    schema: &'s Schema,
    shape: Shape<'s>,
}

#[derive(Debug, Clone, Copy)]
enum Shape<'s> {
    Builtin(builtin::Type),
    /// A definition of the `openapi` field.
    Own(&'s Map),
}

impl<'s> Type<'s> {
    /// How a field of this type merges.
    pub(crate) fn field(self, name: &str) -> Field<'s> {
        match self.shape {
            Shape::Builtin(of) => {
                let builtin::Field { merge_keys, of } = of.field(name);
                Field { merge_keys: merge_keys.map(Cow::Borrowed), of: self.with(Shape::Builtin(of)) }
            }
            Shape::Own(of) => self.own_field(self.schema.own.field(of, name)),
        }
    }

    /// How a field merges of which a comment gives the schema.
    pub(crate) fn hinted(self, hint: &'s Map) -> Field<'s> {
        self.own_field(self.schema.own.of_schema(hint))
    }

    fn with(self, shape: Shape<'s>) -> Self {
        Self { schema: self.schema, shape }
    }

    fn own_field(self, (merge_keys, of): (Option<Vec<&'s str>>, Definition<'s>)) -> Field<'s> {
        let of = match of {
            Definition::Own(of) => Shape::Own(of),
            Definition::Elsewhere(name) if !self.schema.no_builtin => {
                Shape::Builtin(builtin::Type::of_definition(name))
            }
            Definition::Elsewhere(_) | Definition::Unknown => Shape::Builtin(builtin::Type::Plain),
        };
        Field { merge_keys: merge_keys.map(Cow::Owned), of: self.with(of) }
    }

    /// Where nothing is known about a mapping, it may be an object of its own inside of another: the first of these versions
    /// and kinds that is known counts.
    pub(crate) fn or_object(self, objects: impl IntoIterator<Item = (Str, Str)>) -> Self {
        if !matches!(self.shape, Shape::Builtin(builtin::Type::Plain)) {
            return self;
        }
        for (version, kind) in objects {
            if !version.is_empty() && !kind.is_empty() {
                let of = self.schema.of_object(&version, &kind);
                if !matches!(of.shape, Shape::Builtin(builtin::Type::Plain)) {
                    return of;
                }
            }
        }
        self
    }
}
