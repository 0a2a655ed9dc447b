//! What the kustomizations of one build share: the tree, the bounds, and the way from a path as written to bytes.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::Options;
use crate::budget::{Bound, Budget, Held, Size, weight};
use crate::error::Error;
use crate::fields::Site;
use crate::limits::Limits;
use crate::notes;
use crate::remote::{Mounts, Remote, RemoteUrl};
use crate::resource::{Resource, Source};
use crate::resources::Resources;
use crate::schema::Schemas;
use crate::transform::check_characters;
use crate::tree::{Entry, EntryKind, FileTree, TreeError, TreePath};
use crate::value::{Map, NullForm, Str, Text, TextStyle, Value};
use crate::yaml::{self, Dialect, Document, KeyNotes, Read, ReadError, read_counted, read_strict_counted};

/// Where the files that a kustomization names may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadRestrictor {
    /// In the directory of the kustomization and below it.
    #[default]
    RootOnly,
    /// Anywhere in the tree.
    None,
}

/// Reads files for one build and counts what it read.
pub(crate) struct Loader<'t> {
    tree: &'t dyn FileTree,
    remote: Option<&'t dyn Remote>,
    mounts: Mounts,
    pub(crate) limits: &'t Limits,
    restrictor: LoadRestrictor,
    bytes: Cell<usize>,
    kustomizations: Cell<usize>,
    pub(crate) budget: Budget,
    pub(crate) schemas: Schemas,
}

/// What a path of `resources` leads to.
pub(crate) enum Found {
    File(TreePath),
    Directory(TreePath),
}

impl From<(TreePath, EntryKind)> for Found {
    fn from((path, kind): (TreePath, EntryKind)) -> Self {
        if kind == EntryKind::File { Self::File(path) } else { Self::Directory(path) }
    }
}

impl<'t> Loader<'t> {
    pub(crate) fn new(tree: &'t dyn FileTree, options: &'t Options) -> Self {
        Self {
            tree,
            remote: options.remote.as_deref(),
            mounts: Mounts::default(),
            limits: &options.limits,
            restrictor: options.load_restrictor,
            bytes: Cell::new(0),
            kustomizations: Cell::new(0),
            budget: Budget::new(&options.limits),
            schemas: Schemas::default(),
        }
    }

    /// Counts one more kustomization.
    pub(crate) fn count_kustomization(&self, dir: &TreePath) -> Result<(), Error> {
        self.kustomizations.set(self.kustomizations.get() + 1);
        let limit = self.limits.kustomizations;
        if self.kustomizations.get() > limit {
            return Err(Error::Limit { place: dir.display().to_owned(), what: "kustomizations", limit });
        }
        Ok(())
    }

    /// Bytes of a file at a real path.
    pub(crate) fn read(&self, path: &TreePath) -> Result<Cow<'t, [u8]>, Error> {
        // A file for which there is no memory is not read at all.
        let room = self.budget.room();
        let most = self.limits.file_bytes.min(room);
        let read = match self.mounts.find(path) {
            None => self.tree.read(path, most),
            Some((_, tree, inner)) => tree.read(&inner, most).map(|bytes| Cow::Owned(bytes.into_owned())),
        };
        let bytes = match read {
            Err(TreeError::TooLarge { .. }) if most < self.limits.file_bytes => {
                let limit = self.limits.memory;
                return Err(Error::Limit {
                    place: path.display().to_owned(),
                    what: "bytes of memory",
                    limit,
                });
            }
            read => read?,
        };
        self.bytes.set(self.bytes.get().saturating_add(bytes.len()));
        if self.bytes.get() > self.limits.total_bytes {
            return Err(Error::Limit {
                place: path.display().to_owned(),
                what: "bytes read in all",
                limit: self.limits.total_bytes,
            });
        }
        Ok(bytes)
    }

    /// Finds what a path of a kustomization leads to, links resolved.
    pub(crate) fn find(&self, site: &Site, field: &str, path: &str) -> Result<Found, Error> {
        // An object or a patch where a path is needed is not repeated: it may be a Secret.
        if path.contains('\n') {
            return Err(site.error(field, "a path is needed, not a text of several lines"));
        }
        let wrap = |error: TreeError| site.error(field, error);
        let target = site.dir.join(path).ok_or_else(|| {
            wrap(TreeError::PathLeavesRoot { from: site.dir.clone(), path: path.to_owned() })
        })?;
        // What was fetched has a root of its own, and only its URL leads into it.
        if self.mounts.name_of(&site.dir) != self.mounts.name_of(&target) {
            return Err(wrap(TreeError::PathLeavesRoot { from: site.dir.clone(), path: path.to_owned() }));
        }
        match self.resolve(&target) {
            Err(TreeError::NotFound(_)) if is_remote(path) => {
                let target = self.fetch(path).map_err(|message| site.error(field, message))?;
                self.resolve(&target).map(Found::from).map_err(wrap)
            }
            found => found.map(Found::from).map_err(wrap),
        }
    }

    fn fetch(&self, url: &str) -> Result<TreePath, String> {
        let shown = RemoteUrl::shown(url);
        let remote = self.remote.ok_or_else(|| {
            format!("{shown:?} is remote, and remote resources are off; fetch it into the source")
        })?;
        self.mounts.fetch(remote, url).map_err(|message| format!("cannot fetch {shown:?}: {message}"))
    }

    /// Follows the links on the way to a path.
    pub(crate) fn resolve(&self, path: &TreePath) -> Result<(TreePath, EntryKind), TreeError> {
        self.mounts.resolve(self.tree, path)
    }

    /// The entries of a directory of the source.
    pub(crate) fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError> {
        self.tree.entries(dir)
    }

    /// The real path of a file that a kustomization names, checked against the load restrictor.
    pub(crate) fn file(&self, site: &Site, field: &str, path: &str) -> Result<TreePath, Error> {
        match self.find(site, field, path)? {
            Found::File(file) => {
                self.check(site, field, path, &file)?;
                Ok(file)
            }
            Found::Directory(dir) => Err(site.error(field, TreeError::NotAFile(dir))),
        }
    }

    /// Is the file where this kustomization may read?
    pub(crate) fn check(&self, site: &Site, field: &str, path: &str, file: &TreePath) -> Result<(), Error> {
        if self.restrictor == LoadRestrictor::None || file.is_within(&site.dir) {
            return Ok(());
        }
        if self.mounts.name_of(file) != self.mounts.name_of(&site.dir) {
            // A URL led here.
            return Ok(());
        }
        Err(site.error(
            field,
            format!("file {path:?} is not in or below the directory of the kustomization (load restrictor RootOnly)"),
        ))
    }

    /// The documents of a file.
    pub(crate) fn documents(&self, file: &TreePath, dialect: Dialect) -> Result<Documents, Error> {
        let bytes = self.read(file)?;
        self.parse(&bytes, dialect).map_err(|error| yaml_error(file.as_str(), error))
    }

    /// The documents of a text.
    pub(crate) fn parse(&self, text: &[u8], dialect: Dialect) -> Result<Documents, ReadError> {
        self.counted(read_counted(text, dialect, self.limits, self.budget.room())?)
    }

    /// The documents of a text in which no key may stand twice.
    pub(crate) fn parse_strict(&self, text: &[u8]) -> Result<Documents, ReadError> {
        self.counted(read_strict_counted(text, self.limits, self.budget.room())?)
    }

    /// Counts documents that were read.
    fn counted(&self, read: Read) -> Result<Documents, ReadError> {
        let at_start = |message| ReadError { line: 1, message };
        self.budget.read(read.nodes).map_err(at_start)?;
        let held = self.budget.hold(read.memory).map_err(at_start)?;
        Ok(Documents { single: read.single, list: read.documents, held })
    }

    /// A JSON text.
    pub(crate) fn json(&self, text: &[u8]) -> Result<(Value, Held), ReadError> {
        let at_start = |message| ReadError { line: 1, message };
        // Each value is followed by one of these or by the end. Those in texts are counted too: nobody has that many.
        let nodes = 1 + text.iter().filter(|byte| matches!(byte, b',' | b']' | b'}')).count();
        if nodes > self.limits.nodes {
            return Err(at_start(format!("more than {} values", self.limits.nodes)));
        }
        self.budget.read(nodes).map_err(at_start)?;
        // A list or mapping is put together in a table that grows, and a mapping is sorted then.
        let most = nodes.saturating_mul(3 * weight::ENTRY + 2 * weight::TEXT).saturating_add(2 * text.len());
        let reading = self.budget.hold(most).map_err(at_start)?;
        // serde_json bounds how deep values nest.
        let value = serde_json::from_slice(text);
        let value = value.map_err(|e| ReadError { line: e.line(), message: format!("no JSON: {e}") })?;
        drop(reading);
        let held = self.budget.hold(Size::of(&value).bytes()).map_err(at_start)?;
        Ok((value, held))
    }

    /// The error of a change that a field asks for: of the bound that it met, or of the field.
    pub(crate) fn fail(&self, site: &Site, field: &str, message: String) -> Error {
        match self.budget.met() {
            Some(Bound { what, limit }) => Error::Limit {
                place: format!("{} in {:?}: {field}", site.file, site.dir.display()),
                what,
                limit,
            },
            None => site.error(field, message),
        }
    }

    /// The mapping in a file that holds JSON, if it starts with a brace, or YAML.
    pub(crate) fn json_or_yaml(&self, file: &TreePath) -> Result<(Map, Held), Error> {
        let bytes = self.read(file)?;
        let error = |line, message| Error::Yaml { file: file.to_string(), line, message };
        let (value, held) = if bytes.starts_with(b"{") {
            self.json(&bytes).map_err(|error| yaml_error(file.as_str(), error))?
        } else {
            let documents = self.parse(&bytes, Dialect::Kustomization);
            let Documents { list, held, .. } = documents.map_err(|error| yaml_error(file.as_str(), error))?;
            let Some(document) = list.into_iter().next() else {
                return Err(error(1, "the file is empty".into()));
            };
            (document.value, held)
        };
        match value {
            Value::Map(map) => Ok((map, held)),
            other => Err(error(1, format!("a mapping is needed, not {}", other.type_name()))),
        }
    }

    /// The objects of a file.
    pub(crate) fn objects(&self, file: &TreePath) -> Result<Resources, Error> {
        let documents = self.documents(file, Dialect::Object)?;
        let mut out = Resources::default();
        let (objects, held) = self.objects_of(documents, file.as_str())?;
        held.into_iter().for_each(Held::keep);
        for resource in objects {
            let file = resource.source.to_string();
            out.append(resource).map_err(|message| Error::Object { file, message })?;
        }
        Ok(out)
    }

    /// The objects of documents, and the memory that they take; lists of objects become their items.
    pub(crate) fn objects_of(
        &self,
        documents: Documents,
        file: &str,
    ) -> Result<(Vec<Resource>, Vec<Held>), Error> {
        let file: Str = file.into();
        let mut out = Vec::new();
        let mut held = vec![documents.held];
        let mut queue = VecDeque::new();
        for Document { value, line, notes } in documents.list {
            let source = Source { file: file.clone(), line };
            let items = open_list(value, &source, documents.single, notes, &mut queue);
            items.map_err(|message| Error::Object { file: source.to_string(), message })?;
        }
        while let Some(Waiting { map, source, notes }) = queue.pop_front() {
            let error = |message: String| Error::Object { file: source.to_string(), message };
            if is_list(&map) {
                // Its items come after everything else.
                list_items(map, &source, &mut queue).map_err(error)?;
                continue;
            }
            if out.len() >= self.limits.objects {
                let limit = self.limits.objects;
                return Err(Error::Limit { place: file.to_string(), what: "objects", limit });
            }
            held.push(self.budget.hold(weight::OBJECT + notes::cost(&map)).map_err(error)?);
            let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
            self.schemas.mark_kind(text("apiVersion"), text("kind"));
            let mut resource = Resource::in_schema(map, source, self.schemas.current());
            resource.notes.extend(notes);
            out.push(resource);
        }
        Ok((out, held))
    }
}

/// The fields of a kustomization, or of a file that it names, take at most this many times the memory of the values that
/// they are read from: those that an entry does not name take room too.
pub(crate) const FIELDS: usize = 5;

/// Documents, with the memory that they take.
#[derive(Debug)]
pub(crate) struct Documents {
    /// They are one text, which no line of `---` parts.
    pub(crate) single: bool,
    pub(crate) list: Vec<Document>,
    pub(crate) held: Held,
}

pub(crate) fn yaml_error(file: &str, error: ReadError) -> Error {
    Error::Yaml { file: file.to_owned(), line: error.line, message: error.message }
}

/// An object that was read, or a list of objects.
struct Waiting {
    map: Map,
    source: Source,
    notes: Option<Rc<KeyNotes>>,
}

/// What a document holds: an object, or the items of a list that is alone in its file.
fn open_list(
    value: Value,
    source: &Source,
    alone: bool,
    notes: KeyNotes,
    queue: &mut VecDeque<Waiting>,
) -> Result<(), String> {
    let notes = (!notes.is_empty()).then(|| Rc::new(notes));
    let mut add = |value: Value| {
        if let Some(map) = object(value)? {
            queue.push_back(Waiting { map, source: source.clone(), notes: notes.clone() });
        }
        Ok(())
    };
    let kind = value.at(&["kind"]).and_then(Value::as_str);
    let lists = alone && matches!(kind, Some("List" | "ResourceList"));
    match value {
        Value::Map(mut map) if lists && (map.contains_key("items") || map.contains_key("functionConfig")) => {
            match map.remove("items") {
                Some(Value::List(items)) => {
                    items.into_iter().filter(|item| !item.is_null()).try_for_each(&mut add)
                }
                Some(Value::Map(map)) if !map.is_empty() => {
                    Err("items must be a list, not a mapping".to_owned())
                }
                _ => Ok(()),
            }
        }
        other => add(other),
    }
}

fn is_list(map: &Map) -> bool {
    map.contains_key("items")
        && map.get("kind").and_then(Value::scalar_text).is_some_and(|kind| kind.ends_with("List"))
}

/// The items of a list that is one object among others, or of a kind of its own.
fn list_items(mut map: Map, source: &Source, queue: &mut VecDeque<Waiting>) -> Result<(), String> {
    match map.remove("items") {
        Some(Value::List(items)) => {
            for mut item in items.into_iter().filter(|item| !item.is_null()) {
                pass_through_json(&mut item);
                check_characters(&item)?;
                if let Some(mut map) = object(item)? {
                    // kustomize makes it from JSON.
                    map.set_brackets(true);
                    queue.push_back(Waiting { map, source: source.clone(), notes: None });
                }
            }
            Ok(())
        }
        None | Some(Value::Null(_)) => Ok(()),
        Some(other) => Err(format!("items must be a list, not {}", other.type_name())),
    }
}

/// What kustomize makes of an item of such a list: it goes by its values, not by how they are written.
fn pass_through_json(value: &mut Value) {
    match value {
        Value::Null(form) => *form = NullForm::Written,
        Value::Number(_) => {
            let text = value.to_json().to_string();
            *value = yaml::plain_value(&text);
        }
        Value::String(text) => {
            *text = match yaml::as_time(text) {
                Some(time) if text.is_time() => Text::new(time, TextStyle::Quoted),
                _ => text.with_style(TextStyle::Quoted),
            };
        }
        Value::List(items) => items.iter_mut().for_each(pass_through_json),
        Value::Map(map) => map.values_mut().for_each(|(_, value)| pass_through_json(value)),
        Value::Bool(_) => {}
    }
}

/// Checks that a value is an object; an empty one is none, and an empty list neither.
fn object(value: Value) -> Result<Option<Map>, String> {
    let Value::Map(map) = value else {
        if matches!(&value, Value::List(items) if items.is_empty()) {
            return Ok(None);
        }
        return Err(format!("a Kubernetes object is a mapping, not {}", value.type_name()));
    };
    if map.is_empty() {
        return Ok(None);
    }
    let kind = match map.get("kind") {
        Some(kind @ (Value::Map(_) | Value::List(_))) => {
            return Err(format!("kind must be a string, not {}", kind.type_name()));
        }
        // A number passes for its text.
        Some(kind) if !kind.is_null() && kind.as_str() != Some("") => kind.scalar_text().unwrap_or_default(),
        _ => return Err("not a Kubernetes object: kind is missing".into()),
    };
    check_metadata(&map, &kind)?;
    Ok(Some(map))
}

fn check_metadata(map: &Map, kind: &str) -> Result<(), String> {
    let meta = match map.get("metadata") {
        None | Some(Value::Null(_)) => None,
        Some(Value::Map(meta)) => Some(meta),
        Some(other) => return Err(format!("{kind}: metadata must be a mapping, not {}", other.type_name())),
    };
    let name = meta.and_then(|meta| meta.get("name"));
    match name {
        Some(Value::Map(_) | Value::List(_)) => {
            return Err(format!("{kind}: metadata.name must be a string"));
        }
        None | Some(Value::Null(_)) if !kind.ends_with("List") => {
            return Err(format!("{kind}: metadata.name is missing"));
        }
        Some(Value::String(name)) if name.is_empty() => {
            return Err(format!("{kind}: metadata.name is missing"));
        }
        _ => {}
    }
    match meta.and_then(|meta| meta.get("annotations")) {
        None | Some(Value::Null(_) | Value::Map(_)) => Ok(()),
        Some(other) => {
            Err(format!("{kind}: metadata.annotations must be a mapping, not {}", other.type_name()))
        }
    }
}

/// Is a path that is not in the tree a URL or a repository?
fn is_remote(path: &str) -> bool {
    // One of a scheme that kustomize does not know is told as such, too.
    path.contains("://") || RemoteUrl::parse(path).is_some()
}
