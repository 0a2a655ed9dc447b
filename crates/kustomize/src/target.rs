//! One kustomization with its bases: what kustomize calls accumulating a target.

use std::rc::Rc;

use crate::error::{Error, Quoted};
use crate::fields::Site;
use crate::generate;
use crate::kustomization::{FILE_NAMES, Kustomization};
use crate::load::{Found, Loader};
use crate::plain;
use crate::resources::Resources;
use crate::transform;
use crate::tree::{EntryKind, TreeError, TreePath, resolve};
use crate::yaml::Dialect;

/// The directories from the root of a build down to a base.
pub(crate) struct Chain {
    dir: TreePath,
    depth: usize,
    parent: Option<Rc<Chain>>,
}

impl Chain {
    pub(crate) fn start(dir: TreePath) -> Rc<Self> {
        Rc::new(Self { dir, depth: 1, parent: None })
    }

    /// One step down. A base may not be, or contain, a directory on the way to it.
    fn enter(self: &Rc<Self>, dir: TreePath, limit: usize) -> Result<Rc<Self>, Error> {
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
        Ok(Rc::new(Self { dir, depth: self.depth + 1, parent: Some(self.clone()) }))
    }
}

/// The name of the kustomization file of a directory, if it has one.
pub(crate) fn kustomization_file(loader: &Loader<'_>, dir: &TreePath) -> Result<Option<&'static str>, Error> {
    let mut found = Vec::new();
    for name in FILE_NAMES {
        let Some(path) = dir.join(name) else { continue };
        match resolve(loader.tree, &path) {
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
    let (path, _) = resolve(loader.tree, &path)?;
    let documents = loader.documents(&path, Dialect::Kustomization)?;
    Ok((Site { dir: dir.clone(), file: file.to_owned() }, Kustomization::read(dir, file, documents)?))
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

/// Builds a kustomization over objects: none for a kustomization of its own, the parent's for a component.
pub(crate) fn accumulate(
    loader: &Loader<'_>,
    chain: &Rc<Chain>,
    site: &Site,
    kustomization: &Kustomization,
    mut objects: Resources,
) -> Result<Resources, Error> {
    loader.count_kustomization(&site.dir)?;
    for (i, path) in kustomization.resources.iter().enumerate() {
        let field = format!("resources[{i}]");
        let found = match loader.find(site, &field, path)? {
            Found::File(file) => {
                loader.check(site, &field, path, &file)?;
                loader.objects(&file)?
            }
            Found::Directory(dir) => {
                let (site, base) = enter(loader, chain, site, &field, path, &dir, false)?;
                accumulate(loader, &site.1, &site.0, &base, Resources::default())?
            }
        };
        objects.append_all(found).map_err(|message| site.error(field, message))?;
        check_count(loader, site, &objects)?;
    }
    generate::run(loader, site, kustomization, &mut objects)?;
    for (i, path) in kustomization.components.iter().enumerate() {
        let field = format!("components[{i}]");
        let Found::Directory(dir) = loader.find(site, &field, path)? else {
            return Err(site.error(field, format!("{path:?} is a file; a component is a directory")));
        };
        let (site, component) = enter(loader, chain, site, &field, path, &dir, true)?;
        objects = accumulate(loader, &site.1, &site.0, &component, objects)?;
    }
    transform::run(loader, site, kustomization, &mut objects)?;
    Ok(objects)
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
        return Err(site.error(field, format!("{path:?} is absolute; a base is named by a relative path")));
    }
    let chain = chain.enter(dir.clone(), loader.limits.bases_depth)?;
    let (base_site, base) = match read_kustomization(loader, dir) {
        Err(error @ Error::NoKustomization(_)) => return Err(site.error(field, error)),
        other => other?,
    };
    match (component, base.component) {
        (true, false) => {
            Err(site.error(field, format!("{path:?} is no Component (its kind must be Component)")))
        }
        (false, true) => Err(site.error(field, format!("{path:?} is a Component; name it under components"))),
        _ => Ok(((base_site, chain), base)),
    }
}
