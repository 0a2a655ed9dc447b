//! From events to nodes: go-yaml's document, with its comments where go-yaml puts them.

use std::collections::HashMap;

use super::parse::{About, Comments, Event, Parser, What};
use super::scan::{Problem, Style};

/// The number of a node.
pub(super) type Id = usize;

/// A value as it stands, or an alias of one.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) comments: Comments,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    Scalar { text: String, style: Style, tag: Option<String> },
    Sequence(Vec<Id>),
    Mapping(Vec<(Id, Id)>),
    Alias(Id),
}

/// A document: its only value, and what stands before and after it.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Id,
    pub(super) comments: Comments,
}

/// Reads documents, one after the other.
pub(super) struct Composer<'t> {
    parser: Parser<'t>,
    next: Option<Event>,
    pub(super) nodes: Vec<Node>,
    /// go-yaml remembers them from one document to the next.
    anchors: HashMap<String, Id>,
    depth: usize,
    most_nodes: usize,
}

impl<'t> Composer<'t> {
    /// Reads a text of so many values at most, aliases not expanded, nested so deep at most.
    pub(super) fn new(text: &'t str, depth: usize, most_nodes: usize) -> Self {
        Self {
            parser: Parser::new(text, depth),
            next: None,
            nodes: Vec::new(),
            anchors: HashMap::new(),
            depth,
            most_nodes,
        }
    }

    /// The next document.
    pub(super) fn document(&mut self) -> Result<Option<Document>, Problem> {
        let start = self.take()?;
        if start.what != What::DocumentStart {
            return Ok(None);
        }
        let root = self.node(0)?;
        let end = self.take()?;
        let comments = Comments { foot: end.comments.foot, ..start.comments };
        Ok(Some(Document { root, comments }))
    }

    pub(super) fn get(&self, id: Id) -> Option<&Node> {
        self.nodes.get(id)
    }

    fn peek(&mut self) -> Result<&Event, Problem> {
        let event = match self.next.take() {
            Some(event) => event,
            None => self.parser.next()?,
        };
        Ok(self.next.insert(event))
    }

    fn take(&mut self) -> Result<Event, Problem> {
        match self.next.take() {
            Some(event) => Ok(event),
            None => self.parser.next(),
        }
    }

    fn add(
        &mut self,
        kind: Kind,
        comments: Comments,
        line: usize,
        anchor: Option<String>,
    ) -> Result<Id, Problem> {
        if self.nodes.len() >= self.most_nodes {
            return Err(Problem { line, what: format!("more than {} values", self.most_nodes) });
        }
        let id = self.nodes.len();
        self.nodes.push(Node { kind, comments, line });
        if let Some(name) = anchor {
            self.anchors.insert(name, id);
        }
        Ok(id)
    }

    fn node(&mut self, depth: usize) -> Result<Id, Problem> {
        let Event { what, comments, line } = self.take()?;
        // The scanner bounds this too; brackets that hold a pair nest twice.
        if depth > 2 * self.depth + 2 {
            return Err(Problem { line, what: format!("nested more than {} levels deep", self.depth) });
        }
        match what {
            What::Scalar { text, style, about: About { anchor, tag } } => {
                self.add(Kind::Scalar { text, style, tag }, comments, line, anchor)
            }
            What::Alias(name) => {
                let target = self.anchors.get(&name).copied();
                let target = target
                    .ok_or_else(|| Problem { line, what: "an alias refers to an unknown anchor".into() })?;
                self.add(Kind::Alias(target), comments, line, None)
            }
            What::Sequence { about } => {
                let id = self.add(Kind::Sequence(Vec::new()), comments, line, about.anchor)?;
                self.sequence(id, depth)?;
                Ok(id)
            }
            What::Mapping { about, flow } => {
                let id = self.add(Kind::Mapping(Vec::new()), comments, line, about.anchor)?;
                self.mapping(id, flow, depth)?;
                Ok(id)
            }
            _ => Err(Problem { line, what: "expected a value".into() }),
        }
    }

    fn sequence(&mut self, id: Id, depth: usize) -> Result<(), Problem> {
        let mut items = Vec::new();
        while self.peek()?.what != What::SequenceEnd {
            items.push(self.node(depth + 1)?);
        }
        let end = self.take()?;
        self.close(id, Kind::Sequence(items), end.comments);
        Ok(())
    }

    fn mapping(&mut self, id: Id, flow: bool, depth: usize) -> Result<(), Problem> {
        let mut pairs: Vec<(Id, Id)> = Vec::new();
        while self.peek()?.what != What::MappingEnd {
            let key = self.node(depth + 1)?;
            if !flow && let Some((former, _)) = pairs.last() {
                // A foot before a key is about what is before that.
                let foot = self.take_foot(key);
                self.set_foot(*former, foot);
            }
            let value = self.node(depth + 1)?;
            if self.foot_is_empty(key) {
                let foot = self.take_foot(value);
                self.set_foot(key, foot);
            }
            pairs.push((key, value));
        }
        let mut end = self.take()?.comments;
        if !flow && let Some((last, _)) = pairs.last() {
            self.set_foot(*last, std::mem::take(&mut end.foot));
        }
        self.close(id, Kind::Mapping(pairs), end);
        Ok(())
    }

    fn close(&mut self, id: Id, kind: Kind, end: Comments) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.kind = kind;
            node.comments.line = end.line;
            node.comments.foot = end.foot;
        }
    }

    fn foot_is_empty(&self, id: Id) -> bool {
        self.nodes.get(id).is_none_or(|node| node.comments.foot.is_empty())
    }

    fn take_foot(&mut self, id: Id) -> String {
        self.nodes.get_mut(id).map(|node| std::mem::take(&mut node.comments.foot)).unwrap_or_default()
    }

    /// Gives a node a foot, in place of its own, if there is one.
    fn set_foot(&mut self, id: Id, foot: String) {
        if let Some(node) = self.nodes.get_mut(id)
            && !foot.is_empty()
        {
            node.comments.foot = foot;
        }
    }
}
