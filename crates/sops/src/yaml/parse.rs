//! From tokens to events, by the grammar of libyaml, with the comments that belong to each.

mod flow;

use super::scan::{Comment, CommentKind, Lexeme, Mark, Problem, Scanner, Style, Token};

/// What a text is made of, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    DocumentStart,
    DocumentEnd,
    Sequence {
        about: About,
    },
    /// `flow` is one in braces.
    Mapping {
        about: About,
        flow: bool,
    },
    SequenceEnd,
    MappingEnd,
    Scalar {
        text: String,
        style: Style,
        about: About,
    },
    Alias(String),
    End,
}

/// What stands before a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) anchor: Option<String>,
    pub(super) tag: Option<String>,
}

/// Comments of an event, or of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comments {
    pub(super) head: String,
    pub(super) line: String,
    pub(super) foot: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) what: What,
    pub(super) comments: Comments,
    /// From 1.
    pub(super) line: usize,
}

impl Event {
    fn new(what: What, mark: Mark) -> Self {
        Self { what, comments: Comments::default(), line: mark.line + 1 }
    }

    fn with(mut self, comments: Comments) -> Self {
        self.comments = comments;
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Before a document; only the first may begin without `---` whatever comes.
    Document {
        implicit: bool,
    },
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockItem {
        first: bool,
    },
    IndentlessItem,
    BlockKey {
        first: bool,
    },
    BlockValue,
    FlowItem {
        first: bool,
    },
    FlowItemKey,
    FlowItemValue,
    FlowItemEnd,
    FlowKey {
        first: bool,
    },
    FlowValue {
        empty: bool,
    },
    End,
}

/// `%TAG` directives of one document.
const MAX_DIRECTIVES: usize = 100;
/// What `!!` stands for.
pub(super) const CORE: &str = "tag:yaml.org,2002:";

type Next = Result<Event, Problem>;

pub(super) struct Parser<'t> {
    scanner: Scanner<'t>,
    state: State,
    /// What comes after the value that is read.
    states: Vec<State>,
    /// Handles of tags with what they stand for.
    tags: Vec<(String, String)>,
    /// Comments that were met and belong to no event yet.
    comments: Comments,
    /// What was before a dash, where a list or a map begins behind it: it is about that as a whole.
    stem: Option<String>,
}

impl<'t> Parser<'t> {
    /// Reads a text in which lists and mappings nest no deeper than this.
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        Self {
            scanner: Scanner::new(text, depth),
            state: State::Start,
            states: Vec::new(),
            tags: Vec::new(),
            comments: Comments::default(),
            stem: None,
        }
    }

    /// The next event. After the last there is no other one.
    pub(super) fn next(&mut self) -> Next {
        match self.state {
            State::Start => {
                self.take()?;
                self.state = State::Document { implicit: true };
                self.next()
            }
            State::End => Ok(Event::new(What::End, Mark::default())),
            State::Document { implicit } => self.document(implicit),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(true, false),
            State::BlockItem { first } => self.block_item(first),
            State::IndentlessItem => self.indentless_item(),
            State::BlockKey { first } => self.block_key(first),
            State::BlockValue => self.block_value(),
            State::FlowItem { first } => self.flow_item(first),
            State::FlowItemKey => self.flow_item_key(),
            State::FlowItemValue => self.flow_item_value(),
            State::FlowItemEnd => {
                let (_, mark) = self.peek()?;
                self.state = State::FlowItem { first: false };
                Ok(Event::new(What::MappingEnd, mark))
            }
            State::FlowKey { first } => self.flow_key(first),
            State::FlowValue { empty } => self.flow_value(empty),
        }
    }

    /// The next token, with the comments up to it taken up.
    fn peek(&mut self) -> Result<(&Token, Mark), Problem> {
        let lexeme = self.scanner.peek()?;
        let start = lexeme.start;
        let ends = lexeme.token == Token::BlockEnd;
        // A head is not about an end: it waits for what follows.
        let wanted =
            |comment: &Comment| !(ends && comment.kind == CommentKind::Head && !comment.text.is_empty());
        while let Some(comment) = self.scanner.take_comment(start, wanted) {
            let place = match comment.kind {
                CommentKind::Head => &mut self.comments.head,
                CommentKind::Line => &mut self.comments.line,
                CommentKind::Foot => &mut self.comments.foot,
            };
            if comment.text.is_empty() {
                continue;
            }
            if !place.is_empty() {
                place.push('\n');
            }
            place.push_str(&comment.text);
        }
        let lexeme = self.scanner.peek()?;
        Ok((&lexeme.token, lexeme.start))
    }

    fn take(&mut self) -> Result<Lexeme, Problem> {
        self.peek()?;
        self.scanner.take()
    }

    /// Takes the next token, if it is this one.
    fn takes(&mut self, wanted: &Token) -> Result<Option<Mark>, Problem> {
        if self.peek()?.0 != wanted {
            return Ok(None);
        }
        self.take().map(|lexeme| Some(lexeme.start))
    }

    fn pop(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn take_comments(&mut self) -> Comments {
        self.stem = None;
        std::mem::take(&mut self.comments)
    }

    fn error<T>(mark: Mark, what: &str) -> Result<T, Problem> {
        Err(Problem { line: mark.line + 1, what: what.to_owned() })
    }

    fn document(&mut self, implicit: bool) -> Next {
        if !implicit {
            while self.takes(&Token::DocumentEnd)?.is_some() {}
        }
        let (token, mark) = self.peek()?;
        match token {
            Token::StreamEnd => {
                self.state = State::End;
                Ok(Event::new(What::End, mark))
            }
            Token::Version(..) | Token::TagDirective { .. } | Token::DocumentStart => {
                self.explicit_document()
            }
            _ if implicit => {
                self.default_tags();
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                let head = self.document_head();
                let comments = Comments { head, ..Comments::default() };
                Ok(Event::new(What::DocumentStart, mark).with(comments))
            }
            _ => self.explicit_document(),
        }
    }

    /// What of a comment at the top is about the document: all before its last empty line.
    fn document_head(&mut self) -> String {
        let head = &mut self.comments.head;
        if let Some(rest) = head.strip_suffix('\n').filter(|rest| !rest.is_empty()) {
            let document = rest.to_owned();
            head.clear();
            return document;
        }
        let Some(at) = head.rfind("\n\n") else { return String::new() };
        let rest = head.split_off(at);
        std::mem::replace(head, rest.trim_start_matches('\n').to_owned())
    }

    fn explicit_document(&mut self) -> Next {
        let (_, start) = self.peek()?;
        let mut version = false;
        while let Token::Version(..) | Token::TagDirective { .. } = self.peek()?.0 {
            let Lexeme { token, start } = self.take()?;
            match token {
                Token::Version(..) if version => return Self::error(start, "duplicate %YAML directive"),
                Token::Version(1, 1) => version = true,
                Token::Version(..) => return Self::error(start, "unsupported YAML version"),
                Token::TagDirective { handle, prefix } => {
                    if self.tags.len() >= MAX_DIRECTIVES {
                        return Self::error(start, "too many %TAG directives");
                    }
                    if self.tags.iter().any(|(known, _)| *known == handle) {
                        return Self::error(start, "duplicate %TAG directive");
                    }
                    self.tags.push((handle, prefix));
                }
                _ => {}
            }
        }
        self.default_tags();
        let Lexeme { token, start: mark } = self.take()?;
        if token != Token::DocumentStart {
            return Self::error(mark, "expected '---'");
        }
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        Ok(Event::new(What::DocumentStart, start))
    }

    fn default_tags(&mut self) {
        for (handle, prefix) in [("!", "!"), ("!!", CORE)] {
            if !self.tags.iter().any(|(known, _)| *known == handle) {
                self.tags.push((handle.to_owned(), prefix.to_owned()));
            }
        }
    }

    fn document_content(&mut self) -> Next {
        let (token, mark) = self.peek()?;
        let ends = matches!(
            token,
            Token::Version(..)
                | Token::TagDirective { .. }
                | Token::DocumentStart
                | Token::DocumentEnd
                | Token::StreamEnd
        );
        if ends {
            self.pop();
            return Ok(empty(mark));
        }
        self.node(true, false)
    }

    fn document_end(&mut self) -> Next {
        let (_, mark) = self.peek()?;
        self.takes(&Token::DocumentEnd)?;
        self.tags.clear();
        self.state = State::Document { implicit: false };
        let mut comments = self.take_comments();
        if comments.foot.is_empty() {
            comments.foot = std::mem::take(&mut comments.head);
        }
        Ok(Event::new(What::DocumentEnd, mark).with(comments))
    }

    /// A value, with what stands before it.
    fn node(&mut self, block: bool, indentless: bool) -> Next {
        let (token, start) = self.peek()?;
        if let Token::Alias(name) = token {
            let what = What::Alias(name.clone());
            self.pop();
            let comments = self.take_comments();
            self.take()?;
            return Ok(Event::new(what, start).with(comments));
        }
        let about = self.about()?;
        let (token, mark) = self.peek()?;
        let (state, what, own_comments) = match token {
            Token::BlockEntry if indentless => (State::IndentlessItem, What::Sequence { about }, None),
            Token::Scalar(..) => return self.scalar(about, start),
            Token::FlowSequenceStart => {
                (State::FlowItem { first: true }, What::Sequence { about }, Some(true))
            }
            Token::FlowMappingStart => {
                (State::FlowKey { first: true }, What::Mapping { about, flow: true }, Some(true))
            }
            Token::BlockSequenceStart if block => {
                (State::BlockItem { first: true }, What::Sequence { about }, Some(false))
            }
            Token::BlockMappingStart if block => {
                (State::BlockKey { first: true }, What::Mapping { about, flow: false }, Some(false))
            }
            _ if about != About::default() => {
                self.pop();
                let what = What::Scalar { text: String::new(), style: Style::Plain, about };
                return Ok(Event::new(what, start));
            }
            _ => return Self::error(mark, "expected a value"),
        };
        self.state = state;
        let comments = match own_comments {
            // What is in brackets has its comments before it; what begins with its first item has those only that stood
            // before the dash that it is behind.
            Some(true) => self.take_comments(),
            Some(false) => Comments { head: self.stem.take().unwrap_or_default(), ..Comments::default() },
            None => Comments::default(),
        };
        Ok(Event::new(what, start).with(comments))
    }

    fn scalar(&mut self, about: About, start: Mark) -> Next {
        self.pop();
        let comments = self.take_comments();
        match self.take()?.token {
            Token::Scalar(text, style) => {
                Ok(Event::new(What::Scalar { text, style, about }, start).with(comments))
            }
            _ => Ok(empty(start)),
        }
    }

    /// Anchor and tag of a value, in any order.
    fn about(&mut self) -> Result<About, Problem> {
        let mut about = About::default();
        loop {
            match self.peek()?.0 {
                Token::Anchor(name) if about.anchor.is_none() => about.anchor = Some(name.clone()),
                Token::Tag { .. } if about.tag.is_none() => {}
                _ => return Ok(about),
            }
            let Lexeme { token, start } = self.take()?;
            if let Token::Tag { handle, suffix } = token {
                about.tag = Some(match self.tags.iter().find(|(known, _)| *known == handle) {
                    _ if handle.is_empty() => suffix,
                    Some((_, prefix)) => format!("{prefix}{suffix}"),
                    None => return Self::error(start, "undefined tag handle"),
                });
            }
        }
    }

    /// A value, or nothing where one of these tokens follows.
    fn node_or_empty(
        &mut self,
        next: State,
        block: bool,
        mark: Option<Mark>,
        ends: impl Fn(&Token) -> bool,
    ) -> Next {
        let (token, start) = self.peek()?;
        if ends(token) {
            self.state = next;
            return Ok(empty(mark.unwrap_or(start)));
        }
        self.states.push(next);
        self.node(block, matches!(next, State::BlockKey { .. } | State::BlockValue))
    }

    fn block_item(&mut self, first: bool) -> Next {
        if first {
            self.take()?;
        }
        let next = State::BlockItem { first: false };
        if let Some(mark) = self.dash()? {
            return self.node_or_empty(next, true, Some(mark), |token| {
                matches!(token, Token::BlockEntry | Token::BlockEnd)
            });
        }
        if let Some(mark) = self.takes(&Token::BlockEnd)? {
            self.pop();
            return Ok(Event::new(What::SequenceEnd, mark));
        }
        Self::error(self.peek()?.1, "expected '-'")
    }

    fn indentless_item(&mut self) -> Next {
        if let Some(mark) = self.dash()? {
            return self.node_or_empty(State::IndentlessItem, true, Some(mark), |token| {
                matches!(token, Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        let (_, mark) = self.peek()?;
        self.pop();
        Ok(Event::new(What::SequenceEnd, mark))
    }

    /// Takes a dash, and sets aside what stood before it where a list or map begins behind it.
    fn dash(&mut self) -> Result<Option<Mark>, Problem> {
        if self.peek()?.0 != &Token::BlockEntry {
            return Ok(None);
        }
        let before = self.comments.head.len();
        let mark = self.take()?.start;
        if before > 0 && matches!(self.peek()?.0, Token::BlockSequenceStart | Token::BlockMappingStart) {
            let rest = self.comments.head.split_off(before);
            let stem =
                std::mem::replace(&mut self.comments.head, rest.get(1..).unwrap_or_default().to_owned());
            self.stem = Some(stem);
        }
        Ok(Some(mark))
    }

    fn block_key(&mut self, first: bool) -> Next {
        if first {
            self.take()?;
        }
        if let Some(mark) = self.takes(&Token::Key)? {
            return self.node_or_empty(State::BlockValue, true, Some(mark), |token| {
                matches!(token, Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        let (token, mark) = self.peek()?;
        if *token == Token::BlockEnd {
            self.pop();
            let comments = self.take_comments();
            self.take()?;
            return Ok(Event::new(What::MappingEnd, mark).with(comments));
        }
        Self::error(mark, "expected a key")
    }

    fn block_value(&mut self) -> Next {
        let next = State::BlockKey { first: false };
        if let Some(mark) = self.takes(&Token::Value)? {
            return self.node_or_empty(next, true, Some(mark), |token| {
                matches!(token, Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        let (_, mark) = self.peek()?;
        self.state = next;
        Ok(empty(mark))
    }
}

/// Nothing, where a value may stand.
fn empty(mark: Mark) -> Event {
    let what = What::Scalar { text: String::new(), style: Style::Plain, about: About::default() };
    Event::new(what, mark)
}
