//! One kustomization with its bases: what kustomize calls accumulating a target.

use std::rc::Rc;
use std::sync::Arc;

use crate::budget::Held;
use crate::error::{Error, Quoted};
use crate::fields::{Fields, Site};
use crate::generate;
use crate::kustomization::{FILE_NAMES, Kustomization};
use crate::load::{Documents, FIELDS, Found, Loader, yaml_error};
use crate::origin::{Origin, note_file};
use crate::plain;
use crate::plugin::Plugins;
use crate::resources::Resources;
use crate::schema::OpenApi;
use crate::specs::{self, SPECS, Specs};
use crate::transform;
use crate::tree::{EntryKind, TreeError, TreePath};
use crate::value::Value;
use crate::vars::Vars;
use crate::yaml::Dialect;

/// The directories from the root of a build down to a base.
pub(crate) struct Chain {
    dir: TreePath,
    depth: usize,
    parent: Option<Rc<Chain>>,
    /// The directory as the paths to it are written; `None` where no notes are taken.
    origin: Option<Origin>,
}

impl Chain {
    pub(crate) fn start(dir: TreePath, takes_notes: bool) -> Rc<Self> {
        Rc::new(Self { dir, depth: 1, parent: None, origin: takes_notes.then(Origin::default) })
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// One step down. A base may not be, or contain, a directory on the way to it.
    fn enter(self: &Rc<Self>, path: &str, dir: TreePath, limit: usize) -> Result<Rc<Self>, Error> {
        let mut at = Some(self);
        while let Some(link) = at {
            if link.dir.is_within(&dir) {
                let mut chain = vec![Quoted(dir)];
                let mut at = Some(self);
                while let Some(link) = at {
                    chain.push(Quoted(link.dir.clone()));
                    at = link.parent.as_ref();
                }
                chain.reverse();
                return Err(Error::Cycle { chain });
            }
            at = link.parent.as_ref();
        }
        if self.depth >= limit {
            return Err(Error::Limit {
                place: dir.display().to_owned(),
                what: "bases inside of each other",
                limit,
            });
        }
        let origin = self.origin.as_ref().map(|origin| origin.join(path));
        Ok(Rc::new(Self { dir, depth: self.depth + 1, parent: Some(self.clone()), origin }))
    }
}

/// The name of the kustomization file of a directory, if it has one.
pub(crate) fn kustomization_file(loader: &Loader<'_>, dir: &TreePath) -> Result<Option<&'static str>, Error> {
    let mut found = Vec::new();
    for name in FILE_NAMES {
        let Some(path) = dir.join(name) else { continue };
        match loader.resolve(&path) {
            Ok((_, EntryKind::File)) => found.push(name),
            Ok(_) | Err(TreeError::NotFound(_) | TreeError::NotADirectory(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some(name)),
        _ => Err(Error::ManyKustomizations { dir: Quoted(dir.clone()), files: found }),
    }
}

/// Reads the kustomization of a directory.
pub(crate) fn read_kustomization(
    loader: &Loader<'_>,
    dir: &TreePath,
) -> Result<(Site, Kustomization), Error> {
    let file = kustomization_file(loader, dir)?.ok_or_else(|| Error::NoKustomization(Quoted(dir.clone())))?;
    let Some(path) = dir.join(file) else { return Err(Error::NoKustomization(Quoted(dir.clone()))) };
    let (path, _) = loader.resolve(&path)?;
    let Documents { list, held, .. } = loader.documents(&path, Dialect::Kustomization)?;
    let site = Site { dir: dir.clone(), file: file.to_owned() };
    // The fields that an entry does not name take room too.
    let fields = loader.budget.hold(held.bytes().saturating_mul(FIELDS));
    let fields = fields.map_err(|message| loader.fail(&site, "kustomization", message))?;
    let mut kustomization = Kustomization::read(dir, file, list)?;
    kustomization.held = Some(Rc::new(fields));
    Ok((site, kustomization))
}

/// The kustomization of a directory, made from its manifests where there is none.
pub(crate) fn read_or_generate(loader: &Loader<'_>, dir: &TreePath) -> Result<(Site, Kustomization), Error> {
    if kustomization_file(loader, dir)?.is_some() {
        return read_kustomization(loader, dir);
    }
    let resources = plain::manifests(loader, dir)?;
    let site = Site { dir: dir.clone(), file: "generated kustomization.yaml".to_owned() };
    Ok((site, Kustomization { resources, ..Kustomization::default() }))
}

/// What a kustomization has gathered: its own and what its bases have.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) objects: Resources,
    /// `None` before the first kustomization told its own.
    specs: Option<Arc<Specs>>,
    pub(crate) vars: Vars,
}

impl Gathered {
    /// Field specifications: at least kustomize's own.
    pub(crate) fn specs(&self) -> &Arc<Specs> {
        self.specs.as_ref().unwrap_or(&SPECS)
    }

    fn merge_specs(&mut self, other: &Arc<Specs>) -> Result<(), String> {
        match &mut self.specs {
            None if Arc::ptr_eq(&SPECS, other) => self.specs = Some(other.clone()),
            // Nothing is merged with too: one for all kinds gives way to one for a kind that comes before it.
            None => {
                let mut own = Specs::default();
                own.merge(other)?;
                self.specs = Some(Arc::new(own));
            }
            Some(own) if Arc::ptr_eq(own, other) => {}
            Some(own) => Arc::make_mut(own).merge(other)?,
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) -> Result<(), String> {
        self.objects.append_all(other.objects)?;
        if let Some(specs) = &other.specs {
            self.merge_specs(specs)?;
        }
        self.vars.append(other.vars)
    }
}

/// Builds a kustomization over what is there: nothing for a kustomization of its own, the parent's for a component.
pub(crate) fn accumulate(
    loader: &Loader<'_>,
    chain: &Rc<Chain>,
    site: &Site,
    kustomization: &Kustomization,
    mut gathered: Gathered,
) -> Result<Gathered, Error> {
    loader.count_kustomization(&site.dir)?;
    for (i, path) in kustomization.resources.iter().enumerate() {
        let field = format!("resources[{i}]");
        let found = read_path(loader, chain, site, &field, path)?;
        gathered.merge(found).map_err(|message| site.error(field, message))?;
        check_count(loader, site, &gathered.objects)?;
    }
    configure(loader, site, kustomization, &mut gathered)?;
    generate::run(loader, site, kustomization, chain.origin(), &mut gathered.objects)?;
    let plugins = Plugins { loader, chain, site };
    plugins.generate(&kustomization.generators, &mut gathered.objects)?;
    for (i, path) in kustomization.components.iter().enumerate() {
        let field = format!("components[{i}]");
        let Found::Directory(dir) = loader.find(site, &field, path)? else {
            return Err(site.error(field, format!("{path:?} is a file; a component is a directory")));
        };
        let (inner, component) = enter(loader, chain, site, &field, path, &dir, true)?;
        gathered = accumulate(loader, &inner.1, &inner.0, &component, gathered)?;
        // kustomize gathers all objects again, and each needs an id of its own for that.
        loader.budget.work(gathered.objects.len()).map_err(|message| loader.fail(site, &field, message))?;
        gathered.objects.check_unique().map_err(|message| site.error(&field, message))?;
    }
    let specs = gathered.specs().clone();
    transform::run(loader, site, kustomization, &specs, chain.origin(), &mut gathered.objects)?;
    plugins.transform(&kustomization.transformers, &mut gathered.objects)?;
    plugins.validate(&kustomization.validators, &mut gathered.objects)?;
    gathered.objects.sweep();
    for (i, var) in kustomization.vars.iter().enumerate() {
        let error = |message: String| site.error(format!("vars[{i}]"), message);
        var.mark(&mut gathered.objects).map_err(error)?;
    }
    for (i, var) in kustomization.vars.iter().enumerate() {
        gathered.vars.add(var.clone()).map_err(|message| site.error(format!("vars[{i}]"), message))?;
    }
    Ok(gathered)
}

/// What a path leads to: the objects of a file, or what a base gathers.
pub(crate) fn read_path(
    loader: &Loader<'_>,
    chain: &Rc<Chain>,
    site: &Site,
    field: &str,
    path: &str,
) -> Result<Gathered, Error> {
    match loader.find(site, field, path)? {
        Found::File(file) => {
            loader.check(site, field, path, &file)?;
            let mut objects = loader.objects(&file)?;
            if let Some(origin) = chain.origin() {
                note_file(&origin.of_file(path), &mut objects);
            }
            Ok(Gathered { objects, ..Gathered::default() })
        }
        Found::Directory(dir) => {
            let (site, base) = enter(loader, chain, site, field, path, &dir, false)?;
            accumulate(loader, &site.1, &site.0, &base, Gathered::default())
        }
    }
}

/// The only version of Kubernetes whose schema is builtin.
const BUILTIN_SCHEMA: &str = "v1.21.2";

/// Takes the schema that a kustomization names, if it is the first to name one.
pub(crate) fn take_schema(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
) -> Result<(), Error> {
    let get = |wanted: &str| kustomization.openapi.iter().find(|(key, _)| &**key == wanted).map(|(_, v)| v);
    let file = get("path").map(|path| loader.file(site, "openapi.path", path)).transpose()?;
    let version = get("version");
    if loader.schemas.is_decided() {
        return Ok(());
    }
    match (file, version) {
        (Some(_), Some(_)) => Err(site.error("openapi", "path and version cannot both be set")),
        (Some(file), None) => {
            let (schema, held) = loader.json_or_yaml(&file)?;
            // It is kept, with tables of the kinds in it.
            let tables = loader.budget.hold(held.bytes());
            let tables = tables.map_err(|message| loader.fail(site, "openapi.path", message))?;
            loader.schemas.replace(OpenApi::new(schema));
            [held, tables].into_iter().for_each(Held::keep);
            Ok(())
        }
        (None, Some(version)) if !version.is_empty() && &**version != BUILTIN_SCHEMA => {
            let message =
                format!("{version:?} is not builtin, only {BUILTIN_SCHEMA} is; name a file with path");
            Err(site.error("openapi.version", message))
        }
        (None, Some(version)) => {
            if !version.is_empty() {
                loader.schemas.keep();
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Gathers field specifications: kustomize's own, those of `configurations`, those of `crds`.
fn configure(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
    gathered: &mut Gathered,
) -> Result<(), Error> {
    let mut specs = SPECS.clone();
    for (i, path) in kustomization.configurations.iter().enumerate() {
        let field = format!("configurations[{i}]");
        let file = loader.file(site, &field, path)?;
        let found = read_configuration(loader, &file)?;
        Arc::make_mut(&mut specs).merge(&found).map_err(|message| site.error(field, message))?;
    }
    gathered.merge_specs(&specs).map_err(|message| site.error("configurations", message))?;
    for (i, path) in kustomization.crds.iter().enumerate() {
        let field = format!("crds[{i}]");
        let file = loader.file(site, &field, path)?;
        let (definitions, _held) = loader.json_or_yaml(&file)?;
        let found = specs::read_crd(&definitions).map_err(|message| site.error(field.as_str(), message))?;
        gathered.merge_specs(&Arc::new(found)).map_err(|message| site.error(field, message))?;
    }
    Ok(())
}

fn read_configuration(loader: &Loader<'_>, file: &TreePath) -> Result<Specs, Error> {
    let site = Site::of_file(file);
    let documents = loader.parse_strict(&loader.read(file)?);
    let Documents { list, held, .. } = documents.map_err(|error| yaml_error(file.as_str(), error))?;
    // What it specifies is laid over what is there, and stays.
    let specs = loader.budget.keep(held.bytes().saturating_mul(2));
    specs.map_err(|message| loader.fail(&site, "configurations", message))?;
    let document = list.into_iter().next();
    match document.map(|document| document.value) {
        None | Some(Value::Null(_)) => Ok(Specs::default()),
        Some(Value::Map(map)) => {
            let mut fields = Fields::new(&site, "", map);
            let specs = specs::read_file(&mut fields)?;
            fields.finish()?;
            Ok(specs)
        }
        Some(other) => {
            Err(site.error("configurations", format!("a mapping is needed, not {}", other.type_name())))
        }
    }
}

fn check_count(loader: &Loader<'_>, site: &Site, objects: &Resources) -> Result<(), Error> {
    let limit = loader.limits.objects;
    if objects.len() > limit {
        return Err(Error::Limit { place: site.dir.display().to_owned(), what: "objects", limit });
    }
    Ok(())
}

/// Reads the kustomization of a base or component, and checks that it is what is wanted.
fn enter(
    loader: &Loader<'_>,
    chain: &Rc<Chain>,
    site: &Site,
    field: &str,
    path: &str,
    dir: &TreePath,
    component: bool,
) -> Result<((Site, Rc<Chain>), Kustomization), Error> {
    if path.starts_with('/') {
        return Err(site.error(field, format!("{path:?} is absolute; a base must be a relative path")));
    }
    let chain = chain.enter(path, dir.clone(), loader.limits.bases_depth)?;
    let (base_site, base) = match read_kustomization(loader, dir) {
        Err(error @ Error::NoKustomization(_)) => return Err(site.error(field, error)),
        other => other?,
    };
    take_schema(loader, &base_site, &base)?;
    match (component, base.component) {
        (true, false) => {
            Err(site.error(field, format!("{path:?} is not a Component (its kind must be Component)")))
        }
        (false, true) => Err(site.error(field, format!("{path:?} is a Component; name it under components"))),
        _ => Ok(((base_site, chain), base)),
    }
}
