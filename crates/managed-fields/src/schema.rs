//! How the lists and mappings of an object merge: read once from its structural OpenAPI schema.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The schema of a kind in one version.
///
/// A list is merged as a whole unless `x-kubernetes-list-type` says `set`, or `map` with `x-kubernetes-list-map-keys`; a
/// mapping field by field unless `x-kubernetes-map-type` says `atomic`. Fields that the schema does not name are refused
/// unless `additionalProperties` or `x-kubernetes-preserve-unknown-fields` allow them.
#[derive(Debug, Default)]
pub struct Schema {
    pub(crate) root: TypeRef,
}

/// What a value may be.
#[derive(Debug, Default)]
pub(crate) enum TypeRef {
    /// Nothing: a field that the schema does not know.
    #[default]
    None,
    /// Anything, as one whole.
    Untyped,
    /// Anything: mappings field by field, lists as a whole.
    Deduced,
    /// This.
    Is(Box<Atom>),
}

#[derive(Debug, Default)]
pub(crate) struct Atom {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Debug)]
pub(crate) struct ListType {
    /// By which fields items are told apart, by their value where empty; none for a list that is one whole.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) element: TypeRef,
}

#[derive(Debug)]
pub(crate) struct MapType {
    pub(crate) atomic: bool,
    pub(crate) fields: BTreeMap<String, Field>,
    pub(crate) element: TypeRef,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) type_: TypeRef,
    pub(crate) default: Option<Value>,
}

/// The kinds of an atom that fit a value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct View<'s> {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<&'s ListType>,
    pub(crate) map: Option<&'s MapType>,
}

static UNTYPED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Untyped),
    list: Some(ListType { keys: None, element: TypeRef::Untyped }),
    map: Some(MapType { atomic: true, fields: BTreeMap::new(), element: TypeRef::Untyped }),
});

static DEDUCED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Untyped),
    list: Some(ListType { keys: None, element: TypeRef::Untyped }),
    map: Some(MapType { atomic: false, fields: BTreeMap::new(), element: TypeRef::Deduced }),
});

impl Schema {
    /// Reads a structural schema, whose references are resolved already.
    #[must_use]
    pub fn new(schema: &Value) -> Self {
        Self { root: read(schema, false, 0) }
    }
}

impl TypeRef {
    pub(crate) fn atom(&self) -> Option<&Atom> {
        match self {
            Self::None => None,
            Self::Untyped => Some(&UNTYPED),
            Self::Deduced => Some(&DEDUCED),
            Self::Is(atom) => Some(atom),
        }
    }

    /// The part of the type that fits the value; all of it where none does, and where there is no value or a null.
    pub(crate) fn view(&self, value: Option<&Value>) -> View<'_> {
        let Some(atom) = self.atom() else { return View::default() };
        let all = View { scalar: atom.scalar, list: atom.list.as_ref(), map: atom.map.as_ref() };
        let part = match value {
            None | Some(Value::Null) => return all,
            Some(Value::Array(_)) => View { list: all.list, ..View::default() },
            Some(Value::Object(_)) => View { map: all.map, ..View::default() },
            Some(_) => View { scalar: all.scalar, ..View::default() },
        };
        if part.is_nothing() { all } else { part }
    }

    /// Whether nothing is known of it: as for objects that may hold anything.
    pub(crate) fn is_deduced(&self) -> bool {
        match self {
            Self::Deduced => true,
            Self::Is(atom) => atom.scalar == Some(Scalar::Untyped),
            Self::None | Self::Untyped => false,
        }
    }
}

impl View<'_> {
    fn is_nothing(self) -> bool {
        self.scalar.is_none() && self.list.is_none() && self.map.is_none()
    }

    /// Whether both are the same part of one type.
    pub(crate) fn is_like(self, other: Self) -> bool {
        self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
            && self.map.is_some() == other.map.is_some()
    }
}

impl MapType {
    pub(crate) fn field(&self, name: &str) -> &TypeRef {
        self.fields.get(name).map_or(&self.element, |field| &field.type_)
    }
}

/// A schema that nests deeper allows anything there.
const MAX_SCHEMA_DEPTH: usize = 100;

fn read(schema: &Value, preserve: bool, depth: usize) -> TypeRef {
    let Some(map) = schema.as_object().filter(|_| depth < MAX_SCHEMA_DEPTH) else { return TypeRef::Deduced };
    let preserve = preserve || map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let atom = match map.get("type").and_then(Value::as_str) {
        Some("object") => Atom { map: Some(read_map(map, preserve, depth)), ..Atom::default() },
        Some("array") => Atom { list: Some(read_list(map, preserve, depth)), ..Atom::default() },
        Some("integer" | "number") => Atom { scalar: Some(Scalar::Numeric), ..Atom::default() },
        Some("boolean") => Atom { scalar: Some(Scalar::Boolean), ..Atom::default() },
        Some("string") => {
            let plain = matches!(map.get("format").and_then(Value::as_str), None | Some("" | "byte"));
            Atom { scalar: Some(if plain { Scalar::String } else { Scalar::Untyped }), ..Atom::default() }
        }
        Some(_) => Atom { scalar: Some(Scalar::Untyped), ..Atom::default() },
        None => Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(read_list(map, preserve, depth)),
            map: Some(read_map(map, preserve, depth)),
        },
    };
    TypeRef::Is(Box::new(atom))
}

fn read_map(schema: &Map<String, Value>, preserve: bool, depth: usize) -> MapType {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields: BTreeMap<String, Field> = properties
        .into_iter()
        .flatten()
        .map(|(name, inner)| {
            let default = inner.get("default").filter(|default| !default.is_null()).cloned();
            (name.clone(), Field { type_: read(inner, preserve, depth + 1), default })
        })
        .collect();
    let element = match schema.get("additionalProperties") {
        // An object without properties is free in its form.
        None if preserve || fields.is_empty() => TypeRef::Deduced,
        None | Some(Value::Bool(false)) => TypeRef::None,
        Some(inner @ Value::Object(_)) => read(inner, preserve, depth + 1),
        Some(_) => TypeRef::Deduced,
    };
    let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    MapType { atomic, fields, element }
}

fn read_list(schema: &Map<String, Value>, preserve: bool, depth: usize) -> ListType {
    let keys = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Some(Vec::new()),
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            Some(keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => None,
    };
    let element = match schema.get("items") {
        Some(items) => read(items, preserve, depth + 1),
        None => TypeRef::Untyped,
    };
    ListType { keys, element }
}
