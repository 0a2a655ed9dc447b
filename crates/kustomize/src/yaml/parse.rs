//! From tokens to events: the grammar of libyaml.

use std::borrow::Cow;

use super::read::ReadError;
use super::scan::{Mark, ScalarStyle, Scanner, Token};

/// What a text is made of, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event<'t> {
    /// A document begins, with `---` or without.
    DocumentStart {
        explicit: bool,
    },
    DocumentEnd,
    /// A list begins; `flow` is one in brackets.
    Sequence {
        about: About<'t>,
        flow: bool,
    },
    Mapping {
        about: About<'t>,
        flow: bool,
    },
    SequenceEnd,
    MappingEnd,
    Scalar {
        text: Cow<'t, str>,
        style: ScalarStyle,
        about: About<'t>,
    },
    Alias(&'t str),
    End,
}

/// What stands before a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct About<'t> {
    pub(super) anchor: Option<&'t str>,
    pub(super) tag: Option<String>,
}

impl About<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.anchor.is_none() && self.tag.is_none()
    }
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) start: Mark,
    pub(super) end: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
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

pub(super) struct Parser<'t> {
    scanner: Scanner<'t>,
    state: State,
    /// What comes after the value that is read.
    states: Vec<State>,
    /// Handles of tags with what they stand for.
    tags: Vec<(&'t str, String)>,
}

impl<'t> Parser<'t> {
    /// Reads a text in which lists and mappings nest no deeper than this.
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        Self {
            scanner: Scanner::new(text, depth),
            state: State::Document { implicit: true },
            states: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// Is what ends here a block that keeps empty lines at its end, with nothing but comments after it in the document?
    pub(super) fn is_before_comments(&self, span: Span) -> bool {
        self.scanner.before_comments() == Some(span.end.index)
    }

    /// The next event; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, ReadError> {
        match self.state {
            State::End => return Ok(None),
            State::Document { implicit } => self.document(implicit),
            State::DocumentContent => match self.peek()? {
                (
                    Token::Version(..)
                    | Token::TagDirective { .. }
                    | Token::DocumentStart
                    | Token::DocumentEnd
                    | Token::StreamEnd,
                    span,
                ) => {
                    self.pop();
                    Ok((empty(), at(span.start)))
                }
                _ => self.node(true, false),
            },
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
                let (_, span) = self.peek()?;
                self.state = State::FlowItem { first: false };
                Ok((Event::MappingEnd, at(span.start)))
            }
            State::FlowKey { first } => self.flow_key(first),
            State::FlowValue { empty } => self.flow_value(empty),
        }
        .map(Some)
    }

    fn peek(&mut self) -> Result<(&Token<'t>, Span), ReadError> {
        let lexeme = self.scanner.peek()?;
        Ok((&lexeme.token, Span { start: lexeme.start, end: lexeme.end }))
    }

    fn take(&mut self) -> Result<(Token<'t>, Span), ReadError> {
        let lexeme = self.scanner.take()?;
        Ok((lexeme.token, Span { start: lexeme.start, end: lexeme.end }))
    }

    /// Takes the next token, if it is this one.
    fn takes(&mut self, wanted: &Token<'t>) -> Result<Option<Span>, ReadError> {
        if self.peek()?.0 != wanted {
            return Ok(None);
        }
        self.take().map(|(_, span)| Some(span))
    }

    fn pop(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn document(&mut self, implicit: bool) -> Result<(Event<'t>, Span), ReadError> {
        if !implicit {
            while self.takes(&Token::DocumentEnd)?.is_some() {}
        }
        let (token, span) = self.peek()?;
        match token {
            Token::StreamEnd => {
                self.state = State::End;
                Ok((Event::End, span))
            }
            Token::Version(..) | Token::TagDirective { .. } | Token::DocumentStart => {
                self.explicit_document()
            }
            _ if implicit => {
                self.default_tags();
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                Ok((Event::DocumentStart { explicit: false }, span))
            }
            _ => self.explicit_document(),
        }
    }

    fn explicit_document(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        let mut version = false;
        loop {
            let (token, _) = self.peek()?;
            if !matches!(token, Token::Version(..) | Token::TagDirective { .. }) {
                break;
            }
            let (token, span) = self.take()?;
            match token {
                Token::Version(..) if version => return error(span, "found duplicate %YAML directive"),
                Token::Version(1, 1) => version = true,
                Token::Version(..) => return error(span, "found incompatible YAML document"),
                Token::TagDirective { handle, prefix } => {
                    if self.tags.len() >= MAX_DIRECTIVES {
                        return error(span, &format!("more than {MAX_DIRECTIVES} %TAG directives"));
                    }
                    if self.tags.iter().any(|(known, _)| *known == handle) {
                        return error(span, "found duplicate %TAG directive");
                    }
                    self.tags.push((handle, prefix));
                }
                _ => {}
            }
        }
        self.default_tags();
        let (token, span) = self.take()?;
        if token != Token::DocumentStart {
            return error(span, "did not find expected <document start>");
        }
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        Ok((Event::DocumentStart { explicit: true }, span))
    }

    fn default_tags(&mut self) {
        for (handle, prefix) in [("!", "!"), ("!!", CORE)] {
            if !self.tags.iter().any(|(known, _)| *known == handle) {
                self.tags.push((handle, prefix.to_owned()));
            }
        }
    }

    fn document_end(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        let (_, span) = self.peek()?;
        let end = self.takes(&Token::DocumentEnd)?;
        self.tags.clear();
        self.state = State::Document { implicit: false };
        Ok((Event::DocumentEnd, end.unwrap_or(at(span.start))))
    }

    /// A value, with what stands before it.
    fn node(&mut self, block: bool, indentless: bool) -> Result<(Event<'t>, Span), ReadError> {
        let start = self.peek()?.1.start;
        if let (Token::Alias(name), _) = self.peek()? {
            let name = *name;
            self.pop();
            let (_, span) = self.take()?;
            return Ok((Event::Alias(name), span));
        }
        let (about, end) = self.about()?;
        let (token, span) = self.peek()?;
        let whole = Span { start, end: span.end };
        let (state, event) = match token {
            Token::BlockEntry if indentless => {
                (State::IndentlessItem, Event::Sequence { about, flow: false })
            }
            Token::Scalar(..) => {
                self.pop();
                let (Token::Scalar(text, style), _) = self.take()? else { return Ok((empty(), whole)) };
                return Ok((Event::Scalar { text, style, about }, whole));
            }
            Token::FlowSequenceStart => {
                (State::FlowItem { first: true }, Event::Sequence { about, flow: true })
            }
            Token::FlowMappingStart => (State::FlowKey { first: true }, Event::Mapping { about, flow: true }),
            Token::BlockSequenceStart if block => {
                (State::BlockItem { first: true }, Event::Sequence { about, flow: false })
            }
            Token::BlockMappingStart if block => {
                (State::BlockKey { first: true }, Event::Mapping { about, flow: false })
            }
            _ if !about.is_empty() => {
                self.pop();
                let text = Cow::Borrowed("");
                let event = Event::Scalar { text, style: ScalarStyle::Plain, about };
                return Ok((event, Span { start, end }));
            }
            _ => return error(span, "did not find expected node content"),
        };
        self.state = state;
        Ok((event, whole))
    }

    /// Anchor and tag of a value, in any order, and where they end.
    fn about(&mut self) -> Result<(About<'t>, Mark), ReadError> {
        let mut about = About::default();
        let mut end = self.peek()?.1.start;
        loop {
            match self.peek()?.0 {
                Token::Anchor(name) if about.anchor.is_none() => about.anchor = Some(*name),
                Token::Tag { .. } if about.tag.is_none() => {}
                _ => return Ok((about, end)),
            }
            let (token, span) = self.take()?;
            end = span.end;
            if let Token::Tag { handle, suffix } = token {
                about.tag = Some(match self.tags.iter().find(|(known, _)| *known == handle) {
                    _ if handle.is_empty() => suffix,
                    Some((_, prefix)) => format!("{prefix}{suffix}"),
                    None => return error(span, "found undefined tag handle"),
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
        ends: impl Fn(&Token<'_>) -> bool,
    ) -> Result<(Event<'t>, Span), ReadError> {
        let (token, span) = self.peek()?;
        if ends(token) {
            self.state = next;
            return Ok((empty(), at(mark.unwrap_or(span.start))));
        }
        self.states.push(next);
        self.node(block, matches!(next, State::BlockKey { .. } | State::BlockValue))
    }

    fn block_item(&mut self, first: bool) -> Result<(Event<'t>, Span), ReadError> {
        if first {
            self.take()?;
        }
        let next = State::BlockItem { first: false };
        if let Some(span) = self.takes(&Token::BlockEntry)? {
            return self.node_or_empty(next, true, Some(span.end), |token| {
                matches!(token, Token::BlockEntry | Token::BlockEnd)
            });
        }
        if let Some(span) = self.takes(&Token::BlockEnd)? {
            self.pop();
            return Ok((Event::SequenceEnd, span));
        }
        error(self.peek()?.1, "did not find expected '-' indicator")
    }

    fn indentless_item(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        if let Some(span) = self.takes(&Token::BlockEntry)? {
            return self.node_or_empty(State::IndentlessItem, true, Some(span.end), |token| {
                matches!(token, Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        let (_, span) = self.peek()?;
        self.pop();
        Ok((Event::SequenceEnd, at(span.start)))
    }

    fn block_key(&mut self, first: bool) -> Result<(Event<'t>, Span), ReadError> {
        if first {
            self.take()?;
        }
        if let Some(span) = self.takes(&Token::Key)? {
            return self.node_or_empty(State::BlockValue, true, Some(span.end), |token| {
                matches!(token, Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        if let Some(span) = self.takes(&Token::BlockEnd)? {
            self.pop();
            return Ok((Event::MappingEnd, span));
        }
        error(self.peek()?.1, "did not find expected key")
    }

    fn block_value(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        let next = State::BlockKey { first: false };
        if let Some(span) = self.takes(&Token::Value)? {
            return self.node_or_empty(next, true, Some(span.end), |token| {
                matches!(token, Token::Key | Token::Value | Token::BlockEnd)
            });
        }
        let (_, span) = self.peek()?;
        self.state = next;
        Ok((empty(), at(span.start)))
    }

    fn flow_item(&mut self, first: bool) -> Result<(Event<'t>, Span), ReadError> {
        if first {
            self.take()?;
        }
        if let Some(span) = self.takes(&Token::FlowSequenceEnd)? {
            self.pop();
            return Ok((Event::SequenceEnd, span));
        }
        if !first && self.takes(&Token::FlowEntry)?.is_none() {
            return error(self.peek()?.1, "did not find expected ',' or ']'");
        }
        if let Some(span) = self.takes(&Token::Key)? {
            self.state = State::FlowItemKey;
            return Ok((Event::Mapping { about: About::default(), flow: true }, span));
        }
        if let Some(span) = self.takes(&Token::FlowSequenceEnd)? {
            self.pop();
            return Ok((Event::SequenceEnd, span));
        }
        self.states.push(State::FlowItem { first: false });
        self.node(false, false)
    }

    fn flow_item_key(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        let (token, span) = self.peek()?;
        if matches!(token, Token::Value | Token::FlowEntry | Token::FlowSequenceEnd) {
            // libyaml takes this token for the key.
            self.take()?;
            self.state = State::FlowItemValue;
            return Ok((empty(), at(span.end)));
        }
        self.states.push(State::FlowItemValue);
        self.node(false, false)
    }

    fn flow_item_value(&mut self) -> Result<(Event<'t>, Span), ReadError> {
        if self.takes(&Token::Value)?.is_some() {
            return self.node_or_empty(State::FlowItemEnd, false, None, |token| {
                matches!(token, Token::FlowEntry | Token::FlowSequenceEnd)
            });
        }
        let (_, span) = self.peek()?;
        self.state = State::FlowItemEnd;
        Ok((empty(), at(span.start)))
    }

    fn flow_key(&mut self, first: bool) -> Result<(Event<'t>, Span), ReadError> {
        if first {
            self.take()?;
        }
        if let Some(span) = self.takes(&Token::FlowMappingEnd)? {
            self.pop();
            return Ok((Event::MappingEnd, span));
        }
        if !first && self.takes(&Token::FlowEntry)?.is_none() {
            return error(self.peek()?.1, "did not find expected ',' or '}'");
        }
        if self.takes(&Token::Key)?.is_some() {
            let next = State::FlowValue { empty: false };
            return self.node_or_empty(next, false, None, |token| {
                matches!(token, Token::Value | Token::FlowEntry | Token::FlowMappingEnd)
            });
        }
        if let Some(span) = self.takes(&Token::FlowMappingEnd)? {
            self.pop();
            return Ok((Event::MappingEnd, span));
        }
        self.states.push(State::FlowValue { empty: true });
        self.node(false, false)
    }

    fn flow_value(&mut self, nothing: bool) -> Result<(Event<'t>, Span), ReadError> {
        let next = State::FlowKey { first: false };
        if !nothing && self.takes(&Token::Value)?.is_some() {
            return self.node_or_empty(next, false, None, |token| {
                matches!(token, Token::FlowEntry | Token::FlowMappingEnd)
            });
        }
        let (_, span) = self.peek()?;
        self.state = next;
        Ok((empty(), at(span.start)))
    }
}

/// What `!!` stands for.
pub(super) const CORE: &str = "tag:yaml.org,2002:";

/// Nothing, where a value may stand.
fn empty<'t>() -> Event<'t> {
    Event::Scalar { text: Cow::Borrowed(""), style: ScalarStyle::Plain, about: About::default() }
}

fn at(mark: Mark) -> Span {
    Span { start: mark, end: mark }
}

fn error<T>(span: Span, message: &str) -> Result<T, ReadError> {
    Err(ReadError { line: span.start.line + 1, message: message.to_owned() })
}
