//! ConfigMaps and Secrets from literals, files and env files.

use base64::Engine as _;

use crate::budget::{Held, Size, weight};
use crate::error::Error;
use crate::fields::{Fields, Site};
use crate::kustomization::{Generator, GeneratorOptions, Kustomization};
use crate::load::Loader;
use crate::origin::{Origin, note_generated};
use crate::resource::{Behavior, Resource, Source};
use crate::resources::Resources;
use crate::tree::TreePath;
use crate::value::{Map, Str, Text, Value};

/// Runs the generators of a kustomization: ConfigMaps, then Secrets.
pub(crate) fn run(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
    origin: Option<&Origin>,
    objects: &mut Resources,
) -> Result<(), Error> {
    let config_maps = kustomization.config_maps.iter().map(|g| (g, "configMapGenerator"));
    let secrets = kustomization.secrets.iter().map(|g| (g, "secretGenerator"));
    let mut counts = [0_usize; 2];
    for (generator, field) in config_maps.chain(secrets) {
        let secret = field == "secretGenerator";
        let field = format!("{field}[{}]", counts[usize::from(secret)]);
        counts[usize::from(secret)] += 1;
        let place = Place { loader, site, field: &field };
        let mut resource = generate(place, generator, &kustomization.generator_options, secret)?;
        if let Some(origin) = origin {
            let kind = if secret { "SecretGenerator" } else { "ConfigMapGenerator" };
            note_generated(&origin.of_builtin(&site.file, kind), &mut resource);
        }
        objects.absorb(resource).map_err(|message| site.error(field, message))?;
    }
    Ok(())
}

/// Where a generator stands.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    pub(crate) loader: &'p Loader<'p>,
    pub(crate) site: &'p Site,
    pub(crate) field: &'p str,
}

/// Makes the object of one generator; what its own options do not say, those of the kustomization do.
pub(crate) fn generate(
    place: Place<'_>,
    generator: &Generator,
    global: &GeneratorOptions,
    secret: bool,
) -> Result<Resource, Error> {
    let Place { loader, site, field } = place;
    let error = |message: String| site.error(field, message);
    let fail = |message: String| loader.fail(site, field, message);
    loader.budget.keep(weight::OBJECT).map_err(fail)?;
    if generator.name.is_empty() {
        return Err(error("name is missing".into()));
    }
    let behavior = match generator.behavior.as_str() {
        "replace" => Behavior::Replace,
        "merge" => Behavior::Merge,
        // kustomize takes any other word for "create".
        _ => Behavior::Create,
    };
    let mut object = Map::new();
    object.insert("apiVersion", Value::string("v1"));
    object.insert("kind", Value::string(if secret { "Secret" } else { "ConfigMap" }));
    let meta = object.get_or_insert_map("metadata");
    meta.insert("name", Value::string(generator.name.as_str()));
    if !generator.namespace.is_empty() {
        meta.insert("namespace", Value::string(generator.namespace.as_str()));
    }
    let options = &generator.options;
    for (name, global, own) in [
        ("labels", &global.labels, &options.labels),
        ("annotations", &global.annotations, &options.annotations),
    ] {
        loader.budget.keep((global.len() + own.len()).saturating_mul(weight::ENTRY)).map_err(fail)?;
        let texts = global.iter().chain(own).map(|(key, text)| (key.clone(), Value::string(text.clone())));
        let texts: Map = texts.collect();
        if !texts.is_empty() {
            meta.insert(name, Value::Map(texts));
        }
    }
    if secret {
        let kind = if generator.kind.is_empty() { "Opaque" } else { &generator.kind };
        object.insert("type", Value::string(kind));
        object.get_or_insert_map("data");
    }
    if options.immutable || global.immutable {
        object.insert("immutable", Value::Bool(true));
    }
    let pairs = pairs(place, generator)?;
    loader.budget.read(pairs.list.len()).map_err(fail)?;
    fill(&mut object, pairs.list, secret).map_err(error)?;
    drop(pairs.held);
    let size = |field: &str| object.get(field).map_or(0, |value| Size::of(value).bytes());
    loader.budget.keep(size("data") + size("binaryData")).map_err(fail)?;
    let mut resource = Resource::new(object, made_by(site));
    resource.behavior = behavior;
    resource.needs_hash = !(options.disable_name_suffix_hash || global.disable_name_suffix_hash);
    Ok(resource)
}

/// The kustomization, as the source of what it makes.
fn made_by(site: &Site) -> Source {
    let file = site.dir.join(&site.file).map_or_else(|| site.file.clone(), |path| path.to_string());
    Source { file: file.into(), line: 0 }
}

/// A service account that stands for an account of a cloud.
pub(crate) struct CloudAccount {
    cloud: String,
    name: String,
    namespace: String,
    account: String,
    project: String,
}

impl CloudAccount {
    pub(crate) fn read(f: &mut Fields<'_>) -> Result<Self, Error> {
        let cloud = f.text("cloud")?;
        let own = f.map("kubernetesService", |f| Ok((f.text("name")?, f.text("namespace")?)))?;
        let (name, namespace) = own.unwrap_or_default();
        let theirs = f.map("serviceAccount", |f| Ok((f.text("name")?, f.text("projectId")?)))?;
        let (account, project) = theirs.unwrap_or_default();
        Ok(Self { cloud, name, namespace, account, project })
    }

    /// The service account.
    pub(crate) fn object(&self, site: &Site) -> Result<Resource, String> {
        if self.cloud != "gke" {
            return Err(format!("cloud must be gke, not {:?}", self.cloud));
        }
        let mut object = Map::new();
        object.insert("apiVersion", Value::string("v1"));
        object.insert("kind", Value::string("ServiceAccount"));
        let meta = object.get_or_insert_map("metadata");
        let account = format!("{}@{}.iam.gserviceaccount.com", self.account, self.project);
        meta.get_or_insert_map("annotations")
            .insert("iam.gke.io/gcp-service-account", Value::string(account));
        meta.insert("name", Value::string(self.name.as_str()));
        if !self.namespace.is_empty() {
            meta.insert("namespace", Value::string(self.namespace.as_str()));
        }
        Ok(Resource::new(object, made_by(site)))
    }
}

/// Writes the pairs into `data` and `binaryData`.
fn fill(object: &mut Map, pairs: Vec<(String, Vec<u8>)>, secret: bool) -> Result<(), String> {
    let base64 = base64::engine::general_purpose::STANDARD;
    let mut seen = std::collections::HashSet::new();
    let (mut texts, mut binaries) = (Vec::new(), Vec::new());
    for (key, bytes) in pairs {
        if !seen.insert(key.clone()) {
            // A line of an env file without an equals sign is all key.
            return Err(if secret { "duplicate key".into() } else { format!("duplicate key {key:?}") });
        }
        let encode = |bytes: &[u8]| Value::string(lines(&base64.encode(bytes)));
        let key = Str::from(key);
        match if secret {
            Err(encode(&bytes))
        } else {
            String::from_utf8(bytes).map_err(|e| encode(e.as_bytes()))
        } {
            Ok(text) => texts.push((key, Value::String(Text::data(text)))),
            Err(encoded) if secret => texts.push((key, encoded)),
            Err(encoded) => binaries.push((key, encoded)),
        }
    }
    for (field, entries) in [("data", texts), ("binaryData", binaries)] {
        if !entries.is_empty() {
            object.insert(field, Value::Map(entries.into_iter().collect()));
        }
    }
    Ok(())
}

/// Base64 in lines of 70 where it fills one or more, as kustomize has it.
fn lines(base64: &str) -> String {
    const LINE: usize = 70;
    if base64.len() < LINE {
        return base64.to_owned();
    }
    let mut out = String::with_capacity(base64.len() + base64.len() / LINE + 1);
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(LINE));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out
}

/// Keys and contents, and the memory that they take until they are in an object.
struct Pairs<'p> {
    place: Place<'p>,
    list: Vec<(String, Vec<u8>)>,
    held: Held,
}

impl Pairs<'_> {
    fn add(&mut self, key: &str, content: &[u8]) -> Result<(), Error> {
        /// Of a pair besides its bytes: its places in the lists and in the table of keys while these grow.
        const PAIR: usize = 512;
        // The content, its text or base64, and that text in the object.
        let bytes = PAIR + 3 * key.len() + 5 * content.len();
        let Place { loader, site, field } = self.place;
        self.held.grow(&loader.budget, bytes).map_err(|message| loader.fail(site, field, message))?;
        self.list.push((key.to_owned(), content.to_vec()));
        Ok(())
    }
}

/// Keys and contents: env files first, then literals, then files.
fn pairs<'p>(place: Place<'p>, generator: &Generator) -> Result<Pairs<'p>, Error> {
    let Place { loader, site, field } = place;
    let held = loader.budget.hold(0).map_err(|message| loader.fail(site, field, message))?;
    let mut out = Pairs { place, list: Vec::new(), held };
    for (i, path) in generator.envs.iter().enumerate() {
        let file = loader.file(site, &format!("{field}.envs[{i}]"), path)?;
        read_env(&loader.read(&file)?, &file, &mut out)?;
    }
    for (i, literal) in generator.literals.iter().enumerate() {
        let Some((key, value)) = literal.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(site.error(format!("{field}.literals[{i}]"), "is not of the form key=value"));
        };
        out.add(key, unquote(value).as_bytes())?;
    }
    for (i, source) in generator.files.iter().enumerate() {
        let field = format!("{field}.files[{i}]");
        let (key, path) = match source.split_once('=') {
            None => (source.rsplit('/').next().unwrap_or(source), source.as_str()),
            Some((key, path)) if !key.is_empty() && !path.is_empty() && !path.contains('=') => (key, path),
            Some(_) => return Err(site.error(field, "is neither a path nor key=path")),
        };
        let file = loader.file(site, &field, path)?;
        out.add(key, &loader.read(&file)?)?;
    }
    Ok(out)
}

/// The lines `key=value` of an env file.
fn read_env(bytes: &[u8], file: &TreePath, out: &mut Pairs<'_>) -> Result<(), Error> {
    for (n, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let error = |message: String| Error::Yaml { file: file.to_string(), line: n + 1, message };
        let line = std::str::from_utf8(line).map_err(|_| error("not valid UTF-8".into()))?;
        let line = if n == 0 { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        out.add(key, value.as_bytes())?;
    }
    Ok(())
}

fn unquote(text: &str) -> &str {
    for quote in ['"', '\''] {
        if text.len() >= 2 && text.starts_with(quote) && text.ends_with(quote) {
            return &text[1..text.len() - 1];
        }
    }
    text
}
