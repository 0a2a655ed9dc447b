//! The charts that a chart in a folder depends on. Those that its `charts/` lacks and that lie in the same source are put into it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use roadstead_kustomize::value::{List, Map, Value};

use super::folder::{Found, Source};
use super::metadata::{check_name, map_of};
use super::{CHART_YAML, Chart, NotRead, Part, clean};
use crate::helm::request::HelmLimits;
use crate::helm::unread::{Stage, Unread};
use crate::tree::shown;
use crate::version::{Constraint, Version};

/// Charts that one may depend on.
const MOST: usize = 100;
/// Where they are declared, by charts of the second version and of the first.
const DECLARED: [&str; 2] = [CHART_YAML, "requirements.yaml"];
/// Where is noted which versions were meant.
const LOCKED: [&str; 2] = ["Chart.lock", "requirements.lock"];

/// A chart that another one depends on.
#[derive(Debug)]
struct Dependency {
    name: String,
    version: String,
    repository: String,
}

fn fail(why: String) -> Unread {
    Unread::Failed(Stage::Dependencies, why)
}

/// Puts into a chart, which lies at `path` of a source, what it depends on and lacks.
pub(in crate::helm) fn add_dependencies(
    chart: &mut Chart,
    source: &Source,
    path: &str,
    (limits, folder, stop): (&HelmLimits, &Path, &AtomicBool),
) -> Result<(), Unread> {
    let declared = match listed(chart, &LOCKED)? {
        Some(locked) => locked,
        None => listed(chart, &DECLARED)?.unwrap_or_default(),
    };
    if declared.is_empty() {
        return Ok(());
    }
    let there = present(chart)?;
    if there.len() >= declared.len() {
        return Ok(());
    }
    let mut added: Vec<String> = Vec::new();
    for dependency in declared {
        let Dependency { name, version, repository } = &dependency;
        let is_there = |own: &String| own == name || own.starts_with(&format!("{name}-"));
        if there.iter().any(is_there) || added.contains(name) {
            continue;
        }
        check_name(name).map_err(fail)?;
        let at = local(path, name, repository)?;
        let fail = |why: String| fail(format!("failed to add local dependency '{}': {why}", shown(name)));
        let found = source.find(&at, limits, stop).map_err(|unread| match unread {
            Unread::Failed(_, why) => fail(why),
            other => other,
        })?;
        let wanted = Constraint::parse(version)
            .map_err(|_| fail(format!("invalid version/constraint format '{}'", shown(version))))?;
        match found {
            Found::Folder(own) => {
                check_version(&own, &wanted, version).map_err(fail)?;
                for (path, part) in own.files {
                    chart.files.insert(format!("charts/{name}/{path}"), part);
                }
            }
            Found::File(part) => {
                let scratch = folder.join(format!("dependency-{}", added.len()));
                std::fs::create_dir(&scratch).map_err(|error| Unread::internal(&error))?;
                let bytes = part.read().map_err(|error| Unread::internal(&error))?.into_owned();
                let own = Chart::unpack(bytes.as_slice(), limits, &scratch, stop, Stage::Dependencies)
                    .map_err(|unread| match unread {
                        Unread::Failed(_, why) => {
                            fail(format!("failed to load chart from '/{}': {why}", shown(&at)))
                        }
                        other => other,
                    })?;
                check_version(&own, &wanted, version).map_err(fail)?;
                chart.files.insert(format!("charts/{name}-{}.tgz", own.metadata.version), Part::Made(bytes));
            }
        }
        added.push(name.clone());
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

/// Where in the source a chart is that another one, at `path`, depends on.
fn local(path: &str, name: &str, repository: &str) -> Result<String, Unread> {
    if repository.is_empty() {
        return Ok(clean(&format!("{path}/charts/{name}")));
    }
    if let Some(rest) = repository.strip_prefix("file://") {
        return Ok(clean(&format!("{path}/{rest}")));
    }
    let name = shown(name);
    Err(fail(if repository.starts_with('@') || repository.starts_with("alias:") {
        format!("failed to add remote dependency '{name}': aliased repository dependency is not supported")
    } else if ["http://", "https://", "oci://"].iter().any(|scheme| repository.starts_with(scheme)) {
        format!(
            "failed to add remote dependency '{name}': charts of other repositories are not fetched by this version of \
             Roadstead; put it into `charts/`"
        )
    } else {
        format!("failed to add remote dependency '{name}': invalid dependency repository URL")
    }))
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
