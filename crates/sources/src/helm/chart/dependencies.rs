//! The charts that a chart in a folder depends on. Those that its `charts/` lacks are put into it: from the same source, or, once the hub has
//! received them, from other repositories.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roadstead_kustomize::value::{List, Map, Value};
use serde::{Deserialize, Serialize};

use super::folder::{Found, Source};
use super::metadata::{check_name, map_of};
use super::{CHART_YAML, Chart, NotRead, Part, clean};
use crate::helm::request::HelmLimits;
use crate::helm::unread::{Stage, Unread};
use crate::tree::shown;
use crate::untar::Span;
use crate::version::{Constraint, Version};

/// Charts that one may depend on.
pub(in crate::helm) const MOST: usize = 100;
/// Bytes of what a dependency says of a version, and of a repository.
const MOST_VERSION: usize = 250;
const MOST_REPOSITORY: usize = 2_048;
/// Where they are declared, by charts of the second version and of the first.
const DECLARED: [&str; 2] = [CHART_YAML, "requirements.yaml"];
/// Where is noted which versions were meant.
const LOCKED: [&str; 2] = ["Chart.lock", "requirements.lock"];

/// A chart that another one depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::helm) struct Dependency {
    pub(in crate::helm) name: String,
    /// A version, or a range of versions.
    pub(in crate::helm) version: String,
    /// Where it comes from, as the chart says it.
    pub(in crate::helm) repository: String,
}

/// Where the chart of a dependency is.
enum Place {
    /// At a path of the same source.
    Here(String),
    /// In another repository.
    Elsewhere,
}

fn fail(why: String) -> Unread {
    Unread::Failed(Stage::Dependencies, why)
}

/// What charts may hold, and where they are unpacked.
pub(in crate::helm) struct Adding<'a> {
    pub(in crate::helm) limits: &'a HelmLimits,
    pub(in crate::helm) folder: &'a Path,
    pub(in crate::helm) stop: &'a AtomicBool,
}

impl Adding<'_> {
    /// Puts into a chart, which lies at `path` of a source, what it depends on, lacks, and has in the same source. Gives what it lacks then.
    pub(in crate::helm) fn of_source(
        &self,
        chart: &mut Chart,
        source: &Source,
        path: &str,
    ) -> Result<Vec<Dependency>, Unread> {
        let mut elsewhere = Vec::new();
        for (number, dependency) in missing(chart)?.into_iter().enumerate() {
            let at = match place(path, &dependency)? {
                Place::Here(at) => at,
                Place::Elsewhere => {
                    elsewhere.push(dependency);
                    continue;
                }
            };
            let name = shown(&dependency.name);
            let add = self.local(chart, source, &dependency, (&at, number));
            add.map_err(|unread| of_dependency(unread, &format!("failed to add local dependency '{name}'")))?;
        }
        Ok(elsewhere)
    }

    fn local(
        &self,
        chart: &mut Chart,
        source: &Source,
        dependency: &Dependency,
        (at, number): (&str, usize),
    ) -> Result<(), Unread> {
        let Dependency { name, version, .. } = dependency;
        let found = source.find(at, self.limits, self.stop)?;
        let wanted = Constraint::parse(version)
            .map_err(|_| fail(format!("invalid version/constraint format '{}'", shown(version))))?;
        match found {
            Found::Folder(own) => {
                check_version(&own, &wanted, version).map_err(fail)?;
                let mut folder = format!("charts/{name}");
                if chart.files.contains_key(&format!("{folder}/{CHART_YAML}")) {
                    // The same chart in another version, which has an alias.
                    folder = format!("{folder}-{}", own.metadata.version);
                }
                for (path, part) in own.files {
                    chart.files.insert(format!("{folder}/{path}"), part);
                }
            }
            Found::File(part) => {
                let bytes = part.read().map_err(|error| Unread::internal(&error))?.into_owned();
                let own = self.unpacked(bytes.as_slice(), number).map_err(|unread| {
                    of_dependency(unread, &format!("failed to load chart from '/{}'", shown(at)))
                })?;
                check_version(&own, &wanted, version).map_err(fail)?;
                chart.files.insert(packed_path(name, &own), part);
            }
        }
        Ok(())
    }

    /// Puts into a chart what the hub received of other repositories: these, each as `open` gives it.
    pub(in crate::helm) fn received<R: Read>(
        &self,
        chart: &mut Chart,
        dependencies: &[Dependency],
        open: impl Fn(usize) -> R,
    ) -> Result<(), Unread> {
        for (number, dependency) in dependencies.iter().enumerate() {
            let Dependency { name, version, .. } = dependency;
            let add = self.remote(chart, dependency, (number, open(number)));
            add.map_err(|unread| {
                let (name, version) = (shown(name), shown(version));
                let what = format!(
                    "failed to add remote dependency '{name}': failed to load downloaded archive of version '{version}'"
                );
                of_dependency(unread, &what)
            })?;
        }
        Ok(())
    }

    fn remote(
        &self,
        chart: &mut Chart,
        dependency: &Dependency,
        (number, bytes): (usize, impl Read),
    ) -> Result<(), Unread> {
        let internal = |error: io::Error| Unread::internal(&error);
        let path = self.folder.join(format!("received-{number}"));
        let mut file =
            File::options().read(true).write(true).create_new(true).open(path).map_err(internal)?;
        let size = io::copy(&mut bytes.take(self.limits.chart_bytes + 1), &mut file).map_err(internal)?;
        file.seek(SeekFrom::Start(0)).map_err(internal)?;
        let own = self.unpacked(BufReader::new(&file), number)?;
        if own.metadata.name != dependency.name {
            return Err(fail(format!("it is a chart with the name '{}'", shown(&own.metadata.name))));
        }
        // A version that stood in the index as it was asked for need not be one by which others are compared.
        if let Ok(wanted) = Constraint::parse(&dependency.version) {
            check_version(&own, &wanted, &dependency.version).map_err(fail)?;
        }
        let span = Span { offset: 0, size, executable: false };
        chart.files.insert(packed_path(&dependency.name, &own), Part::Lies(Arc::new(file), span));
        Ok(())
    }

    /// A packed chart, of which the content is not kept: one at a time takes room on the disk.
    fn unpacked(&self, packed: impl Read, number: usize) -> Result<Chart, Unread> {
        let scratch = self.folder.join(format!("dependency-{number}"));
        std::fs::create_dir(&scratch).map_err(|error| Unread::internal(&error))?;
        let chart = Chart::unpack(packed, self.limits, &scratch, self.stop, Stage::Dependencies);
        std::fs::remove_dir_all(&scratch).map_err(|error| Unread::internal(&error))?;
        chart
    }
}

fn packed_path(name: &str, chart: &Chart) -> String {
    format!("charts/{name}-{}.tgz", chart.metadata.version)
}

/// What is said of a dependency that is not to be had.
fn of_dependency(unread: Unread, what: &str) -> Unread {
    match unread {
        Unread::Failed(_, why) => fail(format!("{what}: {why}")),
        other => other,
    }
}

/// What a chart depends on that is not in its `charts/`: in the versions of its lock file, where it has one.
fn missing(chart: &Chart) -> Result<Vec<Dependency>, Unread> {
    let declared = listed(chart, &DECLARED)?.unwrap_or_default();
    let locked = listed(chart, &LOCKED)?;
    let wanted = locked.as_ref().unwrap_or(&declared);
    let there = present(chart)?;
    if wanted.is_empty() || there.len() >= wanted.len() {
        return Ok(Vec::new());
    }
    if let Some(locked) = &locked {
        check_lock(&declared, locked)?;
    }
    let mut missing: Vec<Dependency> = Vec::new();
    for dependency in wanted {
        let name = &dependency.name;
        let is_there = |own: &String| own == name || own.starts_with(&format!("{name}-"));
        // One that has several aliases is there once.
        if there.iter().any(is_there) || missing.contains(dependency) {
            continue;
        }
        check_name(name).map_err(fail)?;
        if dependency.version.len() > MOST_VERSION || dependency.repository.len() > MOST_REPOSITORY {
            return Err(fail(format!("the version or the repository of '{}' is too long", shown(name))));
        }
        missing.push(dependency.clone());
    }
    Ok(missing)
}

/// A lock file has what is declared, and in versions that are in the ranges of charts of other repositories: Helm would leave out the others
/// without a word when it renders the chart.
fn check_lock(declared: &[Dependency], locked: &[Dependency]) -> Result<(), Unread> {
    for dependency in declared {
        let named: Vec<_> = locked.iter().filter(|locked| locked.name == dependency.name).collect();
        let range = Constraint::parse(&dependency.version).ok().filter(|_| is_remote(dependency));
        let fits = |locked: &&Dependency| match (&range, Version::coerced(&locked.version)) {
            (Some(range), Some(version)) => range.matches(&version),
            _ => true,
        };
        if !named.iter().any(fits) {
            let (name, version) = (shown(&dependency.name), shown(&dependency.version));
            return Err(fail(format!(
                "the lock file does not fit {CHART_YAML}: it has no version of '{name}' that is in '{version}'; run `helm dependency \
                 update` and commit the lock file"
            )));
        }
    }
    Ok(())
}

fn check_version(chart: &Chart, wanted: &Constraint, text: &str) -> Result<(), String> {
    let version = Version::coerced(&chart.metadata.version);
    if version.is_some_and(|version| wanted.matches(&version)) {
        return Ok(());
    }
    Err(format!("can't get a valid version for constraint '{}'", shown(text)))
}

fn is_remote(dependency: &Dependency) -> bool {
    let repository = &dependency.repository;
    ["http://", "https://", "oci://"].iter().any(|scheme| repository.starts_with(scheme))
}

/// Where a chart is that another one, at `path` of a source, depends on.
fn place(path: &str, dependency: &Dependency) -> Result<Place, Unread> {
    let Dependency { name, repository, .. } = dependency;
    if repository.is_empty() {
        return Ok(Place::Here(clean(&format!("{path}/charts/{name}"))));
    }
    if let Some(rest) = repository.strip_prefix("file://") {
        return Ok(Place::Here(clean(&format!("{path}/{rest}"))));
    }
    if is_remote(dependency) {
        return Ok(Place::Elsewhere);
    }
    let is_alias = repository.starts_with('@') || repository.starts_with("alias:");
    let why = if is_alias {
        "aliased repository dependency is not supported"
    } else {
        "invalid dependency repository URL"
    };
    Err(fail(format!("failed to add remote dependency '{}': {why}", shown(name))))
}

/// The names of the charts that are in `charts/`: of folders as they say it, of packed ones as their files have it.
fn present(chart: &Chart) -> Result<Vec<String>, Unread> {
    let mut names = Vec::new();
    for (path, part) in &chart.files {
        let Some(rest) = path.strip_prefix("charts/") else { continue };
        match rest.split_once('/') {
            Some((_, CHART_YAML)) => {
                let metadata = super::Metadata::read(part).map_err(not_read)?;
                names.push(metadata.name);
            }
            None if rest.ends_with(".tgz") && !rest.starts_with(['_', '.']) => names.push(rest.to_owned()),
            _ => {}
        }
    }
    Ok(names)
}

fn not_read(error: NotRead) -> Unread {
    match error {
        NotRead::Bad(why) => fail(why),
        NotRead::Here(error) => Unread::internal(&error),
    }
}

/// What the first of some files of a chart lists; none where none of them lists any.
fn listed(chart: &Chart, files: &[&str]) -> Result<Option<Vec<Dependency>>, Unread> {
    for file in files {
        let Some(part) = chart.files.get(*file) else { continue };
        let map = map_of(part, file).map_err(not_read)?;
        let Some(value) = map.get("dependencies") else { continue };
        let list: &List = match value {
            Value::List(list) => list,
            Value::Null(_) => continue,
            _ => return Err(fail(format!("dependencies of {file} are not a list"))),
        };
        if list.len() > MOST {
            return Err(fail(format!("{file} names more than {MOST} dependencies")));
        }
        let entry = |value: &Value| {
            let map: &Map = value.as_map()?;
            let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(Dependency { name: text("name"), version: text("version"), repository: text("repository") })
        };
        let all: Option<Vec<Dependency>> = list.iter().map(entry).collect();
        return all.map(Some).ok_or_else(|| fail(format!("a dependency of {file} is not a mapping")));
    }
    Ok(None)
}
