//! Fields that hold the names of other objects, changed along with those names.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::fieldspec::{Create, FieldSpec};
use crate::resource::{Id, Resource};
use crate::resources::Resources;
use crate::specs::{BackReference, Specs};
use crate::value::{Map, Str, Text, TextStyle, Value};
use crate::yaml;

/// A field that holds the name of another object.
struct Reference<'s> {
    field: &'s FieldSpec,
    target: &'s BackReference,
    /// A `roleRef`: its group and kind choose too.
    role: bool,
}

/// References by the kind of the object that refers, in order: kinds are added as they come.
struct References<'s> {
    specs: &'s Specs,
    by_kind: HashMap<Str, Rc<[Reference<'s>]>>,
}

impl<'s> References<'s> {
    fn of(specs: &'s Specs) -> Self {
        Self { specs, by_kind: HashMap::new() }
    }

    fn from(&mut self, kind: &Str) -> Rc<[Reference<'s>]> {
        if let Some(known) = self.by_kind.get(kind) {
            return known.clone();
        }
        let fields = |target: &'s BackReference| target.referrers.iter().map(move |field| (field, target));
        let found = self.specs.references.iter().flat_map(fields);
        let found = found.filter(|(field, _)| field.kind.is_empty() || field.kind == *kind);
        let found: Rc<[_]> =
            found.map(|(field, target)| Reference { field, target, role: is_role(field) }).collect();
        self.by_kind.insert(kind.clone(), found.clone());
        found
    }
}

fn is_role(field: &FieldSpec) -> bool {
    matches!(field.path.as_slice(), [.., role, name] if role.key.ends_with("roleRef") && &*name.key == "name")
}

/// Sets every reference to the present name of what it refers to.
pub(crate) fn fix(specs: &Specs, objects: &mut Resources) -> Result<(), String> {
    objects.iter().try_for_each(check_subjects)?;
    let targets = Targets::of(objects);
    let mut references = References::of(specs);
    for at in 0..objects.len() {
        let resource = objects.get_mut(at);
        let original = resource.original_id().gvk.clone();
        let references = references.from(&original.kind);
        if references.is_empty() {
            continue;
        }
        let referrer = Referrer::of(resource);
        let result: Result<(), String> = resource.edit(|object| {
            for reference in references.iter().filter(|reference| reference.field.matches(&original)) {
                let role = if reference.role { role_ref(object) } else { None };
                let search = Search { targets: &targets, referrer: &referrer, reference, role };
                reference.field.apply(object, Create::Nothing, &mut |value| search.set(value))?;
            }
            Ok(())
        });
        result.map_err(|message| format!("{}: {message}", referrer.id))?;
    }
    Ok(())
}

/// A service account that a RoleBinding names has its namespace, or none.
fn check_subjects(resource: &Resource) -> Result<(), String> {
    if &*resource.id().gvk.kind != "RoleBinding" {
        return Ok(());
    }
    let Some(Value::List(subjects)) = resource.value().get("subjects") else { return Ok(()) };
    for subject in subjects.iter().filter_map(Value::as_map) {
        let account = subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount");
        if account && subject.get("namespace").is_some_and(|namespace| !is_string(namespace)) {
            return Err(format!("{}: the namespace of a subject must be a string", resource.id()));
        }
    }
    Ok(())
}

/// Is it a string? One without a tag is what it would be read as.
fn is_string(value: &Value) -> bool {
    match value {
        Value::String(text) if text.is_untagged() => {
            matches!(yaml::plain_value(text), Value::String(text) if !text.is_time())
        }
        other => other.as_str().is_some(),
    }
}

/// Objects whose name, namespace or kind changed: only these can be found by an earlier name.
struct Targets {
    list: Vec<Target>,
    by_name: HashMap<Str, Vec<usize>>,
    /// Original and present namespaces of all objects, by present namespace.
    original_namespaces: HashSet<(Str, Str)>,
}

struct Target {
    name: Str,
    namespace: Str,
    id: Id,
    original_namespace: Str,
    previous: Vec<Id>,
    prefixes: Vec<Str>,
    suffixes: Vec<Str>,
}

impl Targets {
    fn of(objects: &Resources) -> Self {
        let mut out = Self { list: Vec::new(), by_name: HashMap::new(), original_namespaces: HashSet::new() };
        for resource in objects.iter() {
            let (original, current) = (resource.original_id(), resource.id());
            out.original_namespaces
                .insert((current.effective_namespace.clone(), original.effective_namespace.clone()));
            if resource.previous_ids().is_empty() {
                continue;
            }
            let at = out.list.len();
            for id in resource.previous_ids() {
                let slot = out.by_name.entry(id.name.clone()).or_default();
                if slot.last() != Some(&at) {
                    slot.push(at);
                }
            }
            out.list.push(Target {
                name: current.name.clone(),
                namespace: resource.namespace().clone(),
                id: current.clone(),
                original_namespace: original.effective_namespace.clone(),
                previous: resource.previous_ids().to_vec(),
                prefixes: resource.prefixes.clone(),
                suffixes: resource.suffixes.clone(),
            });
        }
        out
    }
}

/// The object that refers, as far as it decides what it can refer to.
struct Referrer {
    id: Id,
    prefixes: Vec<Str>,
    suffixes: Vec<Str>,
    /// Namespaces of the service accounts that a RoleBinding names.
    account_namespaces: HashSet<Str>,
}

impl Referrer {
    fn of(resource: &Resource) -> Self {
        let mut account_namespaces = HashSet::new();
        if &*resource.id().gvk.kind == "RoleBinding"
            && let Some(Value::List(subjects)) = resource.value().get("subjects")
        {
            for subject in subjects.iter().filter_map(Value::as_map) {
                if subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount")
                    && let Some(Value::String(namespace)) = subject.get("namespace")
                {
                    account_namespaces.insert(namespace.as_shared().clone());
                }
            }
        }
        Self {
            id: resource.id().clone(),
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
            account_namespaces,
        }
    }

    /// May it refer to an object there? Objects without a namespace see all and are seen by all.
    fn sees(&self, target: &Target) -> bool {
        if self.id.gvk.cluster_scoped || target.id.gvk.cluster_scoped {
            return true;
        }
        if self.id.effective_namespace == target.id.effective_namespace {
            return true;
        }
        &*target.id.gvk.kind == "ServiceAccount" && self.account_namespaces.contains(&target.namespace)
    }
}

/// Group and kind of a `roleRef`.
fn role_ref(object: &Map) -> Option<(Str, Str)> {
    let role = object.get("roleRef")?.as_map()?;
    Some((role.get("apiGroup")?.scalar_text()?, role.get("kind")?.scalar_text()?))
}

/// Sets a name. Without quotes, one that is a number to YAML is a number from then on.
fn rename(value: &mut Value, name: &Str) {
    *value = Value::String(match value {
        Value::String(old) => old.replaced_without_tag(name.clone()),
        _ => Text::new(name.clone(), TextStyle::Untagged),
    });
}

/// The search for what one field refers to.
struct Search<'s> {
    targets: &'s Targets,
    referrer: &'s Referrer,
    reference: &'s Reference<'s>,
    role: Option<(Str, Str)>,
}

impl Search<'_> {
    fn set(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::Null(_) => Ok(()),
            Value::Map(map) => self.set_map(map),
            Value::List(items) => items.iter_mut().try_for_each(|item| match item {
                Value::Map(map) => self.set_map(map),
                Value::List(_) => Err("a list of names is needed, not a list of lists".to_owned()),
                scalar => self.set_scalar(scalar),
            }),
            scalar => self.set_scalar(scalar),
        }
    }

    fn set_scalar(&self, value: &mut Value) -> Result<(), String> {
        let Some(name) = value.scalar_text() else { return Ok(()) };
        if let Some(target) = self.find(&name, |_| true, false)?
            && target.name != name
        {
            rename(value, &target.name);
        }
        Ok(())
    }

    fn set_map(&self, map: &mut Map) -> Result<(), String> {
        let Some(name) = map.get("name").and_then(Value::scalar_text) else {
            return Err(format!("field {} has no name in it", self.reference.field.path_text()));
        };
        let target = match map.get("namespace").and_then(Value::scalar_text) {
            None => self.find(&name, |_| true, true)?,
            Some(namespace) if self.original_namespace_exists(&namespace) => {
                self.find(&name, |t| !t.id.gvk.cluster_scoped && t.original_namespace == namespace, true)?
            }
            Some(namespace) => {
                self.find(&name, |t| !t.id.gvk.cluster_scoped && t.id.effective_namespace == namespace, true)?
            }
        };
        let Some(target) = target else { return Ok(()) };
        if target.name == name && target.namespace.is_empty() {
            return Ok(());
        }
        if let Some(value) = map.get_mut("name") {
            rename(value, &target.name);
        }
        if !target.namespace.is_empty() {
            map.insert("namespace", Value::string(target.namespace.clone()));
        }
        Ok(())
    }

    /// Is there any object, of those that the referrer sees, that was in this namespace first?
    fn original_namespace_exists(&self, namespace: &Str) -> bool {
        let has =
            |current: &Str| self.targets.original_namespaces.contains(&(current.clone(), namespace.clone()));
        if self.referrer.id.gvk.cluster_scoped {
            return self.targets.original_namespaces.iter().any(|(_, original)| original == namespace);
        }
        has(&self.referrer.id.effective_namespace) || self.referrer.account_namespaces.iter().any(has)
    }

    fn find(
        &self,
        name: &Str,
        fits: impl Fn(&Target) -> bool,
        with_namespace: bool,
    ) -> Result<Option<&Target>, String> {
        let Some(named) = self.targets.by_name.get(name) else { return Ok(None) };
        let BackReference { group, version, kind, .. } = self.reference.target;
        let mut found: Vec<&Target> = named
            .iter()
            .map(|at| &self.targets.list[*at])
            .filter(|target| fits(target))
            .filter(|target| target.previous.iter().any(|id| id.gvk.is_selected(group, version, kind)))
            .filter(|target| match &self.role {
                None => true,
                Some((group, kind)) => target.previous.iter().any(|id| id.gvk.is_selected(group, "", kind)),
            })
            .filter(|target| self.referrer.sees(target))
            .collect();
        if found.len() > 1 {
            found.retain(|target| self.same_parts(target, true));
            if found.len() > 1 {
                found.retain(|target| self.same_parts(target, false));
            }
        }
        let Some((first, rest)) = found.split_first() else { return Ok(None) };
        let same = |other: &&&Target| {
            other.name == first.name && (!with_namespace || other.namespace == first.namespace)
        };
        if rest.iter().all(|other| same(&other)) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = found.iter().map(|target| target.id.to_string()).collect();
        let field = self.reference.field.path_text();
        Err(format!("field {field}: {name:?} could be any of {}", ids.join(", ")))
    }

    /// Did the same kustomizations add their prefixes and suffixes?
    fn same_parts(&self, target: &Target, allow_empty: bool) -> bool {
        let same = |a: &[Str], b: &[Str]| (allow_empty && (a.is_empty() || b.is_empty())) || same_end(a, b);
        same(&target.prefixes, &self.referrer.prefixes) && same(&target.suffixes, &self.referrer.suffixes)
    }
}

/// Does the longer list end with the shorter? An empty one only matches an empty one.
fn same_end(a: &[Str], b: &[Str]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
}
