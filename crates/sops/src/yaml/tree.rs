//! From go-yaml's nodes to a file's tree: aliases expanded, scalars read, and comments put among the items.

use std::collections::HashSet;

use super::compose::{Composer, Document, Id, Kind, Node};
use super::resolve::{Meaning, scalar};
use crate::error::Error;
use crate::format::Tally;
use crate::tree::{Comment, Item, Map, Text, Value};

/// Makes a document's map.
pub(super) fn document(
    composer: &Composer<'_>,
    document: &Document,
    first: bool,
    tally: &mut Tally<'_>,
) -> Result<Map, Error> {
    let mut builder =
        Builder { composer, tally, first, open: HashSet::new(), decoded: 1, aliased: 0, aliases: 0 };
    let mut map = Map::new();
    builder.comments(&document.comments.head, false, &mut map)?;
    builder.root(document.root, &mut map)?;
    builder.comments(&document.comments.foot, false, &mut map)?;
    Ok(map)
}

/// Where comments are put: between the items of a map, or among those of a list.
trait Comments {
    fn put(&mut self, comment: Comment);
}

impl Comments for Map {
    fn put(&mut self, comment: Comment) {
        self.push(Item::comment(comment));
    }
}

impl Comments for Vec<Value> {
    fn put(&mut self, comment: Comment) {
        self.push(Value::Comment(comment));
    }
}

struct Builder<'b, 'l, 't> {
    composer: &'b Composer<'t>,
    tally: &'b mut Tally<'l>,
    /// go-yaml looks closer at the first document.
    first: bool,
    /// Maps and lists that are being made: an alias of one of them would never end.
    open: HashSet<Id>,
    /// Nodes that go-yaml would have decoded, how many of them through aliases, and through how many at this moment.
    decoded: usize,
    aliased: usize,
    aliases: usize,
}

impl Builder<'_, '_, '_> {
    fn node(&mut self, id: Id) -> Result<&Node, Error> {
        self.count_decoded()?;
        let composer = self.composer;
        composer.get(id).ok_or_else(|| self.tally.malformed("a value is missing"))
    }

    /// Counts as go-yaml does, which refuses a document that is nearly all aliases.
    fn count_decoded(&mut self) -> Result<(), Error> {
        const FEW: usize = 100;
        const SMALL: usize = 1000;
        self.decoded += 1;
        self.aliased += usize::from(self.aliases > 0);
        let excessive = self.aliased > FEW && self.decoded > SMALL && self.aliased * 100 > self.decoded * 99;
        if self.first && excessive {
            return Err(self.tally.malformed("excessive aliasing"));
        }
        Ok(())
    }

    fn error(&self, line: usize, what: &str) -> Error {
        self.tally.malformed(format!("line {line}: {what}"))
    }

    fn comments(&mut self, text: &str, inline: bool, into: &mut impl Comments) -> Result<(), Error> {
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            let text = line.strip_prefix('#').unwrap_or(line);
            self.tally.count(text.len())?;
            into.put(Comment { text: Text::from(text), inline });
        }
        Ok(())
    }

    /// The one value of a document, which is a map, or nothing.
    fn root(&mut self, id: Id, map: &mut Map) -> Result<(), Error> {
        let composer = self.composer;
        self.node(id)?;
        let Some(node) = composer.get(id) else { return Ok(()) };
        self.comments(&node.comments.head, false, map)?;
        self.comments(&node.comments.line, false, map)?;
        match &node.kind {
            Kind::Mapping(pairs) => {
                self.tally.count(0)?;
                self.map(id, pairs, 1, map)?;
            }
            Kind::Alias(target) => self.root(*target, map)?,
            Kind::Sequence(_) => {
                return Err(self.error(node.line, "the document is a list, expected a map"));
            }
            Kind::Scalar { text, style, tag } => {
                if scalar(text, *style, tag.as_deref()) != Meaning::Value(Value::Null) {
                    return Err(self.error(node.line, "the document is a scalar, expected a map"));
                }
                return Ok(());
            }
        }
        self.comments(&node.comments.foot, false, map)
    }

    fn map(&mut self, id: Id, pairs: &[(Id, Id)], depth: usize, map: &mut Map) -> Result<(), Error> {
        self.enter(id, depth)?;
        let composer = self.composer;
        let mut names = HashSet::new();
        for (key, value) in pairs {
            let (name, line) = self.name(*key)?;
            if self.first {
                self.check_unique(*key, &mut names)?;
                self.check_merge(*key, *value)?;
            }
            let (Some(key), Some(node)) = (composer.get(*key), composer.get(*value)) else { continue };
            self.comments(&key.comments.head, false, map)?;
            self.comments(&key.comments.line, false, map)?;
            // A map or list has its comments within it.
            let outside = matches!(node.kind, Kind::Scalar { .. } | Kind::Alias(_));
            if outside {
                self.comments(&node.comments.head, false, map)?;
                self.comments(&node.comments.line, true, map)?;
            }
            let made = self.value(*value, outside, depth)?;
            let made = made.ok_or_else(|| self.error(line, "an integer is out of range"))?;
            map.push(Item::new(name, made));
            if outside {
                self.comments(&node.comments.foot, false, map)?;
            }
            self.comments(&key.comments.foot, false, map)?;
        }
        self.open.remove(&id);
        Ok(())
    }

    fn enter(&mut self, id: Id, depth: usize) -> Result<(), Error> {
        self.tally.check_depth(depth)?;
        if !self.open.insert(id) {
            return Err(self.tally.malformed("an anchor contains an alias to itself"));
        }
        Ok(())
    }

    /// The name that a key is, and its line.
    fn name(&mut self, id: Id) -> Result<(Vec<u8>, usize), Error> {
        self.node(id)?;
        let composer = self.composer;
        let mut node = composer.get(id);
        // An alias is of something before it, so this ends.
        while let Some(Node { kind: Kind::Alias(target), .. }) = node {
            node = composer.get(*target);
        }
        let Some(node) = node else { return Err(self.tally.malformed("a key is missing")) };
        let meaning = match &node.kind {
            Kind::Scalar { text, style, tag } => scalar(text, *style, tag.as_deref()),
            _ => Meaning::NotAsTagged,
        };
        match meaning {
            Meaning::Value(Value::Text(text)) => {
                self.tally.count(text.bytes().len())?;
                Ok((text.bytes().to_vec(), node.line))
            }
            _ => Err(self.error(node.line, "a key is not a string: quote it")),
        }
    }

    /// Keys are equal where their texts are, whatever they mean.
    fn check_unique(&self, id: Id, names: &mut HashSet<String>) -> Result<(), Error> {
        match self.composer.get(id) {
            Some(Node { kind: Kind::Scalar { text, .. }, line, .. }) if !names.insert(text.clone()) => {
                Err(self.error(*line, "duplicate key in a map"))
            }
            _ => Ok(()),
        }
    }

    /// What `<<` stands before in the first document is a map, or a list of such.
    fn check_merge(&self, key: Id, value: Id) -> Result<(), Error> {
        let composer = self.composer;
        let Some(Node { kind: Kind::Scalar { text, style, tag }, line, .. }) = composer.get(key) else {
            return Ok(());
        };
        let merges = match tag.as_deref() {
            None | Some("!") => style == &super::scan::Style::Plain,
            Some(tag) => tag.strip_prefix(super::parse::CORE) == Some("merge"),
        };
        if text != "<<" || !merges {
            return Ok(());
        }
        let target = |id: Id| match composer.get(id).map(|node| &node.kind) {
            Some(Kind::Alias(target)) => composer.get(*target).map(|node| &node.kind),
            other => other,
        };
        let is_map = |id: Id| matches!(target(id), Some(Kind::Mapping(_)));
        let fits = match composer.get(value).map(|node| &node.kind) {
            Some(Kind::Sequence(items)) => items.iter().all(|item| is_map(*item)),
            _ => is_map(value),
        };
        if fits { Ok(()) } else { Err(self.error(*line, "a merge needs a map or a list of maps")) }
    }

    /// None for an integer that is too large.
    fn value(&mut self, id: Id, comments_outside: bool, depth: usize) -> Result<Option<Value>, Error> {
        self.node(id)?;
        let composer = self.composer;
        let Some(node) = composer.get(id) else { return Ok(Some(Value::Null)) };
        match &node.kind {
            Kind::Scalar { text, style, tag } => {
                self.tally.count(text.len())?;
                match scalar(text, *style, tag.as_deref()) {
                    Meaning::Value(value) => Ok(Some(value)),
                    Meaning::TooLarge => Ok(None),
                    // Nobody looks whether it worked.
                    Meaning::NotAsTagged if !self.first => Ok(Some(Value::Null)),
                    Meaning::NotAsTagged => Err(self.error(node.line, "a value does not match its tag")),
                }
            }
            Kind::Alias(target) => {
                self.aliases += 1;
                let value = self.value(*target, false, depth);
                self.aliases -= 1;
                value
            }
            Kind::Mapping(pairs) => {
                self.tally.count(0)?;
                let mut map = Map::new();
                if !comments_outside {
                    self.comments(&node.comments.head, false, &mut map)?;
                    self.comments(&node.comments.line, false, &mut map)?;
                }
                self.map(id, pairs, depth + 1, &mut map)?;
                if !comments_outside {
                    self.comments(&node.comments.foot, false, &mut map)?;
                }
                Ok(Some(Value::Map(map)))
            }
            Kind::Sequence(items) => {
                self.tally.count(0)?;
                self.list(id, node, items, comments_outside, depth + 1)
            }
        }
    }

    fn list(
        &mut self,
        id: Id,
        node: &Node,
        items: &[Id],
        comments_outside: bool,
        depth: usize,
    ) -> Result<Option<Value>, Error> {
        self.enter(id, depth)?;
        let composer = self.composer;
        let mut list = Vec::new();
        if !comments_outside {
            self.comments(&node.comments.head, false, &mut list)?;
            self.comments(&node.comments.line, false, &mut list)?;
        }
        for item in items {
            let Some(item_node) = composer.get(*item) else { continue };
            self.comments(&item_node.comments.head, false, &mut list)?;
            self.comments(&item_node.comments.line, true, &mut list)?;
            let made = self.value(*item, true, depth)?;
            list.push(made.ok_or_else(|| self.error(item_node.line, "an integer is out of range"))?);
            self.comments(&item_node.comments.foot, false, &mut list)?;
        }
        if !comments_outside {
            self.comments(&node.comments.foot, false, &mut list)?;
        }
        self.open.remove(&id);
        Ok(Some(Value::List(list)))
    }
}
